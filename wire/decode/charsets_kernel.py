"""Loops that read a column's texts and write UTF-8.

Which table belongs to which character set is `charsets`' matter.

Invariant: no bytes whatever make these crash or read outside a value.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, Ints, Longs, room, utf8_width
from ratchet.wire.kernel import kernel

# In a table of single bytes, what is no code point.
BAD: Final = -1
PAIR: Final = -2  # the first of two
TRIPLE: Final = -3  # the first of three
QUAD: Final = -4  # the first of two, or of four if a digit follows (GB 18030)

# GB 18030 numbers its four-byte sequences: this many at the front have a table (one more entry is
# for all without a character), and from another number on they are the code points above the basic
# plane.
QUADS: Final = 50_400
_PLANES: Final = 189_000


@kernel
def utf8_column(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, int]:
    """Check UTF-8 and copy it together. See `charsets.transcode_column`."""
    count = offs.size
    offsets = np.zeros(count + 1, np.int64)
    total = np.int64(0)
    for i in range(count):
        if offs[i] >= 0:
            if not _inside(buf, offs[i], lens[i]):
                return np.empty(0, np.uint8), np.zeros(count + 1, np.int64), i
            total += lens[i]
        offsets[i + 1] = total
    out = np.empty(total, np.uint8)
    seen = np.uint8(0)
    for i in range(count):
        if offs[i] >= 0:
            source = buf[offs[i] : offs[i] + lens[i]]
            seen |= _copy(source, out[offsets[i] : offsets[i + 1]])
    if seen >= 0x80:  # not all of it is ASCII
        for i in range(count):
            if offs[i] >= 0 and not _is_utf8(buf, offs[i], offs[i] + lens[i]):
                return np.empty(0, np.uint8), np.zeros(count + 1, np.int64), i
    return out, offsets, -1


@kernel
def coded_column(
    buf: Bytes, offs: Longs, lens: Longs, single: Ints, pair: Ints, wide: Ints, plain: bool
) -> tuple[Bytes, Longs, int]:
    """Read single- and multi-byte sets by their tables. See `charsets.transcode_column`.

    Args:
        buf: holds the values.
        offs: where they begin.
        lens: their lengths.
        single: see `charsets.Transcoder`.
        pair: as well.
        wide: as well.
        plain: whether bytes below 128 are ASCII where a character begins.
    """
    count = offs.size
    offsets = np.zeros(count + 1, np.int64)
    out = np.empty(_guess(buf, offs, lens), np.uint8)
    pos: Int = np.int64(0)
    for i in range(count):
        if offs[i] >= 0:
            at = offs[i]
            if not _inside(buf, at, lens[i]):
                return np.empty(0, np.uint8), np.zeros(count + 1, np.int64), i
            end = at + lens[i]
            out = room(out, pos, 3 * (end - at))
            if plain and _copy(buf[at:end], out[pos : pos + end - at]) < 0x80:
                pos += end - at
            else:
                pos = _coded(buf, at, end, single, pair, wide, out, pos)
            if pos < 0:
                return np.empty(0, np.uint8), np.zeros(count + 1, np.int64), i
        offsets[i + 1] = pos
    return out[:pos], offsets, -1


@kernel
def units_column(
    buf: Bytes, offs: Longs, lens: Longs, width: int, little: bool, pairs: bool
) -> tuple[Bytes, Longs, int]:
    """Read ucs2, utf16, utf16le and utf32. See `charsets.transcode_column`.

    Args:
        buf: holds the values.
        offs: where they begin.
        lens: their lengths.
        width: bytes in a unit, 2 or 4.
        little: whether a unit's last byte comes first.
        pairs: whether two surrogates make a character.
    """
    count = offs.size
    offsets = np.zeros(count + 1, np.int64)
    out = np.empty(_guess(buf, offs, lens), np.uint8)
    pos: Int = np.int64(0)
    for i in range(count):
        if offs[i] >= 0:
            at, size = offs[i], lens[i]
            if not _inside(buf, at, size) or size % width:
                return np.empty(0, np.uint8), np.zeros(count + 1, np.int64), i
            out = room(out, pos, 2 * size)
            pos = _units(buf, at, at + size, width, little, pairs, out, pos)
            if pos < 0:
                return np.empty(0, np.uint8), np.zeros(count + 1, np.int64), i
        offsets[i + 1] = pos
    return out[:pos], offsets, -1


@kernel
def _inside(buf: Bytes, at: Int, size: Int) -> bool:
    return bool(size >= 0 and at <= buf.size and size <= buf.size - at)


@kernel
def _guess(buf: Bytes, offs: Longs, lens: Longs) -> Int:
    """Room to begin with: mostly the input's size and a half."""
    total = np.int64(0)
    for i in range(offs.size):
        if offs[i] >= 0 and lens[i] > 0:
            total += min(lens[i], np.int64(buf.size))
    return total + total // 2 + 16


@kernel
def _copy(source: Bytes, target: Bytes) -> np.uint8:
    """Copy, and tell whether anything was above ASCII: all bytes, or-ed together.

    Over slices and without a way out, so that it is compiled to whole registers at a time: 3 ns
    for a short value, where indices into the whole buffers took 80.
    """
    seen = np.uint8(0)
    for i in range(source.size):
        byte = source[i]
        target[i] = byte
        seen |= byte
    return seen


@kernel
def _is_utf8(buf: Bytes, at: Int, end: Int) -> bool:
    while at < end:
        if buf[at] < 0x80:
            at += 1
            continue
        width = utf8_width(buf, at, end)
        if width == 0:
            return False
        at += width
    return True


@kernel
def _write(code: Int, out: Bytes, pos: Int) -> Int:
    """Write a code point as UTF-8; the position behind it."""
    if code < 0x80:
        out[pos] = code
        return pos + 1
    if code < 0x800:
        out[pos] = 0xC0 | code >> 6
        out[pos + 1] = 0x80 | code & 0x3F
        return pos + 2
    if code < 0x10000:
        out[pos] = 0xE0 | code >> 12
        out[pos + 1] = 0x80 | code >> 6 & 0x3F
        out[pos + 2] = 0x80 | code & 0x3F
        return pos + 3
    out[pos] = 0xF0 | code >> 18
    out[pos + 1] = 0x80 | code >> 12 & 0x3F
    out[pos + 2] = 0x80 | code >> 6 & 0x3F
    out[pos + 3] = 0x80 | code & 0x3F
    return pos + 4


@kernel
def _coded(
    buf: Bytes, at: Int, end: Int, single: Ints, pair: Ints, wide: Ints, out: Bytes, pos: Int
) -> Int:
    """One value by its tables; the position behind it, or BAD."""
    while at < end:
        code = np.int64(single[buf[at]])
        width = 1
        if code < 0:
            if code == BAD or at + 1 >= end:
                return BAD
            second = np.int64(buf[at + 1])
            if code == TRIPLE:
                width = 3
                if at + 2 >= end:
                    return BAD
                code = np.int64(wide[second << 8 | np.int64(buf[at + 2])])
            elif code == QUAD and 0x30 <= second <= 0x39:
                width = 4
                code = _quad(buf, at, end, wide)
            else:
                width = 2
                code = np.int64(pair[np.int64(buf[at]) << 8 | second])
            if code < 0:
                return BAD
        pos = _write(code, out, pos)
        at += width
    return pos


@kernel
def _quad(buf: Bytes, at: Int, end: Int, wide: Ints) -> np.int64:
    """The code point of a four-byte sequence of GB 18030, or BAD."""
    if at + 3 >= end:
        return np.int64(BAD)
    third, fourth = np.int64(buf[at + 2]), np.int64(buf[at + 3])
    if third < 0x81 or third > 0xFE or fourth < 0x30 or fourth > 0x39:
        return np.int64(BAD)
    number = (np.int64(buf[at]) - 0x81) * 10 + np.int64(buf[at + 1]) - 0x30
    number = (number * 126 + third - 0x81) * 10 + fourth - 0x30
    if number < QUADS:
        return np.int64(wide[number])
    if number < _PLANES or number > _PLANES + 0xFFFFF:
        return np.int64(wide[QUADS])
    return number - _PLANES + 0x10000


@kernel
def _units(
    buf: Bytes, at: Int, end: Int, width: int, little: bool, pairs: bool, out: Bytes, pos: Int
) -> Int:
    """One value by units; the position behind it, or BAD."""
    while at < end:
        code = _unit(buf, at, width, little)
        at += width
        if width == 2 and pairs and 0xD800 <= code < 0xDC00 and at < end:
            low = _unit(buf, at, width, little)
            if low < 0xDC00 or low > 0xDFFF:
                return BAD
            code = 0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00
            at += width
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            return BAD
        pos = _write(code, out, pos)
    return pos


@kernel
def _unit(buf: Bytes, at: Int, width: int, little: bool) -> np.int64:
    value = np.int64(0)
    for i in range(width):
        value = value << 8 | np.int64(buf[at + width - 1 - i if little else at + i])
    return value
