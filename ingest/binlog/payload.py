"""The side buffer: bytes that were uncompressed here, beside those that were received.

Lives here: MariaDB's uncompressed row events, and the events of MySQL's compressed transactions,
unpacked piece by piece so that a large one does not stand in memory as a whole.

Invariants: what a batch refers to stays where it is until `release`. No more is unpacked than the
transaction says of itself, and an event that says more than what is left is refused by its header.
Each byte is moved a number of times that does not grow with its event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from ratchet.core.errors import DecodeError
from ratchet.ingest.binlog.events import Payload, parse_payload
from ratchet.ingest.binlog.notes import Bytes, Records
from ratchet.wire import framing

LIMIT: Final = 32 << 20  # held at a time, unless a single event is longer
_PIECE: Final = 4 << 20
_OPERATION: Final = "unpack a compressed transaction"


class DecompressionBuffer:
    """A growing array of uncompressed bytes.

    Attributes:
        data: the array; it is replaced when it grows.
        end: how much of it is used.
    """

    def __init__(self) -> None:
        self.data: Bytes = np.zeros(1 << 16, np.uint8)
        self.end = 0
        self._kept = 0  # from here on bytes are not yet walked, and survive `release`
        self._pinned = False
        self._index = np.zeros(1 << 14, framing.EVENT)

    def append(self, more: bytes) -> int:
        """Add bytes; returns where they begin."""
        start = self.end
        self._reserve(len(more))
        self.data[start : start + len(more)] = np.frombuffer(more, np.uint8)
        self.end = self._kept = start + len(more)
        return start

    def release(self) -> None:
        """Nothing refers to the bytes any more, except those that are still to be walked."""
        if self._pinned:
            return
        tail = self.data[self._kept : self.end].copy()
        if self.data.size > 2 * LIMIT and tail.size < LIMIT:
            self.data = np.zeros(LIMIT, np.uint8)
        self.data[: tail.size] = tail
        self._kept, self.end = 0, int(tail.size)

    def unpack(self, body: bytes, *, full: Callable[[], None]) -> Iterator[tuple[Records, int]]:
        """Unpack a TRANSACTION_PAYLOAD; gives (index, count) of events to walk, in turn.

        Args:
            body: the event's body.
            full: called when the buffer is full; it must lead to `release`.
        """
        state = np.zeros(framing.STATE_SIZE, np.int64)
        left = parse_payload(body).uncompressed
        for piece in _pieces(body):
            left -= len(piece)
            # With nothing in front to let go of, the tail of a long event would only be copied.
            if self._kept and self.end + len(piece) > LIMIT:
                full()
            start = self._kept
            self._reserve(len(piece))
            self.data[self.end : self.end + len(piece)] = np.frombuffer(piece, np.uint8)
            self.end += len(piece)
            status = framing.FULL
            while status == framing.FULL:
                count, start, status = framing.frame(
                    self.data, start, self.end, False, state, self._index, 0, framing.CRC_TABLES
                )
                self._kept = start
                self._pinned = True  # the events that are walked now lie before `_kept`
                yield self._index, count
                self._pinned = False
            if status == framing.TOO_LONG:
                raise _garbled("an event says that it has more than 1 GiB, which no server logs")
            if status != framing.NEED_MORE:
                raise _garbled(f"status {status}")
            if self._told(start) > self.end - start + left:
                raise _garbled("an event says that it has more bytes than are left")
        if self._kept != self.end:
            raise _garbled("it ends within an event")

    def _told(self, start: int) -> int:
        """How long the event that begins there says it is; 0 if that has not come yet."""
        size = self.data[start + 9 : min(start + 13, self.end)].tobytes()
        return int.from_bytes(size, "little") if len(size) == 4 else 0

    def _reserve(self, room: int) -> None:
        if self.end + room > self.data.size:
            grown = np.zeros(max(2 * self.data.size, self.end + room), np.uint8)
            grown[: self.end] = self.data[: self.end]
            self.data = grown


def _pieces(body: bytes) -> Iterator[bytes]:
    payload = parse_payload(body)
    left = payload.uncompressed
    for piece in _unpacked(body, payload):
        left -= len(piece)
        if left < 0:
            raise _garbled(f"it has more than the {payload.uncompressed:,} bytes that it states")
        yield piece


def _unpacked(body: bytes, payload: Payload) -> Iterator[bytes]:
    packed = memoryview(body)[payload.start : payload.start + payload.size]
    if not payload.zstd:
        for at in range(0, len(packed), _PIECE):
            yield bytes(packed[at : at + _PIECE])
        return
    try:
        if payload.uncompressed <= _PIECE:
            # Half of the time that a stream takes, where transactions are small.
            whole = pa.Codec("zstd").decompress(packed, payload.uncompressed)
            yield whole.to_pybytes()
            return
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(packed)), "zstd") as stream:
            while piece := stream.read(_PIECE):
                yield piece
    except (OSError, pa.ArrowInvalid) as error:
        raise _garbled(str(error)) from error


def _garbled(why: str) -> DecodeError:
    return DecodeError(
        f"a compressed transaction cannot be read: {why}",
        operation=_OPERATION,
        hint="the stream may be damaged: try again",
    )
