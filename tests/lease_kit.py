"""Time that passes by itself, for whoever waits for a lease; and what a holder would write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.lease import Lease, Time
from ratchet.store.notes import current_epoch

NOW = 1_800_000_000.0


class Passing:
    """Each sleep takes no time; something may be done then.

    Args:
        meanwhile: called at each sleep with the seconds that have passed.
        now: what the wall clock says at first.
    """

    def __init__(
        self, meanwhile: Callable[[float], None] = lambda _: None, now: float = NOW
    ) -> None:
        self.passed = 0.0
        self.time = Time(
            clock=lambda: now + self.passed, monotonic=lambda: self.passed, sleep=self._sleep
        )
        self._meanwhile = meanwhile

    def _sleep(self, seconds: float) -> None:
        self.passed += seconds
        self._meanwhile(self.passed)


def held(lake: Lake) -> Lake:
    """The lake as its holder of now has it; where it was never held, as it is."""
    return replace(lake, epoch=current_epoch(lake))


def hold(root: Lake) -> Lake:
    """The lake as somebody holds it who is then heard of no more."""
    lease = Lease.acquire(root, "ratchet run", passing=Passing().time)
    root.write_json(layout.LEASE_FILE, asdict(replace(lease.holder, machine="elsewhere")))
    return lease.lake
