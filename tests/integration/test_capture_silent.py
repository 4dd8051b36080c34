"""A stream that nobody reads any more, as of a worker that Spark has forgotten for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture_kit import QUICK, Capturer, close_streams, run, server_rows, source_of, started

from lab.servers import Server
from ratchet.ingest.slices import SliceLimits
from ratchet.wire.binlog import BinlogStream

MakeServer = Callable[..., Server]
flavors = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


def backlog(server: Server) -> None:
    """More of the binlog than any socket's buffers hold: 30 MB."""
    run(
        server,
        "INSERT INTO t (v, n) VALUES (REPEAT('x', 450), 1)",
        *["INSERT INTO t (v, n) SELECT v, n FROM t"] * 16,
    )


def streams(server: Server) -> int:
    """How many the server has."""
    found = server.execute(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    )
    return int(found[0][0])


def wait_for_streams(server: Server, count: int) -> None:
    """Until it has so many: it notices late that a client has gone."""
    until = time.monotonic() + 60
    while (found := streams(server)) != count:
        assert time.monotonic() < until, f"{found} streams in place of {count}"
        time.sleep(0.1)


@flavors
def test_it_holds_up_no_other(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    """MariaDB lets a new one with the same id wait until the old one's write fails: a minute."""
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    backlog(server)
    silent = BinlogStream(capture.source, capture.begin, capture.request().dump)
    time.sleep(1)  # its buffers are full by then
    try:
        capture.catch_up(seconds=50)
        assert capture.final("t") == server_rows(server, "d", "t")
    finally:
        silent.close()


@flavors
def test_one_that_may_move_is_kept_at_the_end_only(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    backlog(server)
    short = SliceLimits(max_bytes=1 << 16, max_seconds=20, min_seconds=0)
    capture.take(limits=short, moves=False)
    assert streams(server) == 1
    capture.take(limits=short, moves=True)
    wait_for_streams(server, 0)
    capture.catch_up(limits=QUICK, moves=True)
    wait_for_streams(server, 1)
    assert capture.final("t") == server_rows(server, "d", "t")
