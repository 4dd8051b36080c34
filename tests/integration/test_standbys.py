"""A shard with several servers: which of them is used, and when another one is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from capture_kit import Capturer, close_streams, run, server_rows, source_of
from history_kit import SHORT, MakeServer, prepared, reset, with_gtids, write

from lab.servers import Server, replicate_from, stop_replication, wait_for_replica
from ratchet.core.errors import PositionLostError, RetryableError
from ratchet.wire.session import Session


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


def pair(make_server: MakeServer, flavor: str, folder: Path) -> tuple[Server, Server, Capturer]:
    """A primary with a table, its replica, and a mirror that knows both."""
    primary, replica = make_server(flavor), make_server(flavor)
    replicate_from(replica, primary)
    prepared(primary)
    source = replace(source_of(primary, "d"), standbys=((replica.host, replica.port),))
    wait_for_replica(replica, primary)
    return primary, replica, Capturer(source, folder)


@with_gtids
def test_the_standby_takes_over_from_a_dead_server(
    make_server: MakeServer, flavor: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    primary, replica, capture = pair(make_server, flavor, tmp_path)
    write(primary)
    capture.catch_up()
    write(primary)
    wait_for_replica(replica, primary)
    stop_replication(replica)
    primary.kill()
    write(replica)
    capture.catch_up()
    assert capture.final("t") == server_rows(replica, "d", "t")
    assert f"shop/-: continuing at {replica.host}:{replica.port}" in caplog.text
    # Nobody goes back to a server that was taken over from.
    primary.start()
    with Session.connect(capture.source) as session:
        assert session.config.port == replica.port


@with_gtids
def test_a_server_that_lost_what_the_mirror_holds_is_left(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    """It answers, but its history is another one; the standby still has the right one."""
    primary, replica, capture = pair(make_server, flavor, tmp_path)
    write(primary)
    wait_for_replica(replica, primary)
    stop_replication(replica)
    capture.catch_up()
    close_streams()
    reset(primary)
    write(primary, 1)
    write(replica, 3)
    capture.take()
    capture.catch_up()
    assert capture.final("t") == server_rows(replica, "d", "t")


@with_gtids
def test_none_will_do(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    """All are named; as long as one of them may come right it is waited for."""
    primary, replica, capture = pair(make_server, flavor, tmp_path)
    write(primary)
    stop_replication(replica)
    run(primary, "INSERT INTO t (v) VALUES (7)")
    capture.catch_up()
    close_streams()
    primary.kill()
    error = capture.fail(limits=SHORT)
    assert isinstance(error, RetryableError)
    assert f"{primary.host}:{primary.port}: connection" in error.message
    assert f"{replica.host}:{replica.port}: the server lacks transactions" in error.message
    primary.start()
    for server in (primary, replica):
        reset(server)
    error = capture.fail(limits=SHORT)
    assert isinstance(error, (PositionLostError, RetryableError))
    assert "none of the shard's servers can be used" in error.message
