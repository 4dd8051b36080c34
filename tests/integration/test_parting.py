"""Where the history of a server and of a mirror part: found on real servers, or not claimed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from capture_kit import Capturer, close_streams, run, source_of
from fix_servers import purge_binlogs
from history_kit import MakeServer, a_second_later, prepared, reset, with_gtids, write

from lab.servers import Server, replicate_from, stop_replication, wait_for_replica
from ratchet.core.rounds import ShardSlice
from ratchet.jobs.topology.begin import begin_streams
from ratchet.jobs.topology.parting import DivergencePoint, find_parting


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


def rounds(capture: Capturer, server: Server, count: int) -> None:
    """That many rounds with transactions."""
    for _ in range(count):
        write(server, 3)
        capture.catch_up()
    close_streams()


def lost_tail(make_server: MakeServer, flavor: str, folder: Path) -> tuple[Capturer, Server, int]:
    """A mirror, a replica that lacks the last rounds, and the number of the last that it has."""
    primary, replica = prepared(make_server(flavor)), make_server(flavor)
    replicate_from(replica, primary)
    capture = Capturer(source_of(primary, "d"), folder)
    rounds(capture, primary, 5)
    shared = capture.log.last_number()
    wait_for_replica(replica, primary)
    stop_replication(replica)
    rounds(capture, primary, 4)
    capture.source = replace(capture.source, port=replica.port)
    return capture, replica, shared


@with_gtids
@pytest.mark.parametrize("writes", [0, 3, 40])
def test_a_failover_that_lost_rounds(
    make_server: MakeServer, flavor: str, writes: int, tmp_path: Path
) -> None:
    """Whether the new primary has written less than was lost, or more (MariaDB: the same names)."""
    capture, replica, shared = lost_tail(make_server, flavor, tmp_path)
    a_second_later()
    write(replica, writes)
    found = find_parting(capture.source, capture.log)
    assert isinstance(found, DivergencePoint)
    assert found.round == shared
    assert found.position == capture.log.streams_at(shared)["shop/-"].position
    # The stream that begins there brings what the new primary wrote, and nothing else.
    again = Capturer(capture.source, tmp_path / "again")
    again.begin = found.position
    again.catch_up()
    assert len(again.changes("t")) == writes


@with_gtids
def test_lost_once_more(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    """Rounds that were lost the first time are foreign to the server; those behind them are not."""
    capture, replica, _ = lost_tail(make_server, flavor, tmp_path)
    a_second_later()
    found = find_parting(capture.source, capture.log)
    assert isinstance(found, DivergencePoint)
    slices = [ShardSlice.beginning("shop/-", found.position, generation=2, now=1)]
    begun = begin_streams(capture.log, slices, now=1)
    capture.more["generation"] = 2
    assert find_parting(capture.source, capture.log) == replace(found, round=begun)
    rounds(capture, replica, 3)
    again = find_parting(capture.source, capture.log)
    assert isinstance(again, DivergencePoint)
    assert again.round == capture.log.last_number()


@with_gtids
def test_what_follows_is_purged(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    capture, replica, _ = lost_tail(make_server, flavor, tmp_path)
    write(replica)
    purge_binlogs(replica)
    assert isinstance(find_parting(capture.source, capture.log), str)


@with_gtids
def test_all_is_lost(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    """After RESET no name means what it did, however many there are."""
    server = prepared(make_server(flavor))
    capture = Capturer(source_of(server, "d"), tmp_path)
    rounds(capture, server, 4)
    a_second_later()
    reset(server)
    for count in (0, 6, 40):
        write(server, count)
        assert isinstance(find_parting(capture.source, capture.log), str)


@with_gtids
def test_nothing_is_lost(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    server = prepared(make_server(flavor))
    capture = Capturer(source_of(server, "d"), tmp_path)
    rounds(capture, server, 4)
    found = find_parting(capture.source, capture.log)
    assert isinstance(found, DivergencePoint)
    assert found.round == capture.log.last_number()


@with_gtids
def test_a_restored_backup_that_went_on(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    """The names of what it lost are those of what it wrote since."""
    server = prepared(make_server(flavor))
    capture = Capturer(source_of(server, "d"), tmp_path)
    rounds(capture, server, 3)
    shared = capture.log.last_number()
    server.stop()
    shutil.copytree(server.datadir, tmp_path / "backup")
    server.start()
    rounds(capture, server, 3)
    server.stop()
    a_second_later()
    shutil.rmtree(server.datadir)
    shutil.copytree(tmp_path / "backup", server.datadir)
    server.start()
    write(server, 4)
    found = find_parting(capture.source, capture.log)
    assert isinstance(found, DivergencePoint)
    assert found.round == shared


def test_without_gtids_nothing_is_claimed(make_server: MakeServer, tmp_path: Path) -> None:
    server = prepared(make_server("mysql", gtid=False))
    capture = Capturer(source_of(server, "d"), tmp_path)
    rounds(capture, server, 2)
    assert isinstance(find_parting(capture.source, capture.log), str)


def test_a_stream_that_has_seen_no_transaction(make_server: MakeServer, tmp_path: Path) -> None:
    """Nothing tells which history its position is of."""
    server = prepared(make_server("mysql"))
    source = source_of(server, "d")
    run(server, "INSERT INTO t (v) VALUES (1)")
    capture = Capturer(source, tmp_path)
    capture.take(limits=replace(capture.request().limits, max_seconds=1))
    assert isinstance(find_parting(capture.source, capture.log), str)
