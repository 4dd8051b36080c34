"""Bytes of the events that come often: what kind an event is, and the parts of a GTID event.

Lives here: the kernels that tell. Does not live here: what follows from a kind (`machine`), noting
it (`walk`), rare events (`events`).

Invariant: an event that is too short for its parts is GARBLED; nothing behind its end is read.
"""

from __future__ import annotations

import numpy as np

from ratchet.ingest.binlog.codes import CODES
from ratchet.ingest.binlog.places import (
    ALTER,
    COMMITTED,
    FLAVOR,
    INNER,
    LENGTH,
    NUMBER,
    ORIGIN,
    ORIGINS,
    SERVER,
    SKIP,
    TS,
    Bytes,
    Ints,
)
from ratchet.wire.kernel import kernel


@kernel
def little(data: Bytes, at: int, width: int) -> int:
    """The number in so many bytes, the lowest first."""
    value = 0
    for byte in range(width):
        value |= int(data[at + byte]) << 8 * byte
    return value


@kernel
def _query_kind(data: Bytes, body: int, end: int) -> int:
    """BEGIN or COMMIT where the statement is just that, else QUERY; GARBLED if it is too short."""
    if end - body < 13:
        return CODES.garbled
    text = body + 13 + little(data, body + 11, 2) + np.int64(data[body + 8]) + 1
    if text > end:
        return CODES.garbled
    size = end - text
    if (
        size == 5
        and data[text] == 66  # B
        and data[text + 1] == 69  # E
        and data[text + 2] == 71  # G
        and data[text + 3] == 73  # I
        and data[text + 4] == 78  # N
    ):
        return CODES.begin
    if (
        size == 6
        and data[text] == 67  # C
        and data[text + 1] == 79  # O
        and data[text + 2] == 77  # M
        and data[text + 3] == 77  # M
        and data[text + 4] == 73  # I
        and data[text + 5] == 84  # T
    ):
        return CODES.commit
    return CODES.query


@kernel
def _find_origin(state: Ints, origins: Bytes, highs: Ints, data: Bytes, at: int, width: int) -> int:
    """The number of the origin whose bytes stand at `at`, a new one if need be; -1: no room."""
    count = state[ORIGINS]
    for origin in range(count):
        same = True
        for byte in range(16):
            want = data[at + byte] if byte < width else np.uint8(0)
            if origins[origin, byte] != want:
                same = False
                break
        if same:
            return origin
    if count == origins.shape[0]:
        return -1
    for byte in range(16):
        origins[count, byte] = data[at + byte] if byte < width else np.uint8(0)
    highs[count] = 0
    state[ORIGINS] = count + 1
    return int(count)


@kernel
def _read_mysql_gtid(state: Ints, data: Bytes, body: int, end: int) -> bool:
    """Put a GTID or anonymous GTID event's parts into the state; False if they cannot be.

    Layout: flags 1, UUID 16, number 8, then (present in all servers with row metadata) a type 1,
    two logical clocks 16, the commit time here 7 and, with its top bit set, the original one 7,
    and the length of the transaction as a length-encoded integer.
    """
    if end - body < 49:
        return False
    state[NUMBER] = little(data, body + 17, 8)
    ts = little(data, body + 42, 7)
    at = body + 49
    state[COMMITTED] = ts
    if ts >> 55 & 1:
        if end - body < 56:
            return False
        ts &= (1 << 55) - 1
        state[COMMITTED] = little(data, body + 49, 7)
        at += 7
    state[TS] = ts
    state[LENGTH] = 0
    if at < end:
        first = np.int64(data[at])
        width = 0
        if first == 0xFC:
            width = 2
        elif first == 0xFD:
            width = 3
        elif first == 0xFE:
            width = 8
        if at + 1 + width > end:
            return False
        state[LENGTH] = first if width == 0 else little(data, at + 1, width)
    # Anonymous ones have the number 0. What has the highest of 64 bits is negative here.
    return bool(state[LENGTH] >= 0 and (state[NUMBER] > 0 or data[body - 15] == 34))


@kernel
def is_known_map(
    slot: int, maps: Bytes, map_starts: Ints, data: Bytes, body: int, end: int
) -> bool:
    """Whether this table map is, byte by byte, the one that its table id stands for."""
    if slot < 0:
        return False
    at = map_starts[slot]
    size = map_starts[slot + 1] - at
    if end - body - 8 != size:
        return False
    for byte in range(size):  # noqa: SIM110 - a generator is slow in a kernel
        if maps[at + byte] != data[body + 8 + byte]:
            return False
    return True


@kernel
def _alter_flags(data: Bytes, body: int, end: int) -> int:
    """What a MariaDB GTID event says of a two-phase ALTER, behind parts that may be missing."""
    flags = int(data[body + 12])
    at = body + 13
    if flags & 0x02:  # the number of a group commit
        at += 8
    if flags & 0xC0:  # the name of an XA transaction, with the lengths of its two parts
        if at + 6 > end:
            return 0
        at += 6 + int(data[at + 4]) + int(data[at + 5])
    return int(data[at]) & 0x0E if at < end else 0


@kernel
def gtid_kind(
    state: Ints, origins: Bytes, highs: Ints, data: Bytes, event: np.void
) -> tuple[int, int]:
    """(kind, 1 if Python has to read it): a GTID event of either server, its parts in the state."""
    logged = event["type"]
    body = event["start"] + 19
    end = event["end"]
    if (logged == 162) != (state[FLAVOR] == 1) or state[INNER] == 1:
        return CODES.unknown, 0  # the other server's, or in a compressed transaction
    if logged == 162:
        if end - body < 13 or little(data, body, 8) <= 0:
            return CODES.garbled, 0
        origin = _find_origin(state, origins, highs, data, body + 8, 4)
        state[ORIGIN] = origin
        state[NUMBER] = little(data, body, 8)
        # Without commit times in the log: when the statement began that ended the transaction.
        state[TS] = state[COMMITTED] = np.int64(event["timestamp"]) * 1000000
        state[SERVER] = event["server"]
        state[ALTER] = _alter_flags(data, body, end)
        return (CODES.single if data[body + 12] & 1 else CODES.group), (1 if origin < 0 else 0)
    if logged == 42:
        return CODES.gtid, 1
    if not _read_mysql_gtid(state, data, body, end):
        return CODES.garbled, 0
    if state[FLAVOR] != 0:
        return CODES.gtid, 0
    origin = _find_origin(state, origins, highs, data, body + 1, 16)
    state[ORIGIN] = origin
    return CODES.gtid, (1 if origin < 0 or logged == 34 else 0)


@kernel
def rows_kind(
    state: Ints, targets: Bytes, slot: int, data: Bytes, event: np.void
) -> tuple[int, int]:
    """(kind, 1 if Python has to uncompress it): a rows event, whose table may be none of ours."""
    table = little(data, event["start"] + 19, 6)
    if table == 0xFFFFFF or table == 0xFFFFFFFFFFFF:  # noqa: PLR1714
        # A statement that changed nothing: no table is behind this number.
        return CODES.other_rows, 0
    if slot >= 0 and targets[slot] == 0:
        return CODES.other_rows, 0
    return CODES.rows, (1 if event["type"] >= 166 and state[SKIP] == 0 else 0)


@kernel
def other_kind(
    inner: int, kind: int, logged: int, data: Bytes, body: int, end: int
) -> tuple[int, int]:
    """(kind, 1 if Python has to look): for events without a table and without a name."""
    if kind == CODES.query:
        if logged == 2:
            kind = _query_kind(data, body, end)
        return kind, (1 if kind == CODES.query else 0)
    if kind == CODES.xa_prepare:
        one_phase = end > body and data[body] == 1
        return (CODES.one_phase if one_phase else kind), (0 if one_phase else 1)
    if kind == CODES.partial:
        return kind, 1  # it may be of a table that is not mirrored
    ask = kind == CODES.format or kind == CODES.rotate or kind == CODES.payload  # noqa: PLR1714
    if ask and inner == 1:
        return CODES.unknown, 0  # never in a compressed transaction
    return kind, (1 if ask or kind == CODES.incident else 0)
