"""Commit times that sessions make up, on real servers: a slice's times stay where they can be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from capture_kit import QUICK, Capturer, close_streams, run, source_of, started

from lab.servers import Server
from ratchet.core.rounds import ShardSlice

FUTURE = 1_893_456_000  # 2030
SECOND = 1_000_000


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_times_that_cannot_be(
    make_server: Callable[..., Server], tmp_path: Path, flavor: str
) -> None:
    """MariaDB's log has what SET TIMESTAMP says, MySQL's its own clock."""
    server = started(make_server, flavor)
    capture = Capturer(source_of(server, "d"), tmp_path)
    since = 0

    def taken(*statements: str, **limits: int) -> ShardSlice:
        nonlocal since
        run(server, *statements)
        outcome = capture.take(since=since, limits=replace(QUICK, **limits))
        (piece,) = outcome.slices
        since = max(since, piece.max_ts or 0)
        return piece

    insert = "INSERT INTO t (n) VALUES (1)"
    first = taken(insert)
    assert first.odd_ts is None
    now = int(time.time()) * SECOND
    ahead = taken(f"SET TIMESTAMP = {FUTURE}", insert)
    behind = taken("SET TIMESTAMP = 5", insert)
    if flavor == "mariadb":
        assert (ahead.odd_ts, behind.odd_ts) == (FUTURE * SECOND, 5 * SECOND)
    else:
        assert (ahead.odd_ts, behind.odd_ts) == (None, None)
    last = taken(insert)
    times = [ts for one in (first, ahead, behind, last) for ts in (one.min_ts, one.max_ts)]
    known = [ts for ts in times if ts is not None]
    assert known == sorted(known)
    assert len(known) == 8
    assert abs(known[-1] - now) < 60 * SECOND

    # Other shards are behind; one that says it is from the future is not held for that.
    run(server, f"SET TIMESTAMP = {FUTURE}", insert)
    (piece,) = capture.take(
        since=since, limits=replace(QUICK, not_after=int(time.time() + 30) * SECOND)
    ).slices
    assert (piece.held_ts, piece.transactions) == (None, 1)
    # A time that can be is: it waits for them.
    run(server, insert)
    (piece,) = capture.take(since=since, limits=replace(QUICK, not_after=now - SECOND)).slices
    assert piece.held_ts is not None
    assert piece.transactions == 0
