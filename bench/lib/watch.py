"""Something that is looked at again and again while a block runs."""

from __future__ import annotations

import threading
from typing import Final, Self

_EVERY: Final = 0.5  # seconds; a look at memory costs the kernel some 10 ms a process


class Watch:
    """Use as a context; `look` is called by a thread of its own."""

    def __init__(self) -> None:
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._halt.set()
        self._thread.join()

    def look(self) -> None:
        """What is done each time."""
        raise NotImplementedError

    def _watch(self) -> None:
        while not self._halt.wait(_EVERY):
            self.look()
