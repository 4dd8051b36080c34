"""Numbers as text, as a result set holds them: integers and DECIMAL.

Floats are not here: Arrow's own cast from text is correctly rounded and as quick as a kernel.

Invariant: only digits with at most one sign in front (and one point in a DECIMAL) are a number;
leading zeros (ZEROFILL) do not count.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, Longs
from ratchet.wire.decode.kernels.arrays import Halves, Numbers
from ratchet.wire.decode.kernels.numbers import times_plus, write_decimal
from ratchet.wire.decode.kernels.walk import GOOD
from ratchet.wire.kernel import kernel

_MINUS, _POINT, _ZERO = 45, 46, 48
_LIMIT: Final = np.uint64(0xFFFFFFFFFFFFFFFF // 10)
_LAST: Final = np.uint64(0xFFFFFFFFFFFFFFFF % 10)
_TEN: Final = np.uint64(10)
_ZERO_HALF: Final = np.uint64(0)


@kernel
def _magnitude(buf: Bytes, o: Int, stop: Int) -> tuple[np.uint64, bool]:
    """The number whose digits stand from `o` to `stop`, and whether they are one."""
    if o >= stop:
        return _ZERO_HALF, False
    value = _ZERO_HALF
    for at in range(o, stop):
        digit = np.int64(buf[at]) - _ZERO
        if digit < 0 or digit > 9:
            return _ZERO_HALF, False
        d = np.uint64(digit)
        if value > _LIMIT or (value == _LIMIT and d > _LAST):
            return _ZERO_HALF, False
        value = value * _TEN + d
    return value, True


@kernel
def text_integers(buf: Bytes, offs: Longs, lens: Longs, low: Int, high: Int, out: Numbers) -> Int:
    """Whole numbers between `low` and `high`, which fit into `out`."""
    for i in range(len(offs)):
        o = offs[i]
        if o < 0:
            out[i] = 0
            continue
        stop = o + lens[i]
        if lens[i] < 1 or stop > len(buf):
            return i
        negative = buf[o] == _MINUS
        value, sound = _magnitude(buf, o + 1 if negative else o, stop)
        if not sound or value > np.uint64(1 << 63):
            return i
        number = np.int64(value)
        if negative:
            number = -number
        elif number < 0:
            return i
        if number < low or number > high:
            return i
        out[i] = number
    return GOOD


@kernel
def text_unsigned64(buf: Bytes, offs: Longs, lens: Longs, out: Halves) -> Int:
    """Unsigned numbers of up to 64 bits into 128-bit numbers."""
    for i in range(len(offs)):
        o = offs[i]
        out[i, 0] = _ZERO_HALF
        out[i, 1] = _ZERO_HALF
        if o < 0:
            continue
        stop = o + lens[i]
        if lens[i] < 1 or stop > len(buf):
            return i
        value, sound = _magnitude(buf, o, stop)
        if not sound:
            return i
        out[i, 0] = value
    return GOOD


@kernel
def _decimal_digits(
    buf: Bytes, o: Int, stop: Int, precision: Int, scale: Int, digits: Bytes
) -> Int:
    """The digits of an unsigned DECIMAL without leading zeros, padded to the scale; -1 if none.

    Writes to `digits`, which has room for `precision` + 1, and returns how many there are: at
    least the scale.
    """
    count = np.int64(0)
    behind = np.int64(-1)
    seen = np.int64(0)
    for at in range(o, stop):
        byte = buf[at]
        if byte == _POINT and behind < 0:
            behind = np.int64(0)
            continue
        if byte < _ZERO or byte > _ZERO + 9:
            return np.int64(-1)
        seen += 1
        if behind >= 0:
            behind += 1
            if behind > scale:
                return np.int64(-1)
        if count == 0 and byte == _ZERO and behind < 0:
            continue
        if count >= precision:
            return np.int64(-1)
        digits[count] = byte
        count += 1
    for _ in range(scale - max(behind, np.int64(0))):
        if count >= precision:
            return np.int64(-1)
        digits[count] = _ZERO
        count += 1
    return count if seen else np.int64(-1)


@kernel
def text_decimals(
    buf: Bytes, offs: Longs, lens: Longs, precision: Int, scale: Int, out: Halves
) -> Int:
    """DECIMAL(precision, scale) of up to 38 digits into 128-bit numbers."""
    digits = np.empty(precision + 1, dtype=np.uint8)
    for i in range(len(offs)):
        o = offs[i]
        out[i, 0] = _ZERO_HALF
        out[i, 1] = _ZERO_HALF
        if o < 0:
            continue
        stop = o + lens[i]
        if lens[i] < 1 or stop > len(buf):
            return i
        negative = buf[o] == _MINUS
        count = _decimal_digits(buf, o + 1 if negative else o, stop, precision, scale, digits)
        if count < 0:
            return i
        low, high = _ZERO_HALF, _ZERO_HALF
        for k in range(min(count, 18)):
            low = low * _TEN + np.uint64(digits[k] - _ZERO)
        for k in range(18, count):
            low, high = times_plus(low, high, 10, np.int64(digits[k]) - _ZERO)
        if negative:
            low = ~low + np.uint64(1)
            high = ~high + np.uint64(low == _ZERO_HALF)
        out[i, 0] = low
        out[i, 1] = high
    return GOOD


@kernel
def text_decimal_texts(
    buf: Bytes, offs: Longs, lens: Longs, precision: Int, scale: Int
) -> tuple[Bytes, Longs, Int]:
    """DECIMAL of any size into its text without leading zeros, all digits of the scale."""
    rows = len(offs)
    digits = np.empty(precision + 1, dtype=np.uint8)
    data = np.empty(rows * (precision + 3), dtype=np.uint8)
    places = np.zeros(rows + 1, dtype=np.int64)
    used = np.int64(0)
    for i in range(rows):
        o = offs[i]
        if o >= 0:
            stop = o + lens[i]
            if lens[i] < 1 or stop > len(buf):
                return data[:used].copy(), places, i
            negative = buf[o] == _MINUS
            count = _decimal_digits(buf, o + 1 if negative else o, stop, precision, scale, digits)
            if count < 0:
                return data[:used].copy(), places, i
            zero = True
            for k in range(count):
                zero = zero and digits[k] == _ZERO
            minus = 1 if negative and not zero else 0
            used = write_decimal(data, used, digits, count, scale, minus)
        places[i + 1] = used
    return data[:used].copy(), places, GOOD
