"""Received bytes and the index of the whole events in them.

Lives here: `EventBuffer`, what stands between a stream's socket and who uses its events, and the
spare ones of a process. Does not live here: the socket and its errors (`binlog`), framing
(`framing`).

Invariant: bytes of events that were not used yet stay, in order, in this window or the one they
were handed over to.
"""

from __future__ import annotations

import os
import queue
from typing import Final

import numpy as np
import numpy.typing as npt

from ratchet.wire import framing
from ratchet.wire.stream import BUFFER_SIZE, Bytes, ReceiveBuffer, Socket

ROOM: Final = 1 << 20  # to receive into at a time, at least
_EVENTS: Final = 1 << 17


class EventBuffer:
    """A buffer and the events found in it.

    Attributes:
        index: records of framing.EVENT.
        first: number of the first event that was not used yet.
        count: how many there are; new ones come behind.
        framed: where in the buffer the first byte lies that is in no event yet.
        status: what framing has ended with (see `wire.framing`).
    """

    def __init__(self) -> None:
        self.index = np.zeros(_EVENTS, framing.EVENT)
        self.first = self.count = self.framed = 0
        self.status = framing.NEED_MORE
        self._buffer = ReceiveBuffer()

    @property
    def data(self) -> Bytes:
        """The bytes that `index` refers to."""
        return self._buffer.data

    @property
    def is_full(self) -> bool:
        """Whether used events have to make room before more can be received."""
        return self.data.size - self._buffer.end < ROOM or self.count == self.index.size

    @property
    def has_part(self) -> bool:
        """Whether there are bytes of an event that is not whole yet."""
        return self._buffer.end > self.framed

    @property
    def is_large(self) -> bool:
        """Whether an event has made it grow far beyond its usual size."""
        return self.data.size > 4 * BUFFER_SIZE

    @property
    def is_at_fault(self) -> bool:
        """Whether nothing behind the last event can ever be one."""
        return self.status not in {framing.NEED_MORE, framing.FULL}

    @property
    def wants_more(self) -> bool:
        """Whether only what is received next can bring another event, and there is room for it."""
        return self.status == framing.NEED_MORE and not self.is_full

    def receive(self, sock: Socket) -> int:
        """Receive once; see ReceiveBuffer.receive."""
        return self._buffer.receive(sock, room=ROOM)

    def frame(self, state: npt.NDArray[np.int64]) -> bool:
        """Index what is whole by now; whether there are new events.

        Args:
            state: the stream's, see `framing.frame`.
        """
        before = self.count
        self.count, self.framed, self.status = framing.frame(
            self.data,
            self.framed,
            self._buffer.end,
            True,
            state,
            self.index,
            self.count,
            framing.CRC_TABLES,
        )
        return self.count > before

    def recycle(self) -> None:
        """Make room, moving what is unused to the front. Nothing may refer to used events."""
        waiting = self._waiting()
        buffer = self._buffer
        buffer.start = before = self._unused(waiting)
        if self.is_large and len(buffer) < BUFFER_SIZE // 2:
            buffer.shrink()
        else:
            buffer.reserve(ROOM)
        self._place(waiting, self.framed, before - buffer.start)

    def hand_over(self, other: EventBuffer) -> None:
        """Copy what is unused into another window, which holds nothing else afterwards."""
        waiting = self._waiting()
        begin = self._unused(waiting)
        other._buffer.refill(self.data[begin : self._buffer.end], room=ROOM)
        other.status = self.status
        other._place(waiting, self.framed, begin)

    def _waiting(self) -> npt.NDArray[np.void]:
        return self.index[self.first : self.count].copy()

    def _unused(self, waiting: npt.NDArray[np.void]) -> int:
        """Where the first byte lies that was not used."""
        return int(waiting["start"][0]) if waiting.size else self.framed

    def _place(self, waiting: npt.NDArray[np.void], framed: int, moved: int) -> None:
        """Hold the events that wait and no others; their bytes stand so much further in front."""
        waiting["start"] -= moved
        waiting["end"] -= moved
        self.index[: waiting.size] = waiting
        self.first, self.count, self.framed = 0, waiting.size, framed - moved


# None: not made yet.
_spares: Final[queue.SimpleQueue[EventBuffer | None]] = queue.SimpleQueue()
for _ in range(os.cpu_count() or 1):
    _spares.put(None)


def borrow() -> EventBuffer | None:
    """A second window, for a while; None if all are lent.

    A process has as many as cores: more streams than that keep the cores busy without.
    """
    try:
        return _spares.get_nowait() or EventBuffer()
    except queue.Empty:
        return None


def give_back(window: EventBuffer) -> None:
    """Lend it to the next: the one that was borrowed, or the one in whose place it came."""
    _spares.put(None if window.is_large else window)
