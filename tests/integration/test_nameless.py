"""What has no GTID, or that of something else, in the log of a MySQL that has GTIDs, is told of.

The server begins to send at the newest file before which it executed nothing that the mirror lacks.
Files in which all transactions are without a GTID lie before that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from capture_kit import Capturer, close_streams, server_rows, source_of

from lab.servers import Server, replicate_from, wait_for_replica
from ratchet.core.errors import SourceUnfitError
from ratchet.core.position import Position
from ratchet.ingest.binlog.history import check_position, with_witness
from ratchet.wire.session import Session

MakeServer = Callable[..., Server]
PERMISSIVE = (
    "SET GLOBAL gtid_mode = ON_PERMISSIVE",
    "SET gtid_next = 'ANONYMOUS'",
    "INSERT INTO t VALUES (60)",
    "SET gtid_next = 'AUTOMATIC'",
    "SET GLOBAL gtid_mode = ON",
)
OFF = (
    "SET GLOBAL gtid_mode = ON_PERMISSIVE",
    "SET GLOBAL gtid_mode = OFF_PERMISSIVE",
    "INSERT INTO t VALUES (60)",
    "SET GLOBAL gtid_mode = OFF",
    "INSERT INTO t VALUES (61)",
    "SET GLOBAL gtid_mode = OFF_PERMISSIVE",
    "SET GLOBAL gtid_mode = ON_PERMISSIVE",
    "SET GLOBAL gtid_mode = ON",
)
ways = pytest.mark.parametrize("statements", [PERMISSIVE, OFF], ids=["permissive", "off"])


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


def started(make_server: MakeServer) -> Server:
    """A server of the test's own, which switches from one mode to the other, with `d`.`t`."""
    server = make_server("mysql")
    run(server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    return server


def run(server: Server, *statements: str) -> None:
    """Statements of one session."""
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for one in statements:
            cursor.execute(one.replace("INTO t", "INTO d.t"))


def elsewhere(position: Position) -> Position:
    """The same, as if it had been reached on another server."""
    return replace(position, server="", file="", offset=0)


def refused(capture: Capturer, start: Position) -> None:
    """A stream from there on ends, with a remedy that names the shard."""
    close_streams()
    error = capture.fail(start=start)
    assert isinstance(error, SourceUnfitError), error
    assert "has no GTID" in error.message
    assert "heal CONFIG --shard 'shop/-' --dump" in error.hint


@ways
@pytest.mark.parametrize("later", [0, 1, 3], ids=["", "and a flush", "and changes, and flushes"])
def test_written_while_nobody_follows(
    make_server: MakeServer, tmp_path: Path, statements: tuple[str, ...], later: int
) -> None:
    server = started(make_server)
    capture = Capturer(source_of(server, "d"), tmp_path)
    refused_at = [capture.position]
    run(server, "INSERT INTO t VALUES (1)")
    capture.catch_up()
    refused_at.append(capture.position)
    run(server, *statements)
    if later > 1:
        run(server, "INSERT INTO t VALUES (70)")
    run(server, *["FLUSH BINARY LOGS"] * later)
    for position in refused_at:
        refused(capture, position)
        refused(capture, elsewhere(position))
    # What a new dump begins with contains them, and its last transaction is found before them.
    again = Capturer(source_of(server, "d"), tmp_path / "again")
    with Session.connect(again.source) as session:
        again.begin = with_witness(session, again.begin)
        assert again.begin.last is not None
        check_position(session, again.begin)
    again.take()
    close_streams()
    again.take(start=replace(again.position, offset=again.position.offset + 1))
    run(server, "INSERT INTO t VALUES (80)")
    again.catch_up()
    assert len(again.changes("t")) == 1


@ways
def test_written_while_a_stream_is_open(
    make_server: MakeServer, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    server = started(make_server)
    capture = Capturer(source_of(server, "d"), tmp_path)
    capture.take()
    run(server, "INSERT INTO t VALUES (1)")
    capture.catch_up()
    run(server, *statements)
    error = capture.fail()
    assert "has no GTID" in error.message


def test_written_before_a_failover(make_server: MakeServer, tmp_path: Path) -> None:
    """A replica's log has them too, in files of its own."""
    primary, replica = started(make_server), make_server("mysql")
    replicate_from(replica, primary)
    capture = Capturer(source_of(primary, "d"), tmp_path)
    run(primary, "INSERT INTO t VALUES (1)")
    capture.catch_up()
    wait_for_replica(replica, primary)
    for one in (primary, replica):
        run(one, "FLUSH BINARY LOGS", "SET GLOBAL gtid_mode = ON_PERMISSIVE")
    # AUTO_POSITION does not take transactions without a GTID, so it is told what came.
    run(replica, *PERMISSIVE)
    refusing = replace(capture.source, port=replica.port)
    error = capture.fail(source=refusing)
    assert "has no GTID" in error.message


@pytest.mark.parametrize("flushes", [0, 1, 5])
def test_files_with_nothing_stop_nobody(
    make_server: MakeServer, tmp_path: Path, flushes: int
) -> None:
    server = started(make_server)
    capture = Capturer(source_of(server, "d"), tmp_path)
    for start in (lambda at: at, elsewhere, lambda at: replace(at, offset=at.offset + 1)):
        for writes in ((), ("INSERT INTO t SELECT COALESCE(MAX(id), 0) + 1 FROM d.t AS o",)):
            run(server, *["FLUSH BINARY LOGS"] * flushes)
            close_streams()
            position = capture.position
            outcome = capture.take(start=start(position))
            assert outcome.caught_up
            run(server, *writes)
            capture.catch_up()
    assert capture.final("t") == server_rows(server, "d", "t")


SHOWN = (
    "SET binlog_format = 'STATEMENT'",
    "DO d.g(1)",
    "SHOW TABLES FROM d WHERE Tables_in_d = 'm' AND d.g(2)",
)
PURGED = ("PREPARE s FROM 'DO d.f(1)'", "PURGE BINARY LOGS BEFORE d.f(1)")


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("statements", [SHOWN, PURGED], ids=["without a name", "one for two"])
def test_functions_called_where_the_server_expects_none(
    make_server: MakeServer, tmp_path: Path, statements: tuple[str, ...], slices: int
) -> None:
    """The server gives what such a function changes no GTID, or the one that it gave before."""
    server = started(make_server)
    body = "RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO d.{} VALUES (x); {} RETURN 1; END"
    run(
        server,
        "SET GLOBAL log_bin_trust_function_creators = 1",
        "CREATE TABLE d.m (id INT PRIMARY KEY) ENGINE = MyISAM",
        f"CREATE FUNCTION d.f (x INT) {body.format('m', 'INSERT INTO d.t VALUES (x);')}",
        f"CREATE FUNCTION d.g (x INT) {body.format('t', '')}",
    )
    capture = Capturer(source_of(server, "d"), tmp_path)
    run(server, "INSERT INTO t VALUES (70)")
    capture.catch_up()
    run(server, *statements)
    if slices > 1:
        capture.catch_up()
    run(server, "INSERT INTO t VALUES (80)")
    capture.catch_up()
    # Whatever a dump contains: the GTID that it goes by is another transaction's.
    effect = "restored" if statements == PURGED else "untold"
    assert "t" in {event.table for event in capture.events() if event.effect == effect}
