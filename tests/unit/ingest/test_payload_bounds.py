"""Compressed transactions and events that claim more than they have."""

from __future__ import annotations

import struct
import time

import pyarrow as pa
import pytest

from ratchet.core.errors import DecodeError
from ratchet.ingest.binlog import events
from ratchet.ingest.binlog.payload import DecompressionBuffer
from ratchet.wire import framing


def payload(inner: bytes, announced: int) -> bytes:
    """A TRANSACTION_PAYLOAD of zstd that tells of so many bytes."""
    packed = pa.Codec("zstd").compress(inner, asbytes=True)
    head = b"\2\1\0" + b"\3\x09\xfe" + struct.pack("<Q", announced)
    return head + b"\1\x09\xfe" + struct.pack("<Q", len(packed)) + b"\0" + packed


def claiming(size: int, there: int) -> bytes:
    """An event whose header says so many bytes."""
    return (bytes(4) + b"\x02" + bytes(4) + struct.pack("<I", size)).ljust(there, b"\0")


def unpack(body: bytes) -> int:
    side, found = DecompressionBuffer(), 0
    for _, count in side.unpack(body, full=side.release):
        found += count
    return found


@pytest.mark.parametrize(
    ("size", "announced", "said"),
    [
        (0xFFFFFFFF, 1 << 33, "more than 1 GiB"),
        (1 << 29, 64 << 20, "more bytes than are left"),
    ],
)
def test_an_inner_event_is_refused_by_its_header(size: int, announced: int, said: str) -> None:
    began = time.process_time()
    with pytest.raises(DecodeError, match=said):
        unpack(payload(claiming(size, 64 << 20), announced))
    assert time.process_time() - began < 5


def test_no_more_is_unpacked_than_it_tells_of() -> None:
    with pytest.raises(DecodeError, match="that it states"):
        unpack(payload(4 * claiming(8 << 20, 8 << 20), 16 << 20))


def test_a_long_event_is_moved_once_and_not_for_each_piece() -> None:
    """It took a copy of all that had come for each 4 MB."""
    calls = []
    side = DecompressionBuffer()
    body = payload(claiming(200 << 20, 200 << 20), 200 << 20)

    def full() -> None:
        calls.append(side.end)
        side.release()

    assert sum(count for _, count in side.unpack(body, full=full)) == 1
    assert calls == []


def test_mariadbs_packing_announces_no_more_than_an_event_may_have() -> None:
    with pytest.raises(DecodeError, match="more than an event may have"):
        events.uncompress(b"\x84" + struct.pack(">I", 0xFFFFFFFF) + b"x")


@pytest.mark.parametrize(
    ("size", "packets", "status"),
    [
        (0xFFFFFFFF, 1, framing.TOO_LONG),
        (100, 1, framing.BAD_LENGTH),
        (0xFFFFFF + 10, 2, framing.BAD_LENGTH),
        (1 << 29, 1, framing.NEED_MORE),
    ],
)
def test_an_event_over_packets_is_judged_by_its_header(
    size: int, packets: int, status: int
) -> None:
    """Before the bytes of the packet have come; kernel and twin alike."""
    import numpy as np

    whole = b"\xff\xff\xff\0" + (b"\0" + claiming(size, 19)).ljust(0xFFFFFF, b"\0")
    raw = whole * (packets - 1) + (whole[:40] if packets == 1 else b"\xff\xff\xff\1")
    data = np.frombuffer(bytearray(raw), np.uint8)
    index = np.zeros(4, framing.EVENT)
    state = np.zeros(2, np.int64)
    found = framing.frame(data, 0, data.size, True, state, index, 0, framing.CRC_TABLES)
    twin = framing.frame_plain(raw, packets=True, checksum=False, verify=False)
    assert tuple(map(int, found)) == (0, 0, status)
    assert twin == ([], 0, status)
