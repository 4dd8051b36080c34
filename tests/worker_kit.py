"""Something that goes on beside a test: a thread that works until it is told to end."""

from __future__ import annotations

import threading
import time
from typing import Self


class Worker(threading.Thread):
    """Does something again and again until told to end; what must not happen is raised then.

    Attributes:
        done: how often it has succeeded, as its `step` counts.
        told: set when it is to end.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = 0
        self.told = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def step(self) -> None:
        """What it does: once, or on one connection until it is told to end."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            while not self.told.is_set():
                self.step()
        except BaseException as error:  # noqa: BLE001 - raised by whoever asks
            self._failure = error

    def more(self, count: int, *, seconds: float = 90.0) -> None:
        """Wait until it has succeeded so many times more."""
        wanted, deadline = self.done + count, time.monotonic() + seconds
        while self.done < wanted:
            self.check()
            assert time.monotonic() < deadline, f"{type(self).__name__} is stuck"
            time.sleep(0.05)

    def end(self) -> None:
        """Let it finish what it is at."""
        self.told.set()
        self.join()
        self.check()

    def check(self) -> None:
        """Raise what it has died of."""
        if self._failure is not None:
            raise self._failure
