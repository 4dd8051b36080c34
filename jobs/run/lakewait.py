"""A lake that is full, busy or out of reach for a while: a run waits for it.

Lives here: `LakeWait`, which knows since when it is, and for how long it is waited for. Does not
live here: which failures may pass (`store.failures`), ending the loops and making them anew
(`commands`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from ratchet.core.errors import LakeAwayError, RatchetError
from ratchet.jobs.capture.loops import Control

log: Final = logging.getLogger("ratchet.jobs.run")

_FIRST_PAUSE: Final = 1.0  # seconds; doubles with each try
_LONGEST_PAUSE: Final = 15.0
_WELL: Final = 60.0  # seconds without a failure behind which it is another one


class LakeWait:
    """For several threads.

    Args:
        patience: seconds that it is waited for.
        clock: seconds, rising.
    """

    def __init__(self, patience: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._lock = threading.Lock()
        self._error: LakeAwayError | None = None
        self._first = self._last = clock() - _WELL - 1
        self._count = 0

    def take(self, error: RatchetError) -> bool:
        """Whether an error is one to wait out, and there is patience left for it."""
        if not isinstance(error, LakeAwayError):
            return False
        now = self._clock()
        with self._lock:
            if now - self._last > _WELL:
                self._first, self._count = now, 0
            self._last = now
            if now - self._first >= self._patience:
                return False
            self._error = self._error or error
        return True

    def wait(self, control: Control, ask: Callable[[], None]) -> None:
        """Come back at once if nothing was taken, else when the lake can be used or it was stopped.

        Args:
            control: tells whether to stop.
            ask: raises as long as the lake cannot be used.

        Raises:
            LakeAwayError: patience is over.
            LakeError: something else is the matter with it by now.
        """
        while (error := self._error) is not None and not control.stopping:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._count)
            self._count += 1
            log.warning(
                "%s; waiting for the lake, trying again in %.0f s",
                error,
                pause,
                extra={"fields": error.fields()},
            )
            control.go_on()  # what else failed by it must not make this shorter
            control.rest(pause)
            try:
                ask()
            except LakeAwayError as again:
                if not self.take(again):
                    raise
            else:
                self._error = None
        control.go_on()
