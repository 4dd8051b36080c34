"""Plain twin of `wire.decode.kernels.vstream`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Ints, Longs
from ratchet.wire.decode.kernels.vstream import (
    BODY,
    BODY_END,
    CUT_SHORT,
    END,
    FIELDS,
    GTID,
    GTID_END,
    INCOMPLETE,
    MALFORMED,
    OK,
    SENT,
    START,
    TIMESTAMP,
    TRAILING,
    TYPE,
    WRONG_COUNT,
)

__all__ = [
    "BODY",
    "BODY_END",
    "CUT_SHORT",
    "END",
    "FIELDS",
    "GTID",
    "GTID_END",
    "INCOMPLETE",
    "MALFORMED",
    "OK",
    "SENT",
    "START",
    "TIMESTAMP",
    "TRAILING",
    "TYPE",
    "WRONG_COUNT",
    "count_changes",
    "count_events",
    "find_tables",
    "index_events",
    "split_gtids",
    "walk_changes",
]

# Number, value of a varint, where bytes begin and end (from 0 to 0: it is a varint).
Field = tuple[int, int, int, int]


class _StoppedError(Exception):
    """The walk cannot go on: a status and a place."""

    def __init__(self, status: int, place: int) -> None:
        super().__init__(status, place)
        self.status = status
        self.place = place


def _varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(data[pos : min(end, pos + 10)]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            value &= (1 << 64) - 1
            return value - (1 << 64) if value >= 1 << 63 else value, pos + count + 1
    raise _StoppedError(CUT_SHORT, pos)


def _fields(data: bytes, pos: int, end: int) -> Iterator[Field]:
    """The fields of a message; those of fixed width are passed over."""
    while pos < end:
        begin = pos
        try:
            tag, pos = _varint(data, pos, end)
            number, kind = tag >> 3, tag & 7
            size = {1: 8, 5: 4}.get(kind, -1)
            if kind in {0, 2} and number > 0:
                size, pos = _varint(data, pos, end)
        except _StoppedError:
            raise _StoppedError(CUT_SHORT, begin) from None
        if kind == 0 and number > 0:
            yield number, size, 0, 0
            continue
        if number < 1 or not 0 <= size <= end - pos:
            raise _StoppedError(CUT_SHORT, begin)
        pos += size
        if kind == 2:
            yield number, 0, pos - size, pos


def _parts(data: bytes, begin: int, end: int, wanted: int) -> list[tuple[int, int]]:
    """Where the messages of one field lie."""
    return [
        (first, last)
        for number, _, first, last in _fields(data, begin, end)
        if number == wanted and (first, last) != (0, 0)
    ]


def count_events(buf: Bytes, start: int, end: int) -> tuple[int, int, int]:
    """How many events stand in some responses: (events, status, place)."""
    if start < 0 or end > len(buf):
        return 0, CUT_SHORT, start
    events = 0
    try:
        for number, _, first, last in _fields(buf.tobytes(), start, end):
            events += number == 1 and (first, last) != (0, 0)
    except _StoppedError as stopped:
        return events, stopped.status, stopped.place
    return events, OK, 0


def index_events(buf: Bytes, start: int, end: int, places: Longs) -> tuple[int, int]:
    """Note what is needed of every event: (status, place)."""
    data = buf.tobytes()
    numbers = {1: TYPE, 2: TIMESTAMP, 20: SENT}
    spans = {5: BODY, 6: BODY, 28: GTID}
    for event, (begin, behind) in enumerate(_parts(data, start, end, 1)):
        places[event] = 0
        places[event, START], places[event, END] = begin, behind
        try:
            for number, value, first, last in _fields(data, begin, behind):
                if (first, last) == (0, 0):
                    if number in numbers:
                        places[event, numbers[number]] = value
                elif number in spans:
                    places[event, spans[number]] = first
                    places[event, spans[number] + 1] = last
        except _StoppedError as stopped:
            return stopped.status, stopped.place
    return OK, 0


def _hash(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value - (1 << 64) if value >= 1 << 63 else value


def split_gtids(
    buf: Bytes, begins: Longs, ends: Longs, hashes: Longs, numbers: Longs
) -> tuple[int, int]:
    """Take transactions' names apart at the last colon: (status, name)."""
    data = buf.tobytes()
    for name, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        origin, _, number = data[begin:end].rpartition(b":")
        if not origin or not number.isdigit() or len(number) > 19 or int(number) < 1:
            return MALFORMED, name
        hashes[name], numbers[name] = _hash(origin), int(number)
    return OK, 0


def find_tables(
    buf: Bytes, starts: Longs, ends: Longs, hashes: Longs, begins: Longs, stops: Longs
) -> tuple[int, int]:
    """Find the table's name in some row or field events: (status, event)."""
    data = buf.tobytes()
    for event, (start, end) in enumerate(zip(starts, ends, strict=True)):
        try:
            names = (f for f in _fields(data, start, end) if f[0] == 1 and f[2:] != (0, 0))
            _, _, first, last = next(names, (1, 0, 0, 0))
        except _StoppedError as stopped:
            return stopped.status, event
        if first == last:
            return MALFORMED, event
        hashes[event], begins[event], stops[event] = _hash(data[first:last]), first, last
    return OK, 0


def count_changes(buf: Bytes, starts: Longs, ends: Longs) -> tuple[int, int, int]:
    """How many row changes some row events hold: (changes, status, place)."""
    data = buf.tobytes()
    changes = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if start < 0 or end > len(data):
            return changes, CUT_SHORT, start
        try:
            for number, _, first, last in _fields(data, start, end):
                changes += number == 2 and (first, last) != (0, 0)
        except _StoppedError as stopped:
            return changes, stopped.status, stopped.place
    return changes, OK, 0


def walk_changes(
    buf: Bytes,
    starts: Longs,
    ends: Longs,
    offs: Longs,
    lens: Longs,
    images: Bytes,
    events: Ints,
) -> tuple[int, int]:
    """Note the place of every value: (status, change)."""
    data = buf.tobytes()
    columns = len(offs) // 2
    change = 0
    for event, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        for begin, behind in _parts(data, start, end, 2):
            offs[:, change], lens[:, change] = -1, 0
            images[change], events[change] = 0, event
            try:
                for number, _, first, last in _fields(data, begin, behind):
                    if (first, last) == (0, 0):
                        continue
                    if number in {1, 2}:
                        places = _row(data, first, last, columns)
                        low = (number - 1) * columns
                        for column, (off, size) in enumerate(places, low):
                            offs[column, change], lens[column, change] = off, size
                        images[change] |= number
                    elif number in {3, 4} and _is_partial(data, first, last, columns, number == 3):
                        return INCOMPLETE, change
            except _StoppedError as stopped:
                return stopped.status, change
            change += 1
    return OK, 0


def _row(data: bytes, begin: int, end: int, columns: int) -> list[tuple[int, int]]:
    lengths, values = (begin, begin), (begin, begin)
    for number, _, first, last in _fields(data, begin, end):
        if number == 1:
            if (first, last) == (0, 0):
                raise _StoppedError(CUT_SHORT, begin)
            lengths = first, last
        elif number == 2 and (first, last) != (0, 0):
            values = first, last
    at, value_at = lengths[0], values[0]
    places = []
    for _ in range(columns):
        if at >= lengths[1]:
            raise _StoppedError(WRONG_COUNT, begin)
        coded, at = _varint(data, at, lengths[1])
        coded &= (1 << 64) - 1
        size = coded >> 1
        if coded & 1:
            places.append((-1, 0))
            continue
        if size > values[1] - value_at:
            raise _StoppedError(TRAILING, begin)
        places.append((value_at, size))
        value_at += size
    if at != lengths[1]:
        raise _StoppedError(WRONG_COUNT, begin)
    if value_at != values[1]:
        raise _StoppedError(TRAILING, begin)
    return places


def _is_partial(data: bytes, begin: int, end: int, columns: int, wanted: bool) -> bool:
    try:
        bitmaps = [data[first:last] for first, last in _parts(data, begin, end, 2)]
    except _StoppedError:
        return True
    for bitmap in bitmaps:
        bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")[:columns]
        padded = np.pad(bits, (0, columns - len(bits)))
        if bool((padded != wanted).any()):
            return True
    return False
