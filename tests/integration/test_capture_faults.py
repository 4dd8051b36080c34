"""Capture goes on where it stopped, whatever happened to the server or the link in between."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from capture_kit import Capturer, close_streams, server_rows, source_of
from fix_proxy import Proxy
from fix_servers import purge_binlogs

from lab.servers import Server, replicate_from, stop_replication, wait_for_replica
from ratchet.core.errors import PositionLostError, RetryableError
from ratchet.ingest import capture as capture_module
from ratchet.ingest import slices
from ratchet.ingest.binlog import skim
from ratchet.ingest.capture import capture_slice
from ratchet.ingest.slices import CaptureResult, SliceLimits
from ratchet.wire import binlog
from ratchet.wire.binlog import BinlogStream, DumpOptions
from ratchet.wire.session import Session

MakeServer = Callable[..., Server]
MakeProxy = Callable[[str, int], Proxy]
flavors = pytest.mark.parametrize("flavor", ["mariadb", "mysql", "file"])
with_gtids = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
TABLE = "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(100))"
SHORT = SliceLimits(max_seconds=2, min_seconds=0)


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


def started(make_server: MakeServer, flavor: str, **settings: Any) -> Server:
    """A server of the test's own with the table `d`.`t`."""
    if flavor == "file":
        flavor, settings["gtid"] = "mysql", False
    server = make_server(flavor, **settings)
    server.execute("CREATE DATABASE d")
    server.execute(TABLE, database="d")
    return server


def write(server: Server, count: int = 10) -> None:
    """Some transactions of one row."""
    with server.connect(database="d") as connection, connection.cursor() as cursor:
        for n in range(count):
            cursor.execute("INSERT INTO t (v) VALUES (%s)", (f"value {n}",))


def opened_by_file() -> bool:
    """Whether the stream that capture keeps open was opened by file and offset."""
    (one,) = capture_module._streams.values()
    return one.feed._stream.by_file or one.feed._stream.flavor == "file"


def assert_same(capture: Capturer, server: Server, table: str = "t") -> None:
    assert capture.final(table) == server_rows(server, "d", table)


@flavors
def test_goes_on_after_the_server_was_killed(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    for _ in range(2):
        write(server)
        capture.catch_up()
        write(server)
        server.kill()
        assert isinstance(capture.fail(limits=SHORT), RetryableError)
        server.start()
        write(server)
        capture.catch_up()
        assert opened_by_file()
    assert_same(capture, server)


@flavors
def test_goes_on_in_another_process_by_file_and_offset(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    for _ in range(4):
        write(server, 5)
        capture.catch_up()
        close_streams()  # what another process would not have
    assert_same(capture, server)
    write(server)
    capture.catch_up()
    assert opened_by_file()


@with_gtids
def test_a_wrong_offset_is_noticed_by_the_names_of_transactions(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    write(server)
    capture.catch_up()
    true = capture.position
    write(server)
    capture.catch_up()
    ahead = capture.position
    write(server)
    close_streams()
    for offset in (ahead.offset, true.offset + 1, 1 << 30):
        result = capture_module.capture_slice(capture.request(start=replace(true, offset=offset)))
        assert result.error is None
        assert result.slice is not None
        assert result.slice.runs[0].first == _last(true) + 1
        assert not opened_by_file()
        close_streams()


def _last(position: Any) -> int:
    (spans,) = position.executed.intervals.values()
    return int(spans[-1][1])


@with_gtids
def test_goes_on_at_a_replica(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    """A failover: the replica's binlog has other files and offsets, and the same names."""
    primary = started(make_server, flavor)
    replica = make_server(flavor)
    replicate_from(replica, primary)
    capture = Capturer(source_of(primary, "d"), tmp_path)
    write(primary)
    capture.catch_up()
    write(primary)
    wait_for_replica(replica, primary)
    stop_replication(replica)
    primary.kill()
    write(replica)
    capture.source = replace(capture.source, port=replica.port)
    capture.catch_up()
    assert not opened_by_file()
    assert_same(capture, replica)
    seqs = [change["token"]["seq"] for change in capture.changes("t")]
    assert seqs == sorted(seqs)


@with_gtids
def test_a_replica_that_is_behind_is_waited_for(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    primary = started(make_server, flavor)
    replica = make_server(flavor)
    replicate_from(replica, primary)
    write(primary)
    capture = Capturer(source_of(primary, "d"), tmp_path)
    wait_for_replica(replica, primary)
    stop_replication(replica)
    write(primary)
    capture.catch_up()
    capture.source = replace(capture.source, port=replica.port)
    error = capture.fail(limits=SHORT)
    assert isinstance(error, RetryableError)
    assert "lacks" in error.message
    replicate_from(replica, primary)
    wait_for_replica(replica, primary)
    write(primary)
    wait_for_replica(replica, primary)
    capture.catch_up()
    assert len(capture.changes("t")) == 20


@flavors
def test_a_link_that_breaks_again_and_again(
    make_server: MakeServer, make_proxy: MakeProxy, flavor: str, tmp_path: Path
) -> None:
    server = started(make_server, flavor)
    proxy = make_proxy(server.host, server.port)
    capture = Capturer(source_of(server, "d", port=proxy.port), tmp_path)
    with server.connect(database="d") as connection, connection.cursor() as cursor:
        for n in range(40):
            values = ", ".join(f"(REPEAT('{n % 10}', 90))" for _ in range(200))
            cursor.execute(f"INSERT INTO t (v) VALUES {values}")
    for count in (20_000, 100_000, 300_000, 5_000):
        proxy.cut_after(count)
        capture.take()  # tries again by itself, within the slice
        close_streams()
    capture.catch_up()
    assert_same(capture, server)


@with_gtids
def test_no_way_to_the_server_is_an_error_after_a_while(
    make_server: MakeServer, make_proxy: MakeProxy, flavor: str, tmp_path: Path
) -> None:
    server = started(make_server, flavor)
    proxy = make_proxy(server.host, server.port)
    capture = Capturer(source_of(server, "d", port=proxy.port), tmp_path)
    write(server)
    capture.catch_up()
    proxy.refuse()
    proxy.cut()
    error = capture.fail(limits=SHORT)
    assert isinstance(error, RetryableError)
    assert error.source == "shop/-"
    write(server)
    proxy.accept()
    capture.catch_up()
    assert_same(capture, server)


@pytest.mark.quick_on("mysql")
@with_gtids
def test_a_silent_connection_counts_as_dead(
    make_server: MakeServer, make_proxy: MakeProxy, flavor: str, tmp_path: Path
) -> None:
    server = started(make_server, flavor)
    proxy = make_proxy(server.host, server.port)
    capture = Capturer(source_of(server, "d", port=proxy.port), tmp_path)
    write(server)
    capture.catch_up()
    proxy.pause()
    options = replace(capture.request().dump, heartbeat=0.2, deadline=0.6)
    impatient = replace(capture.source, read_timeout=1.0)
    error = capture.fail(limits=SHORT, dump=options, source=impatient)
    assert isinstance(error, RetryableError)
    proxy.resume()
    write(server)
    capture.catch_up()
    assert_same(capture, server)


@pytest.mark.quick_on("mariadb")
@with_gtids
def test_a_transaction_that_comes_drop_by_drop_ends_its_slice(
    make_server: MakeServer,
    make_proxy: MakeProxy,
    flavor: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All other sources of the round would wait for it. It is read again."""
    monkeypatch.setattr(binlog, "STRAGGLES", 1.0)
    server = started(make_server, flavor)
    proxy = make_proxy(server.host, server.port)
    capture = Capturer(source_of(server, "d", port=proxy.port), tmp_path)
    write(server)
    capture.catch_up()
    proxy.drip(10)  # all of it would take minutes
    many = "INSERT INTO t (v) SELECT 1 FROM information_schema.columns LIMIT 1500"
    server.execute(many, database="d")
    said: list[str] = []
    for _ in range(5):  # a slice may end before the transaction begins
        result = capture_slice(capture.request(limits=SHORT))
        said += [*result.broken, str(result.error)]
        if any("too slowly" in one for one in said):
            break
    else:
        pytest.fail(f"nobody said so: {said}")
    proxy.drip(0)
    close_streams()
    capture.catch_up()
    assert_same(capture, server)


@pytest.mark.quick_on("mysql")
@with_gtids
def test_a_run_that_ends_waits_for_no_transaction(
    make_server: MakeServer, make_proxy: MakeProxy, flavor: str, tmp_path: Path
) -> None:
    """It goes on for as long as somebody sends a little; the next run reads it anew."""
    server = started(make_server, flavor)
    proxy = make_proxy(server.host, server.port)
    capture = Capturer(source_of(server, "d", port=proxy.port), tmp_path)
    write(server)
    capture.catch_up()
    proxy.drip(5000)  # 50 KB a second: fast enough not to be refused, on a busy machine, too
    server.execute("INSERT INTO t (v) VALUES (REPEAT('x', 90))", database="d")
    for _ in range(14):
        server.execute("INSERT INTO t (v) SELECT v FROM t", database="d")
    taken: list[CaptureResult] = []
    thread = threading.Thread(
        target=lambda: taken.append(capture_slice(capture.request(limits=SHORT)))
    )
    thread.start()
    time.sleep(3)
    assert thread.is_alive()
    slices.ENDING.set()
    try:
        thread.join(10)
        assert not thread.is_alive()
    finally:
        slices.ENDING.clear()
    assert "the run ends in the middle of a transaction" in str(taken[0].error)
    proxy.drip(0)
    close_streams()
    capture.catch_up()
    assert_same(capture, server)


def drain(stream: BinlogStream) -> None:
    for _ in range(60):
        stream.receive(0.2)


@with_gtids
def test_an_event_that_never_is_whole_is_read_again(
    make_server: MakeServer,
    make_proxy: MakeProxy,
    flavor: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two transactions no slice waits for it, so that it would stand there for ever."""
    monkeypatch.setattr(binlog, "STRAGGLES", 1.0)
    server = started(make_server, flavor)
    proxy = make_proxy(server.host, server.port)
    capture = Capturer(source_of(server, "d", port=proxy.port), tmp_path)
    write(server)
    capture.catch_up()
    (one,) = capture_module._streams.values()
    proxy.drip(1)  # the GTID event alone takes seconds
    write(server)
    with pytest.raises(RetryableError, match="an event is not whole after"):
        drain(one.feed._stream)
    proxy.drip(0)
    close_streams()
    capture.catch_up()
    assert_same(capture, server)


def test_a_log_that_drips_is_not_read_through_for_ever(
    make_server: MakeServer, make_proxy: MakeProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run does before it begins, for all its sources."""
    monkeypatch.setattr(skim, "_WINDOW", 2.0)
    server = started(make_server, "mysql")
    server.execute("CREATE TABLE big (id INT PRIMARY KEY, b LONGBLOB)", database="d")
    with Session.connect(source_of(server, "d")) as session:
        start = session.head()
    for number in range(12):
        server.execute(f"INSERT INTO big VALUES ({number}, REPEAT('x', 2000000))", database="d")
    proxy = make_proxy(server.host, server.port)
    with skim.LogScanner(
        source_of(server, "d", port=proxy.port), start, DumpOptions(server_id=4711)
    ) as one:
        proxy.drip(10)
        with pytest.raises(RetryableError, match="the log comes too slowly"):
            one.read()
        proxy.drip(0)


@pytest.mark.quick_on("mysql")
@with_gtids
def test_heartbeats_keep_an_idle_connection_alive(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    # The deadline is long for a busy machine, and shorter than the slice.
    options = replace(capture.request().dump, heartbeat=0.2, deadline=4.0)
    idle = SliceLimits(max_seconds=8, min_seconds=8)
    assert capture.take(limits=idle, dump=options).committed is None
    (one,) = capture_module._streams.values()
    stream = one.feed._stream
    write(server)
    capture.take(dump=options)
    (one,) = capture_module._streams.values()
    assert one.feed._stream is stream  # kept from one round to the next
    assert_same(capture, server)


@flavors
def test_a_purged_binlog_is_named(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    write(server)
    capture.catch_up()
    close_streams()
    write(server)
    server.execute("FLUSH BINARY LOGS")
    write(server, 1)
    server.execute("FLUSH BINARY LOGS")
    purge_binlogs(server)
    error = capture.fail(limits=SHORT)
    assert isinstance(error, PositionLostError)
    assert "dump" in error.hint
    if flavor == "mysql":
        missing = f"{_last(capture.position) + 1}-{_last(capture.position) + 11}"
        assert missing in error.message


@with_gtids
def test_a_server_that_lost_its_own_history_is_refused(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    write(server)
    capture.catch_up()
    close_streams()
    command = "RESET BINARY LOGS AND GTIDS" if flavor == "mysql" else "RESET MASTER"
    server.execute(command)
    write(server, 3)
    error = capture.fail(limits=SHORT)
    assert isinstance(error, PositionLostError)
    assert "of its own" in error.message


def test_without_gtids_another_server_is_refused(make_server: MakeServer, tmp_path: Path) -> None:
    one, other = (started(make_server, "file") for _ in range(2))
    capture = Capturer(source_of(one, "d"), tmp_path)
    write(one)
    capture.catch_up()
    capture.source = replace(source_of(other, "d"), shard=capture.source.shard)
    error = capture.fail(limits=SHORT)
    assert isinstance(error, PositionLostError)
    assert "another server" in error.message


def test_gtids_switched_on_later_are_refused(make_server: MakeServer, tmp_path: Path) -> None:
    server = started(make_server, "file")
    capture = Capturer(source_of(server, "d"), tmp_path)
    write(server)
    capture.catch_up()
    server.restart(options={"gtid-mode": "ON", "enforce-gtid-consistency": "ON"})
    error = capture.fail(limits=SHORT)
    assert isinstance(error, PositionLostError)
    assert "flavour" in error.message


@flavors
def test_kills_while_a_writer_is_at_work(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    """Large transactions, so that some are cut off in the middle of the binlog."""
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    values = ", ".join(f"('{'x' * 90}')" for _ in range(5000))

    def work() -> None:
        # The server is killed under it, which shows in several ways.
        with (
            contextlib.suppress(pymysql.err.Error, OSError),
            server.connect(database="d") as connection,
            connection.cursor() as cursor,
        ):
            while True:
                cursor.execute("BEGIN")
                for _ in range(4):
                    cursor.execute(f"INSERT INTO t (v) VALUES {values}")
                cursor.execute("COMMIT")

    for _ in range(3):
        writer = threading.Thread(target=work)
        writer.start()
        capture.catch_up(limits=SliceLimits(max_bytes=3 << 20, max_seconds=5, min_seconds=0.2))
        server.kill()
        writer.join()
        server.start()
    capture.catch_up()
    expected = server.execute("SELECT COUNT(*), COALESCE(SUM(id), 0) FROM t", database="d")[0]
    ids = [change["after"]["id"] for change in capture.changes("t")]
    assert (len(ids), sum(ids)) == tuple(expected)
    assert len(set(ids)) == len(ids)
