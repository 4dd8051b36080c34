"""Plain twin of `wire.decode.kernels.temporal`, with `datetime` for the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from ratchet.wire.decode.arrays import Bytes, Ints, Longs
from ratchet.wire.decode.kernels import temporal as forms
from ratchet.wire.decode.plain.cells import GOOD, NotSoundError, filled, sized

Civil = tuple[int, int, int, int, int, int, int]  # year, month, day, hour, minute, second, micros

_SHIFTS: Final = (46, 42, 37, 32, 26, 20, 0)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - civil time has no zone
_SECOND: Final = 1_000_000
_TIME_LIMIT: Final = 839 * 3600 * _SECOND


def pack(civil: Civil) -> int:
    """The civil number of these parts (see `wire.decode.kernels.calendar`)."""
    limits = (9999, 12, 31, 23, 59, 59, 999_999)
    if any(part > limit or part < 0 for part, limit in zip(civil, limits, strict=True)):
        raise NotSoundError
    return sum(part << shift for part, shift in zip(civil, _SHIFTS, strict=True))


def unpack(number: int) -> Civil:
    """The parts of a civil number."""
    widths = (14, 4, 5, 5, 6, 6, 20)
    year, month, day, hour, minute, second, micros = (
        number >> shift & (1 << width) - 1 for shift, width in zip(_SHIFTS, widths, strict=True)
    )
    return year, month, day, hour, minute, second, micros


def _mixed(number: int) -> Civil:
    """MariaDB 5.3's number of microseconds, with 13 months, 32 days and 24 hours to each."""
    seconds, micros = divmod(number, _SECOND)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    months, day = divmod(days, 32)
    year, month = divmod(months, 13)
    return year, month, day, hour, minute, second, micros


def _civil(cell: bytes, form: int, fraction: int) -> Civil:
    if form == forms.DATE:
        raw = int.from_bytes(cell, "little")
        return raw >> 9, raw >> 5 & 15, raw & 31, 0, 0, 0, 0
    if form == forms.DATETIME2:
        raw = int.from_bytes(cell[:5], "big") - (1 << 39)
        if raw < 0:
            raise NotSoundError
        year, month = divmod(raw >> 22, 13)
        micros = _fraction(cell[5:])
        return year, month, raw >> 17 & 31, raw >> 12 & 31, raw >> 6 & 63, raw & 63, micros
    if form == forms.DATETIME_DECIMAL:
        raw = int.from_bytes(cell, "little", signed=True)
        if raw < 0:
            raise NotSoundError
        text = f"{raw:014d}"
        parts = (text[:-10], *(text[at : at + 2] for at in range(len(text) - 10, len(text), 2)))
        year, month, day, hour, minute, second = map(int, parts)
        return year, month, day, hour, minute, second, 0
    raw = int.from_bytes(cell, "big", signed=len(cell) == 8)
    if raw < 0:
        raise NotSoundError
    return _mixed(raw * _scale(fraction))


def _scale(fraction: int) -> int:
    """Microseconds in a unit of that many digits."""
    return int(10 ** (6 - fraction))


def _fraction(tail: bytes) -> int:
    """Microseconds of a fraction that is kept as two digits a byte."""
    return int.from_bytes(tail, "big") * _scale(2 * len(tail))


def civils(
    buf: Bytes, offs: Longs, lens: Longs, size: int, form: int, fraction: int, out: Longs
) -> int:
    """Dates and datetimes of one binary form as civil numbers."""
    return filled(
        buf, offs, lens, out, lambda cell: pack(_civil(sized(cell, size), form, fraction))
    )


def timestamps(
    buf: Bytes, offs: Longs, lens: Longs, size: int, form: int, fraction: int, out: Longs
) -> int:
    """Timestamps of one binary form as microseconds since 1970; the zero date is 0."""

    def convert(cell: bytes) -> int:
        order = "little" if form == forms.TIMESTAMP_PLAIN else "big"
        seconds = int.from_bytes(sized(cell, size)[:4], order)  # type: ignore[arg-type]
        micros = _fraction(cell[4:])
        if form == forms.TIMESTAMP_HIRES:
            micros = int.from_bytes(cell[4:], "big") * _scale(fraction)
        if micros >= _SECOND:
            raise NotSoundError
        return seconds * _SECOND + micros

    return filled(buf, offs, lens, out, convert)


def _clock(sign: int, hours: int, minutes: int, seconds: int, micros: int) -> int:
    if minutes > 59 or seconds > 59 or micros >= _SECOND:
        raise NotSoundError
    return sign * (((hours * 60 + minutes) * 60 + seconds) * _SECOND + micros)


def _time(cell: bytes, form: int, fraction: int) -> int:
    if form == forms.TIME2:
        tail = len(cell) - 3
        raw = int.from_bytes(cell, "big") - (1 << 23 + 8 * tail)
        clock, rest = divmod(abs(raw), 1 << 8 * tail)
        micros = _fraction(rest.to_bytes(tail, "big"))
        return _clock(-1 if raw < 0 else 1, clock >> 12, clock >> 6 & 63, clock & 63, micros)
    if form == forms.TIME_DECIMAL:
        raw = int.from_bytes(cell, "little", signed=True)
        hours, rest = divmod(abs(raw), 10_000)
        return _clock(-1 if raw < 0 else 1, hours, *divmod(rest, 100), 0)
    scale = _scale(fraction)
    zero = (838 * 3600 + 59 * 60 + 60) * _SECOND // scale
    return (int.from_bytes(cell, "big") - zero) * scale


def times(
    buf: Bytes, offs: Longs, lens: Longs, size: int, form: int, fraction: int, out: Longs
) -> int:
    """TIME of one binary form in microseconds."""

    def convert(cell: bytes) -> int:
        micros = _time(sized(cell, size), form, fraction)
        if abs(micros) >= _TIME_LIMIT:
            raise NotSoundError
        return micros

    return filled(buf, offs, lens, out, convert)


def moment(civil: int) -> datetime | None:
    """A civil number as a datetime without a zone; None if it is no day of the calendar."""
    try:
        return datetime(*unpack(civil))  # noqa: DTZ001 - civil time has no zone
    except ValueError:
        return None


def _written(civil: Longs, offs: Longs, out: Longs | Ints, unit: timedelta) -> int:
    misfits = 0
    for row in range(len(offs)):
        out[row] = 0
        if offs[row] < 0:
            continue
        found = moment(int(civil[row]))
        if found is None:
            offs[row] = -1
            misfits += 1
        else:
            out[row] = (found - _EPOCH) // unit
    return misfits


def days(civil: Longs, offs: Longs, out: Ints) -> int:
    """Civil numbers to days since 1970; misfits become NULL in `offs` and are counted."""
    return _written(civil, offs, out, timedelta(days=1))


def micros(civil: Longs, offs: Longs, out: Longs) -> int:
    """Civil numbers to microseconds since 1970; misfits as for `days`."""
    return _written(civil, offs, out, timedelta(microseconds=1))


def mark_zero(instants: Longs, offs: Longs) -> int:
    """Mark timestamps that are the zero date (0) as NULL in `offs`; returns how many."""
    zero = (offs >= 0) & (instants == 0)
    offs[zero] = -1
    return int(zero.sum())


def civil_of_instants(instants: Longs, out: Longs) -> int:
    """Timestamps as civil numbers in UTC, the zero date as 0."""
    for row, instant in enumerate(instants.tolist()):
        if instant == 0:
            out[row] = 0
            continue
        try:
            utc = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)
        except OverflowError:
            return row
        if instant < 0:
            return row
        civil = (utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond)
        out[row] = pack(civil)
    return GOOD
