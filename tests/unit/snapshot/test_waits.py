"""What the log says of reads that a throttle holds back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ratchet.core.errors import RetryableError
from ratchet.core.shard import ShardId
from ratchet.snapshot import throttle as throttles
from ratchet.snapshot.records import ShardSource
from ratchet.snapshot.throttle import Throttle, ThrottleLimits
from ratchet.snapshot.waits import Waits
from ratchet.wire.session import SourceConfig

SHARD = "shop/-"
WHY = "3 threads of others running on shop/-, above snapshot.max_threads_running (2)"
SOURCE = SourceConfig(shard=ShardId("shop", "-"), host="h", user="u", database="shop")


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class _Told:
    """A clock, what waits by it, and what the log said."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = _Clock()
        self.waits = Waits(self.clock)
        self._caplog = caplog

    def held(self, seconds: float, reason: str = WHY, shard: str = SHARD) -> list[str]:
        """Ask each half second for so long; gives what was logged meanwhile."""
        self._caplog.clear()
        for _ in range(int(seconds * 2)):
            self.clock.now += 0.5
            self.waits.note(shard, reason)
        return [f"{one.levelname} {one.getMessage()}" for one in self._caplog.records]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> _Told:
    caplog.set_level(logging.INFO, logger="ratchet.snapshot.waits")
    return _Told(caplog)


def test_after_some_seconds_now_and_then_and_at_the_end(told: _Told) -> None:
    """With the limit, the value and the option; a short wait is not worth a word."""
    assert told.held(9) == []
    (said,) = told.held(3)
    assert said.startswith(f"WARNING reading of shop/- has waited for 10 s: {WHY}; ")
    assert "a higher limit in the config" in said
    assert told.held(290) == []
    (again,) = told.held(15)
    assert "has waited for 310 s" in again
    assert told.held(0.5, reason="") == ["INFO reading of shop/- continues, after 317 s"]
    assert told.held(20, reason="") == []
    assert told.held(9) == []
    assert told.held(1, reason="") == [], "whoever was told of nothing needs no end of it"


def test_reads_that_are_only_slow_are_not_told_of(told: _Told) -> None:
    for _ in range(20):
        assert told.held(8) + told.held(0.5, reason="") == []


def test_each_shard_waits_for_itself(told: _Told) -> None:
    assert len(told.held(11)) == 1
    (other,) = told.held(11, shard="shop/80-")
    assert "reading of shop/80- has waited for 10 s" in other


def test_a_wait_that_was_given_up_is_forgotten(told: _Told) -> None:
    """Else the next one would be told of at once, with all the time in between."""
    assert len(told.held(11)) == 1
    told.clock.now += 3600
    assert told.held(9) == []
    (said,) = told.held(3)
    assert "has waited for 10 s" in said


def test_whoever_waits_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The throttle itself tells, so a dump's question and a heal's wait are told of alike."""
    caplog.set_level(logging.INFO, logger="ratchet.snapshot.waits")
    clock = _Clock()
    stop = threading.Event()

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock.now += timeout or 0.0
            return clock.now > 113.0

    @contextmanager
    def opened(_: SourceConfig) -> Iterator[Any]:
        yield None

    monkeypatch.setattr(throttles, "open_session", opened)
    throttle = Throttle(ThrottleLimits(rows_per_second=10), clock=clock)
    throttle.count(1_000)
    shard = ShardSource(config=SOURCE)
    with pytest.raises(RetryableError, match="told to stop"):
        throttle.wait(shard, Stop())
    (record,) = caplog.records
    assert "ahead of snapshot.max_rows_per_second (10)" in record.getMessage()
    clock.now += 200
    stop.set()
    throttle.wait(shard, stop)
    assert len(caplog.records) == 1

    caplog.clear()
    throttle.count(1_000)
    for _ in range(30):
        clock.now += 0.5
        assert throttle.reason_on(shard)
    assert [one.levelname for one in caplog.records] == ["WARNING"]
