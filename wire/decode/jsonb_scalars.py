"""Single values of MySQL's binary JSON as text: literals, numbers, strings, opaque values.

Lives here: what each scalar looks like; the walk over containers is in `jsonb`. An opaque value
is one of a MySQL type that JSON does not have: decimals come out as numbers, times as strings in
the server's form, all others as "base64:type<number>:<base64>".

Invariant: every function reads within the bounds [at, end) it is given, and writes no more than the
room its caller made.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, utf8_width
from ratchet.wire.decode.doubles import write_double
from ratchet.wire.kernel import kernel

BAD: Final = -1

# The type bytes of json_binary.cc.
LITERAL, INT16, UINT16, INT32, UINT32, INT64, UINT64 = 4, 5, 6, 7, 8, 9, 10
DOUBLE, STRING, OPAQUE = 11, 12, 15

# Types of columns that an opaque value may name (enum_field_types).
TIMESTAMP, DATE, TIME, DATETIME, DECIMAL = 7, 10, 11, 12, 246

# Decimal digits that a base-10^9 group holds and the bytes they take (decimal.cc: dig2bytes).
GROUP: Final = 9
MAX_DIGITS: Final = 81

_SHORT: Final = 4096  # bytes of a string for which room is made without looking

# Enough for any number, literal or time, and for what surrounds a string or base64.
SCALAR_ROOM: Final = 96
_GROUP_BYTES: Final = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
_GROUP_LIMIT: Final = np.array([10**n for n in range(10)], np.int64)

# The server breaks base64 into lines of 76 characters, and JSON escapes the break.
BASE64_LINE: Final = 76
_BASE64: Final = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_OPAQUE_HEAD: Final = np.frombuffer(b'"base64:type', np.uint8)
_TRUE: Final = np.frombuffer(b"true", np.uint8)
_FALSE: Final = np.frombuffer(b"false", np.uint8)
_NULL: Final = np.frombuffer(b"null", np.uint8)

_QUOTE, _BACKSLASH, _MINUS, _POINT, _ZERO, _SPACE, _COLON = 34, 92, 45, 46, 48, 32, 58

# What follows the backslash for each character; 0 stands for u00 and two hex digits.
_ESCAPES: Final = np.zeros(128, np.uint8)
for _code, _letter in ((8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r"), (34, '"'), (92, "\\")):
    _ESCAPES[_code] = ord(_letter)

# The bytes that stand for themselves in a string.
_PLAIN: Final = np.array([31 < byte < 128 and byte not in {34, 92} for byte in range(256)])

_U10: Final = np.uint64(10)


@kernel
def read_unsigned(buf: Bytes, at: Int, width: Int) -> Int:
    """A little-endian number of 2 or 4 bytes."""
    low = np.int64(buf[at]) | np.int64(buf[at + 1]) << 8
    if width == 2:
        return low
    return low | np.int64(buf[at + 2]) << 16 | np.int64(buf[at + 3]) << 24


@kernel
def read_bits(buf: Bytes, at: Int) -> np.uint64:
    """The 8 bytes at `at`, little-endian."""
    value = np.uint64(0)
    for i in range(7, -1, -1):
        value = (value << np.uint64(8)) | np.uint64(buf[at + i])
    return value


@kernel
def is_inlined(kind: Int, width: Int) -> bool:
    """Whether a container with offsets of `width` bytes holds such a value in its entry."""
    return kind in (LITERAL, INT16, UINT16) or (width == 4 and kind in (INT32, UINT32))


@kernel
def write_scalar(buf: Bytes, at: Int, end: Int, kind: Int, out: Bytes, pos: Int) -> Int:
    """Write a literal or a number, for which there is `SCALAR_ROOM`; its end, or BAD."""
    if kind == LITERAL:
        if at == end or buf[at] > 2:
            return BAD
        which = buf[at]
        return write_bytes(_NULL if which == 0 else _TRUE if which == 1 else _FALSE, out, pos)
    if kind < LITERAL or kind > DOUBLE:
        return BAD
    width = 2 if kind <= UINT16 else 4 if kind <= UINT32 else 8
    if end - at < width:
        return BAD
    if kind == DOUBLE:
        bits = read_bits(buf, at)
        if (bits >> np.uint64(52)) & np.uint64(0x7FF) == np.uint64(0x7FF):
            return BAD  # infinity or no number: JSON has neither
        return write_double(bits, out, pos)
    if width == 8:
        bits = read_bits(buf, at)
        if kind == UINT64 or bits >> np.uint64(63) == np.uint64(0):
            return write_unsigned(bits, out, pos)
        out[pos] = _MINUS
        return write_unsigned(~bits + np.uint64(1), out, pos + 1)
    number = read_unsigned(buf, at, width)
    if kind in (INT16, INT32) and number >> (8 * width - 1):
        out[pos] = _MINUS
        pos += 1
        number = (np.int64(1) << (8 * width)) - number
    return write_unsigned(np.uint64(number), out, pos)


@kernel
def write_null(out: Bytes, pos: Int) -> Int:
    """Write null where there is room for it; the position behind it."""
    return write_bytes(_NULL, out, pos)


@kernel
def write_bytes(text: Bytes, out: Bytes, pos: Int) -> Int:
    """Copy a text; the position behind it."""
    for i in range(text.size):
        out[pos + i] = text[i]
    return pos + text.size


@kernel
def write_unsigned(number: np.uint64, out: Bytes, pos: Int) -> Int:
    """Write a whole number; the position behind it."""
    width = 1
    rest = number // _U10
    while rest != np.uint64(0):
        rest //= _U10
        width += 1
    for at in range(pos + width - 1, pos - 1, -1):
        out[at] = _ZERO + np.int64(number % _U10)
        number //= _U10
    return pos + width


@kernel
def payload(buf: Bytes, at: Int, end: Int, kind: Int) -> tuple[Int, Int, Int]:
    """The type and the bounds of what a string or an opaque value holds; BAD as its beginning."""
    field = np.int64(0)
    if kind == OPAQUE:
        if at == end:
            return field, BAD, BAD
        field = np.int64(buf[at])
        at += 1
    size = np.int64(0)
    for i in range(5):  # seven bits a byte, the lowest first
        if at == end:
            return field, BAD, BAD
        byte = np.int64(buf[at])
        at += 1
        size |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if size > end - at or size > 0xFFFFFFFF:
                return field, BAD, BAD
            return field, at, at + size
    return field, BAD, BAD


@kernel
def write_opaque(buf: Bytes, at: Int, end: Int, field: Int, out: Bytes, pos: Int) -> Int:
    """Write buf[at:end], of column type `field`; needs `opaque_room`; its end, or BAD."""
    if field == DECIMAL:
        return _write_decimal(buf, at, end, out, pos)
    if field in (DATE, TIME, DATETIME, TIMESTAMP):
        return _write_temporal(buf, at, end, field, out, pos)
    return _write_base64(buf, at, end, field, out, pos)


@kernel
def opaque_room(size: Int) -> Int:
    """Room for the text of an opaque value of `size` bytes, as base64 or as a decimal."""
    return 2 * size + 2 * SCALAR_ROOM


@kernel
def string_room(buf: Bytes, at: Int, end: Int) -> Int:
    """Room for the text of the string in buf[at:end]; of a long one no more than it takes."""
    size = end - at
    if size <= _SHORT:
        return 6 * size + SCALAR_ROOM
    for i in range(at, end):
        if not _PLAIN[buf[i]] and buf[i] < 0x80:
            size += 5
    return size + SCALAR_ROOM


@kernel
def write_string(buf: Bytes, at: Int, end: Int, out: Bytes, pos: Int) -> Int:
    """Write buf[at:end] quoted and escaped; needs `string_room`; its end, or BAD if not UTF-8."""
    out[pos] = _QUOTE
    pos += 1
    while at < end:
        byte = np.int64(buf[at])
        if _PLAIN[byte]:
            out[pos] = byte
            pos += 1
            at += 1
        elif byte >= 0x80:
            width = utf8_width(buf, at, end)
            if width == 0:
                return BAD
            for i in range(width):
                out[pos + i] = buf[at + i]
            pos += width
            at += width
        else:
            pos = _write_escaped(byte, out, pos)
            at += 1
    out[pos] = _QUOTE
    return pos + 1


@kernel
def _write_escaped(byte: Int, out: Bytes, pos: Int) -> Int:
    out[pos] = _BACKSLASH
    letter = _ESCAPES[byte]
    if letter:
        out[pos + 1] = letter
        return pos + 2
    out[pos + 1], out[pos + 2], out[pos + 3] = 117, _ZERO, _ZERO  # u00
    out[pos + 4], out[pos + 5] = _HEX[byte >> 4], _HEX[byte & 15]
    return pos + 6


@kernel
def _write_decimal(buf: Bytes, at: Int, end: Int, out: Bytes, pos: Int) -> Int:
    """Write a packed decimal (precision, scale, big-endian groups of nine digits)."""
    if end - at < 3:
        return BAD
    precision, scale = np.int64(buf[at]), np.int64(buf[at + 1])
    at += 2
    if scale > precision or precision > MAX_DIGITS:
        return BAD
    whole = precision - scale
    size = (
        whole // GROUP * 4
        + _GROUP_BYTES[whole % GROUP]
        + scale // GROUP * 4
        + _GROUP_BYTES[scale % GROUP]
    )
    if size != end - at:
        return BAD
    # The first bit is set for positive numbers; negative ones have all their bits turned.
    turned = 0 if buf[at] & 0x80 else 0xFF
    if turned:
        out[pos] = _MINUS
        pos += 1
    first = at
    begin = pos
    for group in range(whole // GROUP + 1 + scale // GROUP + 1):
        digits: Int = np.int64(GROUP)
        if group == 0:
            digits = whole % GROUP
        elif group == whole // GROUP + scale // GROUP + 1:
            digits = scale % GROUP
        if group == whole // GROUP + 1:
            pos = _trim_zeros(out, begin, pos)
            if scale:
                out[pos] = _POINT
                pos += 1
        number = np.int64(0)
        for _ in range(_GROUP_BYTES[digits]):
            flip = turned ^ 0x80 if at == first else turned
            number = (number << 8) | (np.int64(buf[at]) ^ flip)
            at += 1
        if number >= _GROUP_LIMIT[digits]:
            return BAD
        for i in range(digits - 1, -1, -1):
            out[pos + i] = _ZERO + number % 10
            number //= 10
        pos += digits
    return pos


@kernel
def _trim_zeros(out: Bytes, begin: Int, pos: Int) -> Int:
    """Drop the leading zeros of the whole part, but for one; its new end."""
    at = begin
    while at < pos - 1 and out[at] == _ZERO:
        at += 1
    if begin == pos:
        out[pos] = _ZERO
        return pos + 1
    for i in range(pos - at):
        out[begin + i] = out[at + i]
    return begin + pos - at


@kernel
def _two(number: Int, out: Bytes, pos: Int) -> Int:
    out[pos], out[pos + 1] = _ZERO + number // 10 % 10, _ZERO + number % 10
    return pos + 2


@kernel
def _write_temporal(buf: Bytes, at: Int, end: Int, field: Int, out: Bytes, pos: Int) -> Int:
    """Write a date, time or datetime in the server's packed form, with six digits of fraction."""
    if end - at != 8:
        return BAD
    bits = read_bits(buf, at)
    negative = bits >> np.uint64(63) != np.uint64(0)
    if negative:
        bits = ~bits + np.uint64(1)
        if field != TIME or bits >> np.uint64(63) != np.uint64(0):
            return BAD
    packed = np.int64(bits)
    fraction, packed = packed & 0xFFFFFF, packed >> 24
    second, minute = packed & 63, packed >> 6 & 63
    if fraction > 999_999 or second > 59 or minute > 59:
        return BAD
    out[pos] = _QUOTE
    pos += 1
    if field == TIME:
        hour = packed >> 12
        if hour > 838:
            return BAD
        if negative:
            out[pos] = _MINUS
            pos += 1
        if hour > 99:
            out[pos] = _ZERO + hour // 100
            pos += 1
        pos = _two(hour, out, pos)
    else:
        hour, day, month = packed >> 12 & 31, packed >> 17 & 31, (packed >> 22) % 13
        year = (packed >> 22) // 13
        if year > 9999 or hour > 23:
            return BAD
        pos = _two(year % 100, out, _two(year // 100, out, pos))
        out[pos] = _MINUS
        pos = _two(month, out, pos + 1)
        out[pos] = _MINUS
        pos = _two(day, out, pos + 1)
        if field == DATE:
            out[pos] = _QUOTE
            return pos + 1
        out[pos] = _SPACE
        pos = _two(hour, out, pos + 1)
    out[pos] = _COLON
    pos = _two(minute, out, pos + 1)
    out[pos] = _COLON
    pos = _two(second, out, pos + 1)
    out[pos] = _POINT
    pos = _two(fraction // 10_000, out, pos + 1)
    pos = _two(fraction // 100, out, pos)
    pos = _two(fraction, out, pos)
    out[pos] = _QUOTE
    return pos + 1


@kernel
def _write_base64(buf: Bytes, at: Int, end: Int, field: Int, out: Bytes, pos: Int) -> Int:
    pos = write_unsigned(np.uint64(field), out, write_bytes(_OPAQUE_HEAD, out, pos))
    out[pos] = _COLON
    pos += 1
    column = 0
    while at < end:
        if column == BASE64_LINE:
            out[pos], out[pos + 1] = _BACKSLASH, 110  # n
            pos += 2
            column = 0
        bits = np.int64(buf[at]) << 16
        if end - at > 1:
            bits |= np.int64(buf[at + 1]) << 8
        if end - at > 2:
            bits |= np.int64(buf[at + 2])
        for i in range(4):
            out[pos + i] = _BASE64[bits >> (18 - 6 * i) & 63] if i <= end - at else 61  # =
        pos += 4
        at += 3
        column += 4
    out[pos] = _QUOTE
    return pos + 1
