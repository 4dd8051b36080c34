"""A server whose crash has torn the last file of its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture_kit import Capturer, close_streams, run, server_rows, source_of, started

from lab.servers import Server
from ratchet.core.errors import PositionLostError
from ratchet.wire.session import Session


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
    assert "`ratchet heal CONFIG --shard shop/- --dump`" in caught.value.hint


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
