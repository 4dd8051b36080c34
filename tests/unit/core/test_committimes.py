"""Commit times are bounded by what can be."""

from __future__ import annotations

import random

import pytest

from ratchet.core.committimes import FAR, CommitTimes, is_ahead

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND


def told(*times: int, since: int = 0, now: int = NOW) -> CommitTimes:
    return CommitTimes(since=since).and_then(times, now=now, bound=SECOND)


def test_times_as_they_should_be() -> None:
    found = told(NOW - 9, NOW - 5, NOW + SECOND)
    assert (found.first, found.last, found.odd) == (NOW - 9, NOW + SECOND, None)
    later = found.and_then([NOW + 2], now=NOW + 5, bound=SECOND)
    assert (later.first, later.last) == (NOW - 9, NOW + SECOND)
    assert told().first is None


def test_a_wait_for_a_lock_is_not_odd() -> None:
    """A later place in the log with an earlier time was committed no earlier."""
    found = told(NOW - 5 * SECOND, since=NOW - SECOND)
    assert (found.first, found.last, found.odd) == (NOW - SECOND, NOW - SECOND, None)


@pytest.mark.parametrize("years", [1, 30])
def test_the_future_moves_nothing(years: int) -> None:
    odd = NOW + years * 365 * FAR
    found = told(NOW - 3, odd, NOW - 1)
    assert (found.first, found.last, found.odd) == (NOW - 3, NOW - 1, odd)
    assert is_ahead(found.odd, found.last)
    first = told(odd, since=NOW - 7)
    assert (first.first, first.last, first.odd) == (NOW - 7, NOW - 7, odd)
    alone = told(odd)
    assert (alone.first, alone.last) == (NOW, NOW)


def test_the_past_moves_nothing() -> None:
    found = told(5 * SECOND, since=NOW - 7)
    assert (found.first, found.last, found.odd) == (NOW - 7, NOW - 7, 5 * SECOND)
    assert not is_ahead(found.odd, found.last)
    both = told(5 * SECOND, NOW * 2, since=NOW - 7)
    assert both.odd == NOW * 2
    both = told(NOW * 2, 5 * SECOND, since=NOW - 7)
    assert both.odd == NOW * 2


def test_bounded_times_never_fall_however_they_come() -> None:
    rng = random.Random(7)
    for _ in range(300):
        times = [NOW + rng.choice((-400 * FAR, -9, -5, 0, 1, 400 * FAR)) for _ in range(9)]
        whole = told(*times, since=NOW - 6)
        cut = rng.randrange(10)
        parts = told(*times[:cut], since=NOW - 6).and_then(times[cut:], now=NOW, bound=SECOND)
        assert (whole.first, whole.last, whole.since) == (parts.first, parts.last, parts.since)
        assert whole.first is not None
        assert whole.last is not None
        assert NOW - 6 <= whole.first <= whole.last <= NOW + SECOND
