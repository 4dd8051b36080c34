"""Dates and times as text, as a result set holds them.

Invariant: only the server's own form is taken: YYYY-MM-DD[ hh:mm:ss[.f]] and [-]h+:mm:ss[.f].
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, Longs
from ratchet.wire.decode.kernels.calendar import (
    MICROS_PER_DAY,
    civil_of,
    day_number,
    day_of,
    is_day,
    micros_of_day,
    month_of,
    year_of,
)
from ratchet.wire.decode.kernels.walk import GOOD
from ratchet.wire.kernel import kernel

_DASH, _POINT, _ZERO, _COLON, _SPACE = 45, 46, 48, 58, 32
_LIMIT: Final = 839 * 3_600_000_000
_MAX_FRACTION: Final = 6


@kernel
def _number(buf: Bytes, o: Int, count: Int) -> np.int64:
    """The number of `count` digits at `o`; negative if they are not all digits."""
    value = np.int64(0)
    broken = False
    for k in range(count):
        digit = np.int64(buf[o + k]) - _ZERO
        if digit < 0 or digit > 9:
            broken = True
        value = value * 10 + digit
    return np.int64(-1) if broken else value


@kernel
def _micros(buf: Bytes, o: Int, stop: Int) -> np.int64:
    """A fraction of a second from its point to `stop` (nothing: 0); negative if it is none."""
    if o == stop:
        return np.int64(0)
    count = stop - o - 1
    if buf[o] != _POINT or count < 1 or count > _MAX_FRACTION:
        return np.int64(-1)
    value = _number(buf, o + 1, count)
    for _ in range(_MAX_FRACTION - count):
        value *= 10
    return value


@kernel
def _civil(buf: Bytes, o: Int, size: Int) -> np.int64:
    """The civil number of a date or datetime; -1 if it is none."""
    if size < 10 or buf[o + 4] != _DASH or buf[o + 7] != _DASH:
        return np.int64(-1)
    year, month, day = _number(buf, o, 4), _number(buf, o + 5, 2), _number(buf, o + 8, 2)
    if size == 10:
        return civil_of(year, month, day, 0, 0, 0, 0)
    if size < 19 or buf[o + 10] != _SPACE or buf[o + 13] != _COLON or buf[o + 16] != _COLON:
        return np.int64(-1)
    return civil_of(
        year,
        month,
        day,
        _number(buf, o + 11, 2),
        _number(buf, o + 14, 2),
        _number(buf, o + 17, 2),
        _micros(buf, o + 19, o + size),
    )


@kernel
def text_civils(buf: Bytes, offs: Longs, lens: Longs, out: Longs) -> Int:
    """Dates and datetimes as civil numbers (0 for NULL)."""
    for i in range(len(offs)):
        o = offs[i]
        if o < 0:
            out[i] = 0
            continue
        if lens[i] < 0 or o + lens[i] > len(buf):
            return i
        civil = _civil(buf, o, lens[i])
        if civil < 0:
            return i
        out[i] = civil
    return GOOD


@kernel
def text_timestamps(buf: Bytes, offs: Longs, lens: Longs, out: Longs) -> Int:
    """Timestamps, shown in UTC, as microseconds since 1970; the zero date is 0."""
    for i in range(len(offs)):
        o = offs[i]
        out[i] = 0
        if o < 0:
            continue
        if lens[i] < 0 or o + lens[i] > len(buf):
            return i
        civil = _civil(buf, o, lens[i])
        if civil == 0:
            continue
        if civil < 0 or not is_day(civil) or year_of(civil) < 1970:
            return i
        day = day_number(year_of(civil), month_of(civil), day_of(civil))
        out[i] = day * MICROS_PER_DAY + micros_of_day(civil)
    return GOOD


@kernel
def text_times(buf: Bytes, offs: Longs, lens: Longs, out: Longs) -> Int:
    """TIME in microseconds."""
    for i in range(len(offs)):
        o = offs[i]
        if o < 0:
            out[i] = 0
            continue
        stop = o + lens[i]
        if lens[i] < 8 or stop > len(buf):
            return i
        negative = buf[o] == _DASH
        if negative:
            o += 1
        digits = 3 if buf[o + 2] != _COLON else 2
        if stop - o < digits + 6 or buf[o + digits] != _COLON or buf[o + digits + 3] != _COLON:
            return i
        hours = _number(buf, o, digits)
        minutes = _number(buf, o + digits + 1, 2)
        seconds = _number(buf, o + digits + 4, 2)
        micros = _micros(buf, o + digits + 6, stop)
        if hours < 0 or minutes < 0 or minutes > 59 or seconds < 0 or seconds > 59 or micros < 0:
            return i
        total = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros
        if total >= _LIMIT:
            return i
        out[i] = -total if negative else total
    return GOOD
