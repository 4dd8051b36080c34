"""Capture on real servers: what was done there is what the change log says, in its order."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from capture_kit import QUICK, Capturer, close_streams, server_rows, source_of

from lab.servers import Server
from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.patterns import TablePatterns
from ratchet.ingest.slices import SliceLimits
from ratchet.wire.session import Session

MakeServer = Callable[..., Server]
Make = Callable[..., Capturer]


@pytest.fixture
def capturer(server: Server, database: str, tmp_path: Path) -> Iterator[Make]:
    """Makes a Capturer of the test's database that begins now."""

    def make(**request: Any) -> Capturer:
        return Capturer(source_of(server, database), tmp_path, **request)

    yield make
    close_streams()


def run(server: Server, database: str, *statements: str) -> None:
    """Run statements on one connection."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_every_operation(server: Server, database: str, capturer: Make) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), d DATE)", database=database)
    capture = capturer()
    run(
        server,
        database,
        "INSERT INTO t VALUES (1, 'a', '2024-02-29'), (2, NULL, NULL), (3, 'ü', '1999-01-01')",
        "UPDATE t SET v = 'b' WHERE id = 1",
        "UPDATE t SET id = 20, v = 'moved' WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
        "REPLACE INTO t VALUES (1, 'c', NULL)",
        "INSERT INTO t VALUES (1, 'x', NULL) ON DUPLICATE KEY UPDATE v = 'd'",
    )
    capture.catch_up()
    changes = capture.changes("t")
    ops = [change["op"] for change in changes]
    assert ops[:6] == [INSERT, INSERT, INSERT, UPDATE, UPDATE, DELETE]
    moved = changes[4]
    assert (moved["before"]["id"], moved["after"]["id"]) == (2, 20)
    assert capture.final("t") == server_rows(server, database, "t")
    assert {change["token"]["shard"] for change in changes} == {"shop/-"}


def test_a_transaction_over_several_tables_has_one_token(
    server: Server, database: str, capturer: Make
) -> None:
    for table in ("a", "b", "c"):
        server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)", database=database)
    capture = capturer()
    run(
        server,
        database,
        "BEGIN",
        "INSERT INTO a VALUES (1, 1), (2, 2)",
        "INSERT INTO b VALUES (1, 1)",
        "UPDATE a SET n = 5 WHERE id = 1",
        "INSERT INTO c VALUES (7, 7)",
        "COMMIT",
    )
    capture.catch_up()
    changes = [c for table in ("a", "b", "c") for c in capture.changes(table)]
    assert len({(c["token"]["gtid"], c["token"]["seq"], c["token"]["ts"]) for c in changes}) == 1
    assert sorted(c["token"]["idx"] for c in changes) == [0, 1, 2, 3, 4]
    assert [c["token"]["idx"] for c in capture.changes("a")] == [0, 1, 3]
    (one,) = capture.log.since(0)
    assert [s.transactions for s in one.slices] == [1]


def test_many_tables_side_by_side(server: Server, database: str, capturer: Make) -> None:
    names = [f"t{n}" for n in range(40)]
    for name in names:
        server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT)", database=database)
    capture = capturer()
    run(server, database, *(f"INSERT INTO {t} VALUES ({n}, {n})" for n in range(5) for t in names))
    run(server, database, *(f"UPDATE {t} SET n = n + 1 WHERE id > 2" for t in names))
    capture.catch_up()
    for name in names:
        assert capture.final(name) == server_rows(server, database, name)


def test_commit_order_decides_not_the_statements_time(
    server: Server, database: str, capturer: Make
) -> None:
    """A transaction that waited for a lock is later in the log, with an earlier statement time."""
    run(
        server, database, "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,0)"
    )
    capture = capturer()
    with server.connect(database=database) as first, first.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE t SET v = 1 WHERE id = 1")
        waiting = threading.Thread(
            target=run, args=(server, database, "UPDATE t SET v = 2 WHERE id = 1")
        )
        waiting.start()
        time.sleep(1.1)  # the binlog's clock has seconds: the waiter's statement begins in another
        cursor.execute("COMMIT")
        waiting.join()
    capture.catch_up()
    one, two = capture.changes("t")
    assert [c["after"]["v"] for c in (one, two)] == [1, 2]
    assert one["token"]["seq"] < two["token"]["seq"]
    if server.flavor == "mysql":  # MySQL logs commit times besides
        assert one["token"]["ts"] <= two["token"]["ts"]
    assert capture.final("t")[1]["v"] == 2


def test_other_tables_and_databases_move_the_position_only(
    server: Server, database: str, capturer: Make
) -> None:
    other = f"{database}_other"
    run(server, database, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE tmp_x (id INT)")
    server.execute(f"CREATE DATABASE {other}")
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=other)
    capture = capturer(patterns=TablePatterns(("*", "!tmp_*")))
    before = capture.position.seq
    run(server, other, "INSERT INTO t VALUES (1)", "DROP TABLE t")
    run(server, database, "INSERT INTO tmp_x VALUES (1)")
    server.execute(f"DROP DATABASE {other}")
    capture.catch_up()
    assert capture.position.seq == before + 4
    assert all(not one.files and not one.events for one in capture.log.since(0))
    with Session.connect(capture.source) as session:
        assert capture.position.executed == session.head().executed


def test_ddl_and_truncate_become_table_events(
    server: Server, database: str, capturer: Make
) -> None:
    run(server, database, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    capture = capturer(known=("t",))
    run(
        server,
        database,
        "INSERT INTO t VALUES (2)",
        "ALTER TABLE t ADD COLUMN v VARCHAR(10) DEFAULT 'd'",
        "INSERT INTO t (id) VALUES (3)",
        "CREATE TABLE u LIKE t",
        "RENAME TABLE t TO t_old, u TO t",
        "INSERT INTO t VALUES (9, 'new')",
        "TRUNCATE TABLE t",
        "INSERT INTO t VALUES (10, 'last')",
        "DROP TABLE t_old",
        "CREATE INDEX i ON t (v)",
        "ANALYZE TABLE t",
    )
    capture.catch_up()
    events = [(event.table, event.kind) for event in capture.events()]
    assert ("t", "truncate") in events
    assert events.count(("t", "truncate")) == 1
    assert {("t", "ddl"), ("u", "ddl"), ("t_old", "ddl")} <= set(events)
    truncate = next(event for event in capture.events() if event.kind == "truncate")
    after = [c["after"] for c in capture.changes("t") if c["token"]["seq"] > truncate.seq]
    assert after == [{"id": 10, "v": "last"}]
    shapes = [list(c["after"]) for c in capture.changes("t")]
    assert shapes == [["id"], ["id", "v"], ["id", "v"], ["id", "v"]]


def test_a_table_made_from_a_query(server: Server, database: str, capturer: Make) -> None:
    run(server, database, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    capture = capturer()
    run(server, database, "CREATE TABLE copy AS SELECT id, id * 2 AS n FROM t")
    capture.catch_up()
    assert capture.final("copy") == server_rows(server, database, "copy")
    assert [event.table for event in capture.events()] == ["copy"]


def test_savepoints_and_rollbacks(server: Server, database: str, capturer: Make) -> None:
    run(server, database, "CREATE TABLE t (id INT PRIMARY KEY)")
    capture = capturer()
    run(
        server, database,
        "BEGIN", "INSERT INTO t VALUES (1)", "SAVEPOINT a", "INSERT INTO t VALUES (2)",
        "ROLLBACK TO a", "INSERT INTO t VALUES (3)", "COMMIT",
        "BEGIN", "INSERT INTO t VALUES (4)", "ROLLBACK",
        "XA START 'x'", "INSERT INTO t VALUES (5)", "XA END 'x'", "XA COMMIT 'x' ONE PHASE",
    )  # fmt: skip
    capture.catch_up()
    assert set(capture.final("t")) == {1, 3, 5}
    assert capture.final("t") == server_rows(server, database, "t")


def test_a_table_without_transactions(server: Server, database: str, capturer: Make) -> None:
    run(server, database, "CREATE TABLE t (id INT PRIMARY KEY) ENGINE=MyISAM")
    capture = capturer()
    run(server, database, "INSERT INTO t VALUES (1), (2)", "DELETE FROM t WHERE id = 1")
    capture.catch_up()
    assert capture.final("t") == server_rows(server, database, "t")


def test_a_big_transaction_is_one_slice_and_bounded(
    server: Server, database: str, capturer: Make
) -> None:
    run(server, database, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    digits = "(SELECT 0 d " + " ".join(f"UNION ALL SELECT {n}" for n in range(1, 10)) + ")"
    number = " + ".join(f"t{n}.d * {10**n}" for n in range(6))
    tables = ", ".join(f"{digits} t{n}" for n in range(6))
    where = "t5.d < 2"
    text = "REPEAT('abcdefghij', 15)"
    capture = capturer(limits=SliceLimits(max_bytes=1 << 20, max_seconds=60, min_seconds=0))
    run(
        server, database,
        f"INSERT INTO t SELECT {number} AS n, {text} FROM {tables} WHERE {where}",
        "INSERT INTO t VALUES (-1, 'behind')",
    )  # fmt: skip
    first = capture.take().committed
    assert first is not None
    (file,) = first.files
    assert file.rows == 200_000
    assert first.slices[0].transactions == 1
    assert first.slices[0].bytes > 30 << 20
    assert not first.slices[0].caught_up
    capture.catch_up()
    changes = capture.changes("t")
    assert [c["token"]["idx"] for c in changes] == [*range(200_000), 0]
    assert {c["after"]["id"] for c in changes} == {-1, *range(200_000)}


def test_slices_end_at_their_limits(server: Server, database: str, capturer: Make) -> None:
    run(server, database, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(500))")
    capture = capturer(limits=SliceLimits(max_bytes=2000, max_seconds=20, min_seconds=0))
    run(server, database, *(f"INSERT INTO t VALUES ({n}, REPEAT('x', 400))" for n in range(30)))
    rounds = capture.catch_up()
    assert len(rounds) > 5
    assert sum(one.slices[0].transactions for one in rounds) == 30
    for before, after in itertools.pairwise(rounds):
        assert before.slices[0].end.executed == after.slices[0].start.executed
        assert before.slices[0].runs[-1].last + 1 == after.slices[0].runs[0].first
    assert capture.final("t") == server_rows(server, database, "t")


def test_a_slice_stops_at_what_the_caller_waits_for(
    server: Server, database: str, capturer: Make
) -> None:
    run(server, database, "CREATE TABLE t (id INT PRIMARY KEY)")
    capture = capturer()
    run(server, database, "INSERT INTO t VALUES (1)")
    with Session.connect(capture.source) as session:
        goal = session.head().executed
    patient = SliceLimits(max_seconds=60, min_seconds=60, stop_at=goal)
    began = time.monotonic()
    assert capture.take(limits=patient).committed is not None
    assert time.monotonic() - began < 30
    assert capture.position.executed.contains_all(goal)


@pytest.mark.usefixtures("server", "database")
def test_an_idle_slice_ends_and_is_caught_up(capturer: Make) -> None:
    capture = capturer(limits=SliceLimits(max_seconds=20, min_seconds=0.1))
    outcome = capture.take()
    assert outcome.committed is None
    assert list(outcome.caught_up) == ["shop/-"]


def test_a_file_that_ends_midway(server: Server, database: str, capturer: Make) -> None:
    run(server, database, "CREATE TABLE t (id INT PRIMARY KEY)")
    capture = capturer(limits=QUICK)
    for n in range(4):
        run(server, database, f"INSERT INTO t VALUES ({n})", "FLUSH BINARY LOGS")
        if n == 1:
            capture.catch_up()
    run(server, database, "INSERT INTO t VALUES (99)")
    capture.catch_up()
    assert capture.final("t") == server_rows(server, database, "t")
    # MariaDB writes a checkpoint behind the transactions of a new file, in its own time.
    deadline = time.monotonic() + 30
    with Session.connect(capture.source) as session:
        while (capture.position.file, capture.position.offset) != session.binlog_end():
            assert time.monotonic() < deadline, (capture.position, session.binlog_end())
            capture.take()
