"""Numbers in the binary form of row images: integers, BIT, YEAR and DECIMAL.

Lives here: the kernels, and the layout of a DECIMAL's bytes. Does not live here: numbers as text
(`textnumbers`).

Invariant: a 128-bit number is a row of two 64-bit halves, low one first, as Arrow's decimal128
has it in memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, Longs
from ratchet.wire.decode.kernels.arrays import Halves, Numbers
from ratchet.wire.decode.kernels.bytesorder import big, little
from ratchet.wire.decode.kernels.walk import GOOD
from ratchet.wire.kernel import kernel

_MINUS, _POINT, _ZERO = 45, 46, 48
_MASK32: Final = np.uint64(0xFFFFFFFF)
_32: Final = np.uint64(32)
_TOP: Final = 0x80
_FIRST_YEAR: Final = 1900


@kernel
def integers(buf: Bytes, offs: Longs, lens: Longs, size: Int, signed: Int, out: Numbers) -> Int:
    """Little-endian whole numbers of `size` bytes (1 to 8) into any array that is wide enough."""
    shift = 64 - 8 * size
    for i in range(len(offs)):
        o = offs[i]
        if o < 0:
            out[i] = 0
            continue
        if lens[i] != size or o + size > len(buf):
            return i
        number = np.int64(little(buf, o, size))
        out[i] = (number << shift) >> shift if signed else number
    return GOOD


@kernel
def unsigned64(buf: Bytes, offs: Longs, lens: Longs, out: Halves) -> Int:
    """Little-endian unsigned numbers of 8 bytes into 128-bit numbers."""
    for i in range(len(offs)):
        o = offs[i]
        out[i, 0] = np.uint64(0)
        out[i, 1] = np.uint64(0)
        if o < 0:
            continue
        if lens[i] != 8 or o + 8 > len(buf):
            return i
        out[i, 0] = little(buf, o, 8)
    return GOOD


@kernel
def bits(buf: Bytes, offs: Longs, lens: Longs, size: Int, out: Longs) -> Int:
    """BIT of up to 63 bits: big-endian unsigned numbers of `size` bytes."""
    for i in range(len(offs)):
        o = offs[i]
        if o < 0:
            out[i] = 0
            continue
        if lens[i] != size or o + size > len(buf):
            return i
        out[i] = np.int64(big(buf, o, size))
    return GOOD


@kernel
def bits64(buf: Bytes, offs: Longs, lens: Longs, out: Halves) -> Int:
    """BIT(64) into 128-bit numbers."""
    for i in range(len(offs)):
        o = offs[i]
        out[i, 0] = np.uint64(0)
        out[i, 1] = np.uint64(0)
        if o < 0:
            continue
        if lens[i] != 8 or o + 8 > len(buf):
            return i
        out[i, 0] = big(buf, o, 8)
    return GOOD


@kernel
def years(buf: Bytes, offs: Longs, lens: Longs, two_digits: Int, out: Numbers) -> Int:
    """YEAR: 0 is '0000', else years since 1900; with two digits the window 1970 to 2069."""
    for i in range(len(offs)):
        o = offs[i]
        if o < 0:
            out[i] = 0
            continue
        if lens[i] != 1 or o + 1 > len(buf):
            return i
        year = np.int64(buf[o])
        if two_digits:
            short = year % 100
            out[i] = short + (2000 if short < 70 else 1900)
        else:
            out[i] = year + _FIRST_YEAR if year else 0
    return GOOD


@kernel
def _group(buf: Bytes, o: Int, size: Int, flip: Int, first: Int) -> np.int64:
    """A group of a DECIMAL's digits: big-endian, inverted if negative, sign bit in the first."""
    value = np.int64(0)
    for k in range(size):
        byte = np.int64(buf[o + k]) ^ flip
        if first and k == 0:
            byte ^= _TOP
        value = value << 8 | byte
    return value


@kernel
def times_plus(
    low: np.uint64, high: np.uint64, factor: Int, add: Int
) -> tuple[np.uint64, np.uint64]:
    """(high, low) * factor + add, for a factor below 2^31, without overflow checks."""
    times = np.uint64(factor)
    bottom = (low & _MASK32) * times + np.uint64(add)
    middle = (low >> _32) * times + (bottom >> _32)
    return (middle << _32) | (bottom & _MASK32), high * times + (middle >> _32)


@kernel
def decimals(
    buf: Bytes,
    offs: Longs,
    lens: Longs,
    group_bytes: Longs,
    group_powers: Longs,
    narrow: Int,
    out: Halves,
) -> Int:
    """DECIMAL of up to 38 digits into 128-bit numbers.

    Args:
        buf: the bytes; with `offs` and `lens` the column.
        offs: see `buf`.
        lens: see `buf`.
        group_bytes: the bytes of each group of digits, see `wire.decode.decimals.groups`.
        group_powers: 10 to the number of digits of each group.
        narrow: whether all digits fit into 63 bits, which is much quicker.
        out: the numbers, without the point.
    """
    size = group_bytes.sum()
    for i in range(len(offs)):
        o = offs[i]
        out[i, 0] = np.uint64(0)
        out[i, 1] = np.uint64(0)
        if o < 0:
            continue
        if lens[i] != size or o + size > len(buf):
            return i
        negative = buf[o] & _TOP == 0
        flip = 0xFF if negative else 0
        low, high = np.uint64(0), np.uint64(0)
        short = np.int64(0)
        at = o
        for g in range(len(group_bytes)):
            digits = _group(buf, at, group_bytes[g], flip, g == 0)
            if digits >= group_powers[g]:
                return i
            at += group_bytes[g]
            if narrow:
                short = short * group_powers[g] + digits
            else:
                low, high = times_plus(low, high, group_powers[g], digits)
        if narrow:
            low = np.uint64(short)
        if negative:
            low = ~low + np.uint64(1)
            high = ~high + np.uint64(low == np.uint64(0))
        out[i, 0] = low
        out[i, 1] = high
    return GOOD


@kernel
def decimal_texts(
    buf: Bytes,
    offs: Longs,
    lens: Longs,
    group_bytes: Longs,
    group_powers: Longs,
    scale: Int,
) -> tuple[Bytes, Longs, Int]:
    """DECIMAL of any size into the server's text: no leading zeros, all digits of the scale.

    Args:
        buf: the bytes; with `offs` and `lens` the column.
        offs: see `buf`.
        lens: see `buf`.
        group_bytes: as for `decimals`.
        group_powers: as for `decimals`.
        scale: digits behind the point.
    """
    rows = len(offs)
    size = group_bytes.sum()
    digits = np.zeros(9 * len(group_bytes) + 1, dtype=np.uint8)
    longest = len(digits) + 3
    data = np.empty(rows * longest, dtype=np.uint8)
    places = np.zeros(rows + 1, dtype=np.int64)
    used = np.int64(0)
    for i in range(rows):
        o = offs[i]
        if o >= 0:
            if lens[i] != size or o + size > len(buf):
                return data[:used], places, i
            negative = buf[o] & _TOP == 0
            flip = 0xFF if negative else 0
            count, total = 0, np.int64(0)
            at = o
            for g in range(len(group_bytes)):
                value = _group(buf, at, group_bytes[g], flip, g == 0)
                if value >= group_powers[g]:
                    return data[:used], places, i
                at += group_bytes[g]
                total += value
                power = group_powers[g] // 10
                while power > 0:
                    digits[count] = _ZERO + value // power % 10
                    power //= 10
                    count += 1
            minus = 1 if negative and total > 0 else 0
            used = write_decimal(data, used, digits, count, scale, minus)
        places[i + 1] = used
    return data[:used].copy(), places, GOOD


@kernel
def write_decimal(
    data: Bytes, used: Int, digits: Bytes, count: Int, scale: Int, negative: Int
) -> np.int64:
    """Write `count` digits, the last `scale` behind a point, and return the place behind them."""
    if negative:
        data[used] = _MINUS
        used += 1
    whole = count - scale
    begin = 0
    while begin < whole and digits[begin] == _ZERO:
        begin += 1
    if begin == whole:
        data[used] = _ZERO
        used += 1
    for k in range(begin, count):
        if k == whole:
            data[used] = _POINT
            used += 1
        data[used] = digits[k]
        used += 1
    return np.int64(used)
