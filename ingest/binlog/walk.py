"""The walker: goes over indexed events by the machine's table and notes transactions and rows.

Lives here: the kernel. Does not live here: the layout of its state and of what it notes (`places`),
what kind an event is (`frequent`), which transition follows which event (`machine`), rare events
(`reader`), the rows' values.

The kernel deals with what comes often and hands over the rest: it returns at an event that Python
has to look at, and goes on when the event's kind (and, for a GTID, its parts) are in the state.
So every transition is made in one place.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ratchet.ingest.binlog.codes import CODES
from ratchet.ingest.binlog.frequent import gtid_kind, is_known_map, little, other_kind, rows_kind
from ratchet.ingest.binlog.places import (
    BEGIN_OFFSET,
    BELIEVED,
    BYTES,
    CHECKED_IN_SQL,
    CHECKS_OFF,
    COMMITTED,
    DECIDED,
    END_OFFSET,
    FILE,
    FLAVOR,
    HELD,
    HIGH,
    HIGH_BEFORE,
    IDLE,
    INNER,
    KIND,
    LENGTH,
    LIMIT,
    LOW,
    MARIADB,
    NOT_AFTER,
    NUMBER,
    ORIGIN,
    ROW_EVENTS,
    SEQ,
    SEQ_BEFORE,
    SERVER,
    SKIP,
    STATE,
    TOLD,
    TS,
    TXNS,
    UNFINISHED,
    UNIQUE_OFF,
    Arrays,
    Bytes,
    Ints,
    Records,
)
from ratchet.wire.kernel import kernel

# Statuses of `walk`.
DONE: Final = 0  # all events used
ASK: Final = 1  # Python has to look at the event
ROOM: Final = 2  # no room left for notes
LIMITED: Final = 3  # behind the end of a transaction, LIMIT is reached
ERROR: Final = 4  # the third number is the Action
ABANDONED: Final = 5  # the open transaction never happened; the event is used
WAIT: Final = 6  # the event begins a transaction behind NOT_AFTER; nothing of it is used


@kernel
def _slot_of(ids: Ints, slots: npt.NDArray[np.int32], table_id: int) -> int:
    mask = ids.size - 1
    at = table_id * 0x9E3779B1 & mask
    while ids[at] != -1:
        if ids[at] == table_id:
            return int(slots[at])
        at = (at + 1) & mask
    return -1


@kernel
def _begin(state: Ints, txns: Records, highs: Ints, position: int, size: int) -> int:
    """Name a transaction: 0, or an error's Action, or -1 to let Python decide on skipping it.

    -2 for one behind NOT_AFTER: then the stream stands before it, and it can be walked again.
    """
    flavor = state[FLAVOR]
    origin = state[ORIGIN]
    begin = position - np.int64(size)
    if flavor == 2:
        if state[LENGTH] == 0:
            return CODES.a_length
        if begin + state[LENGTH] >= np.int64(1) << 40:
            return CODES.a_garbled  # no place in a file (core.gtid.FILE_BITS)
        state[NUMBER] = state[FILE] + begin + state[LENGTH]
        state[ORIGIN] = origin = 0
    number = state[NUMBER]
    high = highs[origin]
    if state[DECIDED] == 0:
        state[SKIP] = 0
        if number <= high:
            return CODES.a_order if flavor == 1 else -1
    state[DECIDED] = 0
    state[BEGIN_OFFSET] = begin
    if begin == state[UNFINISHED]:
        state[SKIP] = 1
    if state[SKIP] != 0:
        return 0
    if state[NOT_AFTER] < state[TS] <= state[BELIEVED]:
        state[HELD] = state[TS]
        state[LOW] = begin % (1 << 32)
        state[HIGH] = begin - state[LOW]
        return -2
    step = 1 if flavor == 0 else number - high
    if step > np.int64(0x7FFFFFFFFFFFFFFF) - state[SEQ]:
        return CODES.a_garbled  # the lake's ranks could not hold it
    state[SEQ_BEFORE] = state[SEQ]
    state[HIGH_BEFORE] = high
    state[SEQ] += step
    if number > high:
        highs[origin] = number
    txn = txns[state[TXNS]]
    txn["origin"] = origin
    txn["server"] = state[SERVER]
    txn["number"] = number
    txn["ts"] = state[TS]
    txn["committed"] = state[COMMITTED]
    txn["begin"] = begin
    txn["seq"] = state[SEQ]
    txn["end"] = 0
    state[TXNS] += 1
    return 0


@kernel
def _position(state: Ints, event: np.void) -> int:
    """Where this event ends in its file, beyond the 4 GiB that its header can say."""
    low = np.int64(event["log_pos"])
    artificial = low == 0 or (event["flags"] & 0x20) != 0
    logged = event["type"]
    beats = logged == 27 or logged == 41  # noqa: PLR1714
    elsewhere = logged == 15 or beats
    if beats and low != 0:
        state[IDLE] = 1 if low == state[TOLD] else 0
        state[TOLD] = low
    if state[INNER] == 0 and not artificial and not elsewhere:
        if state[LOW] - low > np.int64(1) << 31:
            state[HIGH] += np.int64(1) << 32
        state[LOW] = state[TOLD] = low
        state[IDLE] = 0
    return int(state[HIGH] + state[LOW])


@kernel
def _take(state: Ints, rows: Records, data: Bytes, event: np.void, slot: int, where: int) -> int:
    """Note a rows event: 0, or an error's Action."""
    logged = event["type"]
    start = event["start"] + 27
    end = event["end"]
    if slot < 0:
        return CODES.a_unmapped
    if logged >= 166:
        # Python has uncompressed it into the side buffer.
        start = state[NUMBER]
        end = state[LENGTH]
        where = 1
    elif logged >= 30:
        if end - start < 2:
            return CODES.a_garbled
        start += little(data, start, 2)
    if start > end:
        return CODES.a_garbled
    noted = rows[state[ROW_EVENTS]]
    noted["start"] = start
    noted["end"] = end
    noted["txn"] = state[TXNS] - 1
    noted["slot"] = slot
    noted["op"] = _op(logged)
    noted["where"] = where
    told = CHECKS_OFF if state[FLAVOR] == MARIADB else CHECKS_OFF | CHECKED_IN_SQL
    flags = little(data, event["start"] + 25, 2)
    noted["silent"] = 1 if flags & told == 0 else 0
    bulk = CHECKS_OFF | UNIQUE_OFF
    in_bulk = state[FLAVOR] == MARIADB and noted["op"] == 1 and flags & bulk == bulk
    noted["bulk"] = 1 if in_bulk else 0
    noted["unchecked"] = 1 if flags & told == CHECKS_OFF else 0
    noted["began"] = little(data, event["start"], 4)
    state[ROW_EVENTS] += 1
    return 0


@kernel
def _op(logged: int) -> int:
    """INSERT, UPDATE or DELETE (1, 2, 3) of a rows event's type; write, update, delete in turn."""
    if logged >= 169:
        return logged - 168
    if logged >= 166:
        return logged - 165
    if logged >= 30:
        return logged - 29
    return logged - 22


def walk(
    arrays: Arrays, data: Bytes, index: Records, first: int, count: int, where: int
) -> tuple[int, int, int]:
    """Walk the events `first` to `count` of `index`.

    Args:
        arrays: see Arrays.
        data: the buffer that the events are in.
        index: records of wire.framing.EVENT.
        first: number of the first event to walk.
        count: where to end.
        where: what to note in `ROWS.where`.

    Returns:
        The number of the next event (or the one that Python has to look at), a status, and for
        ASK the kind, for ERROR the Action.
    """
    found: tuple[int, int, int] = _walk(*arrays, data, index, first, count, where)
    return found


@kernel
def _walk(
    machine: npt.NDArray[np.int16],
    kinds: Bytes,
    state: Ints,
    txns: Records,
    rows: Records,
    origins: Bytes,
    highs: Ints,
    ids: Ints,
    slots: npt.NDArray[np.int32],
    targets: Bytes,
    maps: Bytes,
    map_starts: Ints,
    data: Bytes,
    index: Records,
    first: int,
    count: int,
    where: int,
) -> tuple[int, int, int]:
    """The kernel of `walk`.

    The arrays come one by one: in a tuple that kernels hand on, each of them is counted in and out
    at every call, which took 240 ns more per event (435 against 62 in all).
    """
    for at in range(first, count):
        if state[TXNS] >= txns.size or state[ROW_EVENTS] >= rows.size:
            return at, 2, 0
        event = index[at]
        logged = event["type"]
        body = event["start"] + 19
        end = event["end"]
        kind, slot, ask = state[KIND], -1, 0
        if kind < 0:
            kind = int(kinds[logged])
            if kind == CODES.rows or kind == CODES.table_map:  # noqa: PLR1714
                if end - body < 8:
                    kind = CODES.garbled
                else:
                    slot = _slot_of(ids, slots, little(data, body, 6))
                    if kind == CODES.rows:
                        kind, ask = rows_kind(state, targets, slot, data, event)
                    elif state[SKIP] != 1:
                        known = is_known_map(slot, maps, map_starts, data, body, end)
                        ask = 0 if known and state[SKIP] == 0 else 1
            elif kind == CODES.gtid or kind == CODES.group:  # noqa: PLR1714
                kind, ask = gtid_kind(state, origins, highs, data, event)
            else:
                kind, ask = other_kind(state[INNER], kind, logged, data, body, end)
        elif kind == CODES.rows:
            slot = state[ORIGIN]
        state[KIND] = -1
        if ask == 1:
            return at, 1, kind
        position = _position(state, event)
        step = int(machine[state[STATE], kind])
        action = step >> 8
        if action >= CODES.a_stop:
            return at, 4, action
        if action == CODES.a_begin:
            problem = _begin(state, txns, highs, position, event["size"])
            if problem < 0:
                return at, (6 if problem == -2 else 1), kind
            if problem > 0:
                return at, 4, problem
        elif action == CODES.a_take:
            if state[SKIP] != 0:
                step = int(state[STATE])  # of a transaction that leaves no trace: nothing changes
            else:
                problem = _take(state, rows, data, event, slot, where)
                if problem > 0:
                    return at, 4, problem
        state[STATE] = step & 0xFF
        state[BYTES] += event["size"]
        if action == CODES.a_end:
            state[END_OFFSET] = position
            if state[SKIP] == 0:
                txns[state[TXNS] - 1]["end"] = position
            state[SKIP] = 0
            if state[BYTES] >= state[LIMIT]:
                return at + 1, 3, 0
        elif action == CODES.a_abandon:
            return at + 1, 5, 0
    return count, 0, 0
