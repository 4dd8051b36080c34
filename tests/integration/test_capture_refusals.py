"""What capture refuses on real servers: by name, with the statement that mends it, every time."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture_kit import Capturer, close_streams, run, source_of, started

from lab.servers import Server
from ratchet.core.errors import DecodeError, PositionLostError, SourceUnfitError
from ratchet.ingest.binlog import feed
from ratchet.ingest.binlog.history import check_position
from ratchet.ingest.slices import SliceLimits
from ratchet.wire.session import Session

MakeServer = Callable[..., Server]
flavors = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
SHORT = SliceLimits(max_seconds=2, min_seconds=0)


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


# What makes the rows of one table unreadable: it stops by name, and no other does.
LEFT_OUT = [
    ("mysql", {}, "SET binlog_row_value_options = 'PARTIAL_JSON'", "partial", "row_value_options"),
    ("mysql", {}, "SET binlog_row_image = 'MINIMAL'", "columns", "binlog_row_image=FULL"),
    ("mariadb", {}, "SET binlog_row_image = 'MINIMAL'", "columns", "binlog_row_image=FULL"),
    ("mysql", {}, "SET binlog_row_image = 'NOBLOB'", "columns", "binlog_row_image=FULL"),
    ("mysql", {"binlog-row-metadata": "MINIMAL"}, "DO 1", "names", "binlog_row_metadata=FULL"),
    ("mariadb", {"binlog-row-metadata": "MINIMAL"}, "DO 1", "names", "binlog_row_metadata=FULL"),
]


def with_json(make_server: MakeServer, flavor: str, options: dict[str, str]) -> Server:
    server = started(make_server, flavor, options=options)
    server.execute("CREATE TABLE j (id INT PRIMARY KEY, doc JSON, x INT, b BLOB)", database="d")
    text = '{"a": "' + "x" * 300 + '", "b": 1}'
    server.execute("INSERT INTO j VALUES (1, %s, 1, 'b')", (text,), database="d")
    return server


@flavors
def test_a_statement_in_place_of_rows_concerns_its_table(
    make_server: MakeServer, tmp_path: Path, flavor: str
) -> None:
    server = with_json(make_server, flavor, {})
    capture = Capturer(source_of(server, "d"), tmp_path, known=("j", "t"))
    run(server, "SET binlog_format = 'STATEMENT'", "UPDATE j SET x = 2 WHERE id = 1")
    run(server, "INSERT INTO t (n) VALUES (1)")
    capture.catch_up()
    told = {(one.table, one.effect, one.statement) for one in capture.events()}
    assert ("j", "untold", "UPDATE j SET x = 2 WHERE id = 1") in told
    assert len(capture.changes("t")) == 1


def test_what_is_rolled_back_beside_a_temporary_or_an_aria_table(
    make_server: MakeServer, tmp_path: Path
) -> None:
    """It is left out, and its table is in doubt; the transactions around it are captured."""
    server = started(make_server, "mariadb")
    server.execute("CREATE TABLE a (id INT PRIMARY KEY) ENGINE=Aria", database="d")
    capture = Capturer(source_of(server, "d"), tmp_path, known=("a", "t"))
    run(server, "BEGIN", "INSERT INTO t (n) VALUES (1)", "CREATE TEMPORARY TABLE tt (a INT)",
        "ROLLBACK")  # fmt: skip
    run(server, "BEGIN", "INSERT INTO t (n) VALUES (2)", "SAVEPOINT x",
        "INSERT INTO t (n) VALUES (3)", "INSERT INTO a VALUES (1)", "ROLLBACK TO x",
        "INSERT INTO t (n) VALUES (4)", "COMMIT")  # fmt: skip
    capture.catch_up()
    assert [change["after"]["n"] for change in capture.changes("t")] == [2, 4]
    assert len(capture.changes("a")) == 1
    told = [(one.table, one.effect) for one in capture.events() if one.effect]
    assert told == [("t", "untold")] * 2


@pytest.mark.parametrize(("flavor", "options", "setting", "message", "hint"), LEFT_OUT)
def test_rows_that_cannot_be_read_stop_their_table(  # noqa: PLR0917 - one column each
    make_server: MakeServer,
    tmp_path: Path,
    flavor: str,
    options: dict[str, str],
    setting: str,
    message: str,
    hint: str,
) -> None:
    server = with_json(make_server, flavor, options)
    capture = Capturer(source_of(server, "d"), tmp_path)
    odd = "UPDATE j SET doc = JSON_SET(doc, '$.b', x + 5), x = x + 1 WHERE id = 1"
    for _ in range(2):  # a stream that is kept, and a table that was dumped again meanwhile
        run(server, setting, odd)
        capture.catch_up()
        server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
        run(server, "INSERT INTO t (n) VALUES (1)")
        capture.catch_up()
        server.execute(f"SET GLOBAL binlog_row_metadata = '{(options and 'MINIMAL') or 'FULL'}'")
    told = [event for event in capture.events() if event.table == "j"]
    assert [event.kind for event in told] == ["unreadable"] * 2
    assert message in told[0].statement
    assert hint in told[0].statement
    assert told[0].seq < told[1].seq
    assert capture.changes("j") == []
    assert len(capture.changes("t")) == 2


@flavors
def test_a_prepared_transaction_comes_with_its_commit(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    """Its row events are left out, as it may never happen; its table is told of at the commit."""
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    for name, end in (("x", "COMMIT"), ("y", "ROLLBACK")):
        run(server, f"XA START '{name}'", "INSERT INTO t (n) VALUES (1)", f"XA END '{name}'",
            f"XA PREPARE '{name}'")  # fmt: skip
        run(server, f"XA {end} '{name}'", "INSERT INTO t (n) VALUES (2)")
    capture.catch_up(limits=SHORT)
    told = [(one.table, one.effect, one.statement) for one in capture.events()]
    assert told == [("t", "prepared", "XA COMMIT")]
    assert [one["after"]["n"] for one in capture.changes("t")] == [2, 2]


# Type, body, error, word of its message: no statement brings these about on request.
PUT = [
    (200, b"of a later version", DecodeError, "does not know"),
]


@pytest.mark.parametrize(("kind", "body", "error", "word"), PUT)
def test_an_odd_event_is_refused(  # noqa: PLR0917 - one column each
    make_server: MakeServer, tmp_path: Path, kind: int, body: bytes, error: type, word: str
) -> None:
    """It is put into the server's file; what every remedy asks first does not stumble over it."""
    server = started(make_server, "mariadb")
    capture = Capturer(source_of(server, "d"), tmp_path)
    run(server, "INSERT INTO t (n) VALUES (1)")
    capture.catch_up()
    assert capture.position.last is not None
    server.stop()
    name = max(server.datadir.glob("bin.[0-9]*"))
    raw = name.read_bytes()
    size = 19 + len(body) + 4
    event = struct.pack("<IBIIIH", 1, kind, 1, size, len(raw) + size, 0) + body
    name.write_bytes(raw + event + struct.pack("<I", zlib.crc32(event)))
    server.start()
    found = capture.fail(limits=SHORT)
    assert isinstance(found, error)
    assert word in found.message
    with Session.connect(capture.source) as session:
        check_position(session, capture.position)


def test_mariadb_numbers_out_of_order_are_refused(make_server: MakeServer, tmp_path: Path) -> None:
    server = started(make_server, "mariadb")
    capture = Capturer(source_of(server, "d"), tmp_path)
    run(server, "SET SESSION gtid_seq_no = 1000", "INSERT INTO t (n) VALUES (1)")
    run(server, "SET SESSION gtid_seq_no = 500", "INSERT INTO t (n) VALUES (2)")
    error = capture.fail(limits=SHORT)
    assert isinstance(error, SourceUnfitError)
    assert "gtid_strict_mode" in error.hint


def test_transactions_that_are_declared_purged_while_they_are_followed(
    make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As what mysqldump writes does, beside rows that it does not log (sql_log_bin=0)."""
    server = started(make_server, "mysql")
    capture = Capturer(source_of(server, "d"), tmp_path, known=("t",))
    run(server, "INSERT INTO t (n) VALUES (1)")
    capture.catch_up()
    monkeypatch.setattr(feed, "_ON_ITS_WAY", 0.5)
    missing = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-10"
    run(
        server,
        "SET sql_log_bin = 0",
        "DELETE FROM t",
        f"SET GLOBAL gtid_purged = '+{missing}'",
    )
    error = capture.fail(limits=SliceLimits(max_seconds=20))
    assert isinstance(error, PositionLostError)
    assert f"purged transactions that the mirror lacks: {missing}" in str(error)
    close_streams()
    assert str(capture.fail()) == str(error)  # as whoever opens the stream again is told
