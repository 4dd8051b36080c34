"""Tables whose rows the mirror cannot take stop; the others of the stream go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture_kit import Capturer, close_streams, run, server_rows, source_of, started

from lab.servers import Server
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.logstretch import check_stretch, stretches


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_the_others_go_on(make_server: Callable[..., Server], flavor: str, tmp_path: Path) -> None:
    server = started(make_server, flavor)
    run(
        server,
        "CREATE TABLE ours (id INT PRIMARY KEY, `_TOKEN` INT)",
        "CREATE TABLE dated (day DATE PRIMARY KEY, n INT)",
        "CREATE TABLE strict (id INT PRIMARY KEY, day DATE)",
    )
    capture = Capturer(
        source_of(server, "d"), tmp_path, policy=InvalidValuePolicy(zero_dates="fail")
    )
    run(
        server,
        "SET sql_mode = ''",
        "INSERT INTO t (v, n) VALUES ('a', 1)",
        "INSERT INTO ours VALUES (1, 1)",
        "INSERT INTO dated VALUES ('2024-01-01', 1)",
        "BEGIN",
        "INSERT INTO t (v, n) VALUES ('b', 2)",
        "INSERT INTO dated VALUES ('0000-00-00', 2)",
        "INSERT INTO strict VALUES (1, '2024-00-00')",
        "INSERT INTO t (v, n) VALUES ('c', 3)",
        "COMMIT",
        "UPDATE t SET n = n + 1",
    )
    capture.catch_up()
    assert capture.final("t") == server_rows(server, "d", "t")
    told = {one.table: one.statement for one in capture.events() if one.kind == "unreadable"}
    assert set(told) == {"ours", "dated", "strict"}
    assert "Ratchet's own column" in told["ours"]
    assert "part of the key" in told["dated"]
    assert "zero or invalid dates" in told["strict"]
    assert not capture.changes("ours")


def test_columns_that_a_mariadb_leaves_out(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    """A statement that it logs as rows although the session's format is MIXED: a doubt."""
    server = started(make_server, "mariadb")
    run(server, "ALTER TABLE t ADD UNIQUE (n)", "INSERT INTO t VALUES (7, 'held', 7)")
    capture = Capturer(source_of(server, "d"), tmp_path)
    run(
        server,
        "INSERT INTO t VALUES (2, 'b', 2)",
        "SET binlog_format = 'MIXED'",
        "BEGIN",
        "INSERT INTO t (id, n) VALUES (1, 1) ON DUPLICATE KEY UPDATE n = 5",
        "INSERT INTO t (id, n) VALUES (2, 8) ON DUPLICATE KEY UPDATE n = 9",
        "INSERT INTO t VALUES (3, 'c', 3) ON DUPLICATE KEY UPDATE n = 9",
        "COMMIT",
        "INSERT INTO t (id, n) VALUES (7, 8), (6, 6) ON DUPLICATE KEY UPDATE n = 10",
        "SET binlog_format = 'ROW'",
        "UPDATE t SET v = 'x' WHERE id = 1",
        "DELETE FROM t WHERE id = 6",
    )
    capture.catch_up()
    events = capture.events()
    assert {(one.table, one.kind, one.effect) for one in events} == {("t", "ddl", "untold")}
    assert len(events) == 2
    assert all("lack columns" in one.reason for one in events)
    there = server_rows(server, "d", "t")
    assert there[1] == {"id": 1, "v": "x", "n": 1}
    # What is right without a comparison: all that other events have told.
    assert capture.final("t") == {1: there[1], 2: {"id": 2, "v": "b", "n": 2}, 3: there[3]}
    (stretch,) = stretches(capture.log.since(0), "shop/-")
    result, _ = check_stretch(capture.lake, capture.source, stretch, policy=InvalidValuePolicy())
    assert result.differences == 0
    assert result.rows == 3
    # As binlog_row_image=MINIMAL leaves them out: the table stops.
    run(server, "SET binlog_row_image = 'MINIMAL'", "UPDATE t SET n = 30 WHERE id = 3")
    capture.catch_up()
    assert [one.kind for one in capture.events()[2:]] == ["unreadable"]
