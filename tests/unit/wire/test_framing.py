"""Framing: whole, byte by byte, with bytes behind, over 16 MB; kernel and plain twin agree."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from event_kit import Log, packet
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.wire import framing


def frame(
    raw: bytes, *, packets: bool = True, checksum: bool = True, room: int = 100
) -> tuple[list[tuple[int, bytes]], int, int]:
    """The kernel, with its results in the form of the plain twin's."""
    data = np.frombuffer(bytearray(raw), np.uint8)
    state = np.array([int(checksum), 1], np.int64)
    index = np.zeros(room, framing.EVENT)
    count, at, status = framing.frame(
        data, 0, data.size, packets, state, index, 0, framing.CRC_TABLES
    )
    events = [
        (int(one["type"]), data[one["start"] : one["end"]].tobytes()) for one in index[:count]
    ]
    return events, at, status


def plain(
    raw: bytes, *, packets: bool = True, checksum: bool = True
) -> tuple[list[tuple[int, bytes]], int, int]:
    return framing.frame_plain(raw, packets=packets, checksum=checksum, verify=True)


def some_log(*, checksum: bool = True) -> Log:
    log = Log(checksum=checksum).rotate("bin.000001").format()
    return log.insert(1).gtid(2).query("DROP TABLE x").insert(3, b"x" * 300)


@pytest.mark.parametrize("checksum", [True, False])
def test_finds_all_events(*, checksum: bool) -> None:
    log = some_log(checksum=checksum)
    events, at, status = frame(log.packets(), checksum=checksum)
    assert [event[4] for event in log.events] == [kind for kind, _ in events]
    assert (at, status) == (len(log.packets()), framing.NEED_MORE)
    bodies = [e[:-4] if checksum or e[4] == 15 else e for e in log.events]
    assert [event for _, event in events] == bodies


def test_waits_for_every_single_byte() -> None:
    raw = Log().insert(1).packets()
    for size in range(len(raw)):
        events, at, status = frame(raw[:size])
        assert status == framing.NEED_MORE
        assert (events, at) == plain(raw[:size])[:2]


def test_leaves_bytes_behind_alone() -> None:
    raw = Log().xid().packets()
    events, at, _ = frame(raw + b"\x99\0")
    assert len(events) == 1
    assert at == len(raw)


def test_joins_an_event_over_several_packets() -> None:
    body = bytes(np.random.default_rng(1).integers(0, 256, 2 * 0xFFFFFF + 5, np.uint8))
    log = Log().xid().add(30, body).xid()
    events, _, status = frame(log.packets())
    assert status == framing.NEED_MORE
    assert [event for _, event in events] == log.bare()


def test_an_event_of_exactly_one_packet_has_an_empty_packet_behind_it() -> None:
    body = b"y" * (0xFFFFFF - 1 - 19 - 4)
    log = Log().add(30, body).xid()
    assert [event for _, event in frame(log.packets())[0]] == log.bare()


def test_the_index_fills_up_and_goes_on() -> None:
    raw = some_log().packets()
    events, at, status = frame(raw, room=3)
    assert (len(events), status) == (3, framing.FULL)
    rest, _, _ = frame(raw[at:])
    assert events + rest == frame(raw)[0]


def test_says_where_an_error_packet_and_an_end_stand() -> None:
    raw = Log().xid().packets()
    assert frame(raw + packet(b"\xff\xd4\x04#HY000purged"))[1:] == (len(raw), framing.FAILED)
    assert frame(raw + packet(b"\xfe\0\0\2\0"))[1:] == (len(raw), framing.END)


def test_a_flipped_bit_does_not_pass() -> None:
    raw = bytearray(Log().xid().xid().packets())
    raw[-10] ^= 4
    events, _, status = frame(bytes(raw))
    assert (len(events), status) == (1, framing.BAD_CHECKSUM)


def test_a_length_that_does_not_fit_does_not_pass() -> None:
    event = bytearray(Log().xid().events[0])
    event[9] += 1
    assert frame(packet(b"\0" + bytes(event)))[2] == framing.BAD_LENGTH


@pytest.mark.parametrize("wrong", [8 << 20, 1, -1])
def test_a_packet_longer_than_its_event_is_not_waited_for(wrong: int) -> None:
    """It may never come: behind it only heartbeats do."""
    raw = Log().xid().packets()
    length = int.from_bytes(raw[:3], "little") + wrong
    torn = length.to_bytes(3, "little") + raw[3:20]
    assert frame(torn) == plain(torn) == ([], 0, framing.BAD_LENGTH)


def test_checksums_follow_the_format_description() -> None:
    with_sums, without = Log().format().xid(), Log(checksum=False).format().xid()
    raw = with_sums.packets() + without.packets() + with_sums.packets()
    events, at, _ = frame(raw)
    assert at == len(raw)
    assert [len(event) for kind, event in events if kind == 16] == [27, 27, 27]


def test_bare_events_follow_each_other() -> None:
    log = Log(checksum=False).insert(1)
    raw = b"".join(log.events)
    for size in (len(raw), len(raw) - 1):
        assert frame(raw[:size], packets=False, checksum=False) == plain(
            raw[:size], packets=False, checksum=False
        )


@given(st.binary(max_size=100), st.integers(0, 8))
def test_crc32_is_zlibs(data: bytes, start: int) -> None:
    array = np.frombuffer(bytearray(bytes(start) + data), np.uint8)
    found = framing.crc32(array, start, array.size, framing.CRC_TABLES)
    assert found == zlib.crc32(data)


@settings(max_examples=200)
@given(st.data(), st.booleans())
def test_kernel_and_twin_agree_on_damaged_streams(data: st.DataObject, packets: bool) -> None:  # noqa: FBT001
    log = some_log()
    raw = bytearray(log.packets() if packets else b"".join(log.bare()))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    given_bytes = bytes(raw[:cut])
    assert frame(given_bytes, packets=packets) == plain(given_bytes, packets=packets)


@given(st.binary(max_size=200), st.booleans())
def test_kernel_and_twin_agree_on_any_bytes(raw: bytes, packets: bool) -> None:  # noqa: FBT001
    assert frame(raw, packets=packets) == plain(raw, packets=packets)
