"""A table that is dumped again can be read all the time."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, reading, status

from lab.servers import create_ratchet_user

ROWS = 20_000


@pytest.mark.long
def test_all_rows_are_there_at_any_moment(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", database=database)
    server.execute("CREATE TABLE n (n INT PRIMARY KEY)", database=database)
    numbers = ", ".join(f"({n})" for n in range(200))
    server.execute(f"INSERT INTO n VALUES {numbers}", database=database)
    server.execute(
        f"INSERT INTO t SELECT a.n * 200 + b.n, 0 FROM n a JOIN n b WHERE a.n < {ROWS // 200}",
        database=database,
    )
    create_ratchet_user(server, PASSWORD, [database])
    ratchet = make_ratchet({"-": server}, database, source={"tables": ["t"]})
    ratchet.run("run", "--until-caught-up")
    with reading(ratchet, ["t"]) as all_seen:
        seen = all_seen["t"]
        run = ratchet.start("run")
        while not status(ratchet)["run"]:
            time.sleep(0.5)
        changing = threading.Thread(target=change, args=(server, database, 60))
        changing.start()
        before = len(seen)
        ratchet.run("table", "redump", "t", "--wait")
        assert len(seen) > before + 5
        changing.join()
        run.send_signal(signal.SIGTERM)
        end_of(run, 120)
        # Killed where the new rows are about to be shown, and where they just were.
        for point in ("staged.after_copies", "staged.after_commit"):
            ratchet.run("table", "redump", "t")
            change(server, database, 3)
            ratchet.run("run", "--until-caught-up", crash_at=f"{point}:1", expect=-signal.SIGKILL)
            assert str(ROWS) in ratchet.run("sql", "SELECT count(*) AS n FROM shop.t").stdout
            ratchet.run("run", "--until-caught-up")
            assert_identical(ratchet.lake, [server], database, ("t",))
    assert {rows for rows, _ in seen} == {ROWS}
    assert len({version for _, version in seen}) > 3
    assert not list((ratchet.lake / "_ratchet" / "staged").rglob("*.parquet"))


def change(server: Any, database: str, times: int) -> None:
    """Update rows; there are as many before and behind."""
    for turn in range(times):
        server.execute(f"UPDATE t SET v = v + 1 WHERE id % 97 = {turn % 97}", database=database)
        time.sleep(0.1)
