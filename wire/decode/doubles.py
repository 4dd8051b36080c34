"""A double as the shortest decimal text that reads back as the same double, written as MySQL does.

Lives here: the digits (Schubfach, by Raffaele Giulietti: one 128-bit multiplication by a tabled
power of ten, no big integers) and MySQL's choice between fixed and exponent form. The plain twin
takes the digits from Python's `repr`, which is David Gay's dtoa as MySQL's own is.

Invariant: no kernel here allocates or raises; the caller makes room for `DOUBLE_ROOM` bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ratchet.wire.decode.arrays import Bytes, Int
from ratchet.wire.kernel import kernel

DOUBLE_ROOM: Final = 40

# MySQL writes digits with the point among or before them while the point stands within 15 places
# of the first digit (strings/dtoa.cc: MAX_DECPT_FOR_F_FORMAT), or behind it among the digits.
_MAX_POINT: Final = 15

_MIN_POWER: Final = -292
_MAX_POWER: Final = 324


def _powers_of_ten() -> npt.NDArray[np.uint64]:
    """10^k for k from -292 to 324 as 128-bit fractions, rounded up: high and low 64 bits each."""
    table = np.empty((_MAX_POWER - _MIN_POWER + 1, 2), np.uint64)
    for k in range(_MIN_POWER, _MAX_POWER + 1):
        if k >= 0:
            power = 10**k
            shift = 128 - power.bit_length()
            fraction = power << shift if shift >= 0 else -(-power >> -shift)
        else:
            power = 10**-k
            # 2^(bits + 127) / power has 128 bits, since power is never a power of two here.
            fraction = -(-(1 << (power.bit_length() + 127)) // power)
        table[k - _MIN_POWER] = (fraction >> 64, fraction & 0xFFFFFFFFFFFFFFFF)
    return table


_POWERS: Final = _powers_of_ten()

_U0: Final = np.uint64(0)
_U1: Final = np.uint64(1)
_U2: Final = np.uint64(2)
_U4: Final = np.uint64(4)
_U10: Final = np.uint64(10)
_U32: Final = np.uint64(32)
_U40: Final = np.uint64(40)
_U52: Final = np.uint64(52)
_U63: Final = np.uint64(63)
_LOW32: Final = np.uint64(0xFFFFFFFF)
_FRACTION: Final = np.uint64((1 << 52) - 1)
_HIDDEN: Final = np.uint64(1 << 52)
_EXPONENT: Final = np.uint64(0x7FF)


@kernel
def _scaled(high: np.uint64, low: np.uint64, factor: np.uint64) -> np.uint64:
    """The top 64 bits of (high:low) * factor; the lowest one is set if anything below it was."""
    f0, f1 = factor & _LOW32, factor >> _U32
    # high word of low * factor
    a0, a1 = low & _LOW32, low >> _U32
    p00, p01, p10, p11 = a0 * f0, a0 * f1, a1 * f0, a1 * f1
    middle = (p00 >> _U32) + (p01 & _LOW32) + (p10 & _LOW32)
    x1 = p11 + (p01 >> _U32) + (p10 >> _U32) + (middle >> _U32)
    # both words of high * factor
    a0, a1 = high & _LOW32, high >> _U32
    p00, p01, p10, p11 = a0 * f0, a0 * f1, a1 * f0, a1 * f1
    middle = (p00 >> _U32) + (p01 & _LOW32) + (p10 & _LOW32)
    y1 = p11 + (p01 >> _U32) + (p10 >> _U32) + (middle >> _U32)
    y0_top = middle & _LOW32
    y0_low = p00 & _LOW32
    # add x1 to the lower word, in halves so that nothing wraps
    y0_low += x1 & _LOW32
    y0_top += (x1 >> _U32) + (y0_low >> _U32)
    y1 += y0_top >> _U32
    below = ((y0_top & _LOW32) << _U32) | (y0_low & _LOW32)
    if below > _U1:
        y1 |= _U1
    return y1


@kernel
def shortest(bits: np.uint64) -> tuple[np.uint64, Int]:
    """Digits and exponent (digits * 10^exponent) of a positive finite double's bit pattern.

    The digits are the fewest that read back as this double, and of those the closest to it. They
    may end in zeros.
    """
    fraction = bits & _FRACTION
    biased = np.int64((bits >> _U52) & _EXPONENT)
    if biased != 0:
        c = fraction | _HIDDEN
        q = biased - 1075
        if -53 < q <= 0:
            whole = c >> np.uint64(-q)
            if whole << np.uint64(-q) == c:
                return whole, np.int64(0)
    else:
        c = fraction
        q = np.int64(-1074)
    odd = c & _U1
    closer = fraction == _U0 and biased > 1  # the neighbour below is at half the distance
    k = (q * 1262611 - (524031 if closer else 0)) >> 22  # floor(log10(2^q)), or of 3/4 of it
    h = np.uint64(q + ((-k * 1741647) >> 19) + 1)  # 1741647 / 2^19 = log2(10)
    high, low = _POWERS[-k - _MIN_POWER, 0], _POWERS[-k - _MIN_POWER, 1]
    middle = c << _U2
    lower = _scaled(high, low, (middle - (_U1 if closer else _U2)) << h) + odd
    value = _scaled(high, low, middle << h)
    upper = _scaled(high, low, (middle + _U2) << h) - odd
    s = value >> _U2
    if s >= _U10:
        tens = s // _U10
        down = lower <= _U40 * tens
        up = _U40 * tens + _U40 <= upper
        if down != up:
            return tens + (_U1 if up else _U0), k + 1
    down = lower <= _U4 * s
    up = _U4 * s + _U4 <= upper
    if down != up:
        return s + (_U1 if up else _U0), k
    half = _U4 * s + _U2
    if value > half or (value == half and s & _U1 != _U0):
        return s + _U1, k
    return s, k


@kernel
def write_double(bits: np.uint64, out: Bytes, pos: Int) -> Int:
    """Write a finite double at `pos` as MySQL's JSON does; the position behind it.

    Args:
        bits: its bit pattern.
        out: has room for `DOUBLE_ROOM` bytes.
        pos: where to begin.
    """
    if bits >> _U63 != _U0:
        out[pos] = 45  # -
        pos += 1
        bits ^= _U1 << _U63
    digits = _U0
    exponent: Int = np.int64(0)
    if bits != _U0:
        digits, exponent = shortest(bits)
    while digits != _U0 and digits % _U10 == _U0:
        digits //= _U10
        exponent += 1
    count = 1
    rest = digits // _U10
    while rest != _U0:
        rest //= _U10
        count += 1
    point = count + exponent  # where the point stands, counted from the first digit
    if -_MAX_POINT < point <= _MAX_POINT or 0 < point < count:
        return _write_fixed(digits, count, point, out, pos)
    return _write_exponent(digits, count, point - 1, out, pos)


@kernel
def _write_fixed(digits: np.uint64, count: Int, point: Int, out: Bytes, pos: Int) -> Int:
    if point <= 0:
        for _ in range(2 - point):
            out[pos] = 48  # 0
            pos += 1
        out[pos - (1 - point)] = 46  # .
        return _write_digits(digits, count, out, pos)
    if point < count:
        end = _write_digits(digits, count, out, pos) + 1
        for at in range(end - 1, pos + point, -1):
            out[at] = out[at - 1]
        out[pos + point] = 46
        return end
    pos = _write_digits(digits, count, out, pos)
    for _ in range(point - count):
        out[pos] = 48
        pos += 1
    out[pos] = 46  # a whole number keeps ".0", so that it stays a double
    out[pos + 1] = 48
    return pos + 2


@kernel
def _write_exponent(digits: np.uint64, count: Int, exponent: Int, out: Bytes, pos: Int) -> Int:
    end = _write_digits(digits, count, out, pos)
    if count > 1:
        for at in range(end, pos + 1, -1):
            out[at] = out[at - 1]
        out[pos + 1] = 46
        end += 1
    out[end] = 101  # e
    end += 1
    if exponent < 0:
        out[end] = 45
        end += 1
        exponent = -exponent
    width = 1 if exponent < 10 else 2 if exponent < 100 else 3
    return _write_digits(np.uint64(exponent), width, out, end)


@kernel
def _write_digits(digits: np.uint64, count: Int, out: Bytes, pos: Int) -> Int:
    for at in range(pos + count - 1, pos - 1, -1):
        out[at] = 48 + np.int64(digits % _U10)
        digits //= _U10
    return pos + count


def double_text(value: float) -> str:
    """The plain twin of `write_double`: a finite double as MySQL's JSON prints it."""
    sign = "-" if repr(value).startswith("-") else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if not digits:
        return sign + "0.0"
    if point <= -_MAX_POINT or (point > _MAX_POINT and point >= len(digits)):
        rest = "." + digits[1:] if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point < len(digits):
        return f"{sign}{digits[:point]}.{digits[point:]}"
    return f"{sign}{digits}{'0' * (point - len(digits))}.0"
