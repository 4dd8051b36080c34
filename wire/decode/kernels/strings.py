"""Values that the lake holds as bytes or text: gathered, padded, looked up or printed.

Every kernel returns (data, places, bad): the values one behind the other, where each begins and
the last one ends, and the first row that is not sound. Does not live here: charsets (`charsets`)
and JSON (`jsonb`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, Longs
from ratchet.wire.decode.kernels.bytesorder import little
from ratchet.wire.decode.kernels.calendar import (
    day_of,
    hour_of,
    micro_of,
    minute_of,
    month_of,
    second_of,
    year_of,
)
from ratchet.wire.decode.kernels.walk import GOOD
from ratchet.wire.kernel import kernel

_SHORT: Final = 24  # bytes; longer values are copied by slices
_ZERO, _DASH, _COLON, _POINT, _SPACE, _COMMA = 48, 45, 58, 46, 32, 44
_A: Final = 97 - 10
_UUID_SIZE: Final = 16


@kernel
def _copy(data: Bytes, at: Int, buf: Bytes, o: Int, size: Int) -> None:
    if size <= _SHORT:
        for k in range(size):
            data[at + k] = buf[o + k]
    else:
        data[at : at + size] = buf[o : o + size]


@kernel
def gather(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, Int]:
    """The values as they are."""
    rows = len(offs)
    places = np.zeros(rows + 1, dtype=np.int64)
    total = np.int64(0)
    for i in range(rows):
        if offs[i] >= 0:
            if lens[i] < 0 or offs[i] + lens[i] > len(buf):
                return np.zeros(0, dtype=np.uint8), places, i
            total += lens[i]
        places[i + 1] = total
    data = np.empty(total, dtype=np.uint8)
    for i in range(rows):
        if offs[i] >= 0:
            _copy(data, places[i], buf, offs[i], lens[i])
    return data, places, GOOD


@kernel
def padded(buf: Bytes, offs: Longs, lens: Longs, width: Int) -> tuple[Bytes, Longs, Int]:
    """BINARY(width): the values with the zero bytes that the log leaves out at their end."""
    rows = len(offs)
    places = np.zeros(rows + 1, dtype=np.int64)
    total = np.int64(0)
    for i in range(rows):
        if offs[i] >= 0:
            if lens[i] < 0 or lens[i] > width or offs[i] + lens[i] > len(buf):
                return np.zeros(0, dtype=np.uint8), places, i
            total += width
        places[i + 1] = total
    data = np.zeros(total, dtype=np.uint8)
    for i in range(rows):
        if offs[i] >= 0:
            _copy(data, places[i], buf, offs[i], lens[i])
    return data, places, GOOD


@kernel
def enum_labels(
    buf: Bytes, offs: Longs, lens: Longs, size: Int, labels: Bytes, label_places: Longs
) -> tuple[Bytes, Longs, Int]:
    """ENUM: the labels of indexes of `size` bytes; index 0 is the error value ''.

    Args:
        buf: the bytes; with `offs` and `lens` the column.
        offs: see `buf`.
        lens: see `buf`.
        size: bytes of an index, 1 or 2.
        labels: all labels one behind the other, in UTF-8; that of index 0 first.
        label_places: where each begins, and where the last one ends.
    """
    rows = len(offs)
    count = len(label_places) - 1
    places = np.zeros(rows + 1, dtype=np.int64)
    chosen = np.zeros(rows, dtype=np.int64)
    total = np.int64(0)
    for i in range(rows):
        o = offs[i]
        if o >= 0:
            if lens[i] != size or o + size > len(buf):
                return np.zeros(0, dtype=np.uint8), places, i
            index = np.int64(little(buf, o, size))
            if index >= count:
                return np.zeros(0, dtype=np.uint8), places, i
            chosen[i] = index
            total += label_places[index + 1] - label_places[index]
        places[i + 1] = total
    data = np.empty(total, dtype=np.uint8)
    for i in range(rows):
        at = label_places[chosen[i]]
        _copy(data, places[i], labels, at, places[i + 1] - places[i])
    return data, places, GOOD


@kernel
def set_labels(
    buf: Bytes, offs: Longs, lens: Longs, size: Int, labels: Bytes, label_places: Longs
) -> tuple[Bytes, Longs, Int]:
    """SET: the labels of the bits that are set, lowest first, with commas between them.

    Args:
        buf: the bytes; with `offs` and `lens` the column.
        offs: see `buf`.
        lens: see `buf`.
        size: bytes of a value, 1 to 8.
        labels: all labels one behind the other, in UTF-8; that of the lowest bit first.
        label_places: where each begins, and where the last one ends.
    """
    rows = len(offs)
    count = len(label_places) - 1
    places = np.zeros(rows + 1, dtype=np.int64)
    total = np.int64(0)
    for i in range(rows):
        o = offs[i]
        if o >= 0:
            if lens[i] != size or o + size > len(buf):
                return np.zeros(0, dtype=np.uint8), places, i
            value = little(buf, o, size)
            if count < 64 and value >> np.uint64(count):
                return np.zeros(0, dtype=np.uint8), places, i
            first = True
            for bit in range(count):
                if value >> np.uint64(bit) & np.uint64(1):
                    total += label_places[bit + 1] - label_places[bit] + (0 if first else 1)
                    first = False
        places[i + 1] = total
    data = np.empty(total, dtype=np.uint8)
    for i in range(rows):
        if places[i + 1] > places[i]:
            _write_set(data, places[i], little(buf, offs[i], size), labels, label_places)
    return data, places, GOOD


@kernel
def _write_set(data: Bytes, at: Int, value: np.uint64, labels: Bytes, label_places: Longs) -> None:
    first = True
    for bit in range(len(label_places) - 1):
        if value >> np.uint64(bit) & np.uint64(1):
            if not first:
                data[at] = _COMMA
                at += 1
            size = label_places[bit + 1] - label_places[bit]
            _copy(data, at, labels, label_places[bit], size)
            at += size
            first = False


@kernel
def _hex(data: Bytes, at: Int, byte: Int) -> None:
    high, low = byte >> 4, byte & 15
    data[at] = high + (_ZERO if high < 10 else _A)
    data[at + 1] = low + (_ZERO if low < 10 else _A)


@kernel
def uuids(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, Int]:
    """MariaDB's UUID: 16 bytes in the order they are printed, trailing zero bytes left out."""
    rows = len(offs)
    places = np.zeros(rows + 1, dtype=np.int64)
    data = np.empty(36 * rows, dtype=np.uint8)
    at = np.int64(0)
    for i in range(rows):
        o = offs[i]
        if o >= 0:
            size = lens[i]
            if size < 0 or size > _UUID_SIZE or o + size > len(buf):
                return data[:at].copy(), places, i
            for k in range(_UUID_SIZE):
                if k in (4, 6, 8, 10):
                    data[at] = _DASH
                    at += 1
                _hex(data, at, np.int64(buf[o + k]) if k < size else 0)
                at += 2
        places[i + 1] = at
    return data[:at].copy(), places, GOOD


@kernel
def _number(data: Bytes, at: Int, value: Int) -> np.int64:
    """Write a number below 256 in decimal; returns the place behind it."""
    if value >= 100:
        data[at] = _ZERO + value // 100
        at += 1
    if value >= 10:
        data[at] = _ZERO + value // 10 % 10
        at += 1
    data[at] = _ZERO + value % 10
    return np.int64(at + 1)


@kernel
def _dotted(data: Bytes, at: Int, address: Bytes) -> np.int64:
    for k in range(4):
        if k:
            data[at] = _POINT
            at += 1
        at = _number(data, at, np.int64(address[k]))
    return np.int64(at)


@kernel
def inet4s(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, Int]:
    """MariaDB's INET4: dotted decimal of 4 bytes, trailing zero bytes left out."""
    rows = len(offs)
    places = np.zeros(rows + 1, dtype=np.int64)
    data = np.empty(15 * rows, dtype=np.uint8)
    address = np.zeros(4, dtype=np.uint8)
    at = np.int64(0)
    for i in range(rows):
        o = offs[i]
        if o >= 0:
            size = lens[i]
            if size < 0 or size > 4 or o + size > len(buf):
                return data[:at].copy(), places, i
            for k in range(4):
                address[k] = buf[o + k] if k < size else 0
            at = _dotted(data, at, address)
        places[i + 1] = at
    return data[:at].copy(), places, GOOD


@kernel
def _zero_run(words: Longs) -> tuple[Int, Int]:
    """The longest run of zero words, the first of equals: (begin, length)."""
    best, longest, begin = 0, 0, 0
    for k in range(8):
        if words[k]:
            begin = k + 1
        elif k + 1 - begin > longest:
            best, longest = begin, k + 1 - begin
    return best, longest


@kernel
def _inet6(data: Bytes, at: Int, address: Bytes, words: Longs) -> np.int64:
    """Write an address as the server prints it; returns the place behind it.

    The server shortens a run of one zero word too, unlike most.
    """
    for word in range(8):
        words[word] = np.int64(address[2 * word]) << 8 | np.int64(address[2 * word + 1])
    begin, length = _zero_run(words)
    # IPv4-compatible and IPv4-mapped addresses end in dotted decimal.
    dotted = begin == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF))
    k: Int = 0
    while k < 8:
        if length and k == begin:
            data[at] = _COLON
            at += 1
            k += length
            if k == 8:
                data[at] = _COLON
                at += 1
            continue
        if k > 0:
            data[at] = _COLON
            at += 1
        if dotted and k == 6:
            return _dotted(data, at, address[12:])
        shift = 12
        while shift > 0 and words[k] >> shift == 0:
            shift -= 4
        while shift >= 0:
            digit = words[k] >> shift & 15
            data[at] = digit + (_ZERO if digit < 10 else _A)
            at += 1
            shift -= 4
        k += 1
    return np.int64(at)


@kernel
def inet6s(buf: Bytes, offs: Longs, lens: Longs) -> tuple[Bytes, Longs, Int]:
    """MariaDB's INET6: 16 bytes, trailing zero bytes left out."""
    rows = len(offs)
    places = np.zeros(rows + 1, dtype=np.int64)
    data = np.empty(46 * rows, dtype=np.uint8)
    address = np.zeros(16, dtype=np.uint8)
    words = np.zeros(8, dtype=np.int64)
    at = np.int64(0)
    for i in range(rows):
        o = offs[i]
        if o >= 0:
            size = lens[i]
            if size < 0 or size > 16 or o + size > len(buf):
                return data[:at].copy(), places, i
            for k in range(16):
                address[k] = buf[o + k] if k < size else 0
            at = _inet6(data, at, address, words)
        places[i + 1] = at
    return data[:at].copy(), places, GOOD


@kernel
def _digits(data: Bytes, at: Int, value: Int, count: Int) -> np.int64:
    """Write a number with `count` digits; returns the place behind it."""
    for k in range(count):
        data[at + count - 1 - k] = _ZERO + value % 10
        value //= 10
    return np.int64(at + count)


@kernel
def civil_texts(
    civil: Longs, offs: Longs, with_time: Int, fraction: Int
) -> tuple[Bytes, Longs, Int]:
    """The server's text of dates and datetimes, also of those that are no day of the calendar."""
    rows = len(offs)
    size = 10 + (9 if with_time else 0) + (fraction + 1 if fraction else 0)
    places = np.zeros(rows + 1, dtype=np.int64)
    data = np.empty(size * rows, dtype=np.uint8)
    divisor = 10 ** (6 - fraction)
    at = np.int64(0)
    for i in range(rows):
        if offs[i] >= 0:
            value = civil[i]
            at = _digits(data, at, year_of(value), 4)
            data[at] = _DASH
            at = _digits(data, at + 1, month_of(value), 2)
            data[at] = _DASH
            at = _digits(data, at + 1, day_of(value), 2)
            if with_time:
                data[at] = _SPACE
                at = _digits(data, at + 1, hour_of(value), 2)
                data[at] = _COLON
                at = _digits(data, at + 1, minute_of(value), 2)
                data[at] = _COLON
                at = _digits(data, at + 1, second_of(value), 2)
            if fraction:
                data[at] = _POINT
                at = _digits(data, at + 1, micro_of(value) // divisor, fraction)
        places[i + 1] = at
    return data[:at].copy(), places, GOOD
