"""Plain twin of `wire.decode.kernels.texttimes`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from ratchet.wire.decode.arrays import Bytes, Longs
from ratchet.wire.decode.plain.cells import NotSoundError, filled
from ratchet.wire.decode.plain.temporal import moment, pack

_CIVIL: Final = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    rb"(?: ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?)?"
)
_TIME: Final = re.compile(rb"(-?)([0-9]{2,3}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?")
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - civil time has no zone
_LIMIT: Final = timedelta(hours=839)


def _micros(fraction: bytes | None) -> int:
    return int((fraction or b"").ljust(6, b"0"))


def _civil(cell: bytes) -> int:
    found = _CIVIL.fullmatch(cell)
    if found is None:
        raise NotSoundError
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    hour, minute, second = int(found[4] or 0), int(found[5] or 0), int(found[6] or 0)
    return pack((year, month, day, hour, minute, second, _micros(found[7])))


def text_civils(buf: Bytes, offs: Longs, lens: Longs, out: Longs) -> int:
    """Dates and datetimes as civil numbers."""
    return filled(buf, offs, lens, out, _civil)


def text_timestamps(buf: Bytes, offs: Longs, lens: Longs, out: Longs) -> int:
    """Timestamps, shown in UTC, as microseconds since 1970; the zero date is 0."""

    def convert(cell: bytes) -> int:
        civil = _civil(cell)
        if civil == 0:
            return 0
        found = moment(civil)
        if found is None or found < _EPOCH:
            raise NotSoundError
        return (found - _EPOCH) // timedelta(microseconds=1)

    return filled(buf, offs, lens, out, convert)


def text_times(buf: Bytes, offs: Longs, lens: Longs, out: Longs) -> int:
    """TIME in microseconds."""

    def convert(cell: bytes) -> int:
        found = _TIME.fullmatch(cell)
        if found is None or int(found[3]) > 59 or int(found[4]) > 59:
            raise NotSoundError
        length = timedelta(
            hours=int(found[2]),
            minutes=int(found[3]),
            seconds=int(found[4]),
            microseconds=_micros(found[5]),
        )
        if length >= _LIMIT:
            raise NotSoundError
        return (-length if found[1] else length) // timedelta(microseconds=1)

    return filled(buf, offs, lens, out, convert)
