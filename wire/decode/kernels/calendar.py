"""Civil time in one number, and the calendar.

A *civil* number packs year, month, day, hour, minute, second and microsecond, each in bits of its
own, year highest: 0 is the server's zero date, and numbers sort as times do. It may name a day
that does not exist (2024-02-31, month 0), because the servers store such days.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Int
from ratchet.wire.kernel import kernel

MICROS_PER_DAY: Final = 86_400_000_000

_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _YEAR = 20, 26, 32, 37, 42, 46
_MICROS: Final = (1 << _SECOND) - 1
_LAST_INSTANT: Final = 253_402_300_800_000_000  # the end of the year 9999


@kernel
def civil_of(
    year: Int, month: Int, day: Int, hour: Int, minute: Int, second: Int, micro: Int
) -> np.int64:
    """The civil number of these parts; -1 if one of them is outside of what servers store."""
    if year < 0 or year > 9999 or month < 0 or month > 12 or day < 0 or day > 31:
        return np.int64(-1)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return np.int64(-1)
    if micro < 0 or micro > 999_999:
        return np.int64(-1)
    date = np.int64(year) << _YEAR | np.int64(month) << _MONTH | np.int64(day) << _DAY
    time = np.int64(hour) << _HOUR | np.int64(minute) << _MINUTE | np.int64(second) << _SECOND
    return date | time | np.int64(micro)


@kernel
def year_of(civil: Int) -> np.int64:
    """The year, 0 to 9999."""
    return np.int64(civil) >> _YEAR


@kernel
def month_of(civil: Int) -> np.int64:
    """The month, 0 to 12."""
    return np.int64(civil) >> _MONTH & 15


@kernel
def day_of(civil: Int) -> np.int64:
    """The day of the month, 0 to 31."""
    return np.int64(civil) >> _DAY & 31


@kernel
def hour_of(civil: Int) -> np.int64:
    """The hour."""
    return np.int64(civil) >> _HOUR & 31


@kernel
def minute_of(civil: Int) -> np.int64:
    """The minute."""
    return np.int64(civil) >> _MINUTE & 63


@kernel
def second_of(civil: Int) -> np.int64:
    """The second."""
    return np.int64(civil) >> _SECOND & 63


@kernel
def micro_of(civil: Int) -> np.int64:
    """The microsecond."""
    return np.int64(civil) & _MICROS


@kernel
def micros_of_day(civil: Int) -> np.int64:
    """The time of the day in microseconds."""
    seconds = (hour_of(civil) * 60 + minute_of(civil)) * 60 + second_of(civil)
    return seconds * 1_000_000 + micro_of(civil)


@kernel
def is_day(civil: Int) -> bool:
    """Whether the date is a day of the calendar, from year 1 on."""
    year, month, day = year_of(civil), month_of(civil), day_of(civil)
    if year < 1 or month < 1 or day < 1:
        return False
    if day <= 28:
        return True
    if month == 2:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return bool(leap and day == 29)
    # January to July the odd months have 31 days, from August on the even ones.
    return bool(day <= 30 + (month + (month >> 3) & 1))


@kernel
def day_number(year: Int, month: Int, day: Int) -> np.int64:
    """Days from 1970-01-01 to a day of the calendar (year 1 or later)."""
    # Years begin in March here, so that the leap day is the last one.
    y = np.int64(year) - (1 if month <= 2 else 0)
    era = y // 400
    of_era = y - era * 400
    march = month - 3 if month > 2 else month + 9
    of_year = (153 * march + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@kernel
def in_range(instant: Int) -> bool:
    """Whether microseconds since 1970 lie between then and the end of the year 9999."""
    return bool(0 <= instant < _LAST_INSTANT)
