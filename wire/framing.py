"""Packets and binlog events found in received bytes: the framing kernel and its plain twin.

Lives here: walking packets, joining events of 16 MB and more, checking CRC32, and the index of
events that comes out. Does not live here: what an event means (`ingest.binlog`).

Invariant: an indexed event is whole, its bytes are contiguous, and its header's length is that of
its packet. What is not whole waits for more bytes; what cannot be an event is a status, never a
guess.

Two modes: a dump stream wraps every event in a packet; inside a compressed transaction events
follow each other bare and carry no checksum.
"""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

from ratchet.wire.kernel import kernel
from ratchet.wire.stream import LARGEST_PACKET, MAX_PACKET, Bytes

EVENT: Final = np.dtype(
    [
        ("type", np.uint8),
        ("flags", np.uint16),
        ("timestamp", np.uint32),  # seconds
        ("server", np.uint32),
        ("log_pos", np.uint32),  # end of the event in its file, modulo 2**32; 0: artificial
        ("size", np.uint32),  # as the header says, checksum included
        ("start", np.int64),  # of the header
        ("end", np.int64),  # of the body, checksum excluded
    ]
)
Index = npt.NDArray[np.void]

HEADER: Final = 19
LARGEST_EVENT: Final = LARGEST_PACKET
_SIZE_KNOWN: Final = 4 + 1 + 9 + 4  # bytes of a packet until its event's length has come
FORMAT_DESCRIPTION: Final = 15

# Statuses of `frame`.
NEED_MORE: Final = 0
FULL: Final = 1  # the index has no room left
END: Final = 2  # an EOF packet: the server has ended the stream
FAILED: Final = 3  # an error packet
BAD_LENGTH: Final = 4  # packet and event disagree about their length
BAD_CHECKSUM: Final = 5
TOO_LONG: Final = 6  # an event says that it has more bytes than either server logs as one

# The places of the state array of `frame`.
CHECKSUM: Final = 0  # 1: events end in a CRC32; follows the format description events by itself
VERIFY: Final = 1  # 1: compute it
STATE_SIZE: Final = 2


def _crc_tables() -> npt.NDArray[np.uint32]:
    """Tables for eight bytes at a time (the reflected polynomial of zlib)."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        tables[0, byte] = value
    for row in range(1, 8):
        before = tables[row - 1]
        tables[row] = before >> np.uint32(8) ^ tables[0][before & np.uint32(0xFF)]
    return tables


CRC_TABLES: Final = _crc_tables()


@kernel
def crc32(data: Bytes, start: int, end: int, tables: npt.NDArray[np.uint32]) -> int:
    """CRC32 as zlib has it of `data[start:end]`."""
    crc = np.uint32(0xFFFFFFFF)
    low = np.uint32(0xFF)
    at = start
    while at + 8 <= end:
        one = crc ^ (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        crc = (
            tables[7, one & low]
            ^ tables[6, one >> np.uint32(8) & low]
            ^ tables[5, one >> np.uint32(16) & low]
            ^ tables[4, one >> np.uint32(24)]
            ^ tables[3, data[at + 4]]
            ^ tables[2, data[at + 5]]
            ^ tables[1, data[at + 6]]
            ^ tables[0, data[at + 7]]
        )
        at += 8
    while at < end:
        crc = tables[0, (crc ^ np.uint32(data[at])) & low] ^ crc >> np.uint32(8)
        at += 1
    return int(crc ^ np.uint32(0xFFFFFFFF))


@kernel
def _u32(data: Bytes, at: int) -> int:
    return (
        int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16 | int(data[at + 3]) << 24
    )


@kernel
def _joined(data: Bytes, start: int, end: int) -> tuple[int, int, int]:
    """The payload of the packets from `start` on: (its start, its end, end of the packets).

    Payloads over several packets are made contiguous by moving the earlier ones up to the last.
    All -1 if they are not whole; all -4 or -6, for the statuses, if they never will be an event:
    by what its header says, before the bytes come.
    """
    at = start
    count = 0
    promised = MAX_PACKET
    if end - start >= _SIZE_KNOWN:
        first = int(data[start]) | int(data[start + 1]) << 8 | int(data[start + 2]) << 16
        if first == MAX_PACKET:
            promised = _u32(data, start + 14) + 1
            if promised > LARGEST_EVENT:
                return -6, -6, -6
            if promised < MAX_PACKET:
                return -4, -4, -4
        elif data[start + 4] == 0 and _u32(data, start + 14) + 1 != first:
            return -4, -4, -4
    while True:
        if at + 4 > end:
            return -1, -1, -1
        length = int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16
        if at - start - 4 * count + length > promised:
            return -4, -4, -4
        if at + 4 + length > end:
            return -1, -1, -1
        count += 1
        at += 4 + length
        if length < 0xFFFFFF:
            break
    if count > 1:
        total = at - start - 4 * count
        target = at  # everything moves up, last byte first
        for part in range(count - 1, -1, -1):
            source = start + part * (4 + 0xFFFFFF) + 4
            size = total - part * 0xFFFFFF if part == count - 1 else 0xFFFFFF
            for byte in range(size - 1, -1, -1):
                target -= 1
                data[target] = data[source + byte]
        return target, at, at
    return start + 4, at, at


@kernel
def frame(
    data: Bytes,
    start: int,
    end: int,
    packets: bool,  # noqa: FBT001 - numba passes kernels by position
    state: npt.NDArray[np.int64],
    index: Index,
    count: int,
    tables: npt.NDArray[np.uint32],
) -> tuple[int, int, int]:
    """Append the whole events of `data[start:end]` to `index`.

    Args:
        data: received bytes; the parts of long events are moved together in place.
        start: where the first packet (or event) begins.
        end: where the received bytes end.
        packets: whether events are wrapped in packets.
        state: see CHECKSUM and VERIFY.
        index: array of EVENT.
        count: how many entries it has already.
        tables: CRC_TABLES.

    Returns:
        The new count, where the first byte not used is, and a status.
    """
    at = start
    while count < index.size:
        if packets:
            first, last, after = _joined(data, at, end)
            if first < -1:
                return count, at, -first
            if first < 0:
                return count, at, 0
            if last == first:
                return count, at, 4
            if data[first] == 0xFF:
                return count, at, 3
            if data[first] == 0xFE and last - first < 9:
                return count, at, 2
            first += 1
            if last - first < 19 or _u32(data, first + 9) != last - first:
                return count, at, 4
        else:
            first = at
            if at + 19 > end:
                return count, at, 0
            last = first + _u32(data, first + 9)
            if last - first > LARGEST_EVENT:
                return count, at, 6
            if last - first < 19:
                return count, at, 4
            if last > end:
                return count, at, 0
            after = last
        kind = data[first + 4]
        checked = state[0] == 1
        if kind == 15:
            # Always room for a checksum, and the algorithm in front of it.
            if last - first < 19 + 57 + 5:
                return count, at, 4
            state[0] = data[last - 5]
            checked = True
        body = last
        if checked:
            body = last - 4
            if body < first + 19:
                return count, at, 4
            if (
                state[1] == 1
                and state[0] == 1
                and crc32(data, first, body, tables) != _u32(data, body)
            ):
                return count, at, 5
        event = index[count]
        event["type"] = kind
        event["timestamp"] = _u32(data, first)
        event["server"] = _u32(data, first + 5)
        event["size"] = last - first
        event["log_pos"] = _u32(data, first + 13)
        event["flags"] = int(data[first + 17]) | int(data[first + 18]) << 8
        event["start"] = first
        event["end"] = body
        count += 1
        at = after
    return count, at, 1


def frame_plain(
    raw: bytes, *, packets: bool, checksum: bool, verify: bool
) -> tuple[list[tuple[int, bytes]], int, int]:
    """The plain twin of `frame`: ([(type, event without checksum)], bytes used, status)."""
    events: list[tuple[int, bytes]] = []
    at = 0
    while True:
        payload, after = _plain_payload(raw, at, packets=packets)
        if after < 0:
            return events, at, NEED_MORE if after == -1 else -after
        if packets and payload[:1] == b"\xff":
            return events, at, FAILED
        if packets and payload[:1] == b"\xfe" and len(payload) < 9:
            return events, at, END
        event = payload[1:] if packets else payload
        if len(event) < HEADER or int.from_bytes(event[9:13], "little") != len(event):
            return events, at, BAD_LENGTH
        kind = event[4]
        trailer = checksum
        if kind == FORMAT_DESCRIPTION:
            if len(event) < HEADER + 57 + 5:
                return events, at, BAD_LENGTH
            checksum, trailer = event[-5] == 1, True
        if trailer:
            if len(event) < HEADER + 4:
                return events, at, BAD_LENGTH
            told = int.from_bytes(event[-4:], "little")
            event = event[:-4]
            if verify and checksum and zlib.crc32(event) != told:
                return events, at, BAD_CHECKSUM
        events.append((kind, event))
        at = after


def _plain_payload(raw: bytes, at: int, *, packets: bool) -> tuple[bytes, int]:
    if not packets:
        head = raw[at : at + HEADER]
        size = int.from_bytes(head[9:13], "little")
        if len(head) == HEADER and size > LARGEST_EVENT:
            return b"", -TOO_LONG
        if len(head) < HEADER or (size >= HEADER and len(raw) < at + size):
            return b"", -1
        return raw[at : at + max(size, HEADER)], at + size
    payload, promised = b"", MAX_PACKET
    if len(raw) >= at + _SIZE_KNOWN:
        size = int.from_bytes(raw[at + 14 : at + 18], "little") + 1
        if raw[at : at + 3] == b"\xff\xff\xff":
            promised = size
            if not MAX_PACKET <= promised <= LARGEST_EVENT:
                return b"", -TOO_LONG if promised > LARGEST_EVENT else -BAD_LENGTH
        elif raw[at + 4] == 0 and int.from_bytes(raw[at : at + 3], "little") != size:
            return b"", -BAD_LENGTH
    while True:
        length = int.from_bytes(raw[at : at + 3], "little")
        if len(raw) >= at + 4 and len(payload) + length > promised:
            return b"", -BAD_LENGTH
        if len(raw) < at + 4 + length or len(raw) < at + 4:
            return b"", -1
        payload += raw[at + 4 : at + 4 + length]
        at += 4 + length
        if length < MAX_PACKET:
            return payload, at
