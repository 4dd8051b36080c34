"""From the bytes of VStream responses to places: events, row changes, values.

Lives here: the walk over protobuf's wire format, as far as VStream's messages need it (their
numbers are in proto/vstream.proto). Does not live here: what an event means (`ingest.vstream`),
what a value means (`wire.decode.vstream`).

Invariant: a place that is written lies inside the message it belongs to; what is not known is
skipped by its length, as every reader of protobuf does, and what cannot be skipped is a status.

Responses that follow each other in one buffer are one response: a repeated field goes on.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int, Ints, Longs
from ratchet.wire.kernel import kernel

# Why a walk stopped.
OK: Final = 0
CUT_SHORT: Final = 1  # a field ends behind its message, or its number or type is none
WRONG_COUNT: Final = 2  # a row has another number of values than its table has columns
INCOMPLETE: Final = 3  # a row lacks columns, or holds parts of JSON documents only
TRAILING: Final = 4  # a row's bytes are not those that its lengths add up to
MALFORMED: Final = 5  # a name that is not there, or none

# Columns of an event's places, see `index_events`.
TYPE: Final = 0
TIMESTAMP: Final = 1
SENT: Final = 2
START: Final = 3
END: Final = 4
BODY: Final = 5
BODY_END: Final = 6
GTID: Final = 7
GTID_END: Final = 8
FIELDS: Final = 9

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5


@kernel
def _varint(buf: Bytes, pos: Int, end: Int) -> tuple[Int, Int]:
    """A number of seven bits a byte, and the place behind it; place -1 if it is cut short."""
    value = np.uint64(0)
    shift = np.uint64(0)
    at = np.int64(pos)
    while at < end and shift < 70:
        byte = np.uint64(buf[at])
        if shift < 64:
            value |= (byte & np.uint64(0x7F)) << shift
        at += 1
        if byte < 0x80:
            return np.int64(value), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@kernel
def _field(buf: Bytes, pos: Int, end: Int) -> tuple[Int, Int, Int, Int, Int]:
    """The field at `pos`: (number, type, value, begin of its bytes, place behind it).

    The value is that of a varint, else 0; bytes run from `begin` to the place behind the field. The
    place is -1 if there is no sound field.
    """
    tag, at = _varint(buf, pos, end)
    number, kind = tag >> 3, tag & 7
    if at < 0 or number < 1:
        return 0, 0, 0, 0, -1
    if kind == _VARINT:
        value, behind = _varint(buf, at, end)
        return number, kind, value, at, behind
    if kind == _BYTES:
        size, begin = _varint(buf, at, end)
        if begin < 0 or size < 0 or size > end - begin:
            return 0, 0, 0, 0, -1
        return number, kind, 0, begin, begin + size
    size = 8 if kind == _FIXED64 else 4 if kind == _FIXED32 else -1
    if size < 0 or size > end - at:
        return 0, 0, 0, 0, -1
    return number, kind, 0, at, at + size


@kernel
def count_events(buf: Bytes, start: Int, end: Int) -> tuple[Int, Int, Int]:
    """How many events stand in some responses: (events, status, place)."""
    if start < 0 or end > len(buf):
        return 0, CUT_SHORT, start
    events = np.int64(0)
    pos: Int = np.int64(start)
    while pos < end:
        number, kind, _, _, behind = _field(buf, pos, end)
        if behind < 0:
            return events, CUT_SHORT, pos
        if number == 1 and kind == _BYTES:
            events += 1
        pos = behind
    return events, OK, 0


@kernel
def index_events(buf: Bytes, start: Int, end: Int, places: Longs) -> tuple[Int, Int]:
    """Note what is needed of every event, in responses that `count_events` found to be sound.

    Args:
        buf: holds the responses.
        start: where the first one begins.
        end: where the last one ends.
        places: out, [events, FIELDS]: the event's type, its timestamp in seconds, when it was sent
            in nanoseconds, where it begins and ends, where its row or field event begins and ends,
            and where the name of its transaction does. What an event lacks is 0, or from 0 to 0.

    Returns:
        (status, place).
    """
    pos: Int = np.int64(start)
    event = 0
    while pos < end:
        number, kind, _, begin, behind = _field(buf, pos, end)
        pos = behind
        if number != 1 or kind != _BYTES:
            continue
        for column in range(FIELDS):
            places[event, column] = 0
        places[event, START] = begin
        places[event, END] = behind
        at: Int = np.int64(begin)
        while at < behind:
            number, kind, value, first, following = _field(buf, at, behind)
            if following < 0:
                return CUT_SHORT, at
            if kind == _VARINT:
                if number == 1:
                    places[event, TYPE] = value
                elif number == 2:
                    places[event, TIMESTAMP] = value
                elif number == 20:
                    places[event, SENT] = value
            elif kind == _BYTES:
                if number in (5, 6):
                    places[event, BODY] = first
                    places[event, BODY_END] = following
                elif number == 28:
                    places[event, GTID] = first
                    places[event, GTID_END] = following
            at = following
        event += 1
    return OK, 0


@kernel
def _hash(buf: Bytes, begin: Int, end: Int) -> Int:
    """FNV-1a of some bytes, 64 bits."""
    value = np.uint64(0xCBF29CE484222325)
    for at in range(begin, end):
        value = (value ^ np.uint64(buf[at])) * np.uint64(0x100000001B3)
    return np.int64(value)


@kernel
def split_gtids(
    buf: Bytes, begins: Longs, ends: Longs, hashes: Longs, numbers: Longs
) -> tuple[Int, Int]:
    """Take transactions' names ("flavour/origin:number") apart at the last colon.

    Args:
        buf: holds the names.
        begins: where each begins.
        ends: where each ends.
        hashes: out, per name a hash of all before the colon.
        numbers: out, per name the number behind it.

    Returns:
        (status, name): MALFORMED and the first name that has no such form.
    """
    for name in range(len(begins)):
        at: Int = np.int64(ends[name])
        number = np.int64(0)
        scale = np.int64(1)
        while at > begins[name] and np.uint8(48) <= buf[at - 1] <= np.uint8(57):
            if ends[name] - at >= 19:
                return MALFORMED, name
            number += (np.int64(buf[at - 1]) - 48) * scale
            scale *= 10
            at -= 1
        if at == ends[name] or at - 1 <= begins[name] or buf[at - 1] != np.uint8(58) or number < 1:
            return MALFORMED, name
        hashes[name] = _hash(buf, begins[name], at - 1)
        numbers[name] = number
    return OK, 0


@kernel
def find_tables(
    buf: Bytes, starts: Longs, ends: Longs, hashes: Longs, begins: Longs, stops: Longs
) -> tuple[Int, Int]:
    """Find the table's name in some row or field events.

    Args:
        buf: holds the events.
        starts: where each RowEvent or FieldEvent message begins.
        ends: where it ends.
        hashes: out, per event a hash of the name.
        begins: out, where the name begins.
        stops: out, where it ends.

    Returns:
        (status, event).
    """
    for event in range(len(starts)):
        pos: Int = np.int64(starts[event])
        begin = end = pos
        while pos < ends[event]:
            number, kind, _, first, behind = _field(buf, pos, ends[event])
            if behind < 0:
                return CUT_SHORT, event
            if number == 1 and kind == _BYTES:
                begin, end = first, behind
                break  # it is the first field: the rows need not be walked for it
            pos = behind
        if begin == end:
            return MALFORMED, event
        hashes[event] = _hash(buf, begin, end)
        begins[event] = begin
        stops[event] = end
    return OK, 0


@kernel
def _is_partial(buf: Bytes, begin: Int, end: Int, columns: Int, wanted: Int) -> bool:
    """Whether a bitmap of columns lacks one (wanted 1), or has one that it should not (0)."""
    pos: Int = np.int64(begin)
    while pos < end:
        number, kind, _, first, behind = _field(buf, pos, end)
        if behind < 0:
            return True
        if number == 2 and kind == _BYTES:
            for column in range(columns):
                at = first + (column >> 3)
                bit = (np.int64(buf[at]) >> (column & 7)) & 1 if at < behind else np.int64(0)
                if bit != wanted:
                    return True
        pos = behind
    return False


@kernel
def _row_parts(buf: Bytes, begin: Int, end: Int) -> tuple[Int, Int, Int, Int]:
    """Where a row's lengths and its values lie: (begin, end, begin, end); -1 if it is not sound."""
    lengths, lengths_end = np.int64(begin), np.int64(begin)
    values, values_end = np.int64(begin), np.int64(begin)
    pos: Int = np.int64(begin)
    while pos < end:
        number, kind, _, first, behind = _field(buf, pos, end)
        if behind < 0 or (number == 1 and kind != _BYTES):
            return -1, -1, -1, -1
        if number == 1:
            lengths, lengths_end = np.int64(first), np.int64(behind)
        elif number == 2 and kind == _BYTES:
            values, values_end = np.int64(first), np.int64(behind)
        pos = behind
    return lengths, lengths_end, values, values_end


@kernel
def _row(buf: Bytes, begin: Int, end: Int, columns: Int, offs: Longs, lens: Longs, row: Int) -> Int:
    """Note the places of one row's values; a status."""
    at, lengths_end, value, values_end = _row_parts(buf, begin, end)
    if at < 0:
        return CUT_SHORT
    for column in range(columns):
        if at >= lengths_end:
            return WRONG_COUNT
        coded, behind = _varint(buf, at, lengths_end)
        if behind < 0:
            return CUT_SHORT
        at = behind
        # Zigzag: signs alternate, and an odd number is a negative one.
        size = np.int64(np.uint64(coded) >> np.uint64(1))
        if coded & 1:
            offs[column, row] = -1
            lens[column, row] = 0
            continue
        if size > values_end - value:
            return TRAILING
        offs[column, row] = value
        lens[column, row] = size
        value += size
    if at != lengths_end:
        return WRONG_COUNT
    return OK if value == values_end else TRAILING


@kernel
def count_changes(buf: Bytes, starts: Longs, ends: Longs) -> tuple[Int, Int, Int]:
    """How many row changes some row events hold: (changes, status, place)."""
    changes = np.int64(0)
    for event in range(len(starts)):
        pos, end = starts[event], ends[event]
        if pos < 0 or end > len(buf):
            return changes, CUT_SHORT, pos
        while pos < end:
            number, kind, _, _, behind = _field(buf, pos, end)
            if behind < 0:
                return changes, CUT_SHORT, pos
            if number == 2 and kind == _BYTES:
                changes += 1
            pos = behind
    return changes, OK, 0


@kernel
def walk_changes(
    buf: Bytes,
    starts: Longs,
    ends: Longs,
    offs: Longs,
    lens: Longs,
    images: Bytes,
    events: Ints,
) -> tuple[Int, Int]:
    """Note the place of every value, in row events that `count_changes` found to be sound.

    Args:
        buf: holds the row events.
        starts: where each begins.
        ends: where each ends.
        offs: out, [2 * columns, changes]: offset of the value, -1 for NULL; images before the
            change first.
        lens: out, as offs: its length in bytes.
        images: out, [changes]: 1 if there is an image before, 2 if there is one after, or both.
        events: out, [changes]: the number of the event that the change is in.

    Returns:
        (status, change).
    """
    columns = offs.shape[0] // 2
    change = 0
    for event in range(len(starts)):
        pos, end = starts[event], ends[event]
        while pos < end:
            number, kind, _, begin, behind = _field(buf, pos, end)
            pos = behind
            if number != 2 or kind != _BYTES:
                continue
            for column in range(2 * columns):
                offs[column, change] = -1
                lens[column, change] = 0
            images[change] = 0
            events[change] = event
            at: Int = np.int64(begin)
            while at < behind:
                number, kind, _, first, following = _field(buf, at, behind)
                if following < 0:
                    return CUT_SHORT, change
                if kind == _BYTES and number in (1, 2):
                    low = (number - 1) * columns
                    status = _row(
                        buf,
                        first,
                        following,
                        columns,
                        offs[low : low + columns],
                        lens[low : low + columns],
                        change,
                    )
                    if status != OK:
                        return status, change
                    images[change] |= np.uint8(number)
                elif kind == _BYTES and number in (3, 4):
                    wanted = 1 if number == 3 else 0
                    if _is_partial(buf, first, following, columns, wanted):
                        return INCOMPLETE, change
                at = following
            change += 1
    return OK, 0
