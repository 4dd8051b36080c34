"""What is received while used events are still decoded: same rows, same errors, on real servers.

The windows are small here, so that a backlog of some MB fills them some hundred times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest
from capture_kit import Capturer, close_streams, run, server_rows, source_of, started
from fix_proxy import Proxy

from lab.servers import Server
from ratchet.core.errors import LakeError
from ratchet.ingest.binlog.reader import Reader
from ratchet.wire import binlog, window
from ratchet.wire.stream import ReceiveBuffer
from ratchet.wire.window import EventBuffer

MakeServer = Callable[..., Server]
flavors = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleQueue[EventBuffer | None]]:
    """Small windows, and one to lend."""
    spares: SimpleQueue[EventBuffer | None] = SimpleQueue()
    spares.put(None)
    monkeypatch.setattr(window, "_spares", spares)
    monkeypatch.setattr(window, "ReceiveBuffer", partial(ReceiveBuffer, 64 << 10))
    monkeypatch.setattr(window, "ROOM", 8 << 10)
    yield spares
    close_streams()


@pytest.fixture
def cut_off(
    make_server: MakeServer, make_proxy: Callable[[str, int], Proxy], tmp_path: Path
) -> Callable[[str, float], tuple[Capturer, Server]]:
    """A backlog behind a proxy that cuts its connections after a share of the bytes."""

    def make(flavor: str, share: float) -> tuple[Capturer, Server]:
        server = started(make_server, flavor)
        proxy = make_proxy(server.host, server.port)
        capture = Capturer(source_of(server, "d", host=proxy.host, port=proxy.port), tmp_path)
        backlog(server)
        size = sum(int(row[1]) for row in server.execute("SHOW BINARY LOGS"))
        proxy.cut_after(int(size * share))
        return capture, server

    return make


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each reading ahead has found."""
    found: list[int] = []
    real = binlog.BinlogStream._read_ahead

    def counted(self: binlog.BinlogStream, into: EventBuffer, *more: object) -> object:
        before = into.count
        try:
            return real(self, into, *more)  # type: ignore[arg-type]
        finally:
            found.append(into.count - before)

    monkeypatch.setattr(binlog.BinlogStream, "_read_ahead", counted)
    return found


def backlog(server: Server) -> None:
    """All operations in large transactions and small ones; values as long as they come."""
    doubled = "INSERT INTO t (v, n) SELECT RIGHT(CONCAT(n, v), 400), n + id FROM t"
    run(
        server,
        "INSERT INTO t (v, n) VALUES ('x', 1), (NULL, 2), (REPEAT('y', 450), 3)",
        *[doubled] * 11,
        "UPDATE t SET n = n + 1 WHERE id % 3 = 0",
        *[f"UPDATE t SET n = n + 1 WHERE id = {n}" for n in range(1, 800)],
        "DELETE FROM t WHERE id % 5 = 0",
    )


def assert_same(capture: Capturer, server: Server) -> None:
    rows = server_rows(server, "d", "t")
    assert len(rows) > 4000
    assert capture.final("t") == rows


@flavors
@pytest.mark.parametrize("tls", ["plain", "TLS"])
def test_rows_are_the_same(
    make_server: MakeServer, flavor: str, tls: str, tmp_path: Path, ahead: list[int]
) -> None:
    server = started(make_server, flavor, tls=tls == "TLS")
    secure = {"tls": "verify_identity", "tls_ca": str(server.tls.ca)} if server.tls else {}
    capture = Capturer(source_of(server, "d", **secure), tmp_path)
    backlog(server)
    capture.catch_up()
    assert_same(capture, server)
    assert sum(ahead) > 100
    assert len(ahead) > 20


@flavors
def test_rows_are_the_same_without_a_window_to_lend(
    make_server: MakeServer,
    flavor: str,
    tmp_path: Path,
    ahead: list[int],
    small: SimpleQueue[EventBuffer | None],
) -> None:
    small.get()
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    backlog(server)
    capture.catch_up()
    assert_same(capture, server)
    assert not ahead


@flavors
def test_nothing_waits_for_a_heartbeat(
    make_server: MakeServer, flavor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that the index has no room for at first have come already; no bytes may follow."""
    monkeypatch.setattr(window, "_EVENTS", 50)
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    backlog(server)
    patient = replace(capture.request().dump, heartbeat=300.0, deadline=240.0)
    capture.catch_up(seconds=120, dump=patient)
    assert_same(capture, server)


@flavors
@pytest.mark.parametrize("share", [0.13, 0.4, 0.77])
def test_a_connection_cut_meanwhile_is_made_again(
    cut_off: Callable[[str, float], tuple[Capturer, Server]],
    flavor: str,
    share: float,
    small: SimpleQueue[EventBuffer | None],
) -> None:
    """Whoever meets it, nothing of it counts and nothing is missing."""
    capture, server = cut_off(flavor, share)
    capture.catch_up()
    assert_same(capture, server)
    assert small.qsize() == 1, "the window is back"


def test_an_error_of_the_work_is_raised_and_the_window_is_back(
    make_server: MakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small: SimpleQueue[EventBuffer | None],
) -> None:
    server = started(make_server, "mariadb")
    capture = Capturer(source_of(server, "d"), tmp_path)
    backlog(server)
    real, calls = Reader.flush, []

    def failing(self: Reader) -> None:
        calls.append(1)
        if len(calls) == 5:
            raise LakeError("the disk is full", operation="write a change file")
        real(self)

    monkeypatch.setattr(Reader, "flush", failing)
    error = capture.fail()
    assert "the disk is full" in error.message
    assert small.qsize() == 1
    monkeypatch.setattr(Reader, "flush", real)
    capture.catch_up()
    assert_same(capture, server)
