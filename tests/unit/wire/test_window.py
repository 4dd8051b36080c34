"""Windows on received bytes: no event is lost, doubled or torn, wherever they are cut and moved."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.wire import framing, window
from ratchet.wire.stream import ReceiveBuffer
from ratchet.wire.window import EventBuffer, borrow, give_back

ROOM = 64


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "ReceiveBuffer", partial(ReceiveBuffer, 512))
        patch.setattr(window, "ROOM", ROOM)
        patch.setattr(window, "_EVENTS", 9)
        yield


class Trickle:
    """A socket that gives its bytes in pieces of at most so many."""

    def __init__(self, data: bytes, piece: int) -> None:
        self.data, self.piece = data, piece

    def recv_into(self, view: memoryview) -> int:
        count = min(self.piece, len(view), len(self.data))
        view[:count], self.data = self.data[:count], self.data[count:]
        return count


def packet(number: int, size: int) -> bytes:
    """An event without checksum in its packet; its body says which one it is."""
    body = number.to_bytes(4, "little") * -(-size // 4)
    event = struct.pack("<IBIIIH", number, 2, 1, 19 + len(body), 0, 0) + body
    return (len(event) + 1).to_bytes(3, "little") + b"\0\0" + event


@given(
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=40),
    piece=st.integers(1, 700),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=20),
)
def test_events_come_once_and_in_order(
    sizes: list[int], piece: int, steps: list[tuple[bool, int]]
) -> None:
    """Used a few at a time, moved to the front or into another window in between."""
    sock = Trickle(b"".join(packet(n, size) for n, size in enumerate(sizes)), piece)
    state = np.zeros(framing.STATE_SIZE, np.int64)
    now, seen, turn = EventBuffer(), [], 0
    while len(seen) < len(sizes):
        elsewhere, use = steps[turn % len(steps)]
        turn += 1
        if now.wants_more and sock.data:
            now.receive(sock)
        now.frame(state)
        assert not now.is_at_fault
        for _ in range(min(use + (turn % len(steps) == 0), now.count - now.first)):
            event = now.index[now.first]
            body = now.data[event["start"] + 19 : event["end"]].tobytes()
            number = int(event["timestamp"])
            assert body == number.to_bytes(4, "little") * (len(body) // 4)
            assert len(body) == -(-sizes[number] // 4) * 4
            seen.append(number)
            now.first += 1
        if elsewhere:
            other = EventBuffer()
            other.index[:] = now.index[::-1]  # whatever it held before is no matter
            other.count = other.first = 5
            now.hand_over(other)
            now.data[:] = 0xAA  # the next one to borrow it writes into it
            now = other
        elif now.is_full:
            now.recycle()
    assert seen == list(range(len(sizes)))


def test_as_many_are_lent_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    spares: SimpleQueue[EventBuffer | None] = SimpleQueue()
    for _ in range(2):
        spares.put(None)
    monkeypatch.setattr(window, "_spares", spares)
    first, second = borrow(), borrow()
    assert first is not None
    assert second is not None
    assert first is not second
    assert borrow() is None
    give_back(first)
    assert borrow() is first


def test_one_that_has_grown_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_spares", SimpleQueue())
    monkeypatch.setattr(window, "BUFFER_SIZE", 100)
    large = EventBuffer()
    assert large.is_large
    give_back(large)
    after = borrow()
    assert after is not None
    assert after is not large


@pytest.mark.parametrize("elsewhere", [True, False])
def test_events_that_the_index_had_no_room_for_wait_for_no_more_bytes(elsewhere: bool) -> None:  # noqa: FBT001
    """There may be none for a while: the server has said all, until its next heartbeat."""
    state = np.zeros(framing.STATE_SIZE, np.int64)
    now, seen = EventBuffer(), 0
    now.receive(Trickle(b"".join(packet(n, 1) for n in range(15)), 500))
    for count in (9, 6):  # as many as the index holds, and what is left
        assert now.frame(state)
        assert now.count == count
        now.first, seen = count, seen + count
        assert now.wants_more == (seen == 15)
        if elsewhere:
            other = EventBuffer()
            now.hand_over(other)
            now = other
        else:
            now.recycle()
        assert now.wants_more == (seen == 15)


def test_what_a_stream_has_ended_with_is_handed_over() -> None:
    """Nothing more is received then, which would hide it behind the end of the connection."""
    ends = packet(0, 300) + b"\x05\0\0\1\xfe\0\0\2\0"  # an EOF packet
    state = np.zeros(framing.STATE_SIZE, np.int64)
    now, other = EventBuffer(), EventBuffer()
    now.receive(Trickle(ends, 500))
    assert now.frame(state)
    assert now.is_at_fault
    now.first = 1
    now.hand_over(other)
    assert not other.wants_more
    assert not other.frame(state)
    assert other.status == framing.END
