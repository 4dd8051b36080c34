"""The floor experiment, end to end: rows updated once each while their table is dumped.

facts.md's danger: a floor that claims more than the read shows throws events away for good, and
the row stays stale. Eight writers update each of 300,000 rows exactly once during the dump; a
stale row would show its old value at the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, mirror_rows

from lab.servers import create_ratchet_user

ROWS, WRITERS, BATCH = 300_000, 8, 25


def _fill(server: Any, database: str) -> None:
    with server.connect(database=database, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT NOT NULL, pad CHAR(20))")
        cursor.execute("CREATE TABLE d (n INT NOT NULL PRIMARY KEY)")
        cursor.execute("INSERT INTO d VALUES " + ",".join(f"({n})" for n in range(1000)))
        for start in range(0, ROWS, 100_000):
            cursor.execute(
                "INSERT INTO t SELECT %s + a.n * 1000 + b.n, 0, '' FROM d a, d b WHERE a.n < 100",
                (start,),
            )


def _update(server: Any, database: str, part: int, errors: list[BaseException]) -> None:
    try:
        with server.connect(database=database, autocommit=True) as connection:
            cursor = connection.cursor()
            # Small scattered batches, so that all chunks of the dump are hit all the time.
            for start in range(part * BATCH, ROWS, WRITERS * BATCH):
                place = (start * 7919) % ROWS // BATCH * BATCH
                cursor.execute(
                    "UPDATE t SET v = v + 1 WHERE id >= %s AND id < %s", (place, place + BATCH)
                )
    except BaseException as error:  # noqa: BLE001 - handed to the test
        errors.append(error)


def _updated_when_dumped(lake: Path) -> int:
    """How many rows the chunks had read with their update, by the dump's last commit."""
    table = DeltaTable(str(lake / "shop" / "t"))
    dumps = [c["version"] for c in table.history() if c["operation"] == "WRITE"]
    table.load_as_version(max(dumps))
    found = QueryBuilder().register("t", table).execute("SELECT sum(v) AS n FROM t").read_all()
    return int(pa.table(found)["n"][0].as_py())


@pytest.mark.quick_on("mariadb")
def test_no_row_is_stale_after_a_dump_under_eight_writers(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Each row was updated exactly once during the dump, and the mirror has every update."""
    _fill(server, database)
    create_ratchet_user(server, PASSWORD, [database])
    # Slow enough that the writers' work falls into the dump.
    slow = {"chunk_rows": 5_000, "max_rows_per_second": 30_000}
    ratchet = make_ratchet({"-": server}, database, snapshot=slow)
    running = ratchet.start("run", "--until-caught-up")
    commits = ratchet.lake / "shop" / "t" / "_delta_log"
    while running.poll() is None and len(list(commits.glob("*.json"))) < 3:
        time.sleep(0.05)  # until the first chunks are in
    errors: list[BaseException] = []
    writers = [
        threading.Thread(target=_update, args=(server, database, part, errors))
        for part in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    out, err = end_of(running, 300)
    for writer in writers:
        writer.join(120)
    assert not errors
    assert running.returncode == 0, (out, err)
    assert 0 < _updated_when_dumped(ratchet.lake) < ROWS, "the writers' work was beside the dump"
    ratchet.run("run", "--until-caught-up")
    stale = [row["id"] for row in mirror_rows(ratchet.lake, "shop", "t") if row["v"] != 1]
    assert stale == []
    assert_identical(ratchet.lake, [server], database, ["t", "d"])
    ratchet.run("verify")
