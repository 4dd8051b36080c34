"""kill -9 while a run verifies: what it had found and not done is found again by the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, status
from lease_kit import held

from lab.servers import create_ratchet_user
from ratchet.store.comparisons import Comparisons
from ratchet.store.files import Lake
from ratchet.store.passes import Passes
from ratchet.store.stops import Doubt
from ratchet.store.tables import Tables

KILLED = -9


@pytest.mark.long
def test_a_killed_run_decides_again(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """A table in doubt that differs, and a pass in the background, both killed on the way."""
    for table in ("doubtful", "due"):
        server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database=database)
        rows = ",".join(f"({n}, {n})" for n in range(1000))
        server.execute(f"INSERT INTO {table} VALUES {rows}", database=database)
    create_ratchet_user(server, PASSWORD, [database])
    ratchet = make_ratchet(
        {"-": server}, database, snapshot={"chunk_rows": 100}, verify={"load": "100%"}
    )
    ratchet.run("run", "--until-caught-up")
    lake = Lake.at(str(ratchet.lake))
    tables, passes = Tables(lake), Passes(lake)
    state = tables.load("shop", "doubtful")
    assert state is not None
    doubt = Doubt(message="why", statement="ALTER TABLE doubtful ...", round=state.merged_round)
    Tables(held(lake)).save(replace(state, doubts={"shop/-": doubt}))
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        cursor.execute("DELETE FROM doubtful WHERE id = 7")
    assert "doubtful" in ratchet.run("status").stdout

    ratchet.run("run", "--until-caught-up", crash_at="verify.before_verdict", expect=KILLED)
    assert tables.load("shop", "doubtful") == replace(state, doubts={"shop/-": doubt})
    said = ratchet.run("run", "--until-caught-up").stderr
    assert "1 row (1 extra): extra: id=7" in said
    assert "shop.doubtful: 1 row corrected" in said
    (mended,) = [one for one in status(ratchet)["tables"] if one["table"] == "doubtful"]
    assert mended["phase"] == "streaming"
    assert "identical" in ratchet.run("verify", "--table", "shop.doubtful").stdout

    Passes(held(lake)).save_schedule({"shop.due": 1, "shop.doubtful": 2**60})
    ratchet.run("run", "--until-caught-up", crash_at="verify.before_progress:4", expect=KILLED)
    begun = passes.last()
    assert begun is not None
    assert 0 < begun.rows < 1000
    ratchet.run("run", "--until-caught-up")
    assert passes.last() is None
    done = Comparisons(lake).last("shop", "due")
    assert done is not None
    assert (done.rows, done.differences, done.since) == (1000, 0, begun.since)
    (table,) = [one for one in status(ratchet)["tables"] if one["table"] == "due"]
    assert table["compared"]["rows"] == 1000
    assert "1,000 rows, 0 differences" in ratchet.run("status").stdout
