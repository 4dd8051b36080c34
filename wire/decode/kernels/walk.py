"""From bytes to places: where each value of each row lies. Nothing here knows what values mean.

Lives here: the walk over binlog row images, the framing of result-set packets and the walk over
their rows, and Arrow's validity bitmaps. Does not live here: values (`numbers`, `temporal`,
`strings`), and the layout of a table's rows, which comes in as arrays (`wire.decode.plan`).

Invariant: a place that is written (offset and length) lies inside its event or packet.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, Ints, Longs
from ratchet.wire.kernel import kernel

GOOD: Final = -1

# Why a walk stopped.
OK: Final = 0
CUT_SHORT: Final = 1  # a value ends behind its event or packet
WRONG_COUNT: Final = 2  # the event has another number of columns than its table map
INCOMPLETE: Final = 3  # the event's images lack columns
TRAILING: Final = 4  # a packet goes on behind its last value
CONTINUED: Final = 5  # a packet of 2^24-1 bytes: the row goes on in the next packet

# Which images the rows of an event have, as bits.
BEFORE: Final = 1
AFTER: Final = 2

_NULL: Final = 0xFB
_PACKET_MAX: Final = 0xFFFFFF
_HEADER: Final = 4


@kernel
def _lenenc(buf: Bytes, pos: Int, end: Int) -> tuple[Int, Int]:
    """A length-encoded number at `pos` and the place behind it; place -1 if it is cut short."""
    if pos >= end:
        return 0, -1
    first = np.int64(buf[pos])
    if first < _NULL:
        return first, pos + 1
    size = 2 if first == 0xFC else 3 if first == 0xFD else 8
    if first in (_NULL, 0xFF) or pos + 1 + size > end:
        return 0, -1
    value = np.int64(0)
    for i in range(size):
        value |= np.int64(buf[pos + 1 + i]) << (8 * i)
    if value < 0:
        return 0, -1
    return value, pos + 1 + size


@kernel
def _images_start(buf: Bytes, pos: Int, end: Int, columns: Int, images: Int) -> tuple[Int, Int]:
    """Where an event's first row begins, behind the column count and bitmaps, and a status."""
    count, at = _lenenc(buf, pos, end)
    if at < 0:
        return pos, CUT_SHORT
    if count != columns:
        return pos, WRONG_COUNT
    width = (columns + 7) >> 3
    if at + images * width > end:
        return pos, CUT_SHORT
    for image in range(images):
        for column in range(columns):
            byte = buf[at + image * width + (column >> 3)]
            if (byte >> (column & 7)) & 1 == 0:
                return pos, INCOMPLETE
    return at + images * width, OK


@kernel
def _value_end(buf: Bytes, pos: Int, end: Int, prefix: Int, size: Int) -> tuple[Int, Int]:
    """Where a value's bytes begin and end; the end is -1 if they are cut short."""
    if prefix == 0:
        stop = pos + size
        return pos, stop if stop <= end else -1
    start = pos + prefix
    if start > end:
        return pos, -1
    length = np.int64(buf[pos])
    if prefix > 1:
        for i in range(1, prefix):
            length |= np.int64(buf[pos + i]) << (8 * i)
    stop = start + length
    return start, stop if stop <= end else -1


@kernel
def count_rows(
    buf: Bytes, starts: Longs, ends: Longs, prefixes: Longs, sizes: Longs, images: Bytes
) -> tuple[Int, Int, Int]:
    """How many rows some events of one table hold.

    Args:
        buf: holds the events.
        starts: where the column count of each event stands.
        ends: where each event ends.
        prefixes: per column, how many bytes of length stand in front of a value; 0 for none.
        sizes: per column, the bytes of a value without a length in front.
        images: per event which images its rows have: BEFORE, AFTER or both.

    Returns:
        (rows, status, place): a status other than OK says what is wrong at that place.
    """
    columns = len(sizes)
    width = (columns + 7) >> 3
    rows = np.int64(0)
    for event in range(len(starts)):
        end = ends[event]
        if starts[event] < 0 or end > len(buf):
            return rows, CUT_SHORT, starts[event]
        count = 2 if images[event] == BEFORE | AFTER else 1
        pos, status = _images_start(buf, starts[event], end, columns, count)
        if status != OK:
            return rows, status, pos
        while pos < end:
            for _ in range(count):
                nulls = pos
                pos += width
                if pos > end:
                    return rows, CUT_SHORT, nulls
                for column in range(columns):
                    if (buf[nulls + (column >> 3)] >> (column & 7)) & 1:
                        continue
                    start, stop = _value_end(buf, pos, end, prefixes[column], sizes[column])
                    if stop < 0:
                        return rows, CUT_SHORT, start
                    pos = stop
            rows += 1
    return rows, OK, 0


@kernel
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
    """Note the place of every value, in events that `count_rows` found to be sound.

    Args:
        buf: as for `count_rows`.
        starts: as for `count_rows`.
        ends: as for `count_rows`.
        prefixes: as for `count_rows`.
        sizes: as for `count_rows`.
        images: as for `count_rows`.
        offs: out, [columns, rows] if all events have the same image and no other; else
            [2 * columns, rows], the images before in front of those after. Offset of the value, -1
            for NULL and in an image that the row does not have.
        lens: out, as offs: its length in bytes.
        events: out, [rows]: the number of the event that the row is in.
    """
    columns = len(sizes)
    width = (columns + 7) >> 3
    both = offs.shape[0] > columns
    row = 0
    for event in range(len(starts)):
        end = ends[event]
        count = 2 if images[event] == BEFORE | AFTER else 1
        first = columns if both and images[event] == AFTER else 0
        pos, _ = _images_start(buf, starts[event], end, columns, count)
        while pos < end:
            if both and count == 1:
                for column in range(columns):
                    offs[columns - first + column, row] = -1
                    lens[columns - first + column, row] = 0
            for image in range(count):
                nulls = pos
                pos += width
                for column in range(columns):
                    into = first + image * columns + column
                    if (buf[nulls + (column >> 3)] >> (column & 7)) & 1:
                        offs[into, row] = -1
                        lens[into, row] = 0
                        continue
                    start, stop = _value_end(buf, pos, end, prefixes[column], sizes[column])
                    offs[into, row] = start
                    lens[into, row] = stop - start
                    pos = stop
            events[row] = event
            row += 1


@kernel
def count_packets(buf: Bytes, start: Int, end: Int) -> tuple[Int, Int, Int]:
    """How many packets stand between two places: (packets, status, place)."""
    if start < 0 or end > len(buf):
        return 0, CUT_SHORT, start
    packets = np.int64(0)
    pos = np.int64(start)
    while pos < end:
        if pos + _HEADER > end:
            return packets, CUT_SHORT, pos
        size = np.int64(buf[pos]) | np.int64(buf[pos + 1]) << 8 | np.int64(buf[pos + 2]) << 16
        if size == _PACKET_MAX:
            return packets, CONTINUED, pos
        if pos + _HEADER + size > end:
            return packets, CUT_SHORT, pos
        pos += _HEADER + size
        packets += 1
    return packets, OK, 0


@kernel
def frame_packets(buf: Bytes, start: Int, starts: Longs, ends: Longs) -> None:
    """Note where the contents of packets begin and end, after `count_packets` found them sound."""
    pos = np.int64(start)
    for i in range(len(starts)):
        size = np.int64(buf[pos]) | np.int64(buf[pos + 1]) << 8 | np.int64(buf[pos + 2]) << 16
        starts[i] = pos + _HEADER
        ends[i] = pos + _HEADER + size
        pos += _HEADER + size


@kernel
def walk_text(buf: Bytes, starts: Longs, ends: Longs, offs: Longs, lens: Longs) -> tuple[Int, Int]:
    """Note the place of every value in rows of a result set: length-encoded strings.

    Args:
        buf: holds the rows.
        starts: where each row begins.
        ends: where it ends.
        offs: out, [columns, rows]: offset of the value, -1 for NULL.
        lens: out, as offs: its length in bytes.

    Returns:
        (status, row).
    """
    columns = offs.shape[0]
    for row in range(len(starts)):
        pos = starts[row]
        end = ends[row]
        for column in range(columns):
            if pos < end and buf[pos] == _NULL:
                offs[column, row] = -1
                lens[column, row] = 0
                pos += 1
                continue
            length, at = _lenenc(buf, pos, end)
            if at < 0 or length > end - at:
                return CUT_SHORT, row
            offs[column, row] = at
            lens[column, row] = length
            pos = at + length
        if pos != end:
            return TRAILING, row
    return OK, 0


@kernel
def validity(offs: Longs) -> tuple[Bytes, Int]:
    """Arrow's validity bitmap of a column (bit set: not NULL), and how many are NULL."""
    rows = len(offs)
    bitmap = np.zeros((rows + 7) >> 3, dtype=np.uint8)
    nulls = np.int64(0)
    for i in range(rows):
        if offs[i] < 0:
            nulls += 1
        else:
            bitmap[i >> 3] |= np.uint8(1 << (i & 7))
    return bitmap, nulls
