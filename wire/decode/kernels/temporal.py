"""Dates and times in every binary form of the row images, and from those into Arrow's forms.

Lives here: readers (bytes -> civil time or microseconds) and writers (civil time -> days,
microseconds, the server's text). Does not live here: dates as text (`texttimes`), calendar
arithmetic (`calendar`).

Invariant: between reader and writer a date or datetime is one *civil* number, see
`wire.decode.kernels.calendar`: every value the server can hold, also those that are no day of the
calendar, and nothing else. What a writer cannot hold it marks as NULL in `offs`, and counts.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, Ints, Longs
from ratchet.wire.decode.kernels.bytesorder import big, little
from ratchet.wire.decode.kernels.calendar import (
    MICROS_PER_DAY,
    civil_of,
    day_number,
    day_of,
    in_range,
    is_day,
    micros_of_day,
    month_of,
    year_of,
)
from ratchet.wire.decode.kernels.walk import GOOD
from ratchet.wire.kernel import kernel

# Binary forms. A number that is packed as the server's "YYYYMMDDhhmmss" is called decimal here.
DATE: Final = 0  # 3 bytes little-endian: year 15 bits, month 4, day 5
DATETIME2: Final = 1  # 5 bytes big-endian and the fraction
DATETIME_DECIMAL: Final = 2  # 8 bytes little-endian, no fraction
DATETIME_HIRES: Final = 3  # MariaDB 5.3: big-endian, mixed radix, scaled to the fraction
TIMESTAMP2: Final = 4  # 4 bytes big-endian and the fraction
TIMESTAMP_PLAIN: Final = 5  # 4 bytes little-endian, no fraction
TIMESTAMP_HIRES: Final = 6  # MariaDB 5.3: 4 bytes big-endian and a fraction of other sizes
TIME2: Final = 7  # 3 bytes big-endian and the fraction
TIME_DECIMAL: Final = 8  # 3 bytes little-endian, no fraction
TIME_HIRES: Final = 9  # MariaDB 5.3: big-endian seconds, scaled to the fraction

_DATETIME2_ZERO: Final = 1 << 39
_TIME2_ZERO: Final = 1 << 23
_HOURS_LIMIT: Final = 839
_TIME_MAX_SECONDS: Final = 838 * 3600 + 59 * 60 + 59


@kernel
def _power10(exponent: Int) -> np.int64:
    value = np.int64(1)
    for _ in range(exponent):
        value *= 10
    return value


@kernel
def _civil(buf: Bytes, o: Int, size: Int, form: Int, scale: Int, tail: Int) -> np.int64:
    """One date or datetime as a civil number; -1 if it is none."""
    if form == DATE:
        raw = np.int64(little(buf, o, 3))
        return civil_of(raw >> 9, raw >> 5 & 15, raw & 31, 0, 0, 0, 0)
    if form == DATETIME2:
        raw = np.int64(big(buf, o, 5)) - _DATETIME2_ZERO
        months = raw >> 22
        micros = np.int64(big(buf, o + 5, tail)) * scale
        return civil_of(
            months // 13,
            months % 13,
            raw >> 17 & 31,
            raw >> 12 & 31,
            raw >> 6 & 63,
            raw & 63,
            micros,
        )
    if form == DATETIME_DECIMAL:
        raw = np.int64(little(buf, o, 8))
        date, time = raw // 1_000_000, raw % 1_000_000
        return civil_of(
            date // 10_000,
            date // 100 % 100,
            date % 100,
            time // 10_000,
            time // 100 % 100,
            time % 100,
            0,
        )
    raw = np.int64(big(buf, o, size))
    per_second = 1_000_000 // scale
    seconds, micros = raw // per_second, raw % per_second * scale
    minutes = seconds // 60
    hours = minutes // 60
    days = hours // 24
    months = days // 32
    return civil_of(
        months // 13, months % 13, days % 32, hours % 24, minutes % 60, seconds % 60, micros
    )


@kernel
def civils(
    buf: Bytes, offs: Longs, lens: Longs, size: Int, form: Int, fraction: Int, out: Longs
) -> Int:
    """Dates and datetimes of one binary form as civil numbers (0 for NULL).

    Args:
        buf: the bytes; with `offs` and `lens` the column.
        offs: see `buf`.
        lens: see `buf`.
        size: bytes of a value.
        form: DATE or one of the DATETIME forms.
        fraction: digits of fractional seconds.
        out: the civil numbers.
    """
    tail = (fraction + 1) // 2
    scale = _power10(6 - fraction if form == DATETIME_HIRES else 6 - 2 * tail)
    for i in range(len(offs)):
        o = offs[i]
        if o < 0:
            out[i] = 0
            continue
        if lens[i] != size or o + size > len(buf):
            return i
        civil = _civil(buf, o, size, form, scale, tail)
        if civil < 0:
            return i
        out[i] = civil
    return GOOD


@kernel
def timestamps(
    buf: Bytes, offs: Longs, lens: Longs, size: Int, form: Int, fraction: Int, out: Longs
) -> Int:
    """Timestamps of one binary form as microseconds since 1970; the zero date is 0.

    The server has no other value that would be 0: it keeps 1970-01-01 00:00:00 for the zero date.
    """
    tail = size - 4
    digits = fraction if form == TIMESTAMP_HIRES else 2 * tail
    scale = _power10(6 - digits)
    for i in range(len(offs)):
        o = offs[i]
        if o < 0:
            out[i] = 0
            continue
        if lens[i] != size or o + size > len(buf):
            return i
        seconds = (
            np.int64(little(buf, o, 4)) if form == TIMESTAMP_PLAIN else np.int64(big(buf, o, 4))
        )
        micros = np.int64(big(buf, o + 4, tail)) * scale
        if micros > 999_999:
            return i
        out[i] = seconds * 1_000_000 + micros
    return GOOD


@kernel
def _time(buf: Bytes, o: Int, size: Int, form: Int, scale: Int) -> np.int64:
    """One TIME in microseconds; beyond all limits if it is none."""
    broken = np.int64(_HOURS_LIMIT) * 3_600_000_000
    if form == TIME2:
        shift = 8 * (size - 3)
        raw = np.int64(big(buf, o, size)) - (np.int64(_TIME2_ZERO) << shift)
        size_of = abs(raw)
        micros = (size_of & ((np.int64(1) << shift) - 1)) * scale
        clock = size_of >> shift
        hours, minutes, seconds = clock >> 12, clock >> 6 & 63, clock & 63
    elif form == TIME_DECIMAL:
        raw = (np.int64(little(buf, o, 3)) << 40) >> 40
        size_of = abs(raw)
        hours, minutes, seconds = size_of // 10_000, size_of // 100 % 100, size_of % 100
        micros = np.int64(0)
    else:
        zero = np.int64(_TIME_MAX_SECONDS + 1) * 1_000_000 // scale
        raw = np.int64(big(buf, o, size)) - zero
        if abs(raw) > zero:
            return broken
        return raw * scale
    if minutes > 59 or seconds > 59 or micros > 999_999:
        return broken
    total = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros
    return -total if raw < 0 else total


@kernel
def times(
    buf: Bytes, offs: Longs, lens: Longs, size: Int, form: Int, fraction: Int, out: Longs
) -> Int:
    """TIME of one binary form in microseconds."""
    digits = fraction if form == TIME_HIRES else 2 * (size - 3)
    scale = _power10(6 - digits)
    for i in range(len(offs)):
        o = offs[i]
        if o < 0:
            out[i] = 0
            continue
        if lens[i] != size or o + size > len(buf):
            return i
        micros = _time(buf, o, size, form, scale)
        if abs(micros) >= np.int64(_HOURS_LIMIT) * 3_600_000_000:
            return i
        out[i] = micros
    return GOOD


@kernel
def days(civil: Longs, offs: Longs, out: Ints) -> Int:
    """Civil numbers to days since 1970. What is no day is marked in `offs`; returns how many."""
    misfits = np.int64(0)
    for i in range(len(offs)):
        out[i] = 0
        if offs[i] < 0:
            continue
        value = civil[i]
        if is_day(value):
            out[i] = day_number(year_of(value), month_of(value), day_of(value))
        else:
            offs[i] = -1
            misfits += 1
    return misfits


@kernel
def micros(civil: Longs, offs: Longs, out: Longs) -> Int:
    """Civil numbers to microseconds since 1970, without a time zone; misfits as for `days`."""
    misfits = np.int64(0)
    for i in range(len(offs)):
        out[i] = 0
        if offs[i] < 0:
            continue
        value = civil[i]
        if is_day(value):
            day = day_number(year_of(value), month_of(value), day_of(value))
            out[i] = day * MICROS_PER_DAY + micros_of_day(value)
        else:
            offs[i] = -1
            misfits += 1
    return misfits


@kernel
def mark_zero(instants: Longs, offs: Longs) -> Int:
    """Mark timestamps that are the zero date (0) as NULL in `offs`; returns how many."""
    misfits = np.int64(0)
    for i in range(len(offs)):
        if offs[i] >= 0 and instants[i] == 0:
            offs[i] = -1
            misfits += 1
    return misfits


@kernel
def civil_of_instants(instants: Longs, out: Longs) -> Int:
    """Timestamps (microseconds since 1970, 0 for the zero date) as civil numbers in UTC."""
    for i in range(len(instants)):
        value = instants[i]
        out[i] = 0
        if value == 0:
            continue
        if not in_range(value):
            return i
        day = value // MICROS_PER_DAY
        rest = value - day * MICROS_PER_DAY
        # The civil date of a day number, counted in years that begin in March (400-year eras).
        shifted = day + 719_468
        era = shifted // 146_097
        of_era = shifted - era * 146_097
        year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        of_year = of_era - (365 * year + year // 4 - year // 100)
        march = (5 * of_year + 2) // 153
        month = march + 3 if march < 10 else march - 9
        second = rest // 1_000_000
        out[i] = civil_of(
            year + era * 400 + (1 if month <= 2 else 0),
            month,
            of_year - (153 * march + 2) // 5 + 1,
            second // 3600,
            second // 60 % 60,
            second % 60,
            rest % 1_000_000,
        )
    return GOOD
