"""Ending a run by signal: SIGTERM and Ctrl-C between two steps, a second one at once.

Invariant: after the first signal the run ends with everything committed that was begun to be
committed; after the second nothing more is done at all, which is as safe as any kill.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_on_signals(
    stop: Callable[[], None], leave: Callable[[int], None] = os._exit
) -> Iterator[None]:
    """Within it the first signal calls `stop`, and the second ends the process.

    Args:
        stop: must be quick and must not wait for a lock of another thread's.
        leave: ends the process with that code, whatever its threads are doing.
    """
    seen: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        seen.append(number)
        if len(seen) > 1:
            leave(128 + number)
        name = signal.Signals(number).name
        # Not through sys.stderr: the signal may have come in the middle of a write to it.
        text = (
            f"ratchet: {name}: stopping after the current step, which may take a minute; "
            "a second signal stops at once, and is safe\n"
        )
        os.write(2, text.encode())
        stop()

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers: a run inside somebody else's program
        return
    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
