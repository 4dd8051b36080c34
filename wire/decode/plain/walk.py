"""Plain twin of `wire.decode.kernels.walk`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Ints, Longs
from ratchet.wire.decode.kernels.walk import (
    AFTER,
    BEFORE,
    CONTINUED,
    CUT_SHORT,
    INCOMPLETE,
    OK,
    TRAILING,
    WRONG_COUNT,
)

__all__ = [
    "AFTER",
    "BEFORE",
    "CONTINUED",
    "CUT_SHORT",
    "INCOMPLETE",
    "OK",
    "TRAILING",
    "WRONG_COUNT",
    "count_packets",
    "count_rows",
    "frame_packets",
    "validity",
    "walk_rows",
    "walk_text",
]

Place = tuple[int, int]  # offset and length of a value; -1 and 0 for NULL


class _StoppedError(Exception):
    """The walk cannot go on: a status and a place."""

    def __init__(self, status: int, place: int) -> None:
        super().__init__(status, place)
        self.status = status
        self.place = place


class _Walker:
    """A place in some bytes that moves on, and never past `end`."""

    def __init__(self, data: bytes, pos: int, end: int) -> None:
        self.data = data
        self.pos = pos
        self.end = end

    def skip(self, count: int, *, blame: int | None = None) -> int:
        """Move on by `count` bytes and return where they began."""
        start = self.pos
        if count < 0 or start + count > self.end:
            raise _StoppedError(CUT_SHORT, start if blame is None else blame)
        self.pos = start + count
        return start

    def number(self, size: int) -> int:
        """The next `size` bytes as a little-endian number."""
        start = self.skip(size)
        return int.from_bytes(self.data[start : start + size], "little")

    def lenenc(self) -> int:
        """The next length-encoded number."""
        start = self.pos
        first = self.number(1)
        if first < 0xFB:
            return first
        if first in {0xFB, 0xFF}:
            raise _StoppedError(CUT_SHORT, start)
        value = self.number({0xFC: 2, 0xFD: 3, 0xFE: 8}[first])
        if value >= 1 << 63:
            raise _StoppedError(CUT_SHORT, start)
        return value


def _rows(
    data: bytes, start: int, end: int, prefixes: list[int], sizes: list[int], images: int
) -> Iterator[list[Place]]:
    """The rows of one event: the places of all values of all images."""
    columns = len(sizes)
    width = (columns + 7) // 8
    walker = _Walker(data, start, end)
    try:
        count = walker.lenenc()
        bitmaps = "" if count != columns else _bits(walker, width * images)
    except _StoppedError:
        raise _StoppedError(CUT_SHORT, start) from None
    if count != columns:
        raise _StoppedError(WRONG_COUNT, start)
    for image in range(images):
        if "0" in bitmaps[image * width * 8 :][:columns]:
            raise _StoppedError(INCOMPLETE, start)
    while walker.pos < end:
        row: list[Place] = []
        for _ in range(images):
            nulls = _bits(walker, width)
            for column, (prefix, size) in enumerate(zip(prefixes, sizes, strict=True)):
                row.append((-1, 0) if nulls[column] == "1" else _value(walker, prefix, size))
        yield row


def _bits(walker: _Walker, width: int) -> str:
    """The next bytes as a string of bits, the lowest bit of each byte first."""
    start = walker.skip(width)
    return "".join(f"{byte:08b}"[::-1] for byte in walker.data[start : start + width])


def _value(walker: _Walker, prefix: int, size: int) -> Place:
    if prefix:
        size = walker.number(prefix)
    return walker.skip(size), size


def count_rows(
    buf: Bytes, starts: Longs, ends: Longs, prefixes: Longs, sizes: Longs, images: Bytes
) -> tuple[int, int, int]:
    """How many rows some events hold: (rows, status, place)."""
    data = buf.tobytes()
    rows = 0
    for start, end, has in zip(starts.tolist(), ends.tolist(), images.tolist(), strict=True):
        if start < 0 or end > len(data):
            return rows, CUT_SHORT, start
        try:
            for _ in _rows(data, start, end, prefixes.tolist(), sizes.tolist(), has.bit_count()):
                rows += 1
        except _StoppedError as stopped:
            return rows, stopped.status, stopped.place
    return rows, OK, 0


def walk_rows(
    buf: Bytes,
    starts: Longs,
    ends: Longs,
    prefixes: Longs,
    sizes: Longs,
    images: Bytes,
    offs: Longs,
    lens: Longs,
    events: Ints,
) -> None:
    """Note the place of every value, in events that `count_rows` found to be sound."""
    data = buf.tobytes()
    lacking = [(-1, 0)] * len(sizes)
    both = len(offs) > len(sizes)
    number = 0
    for event, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        has = int(images[event])
        for row in _rows(data, start, end, prefixes.tolist(), sizes.tolist(), has.bit_count()):
            front = lacking if both and has == AFTER else []
            behind = lacking if both and has == BEFORE else []
            offs[:, number], lens[:, number] = zip(*front, *row, *behind, strict=True)
            events[number] = event
            number += 1


def _packets(data: bytes, start: int, end: int) -> Iterator[Place]:
    walker = _Walker(data, start, end)
    while walker.pos < end:
        header = walker.skip(4)
        size = int.from_bytes(data[header : header + 3], "little")
        if size == 0xFFFFFF:
            raise _StoppedError(CONTINUED, header)
        yield walker.skip(size, blame=header), size


def count_packets(buf: Bytes, start: int, end: int) -> tuple[int, int, int]:
    """How many packets stand between two places: (packets, status, place)."""
    if start < 0 or end > len(buf):
        return 0, CUT_SHORT, start
    packets = 0
    try:
        for _ in _packets(buf.tobytes(), start, end):
            packets += 1
    except _StoppedError as stopped:
        return packets, stopped.status, stopped.place
    return packets, OK, 0


def frame_packets(buf: Bytes, start: int, starts: Longs, ends: Longs) -> None:
    """Note where packets' contents begin and end, after `count_packets` found them sound."""
    packets = _packets(buf.tobytes(), start, len(buf))
    for number in range(len(starts)):
        begin, size = next(packets)
        starts[number], ends[number] = begin, begin + size


def walk_text(buf: Bytes, starts: Longs, ends: Longs, offs: Longs, lens: Longs) -> tuple[int, int]:
    """Note the place of every value in rows of length-encoded strings: (status, row)."""
    data = buf.tobytes()
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        walker = _Walker(data, start, end)
        for column in range(len(offs)):
            try:
                offs[column, row], lens[column, row] = _text_value(walker)
            except _StoppedError:
                return CUT_SHORT, row
        if walker.pos != end:
            return TRAILING, row
    return OK, 0


def _text_value(walker: _Walker) -> Place:
    if walker.data[walker.pos : walker.pos + 1] == b"\xfb" and walker.pos < walker.end:
        walker.skip(1)
        return -1, 0
    size = walker.lenenc()
    return walker.skip(size), size


def validity(offs: Longs) -> tuple[Bytes, int]:
    """Arrow's validity bitmap of a column, and how many are NULL."""
    present = offs >= 0
    return np.packbits(present, bitorder="little"), int(len(offs) - present.sum())
