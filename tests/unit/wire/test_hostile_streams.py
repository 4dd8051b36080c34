"""Rows and log events that never end: refused by what they announce, or at their bound.

The server is a fake that answers as a MySQL without GTIDs does, until it is asked for a stream.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from server_kit import EOF, OK, Client, column, fake_server, packet, result, source_at

from ratchet.core.errors import DecodeError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.wire.binlog import BinlogStream, DumpOptions
from ratchet.wire.session import Session
from ratchet.wire.stream import MAX_PACKET

pytestmark = pytest.mark.slow

MIB = 1 << 20
MOST = 256 * MIB  # that a fake sends at most, should nobody stop it
IDENTITY = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
VALUES = {
    b"VERSION()": b"8.0.30",
    b"@@GLOBAL.gtid_mode": b"OFF",
    b"@@GLOBAL.server_uuid": IDENTITY.encode(),
    b"@@GLOBAL.log_bin": b"1",
    b"@@GLOBAL.binlog_checksum": b"NONE",
}
QUERY, DUMP = 3, 0x12
Pieces = Callable[[], Iterator[bytes]]


class Endless:
    """Answers every question, and a SELECT of rows or a dump of the log with what never ends.

    Attributes:
        sent: bytes of that.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self.sent = 0

    def play(self, client: Client) -> None:
        client.log_in()
        while command := client.read():
            asked = command[5:]
            value = next((v for name, v in VALUES.items() if name in asked), None)
            if command[4] == DUMP or b"FROM endless" in asked:
                self._stream(client)
                return
            if command[4] == QUERY and value is not None:
                client.send(1, *result(bytes([len(value)]) + value))
            else:
                client.send(1, OK)

    def _stream(self, client: Client) -> None:
        for piece in self._pieces():
            client.sock.sendall(piece)
            self.sent += len(piece)
            if self.sent > MOST:
                break


@contextmanager
def endless(pieces: Pieces) -> Iterator[tuple[int, Endless]]:
    server = Endless(pieces)
    with fake_server(server.play) as (port, _):
        yield port, server


def long_packets(first: bytes, begin: int) -> Iterator[bytes]:
    """One payload over packets of 16 MB, of which each says that another one follows."""
    yield packet(begin, first + bytes(MAX_PACKET - len(first)))
    filler = bytes(MAX_PACKET)
    for number in itertools.count(begin + 1):
        yield packet(number, filler)


def row() -> Iterator[bytes]:
    yield b"".join(packet(1 + n, body) for n, body in enumerate((b"\1", column(), EOF)))
    yield from long_packets(b"\xfe" + struct.pack("<Q", 1 << 40), 4)


def test_a_row_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers' own is a GiB: here a smaller one."""
    monkeypatch.setattr("ratchet.wire.stream.LARGEST_PACKET", 24 * MIB)
    with endless(row) as (port, server):
        session = Session.connect(source_at(port, read_timeout=20.0))
        with pytest.raises(DecodeError, match="a row of more than 1 GiB") as caught:
            list(session.stream_rows("SELECT v FROM endless"))
        assert not session.usable, "what is left of the row would be taken for another answer"
    assert caught.value.exit_code == 8
    assert caught.value.source == "s/-"
    assert "try again" in caught.value.hint
    assert server.sent < 80 * MIB


def head(size: int) -> bytes:
    """The beginning of a log's packet: an event that says that it has so many bytes."""
    return b"\0" + struct.pack("<IBIIIH", 0, 30, 1, size, 0, 0)


EVENTS: dict[str, tuple[Pieces, str]] = {
    "it says so": (lambda: long_packets(head(0xFFFFFFFF), 1), "more than 1 GiB"),
    "it says so, and no more comes": (
        lambda: iter([struct.pack("<I", MAX_PACKET | 1 << 24) + head(2 << 30)]),
        "more than 1 GiB",
    ),
    "it goes on behind its end": (
        lambda: long_packets(head(20 * MIB), 1),
        "not binlog events",
    ),
    "it is longer than its packet": (
        lambda: itertools.repeat(packet(1, head(0xFFFFFFFF) + bytes(100))),
        "not binlog events",
    ),
}


def follow(stream: BinlogStream) -> None:
    """To the first event, as a run does."""
    while not stream.count:
        stream.receive(1.0)
        if stream.is_full:
            stream.recycle()


@pytest.mark.parametrize("kind", list(EVENTS))
def test_a_log_event_has_a_bound(kind: str) -> None:
    pieces, said = EVENTS[kind]
    start = Position(
        executed=GtidSet.empty("file"), server=IDENTITY, file="binlog.000001", offset=4
    )
    with endless(pieces) as (port, server):
        stream = BinlogStream(source_at(port), start, DumpOptions(server_id=7))
        try:
            with pytest.raises(DecodeError, match=said) as caught:
                follow(stream)
        finally:
            stream.close()
    assert caught.value.exit_code == 8
    assert caught.value.source == "s/-"
    assert "try again" in caught.value.hint
    assert "redump" in caught.value.hint or "heal" in caught.value.hint
    assert server.sent < 80 * MIB
