"""Commit times as a log has them, and what of them can be.

Lives here: `CommitTimes`, the bounds on the commit times of a stretch of a stream. Pure. Does not
live
here: the order of changes (`core.token`), which never goes by a clock within a shard.

A log's times are what a session says: MariaDB writes the statement's start, and `SET TIMESTAMP` or
a replayed dump put any moment there. Two things are certain of a commit: it came after those before
it in the stream, and before it was read. So what is said is bounded by these: along a stream the
times that time travel and lags go by never fall, and are never later than the look at the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FAR: Final = 86_400_000_000  # microseconds before what came before: no lock is waited for as long


def moment(micros: int, *, fine: bool = False) -> str:
    """A time of microseconds since the epoch for people, UTC; `fine`: to the microsecond.

    Whatever a server or a file says: a time that no calendar has is told of as its number.

    >>> moment(0)
    '1970-01-01 00:00:00'
    >>> moment(1 << 62)
    '4611686018427387904 microseconds since 1970'
    """
    try:
        found = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} microseconds since 1970"
    return f"{found:%Y-%m-%d %H:%M:%S.%f}" if fine else f"{found:%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTimes:
    """What the commit times of the transactions read so far amount to, microseconds UTC.

    Attributes:
        since: none of what follows was committed earlier; 0: unknown.
        first: bounded time of the first transaction; None before it.
        last: bounded time of the last one.
        odd: a time that cannot be: from the future, or else `FAR` in the past; None: there is none.
    """

    since: int = 0
    first: int | None = None
    last: int | None = None
    odd: int | None = None

    def and_then(self, times: Sequence[int], *, now: int, bound: int) -> CommitTimes:
        """With the transactions that follow.

        Args:
            times: their commit times as logged, in stream order.
            now: when they had been read, by our clock.
            bound: how far clocks may be apart.
        """
        if not times:
            return self
        since, first, odd = self.since, self.first, self.odd
        top = max(times)
        if top <= now + bound and min(times) >= since - FAR:  # as nearly always
            last = max(since, top)
            first = max(since, times[0]) if first is None else first
            return replace(self, since=last, first=first, last=last)
        for time in times:
            if time > now + bound:
                odd = time
            else:
                if time < since - FAR and (odd is None or odd < since):
                    odd = time
                since = max(since, time)
            # Nothing is known but that it is there by now.
            first = (since or now) if first is None else first
        return replace(self, since=since, first=first, last=since or now, odd=odd)


def is_ahead(odd: int | None, last: int | None) -> bool:
    """Whether an odd time is one from the future."""
    return odd is not None and (last is None or odd > last)
