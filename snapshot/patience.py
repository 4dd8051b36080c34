"""How long a server that fails is waited for.

Lives here: growing delays between tries, and the moment to give up. Does not live here: waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from ratchet.core.errors import LockedError, RetryableError

_FIRST: Final = 0.5
_LONGEST: Final = 15.0
_DOUBLINGS: Final = 64  # then any delay is the longest, and a power of two still a float


class RetryBudget:
    """Failures of servers, by name. For several threads."""

    def __init__(
        self,
        seconds: float,
        *,
        first: float = _FIRST,
        longest: float = _LONGEST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Give up on a server after `seconds` of failures without a success between.

        `first`: seconds to wait after the first failure; doubles with each, up to `longest`.
        """
        self._seconds = seconds
        self._first, self._longest = first, longest
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[str, tuple[float, int]] = {}

    def failed(self, name: str, error: RetryableError) -> float:
        """Note a failure; the seconds to wait until the next try.

        A locked table is waited for without an end: its server is well, and so are other tables.

        Raises:
            RetryableError: the error itself, when patience is over.
        """
        with self._lock:
            since, count = self._failures.get(name, (self._clock(), 0))
            self._failures[name] = (since, count + 1)
            over = self._clock() - since > self._seconds
            if over and not isinstance(error, LockedError):
                raise error
        delay: float = min(self._longest, self._first * 2 ** min(count, _DOUBLINGS))
        return delay

    def succeeded(self, name: str) -> None:
        """Forget the failures of a server."""
        with self._lock:
            self._failures.pop(name, None)
