"""Which share of the time background work may take, over runs of any length."""

from __future__ import annotations

from typing import Final

MOST_SAVED: Final = 5.0  # seconds of work that may be saved up while there was none


class Budget:
    """A bucket of seconds that fills with a share of the time, and that work is paid from.

    A bite may begin while the bucket is not in debt. So a bite that took t seconds is followed by
    t * (1 / share - 1) seconds of rest, and runs that are started again and again spend no more
    than one that goes on for ever.

    Args:
        share: of the time, above 0 and up to 1.
        now: seconds of any clock that goes on over runs.
        saved: what is in it, seconds; below 0 is a debt.
    """

    def __init__(self, share: float, *, now: float, saved: float = 0.0) -> None:
        self._share = share
        self._at = now
        self._saved = saved

    def rest(self, now: float) -> float:
        """Seconds until the next bite may begin; 0 if it may."""
        self._fill(now)
        return max(0.0, -self._saved / self._share)

    def spend(self, seconds: float, now: float) -> None:
        """Pay for a bite."""
        self._fill(now)
        self._saved -= seconds

    def _fill(self, now: float) -> None:
        passed = max(0.0, now - self._at)
        self._at = max(self._at, now)
        self._saved = min(MOST_SAVED, self._saved + passed * self._share)
