"""Telling of reads that a throttle holds back: once they stand still, now and then, and at the end.

Lives here: what is logged of it, for all that reads tables. Does not live here: why a read waits
(`throttle`), and bars that show it all the while (`jobs.reporting.progress`).

Invariant: when reads of a shard have stood still for `AFTER` seconds, the log says so, with the
limit, what was seen, and the option. A read that is let through ends a wait, so a rate that only
makes reads slow is not told of. A wait that was given up is forgotten.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

log: Final = logging.getLogger(__name__)

AFTER: Final = 10.0  # seconds that reads stand still before it is told
EVERY: Final = 300.0  # seconds between two lines while they do
_FORGOTTEN: Final = 60.0  # seconds without a question, after which a wait was given up


@dataclass(slots=True)
class _Wait:
    since: float
    asked: float
    told: float | None = None


class Waits:
    """What waits, by shard. For several threads.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waits: dict[str, _Wait] = {}

    def note(self, shard: str, reason: str) -> None:
        """Note what a throttle said of the next read of a shard; tell of it when it is time.

        Args:
            shard: keyspace/shard.
            reason: why it waits, with limit, value and option; empty if it may begin.
        """
        now = self._clock()
        with self._lock:
            wait = self._waits.pop(shard, None)
            if wait is not None and now - wait.asked > _FORGOTTEN:
                wait = None
            if reason:
                wait = wait or _Wait(since=now, asked=now)
                wait.asked = now
                self._waits[shard] = wait
            if wait is not None:
                _tell(wait, shard, reason, now)


def _tell(wait: _Wait, shard: str, reason: str, now: float) -> None:
    held = now - wait.since
    fields = {"source": shard, "seconds": round(held, 1)}
    if not reason:
        if wait.told is not None:
            log.info(
                "reading of %s continues, after %.0f s",
                shard,
                held,
                extra={"fields": {"event": "reading_goes_on", **fields}},
            )
    elif held >= AFTER and (wait.told is None or now - wait.told >= EVERY):
        wait.told = now
        log.warning(
            "reading of %s has waited for %.0f s: %s; it continues by itself when that is lower, "
            "or from the next start with a higher limit in the config",
            shard,
            held,
            reason,
            extra={"fields": {"event": "reading_waits", **fields, "reason": reason}},
        )
