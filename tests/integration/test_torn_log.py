"""A server whose crash has torn the last file of its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture_kit import Capturer, close_streams, run, server_rows, source_of, started

from lab.servers import Server
from ratchet.core.errors import PositionLostError, RatchetError
from ratchet.ingest.binlog.history import check_position, with_witness
from ratchet.wire.session import Session

WRITE_ROWS, XID = {23, 30}, 16  # event types


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


def tear(server: Server, size: int) -> None:
    """Kill it, and take so many bytes from the end of its log."""
    with Session.connect(source_of(server, "d")) as session:
        name, _ = session.binlog_end()
    server.kill()
    with (server.datadir / name).open("r+b") as file:
        file.truncate(file.seek(0, 2) - size)
    server.start()


# 10 bytes are of a COMMIT, 600 of the rows as well.
@pytest.mark.parametrize("size", [10, 600])
def test_a_mariadb_that_reads_on_in_it_for_ever(
    make_server: Callable[..., Server], tmp_path: Path, size: int
) -> None:
    server = started(make_server, "mariadb")
    capture = Capturer(source_of(server, "d"), tmp_path)
    run(server, "INSERT INTO t (v) VALUES ('captured')")
    capture.catch_up()
    run(server, "INSERT INTO t (v) VALUES (REPEAT('x', 400))")
    tear(server, size)
    run(server, "INSERT INTO t (v) VALUES ('after')")
    with pytest.raises(PositionLostError, match="ends within a transaction") as caught:
        capture.catch_up()
    assert "`ratchet heal CONFIG --shard 'shop/-' --dump`" in caught.value.hint


def test_a_mysql_that_mends_its_log(make_server: Callable[..., Server], tmp_path: Path) -> None:
    """What it has committed and not logged is found by the comparison behind a crash."""
    server = started(make_server, "mysql")
    capture = Capturer(source_of(server, "d"), tmp_path)
    run(server, "INSERT INTO t (v) VALUES ('captured')")
    capture.catch_up()
    close_streams()
    run(server, "INSERT INTO t (v) VALUES (REPEAT('x', 400))")
    tear(server, 10)
    run(server, "INSERT INTO t (v) VALUES ('after')")
    capture.catch_up()
    found, rows = capture.final("t"), server_rows(server, "d", "t")
    assert {row["v"] for row in found.values()} >= {"captured", "after"}
    assert set(found) <= set(rows)


def _events(data: bytes, at: int) -> list[tuple[int, int, int]]:
    """The events of a log file behind a place: where each begins, its type and its length."""
    found = []
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        found.append((at, data[at + 4], size))
        at += size
    return found


def _stretch(file: Path, first: int, *, by: int | None = None) -> None:
    """Let the first rows event behind a place be longer; None: reach to the last XID."""
    events = _events(file.read_bytes(), first)
    begin, size = next((at, size) for at, kind, size in events if kind in WRITE_ROWS)
    end = max(at for at, kind, _ in events if kind == XID) if by is None else begin + size + by
    with file.open("r+b") as opened:
        opened.seek(begin + 9)
        opened.write((end - begin).to_bytes(4, "little") + end.to_bytes(4, "little"))


@pytest.mark.parametrize("more", [0, 5], ids=["at the end", "with more behind it"])
@pytest.mark.parametrize("checksum", ["CRC32", "NONE"])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_what_begins_anew_goes_on_behind_it(
    make_server: Callable[..., Server], tmp_path: Path, flavor: str, checksum: str, more: int
) -> None:
    """As `heal --dump` lets it, behind FLUSH BINARY LOGS, also if nothing was written since."""
    server = started(make_server, flavor, options={"binlog-checksum": checksum})
    source = source_of(server, "d")
    capture = Capturer(source, tmp_path)
    with Session.connect(source) as session:
        name, first = session.binlog_end()
        run(server, "INSERT INTO t (v) VALUES ('torn')")
        _stretch(server.datadir / name, first, by=10)
        run(server, *["INSERT INTO t (v) VALUES ('more')"] * more)
        with pytest.raises(RatchetError):
            capture.catch_up()
        close_streams()
        run(server, "FLUSH BINARY LOGS")
        capture.begin = with_witness(session, session.beginning())
        check_position(session, capture.begin)
    assert not capture.take().errors
    run(server, "INSERT INTO t (v) VALUES ('last')")
    capture.catch_up()
    assert [row["v"] for row in capture.final("t").values()] == ["last"]


@pytest.mark.parametrize("later", [1, 0], ids=["in the middle", "at the end"])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_what_a_torn_event_swallows(
    make_server: Callable[..., Server], tmp_path: Path, flavor: str, later: int
) -> None:
    """Without checksums only the names that never come tell of it: all tables are compared."""
    server = started(make_server, flavor, options={"binlog-checksum": "NONE"})
    run(server, "CREATE DATABASE other", "CREATE TABLE other.t (v TEXT)")
    capture = Capturer(source_of(server, "d"), tmp_path, known=frozenset({"t", "quiet"}))
    run(server, "INSERT INTO t (v) VALUES ('captured')")
    capture.catch_up()
    close_streams()
    with Session.connect(source_of(server, "d")) as session:
        name, first = session.binlog_end()
        run(server, "INSERT INTO other.t VALUES ('torn')")
        run(server, *(f"INSERT INTO t (v) VALUES ('swallowed {one}')" for one in range(3)))
        swallowed = session.head().executed
    _stretch(server.datadir / name, first)
    if later:
        run(server, "INSERT INTO t (v) VALUES ('after')")
    capture.catch_up()
    assert capture.position.executed.contains_all(swallowed)
    assert len(capture.final("t")) == 1 + later
    assert {(event.table, event.effect) for event in capture.events()} == {
        ("t", "restored"),
        ("quiet", "restored"),
    }
    assert all("has executed what its log lacks" in event.reason for event in capture.events())
    # Ranks go on behind what was passed over, also in a stream that is opened again.
    close_streams()
    run(server, "INSERT INTO t (v) VALUES ('last')")
    capture.catch_up()
    assert capture.changes("t")[-1]["token"]["seq"] == capture.position.seq
    assert capture.position.seq == capture.position.executed.cardinality
    assert len(capture.events()) == 2
