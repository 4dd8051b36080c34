"""What a server may send to a session: fake servers that never end, or that lie."""

from __future__ import annotations

import itertools
import resource
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from server_kit import EOF, OK, Client, column, fake_server, packet, result, source_at

from ratchet.core.errors import DecodeError, RatchetError, RetryableError
from ratchet.wire.connect import open_connection
from ratchet.wire.connected import HANDSHAKE, RESULT
from ratchet.wire.session import Session
from ratchet.wire.stream import MOST_COLUMNS

pytestmark = pytest.mark.slow

LONG = b"x" * 0xFFFFFF
MIB = 1 << 20


def endless(client: Client, pieces: Iterator[bytes], most: int) -> None:
    """Send for as long as the other side takes it, at most so much."""
    sent = 0
    for piece in pieces:
        client.sock.sendall(piece)
        sent += len(piece)
        if sent > most:
            break


def failure_of(answer: Callable[[Client], None]) -> RatchetError:
    """What becomes of the first statement of a session that is answered so."""

    def script(client: Client) -> None:
        client.log_in()
        client.read()
        answer(client)

    with fake_server(script) as (port, _), pytest.raises(RatchetError) as caught:
        Session.connect(source_at(port, read_timeout=20.0))
    return caught.value


def test_a_handshake_has_64_kib() -> None:
    """Known by the packet's header: nothing of it needs to come."""

    def script(client: Client) -> None:
        client.sock.sendall(struct.pack("<I", HANDSHAKE + 1))

    with fake_server(script) as (port, _), pytest.raises(DecodeError, match="does not end"):
        open_connection(source_at(port))


@pytest.mark.parametrize("logged_in", [False, True])
def test_a_byte_now_and_then_is_no_answer(*, logged_in: bool) -> None:
    """Each comes in time, and all of them would take a day."""

    def script(client: Client) -> None:
        if logged_in:
            client.log_in()
            client.read()
        with suppress(OSError):
            client.sock.sendall(struct.pack("<I", 60_000 | logged_in << 24))  # its number on top
            for _ in range(300):
                client.sock.sendall(b"x")
                time.sleep(0.1)

    began = time.monotonic()
    with fake_server(script) as (port, _), pytest.raises(RetryableError, match="too slowly"):
        Session.connect(source_at(port, connect_timeout=2.0, read_timeout=2.0))
    assert time.monotonic() - began < 20


def test_a_login_does_not_go_on_for_ever() -> None:
    def script(client: Client) -> None:
        client.send(0, b"\x0a8.0.30\0" + b"1234" + b"12345678\0" + b"\xff\xff")
        client.read()
        endless(client, (packet(n, b"\1\3") for n in itertools.count(2)), MIB)

    with fake_server(script) as (port, _), pytest.raises(DecodeError):
        open_connection(source_at(port))


ENDLESS: dict[str, Callable[[], Iterator[bytes]]] = {
    "packet": lambda: (packet(n, LONG) for n in itertools.count(1)),
    "rows": lambda: itertools.chain(
        [b"".join(packet(1 + n, body) for n, body in enumerate(result()[:-1]))],
        (packet(n, b"\xfd\0\0\x80" + bytes(0x800000)) for n in itertools.count(4)),
    ),
    "small rows": lambda: itertools.chain(
        [b"".join(packet(1 + n, body) for n, body in enumerate(result()[:-1]))],
        (
            b"".join(packet(4 + n + at, b"\1v") for at in range(256))
            for n in itertools.count(0, 256)
        ),
    ),
}


@pytest.mark.parametrize("kind", list(ENDLESS))
def test_an_answer_has_a_bound(kind: str) -> None:
    """And so has the memory that it takes, which grew with it before."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = failure_of(lambda client: endless(client, ENDLESS[kind](), 3 << 30))
    assert isinstance(found, DecodeError)
    assert "does not end" in str(found)
    assert found.source == "s/-"
    assert "MySQL or MariaDB" in found.hint
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < 2 * RESULT


def numbered(*bodies: bytes) -> Callable[[Client], None]:
    return lambda client: client.send(1, *bodies)


MORE = EOF[:3] + b"\x0a\0"  # another result follows
LIES: dict[str, tuple[Callable[[Client], None], str]] = {
    "an OK where rows are expected": (numbered(OK), "an OK instead of rows"),
    "a file is asked for": (numbered(b"\xfb/etc/passwd"), "LOCAL INFILE"),
    "no rows": (numbered(*result()), "the expected shape"),
    "a row with too few values": (numbered(*result(b"\1v", columns=2)), "fewer values"),
    "a value that is cut": (numbered(*result(b"\5v")), "cannot read it"),
    "an empty packet": (numbered(b""), "cannot read it"),
    "an empty row": (numbered(*result(b"")), "cannot read it"),
    "columns without number": (numbered(b"\xfe" + b"\xff" * 8), "more than 4,096 columns"),
    "more columns than there are": (
        numbered(b"\xfc\x01\x10", *([column()] * 4097)),
        "more than 4,096 columns",
    ),
    "a name that is no UTF-8": (numbered(b"\1", column(b"\xff\xfe"), EOF), "cannot read it"),
    "a description that is cut": (numbered(b"\1", column()[:-8], EOF), "cannot read it"),
    "no end of the descriptions": (numbered(b"\1", column(), b"\1v", b"\1v"), "cannot read it"),
    "another sequence number": (
        lambda client: client.sock.sendall(packet(7, b"\1")),
        "sequence number wrong",
    ),
    "an error without a number": (numbered(b"\xff"), "cannot read it"),
    "results without end": (numbered(*result(b"\1v")[:-1], MORE), "more than one result"),
}


@pytest.mark.parametrize("lie", list(LIES))
def test_a_lie_is_an_error_of_the_source(lie: str) -> None:
    """Exit code 8, and a sentence; it was 70, "a bug"."""
    answer, said = LIES[lie]
    found = failure_of(answer)
    assert isinstance(found, DecodeError), repr(found)
    assert found.exit_code == 8
    assert said in str(found)
    assert found.operation
    assert found.hint


def test_a_table_of_the_most_columns_is_read() -> None:
    """It was taken for an answer without end: what a column takes was counted once for each."""
    count = MOST_COLUMNS
    row = b"\1v" * count

    def script(client: Client) -> None:
        client.log_in()
        client.read()
        client.send(1, b"\xfc" + struct.pack("<H", count), *([column()] * count), EOF, row, EOF)

    with fake_server(script) as (port, _):
        connection = open_connection(source_at(port, read_timeout=20.0))
        try:
            cursor = connection.cursor()
            cursor.execute("SELECT 1")
            assert cursor.fetchall() == (("v",) * count,)
        finally:
            connection.close()  # the server waits for it
