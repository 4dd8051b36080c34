"""Bytes from a server's socket into one growing array, and the rows of a result set as raw packets.

Lives here: the receive buffer that binlog streams and result sets share, the kernel that finds
the last whole row in it, and `RowStream`. Does not live here: decoding a row (`wire.decode`).

Invariant: what lies between `start` and `end` of a buffer is what was received and not yet used,
in order; regions handed out hold whole rows, all packets of a row of 16 MB or more included.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np
import numpy.typing as npt

from ratchet.core.errors import DecodeError, RetryableError
from ratchet.wire.failures import binlog_failure
from ratchet.wire.kernel import kernel

Bytes = npt.NDArray[np.uint8]

BUFFER_SIZE: Final = 16 << 20
MAX_PACKET: Final = 0xFFFFFF
# A row, or an event of a log, over all its packets: both servers' own bound, and their headers.
LARGEST_PACKET: Final = (1 << 30) + (1 << 16)
MOST_COLUMNS: Final = 4096  # the servers' own bound
_LARGEST_HEAD: Final = 1 << 20  # of the packets in front of the rows: names and types
LEAST_PACE: Final = 64  # bytes of rows a second
_FEW_PIECES: Final = 8  # no drops: a server may compute for long, and answer at once
_REGION: Final = 2 << 20  # what a region holds at least, unless it is the last

NEED_MORE: Final = 0
END: Final = 1
FAILED: Final = 2


class Socket(Protocol):
    """What is used of a socket, plain or TLS."""

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0, /) -> int:
        """Receive what there is, at most as much as fits."""

    def settimeout(self, value: float | None, /) -> None:
        """Set the time that `recv_into` waits, in seconds."""


class ReceiveBuffer:
    """A growable array of received bytes.

    Attributes:
        data: the array; it is replaced when it grows, so take it anew after each `receive`.
        start: where the unused bytes begin.
        end: where they end.
    """

    def __init__(self, size: int = BUFFER_SIZE) -> None:
        # Zeroed, so a kernel that looked past the end would at least do so reproducibly.
        self.data: Bytes = np.zeros(size, np.uint8)
        self.start = 0
        self.end = 0

    def __len__(self) -> int:
        """How many bytes are unused."""
        return self.end - self.start

    def reserve(self, room: int) -> None:
        """Make at least `room` bytes of space behind `end`, moving or growing as needed."""
        if self.start == self.end:
            self.start = self.end = 0
        if self.data.size - self.end >= room:
            return
        unused = self.data[self.start : self.end]
        if len(self) + room > self.data.size:
            size = max(self.data.size * 2, len(self) + room)
            grown = np.zeros(size, np.uint8)
            grown[: len(self)] = unused
            self.data = grown
        else:
            self.data[: len(self)] = unused.copy()
        self.start, self.end = 0, len(self)

    def shrink(self) -> None:
        """Go back to the usual size, which the unused bytes must fit into."""
        unused = self.data[self.start : self.end]
        self.data = np.zeros(BUFFER_SIZE, np.uint8)
        self.data[: unused.size] = unused
        self.start, self.end = 0, int(unused.size)

    def refill(self, data: Bytes, *, room: int) -> None:
        """Hold these bytes, which are not its own, and no others, with `room` behind them."""
        self.start = self.end = 0
        self.reserve(data.size + room)
        self.data[: data.size] = data
        self.end = int(data.size)

    def receive(self, sock: Socket, *, room: int = 1 << 20) -> int:
        """Receive once and return the number of bytes.

        Raises:
            TimeoutError: nothing came within the socket's time-out.
            RetryableError: the connection is gone.
        """
        self.reserve(room)
        view = self.data[self.end :].data
        try:
            count = sock.recv_into(view)
        except TimeoutError:
            raise
        except OSError as error:
            raise RetryableError(
                "the connection broke off", operation="receive from the server"
            ) from error
        if count == 0:
            raise RetryableError(
                "the server closed the connection", operation="receive from the server"
            )
        self.end += count
        if isinstance(sock, ssl.SSLSocket):
            # A TLS record holds 16 KB at most; take all that has been decrypted already.
            while (waiting := sock.pending()) and self.data.size - self.end >= waiting:
                self.end += sock.recv_into(self.data[self.end :].data, waiting)
        return self.end - (self.data.size - len(view))


@kernel
def scan_rows(data: Bytes, start: int, end: int) -> tuple[int, int]:
    """Walk the packets of text rows; (end of the last whole row, NEED_MORE | END | FAILED).

    With END or FAILED the first number is where the final packet begins, which is whole.
    """
    at = start
    while True:
        row = at
        while True:  # over the packets of one row
            if at + 4 > end:
                return row, 0
            length = int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16
            if at + 4 + length > end:
                return row, 0
            if at == row and length > 0 and data[at + 4] == 0xFF:
                return row, 2
            if at == row and 0 < length < 9 and data[at + 4] == 0xFE:
                return row, 1
            at += 4 + length
            if length < 0xFFFFFF:
                break


def scan_rows_plain(data: Bytes, start: int, end: int) -> tuple[int, int]:
    """The plain twin of `scan_rows`."""
    done = start
    while True:
        raw = bytes(data[start:end])
        payload, size = _logical_packet(raw)
        if size == 0:
            return done, NEED_MORE
        if payload[:1] == b"\xff":
            return done, FAILED
        if payload[:1] == b"\xfe" and len(payload) < 9:
            return done, END
        start += size
        done = start


def _logical_packet(raw: bytes) -> tuple[bytes, int]:
    """The payload of the first (joined) packet and its size on the wire; (b"", 0): not whole."""
    payload, at = b"", 0
    while True:
        length = int.from_bytes(raw[at : at + 3], "little")
        if len(raw) < at + 4 + length:
            return b"", 0
        payload += raw[at + 4 : at + 4 + length]
        at += 4 + length
        if length < MAX_PACKET:
            return payload, at


class RowStream:
    """The raw text rows of one SELECT. Iterate to the end, or close it.

    Attributes:
        columns: how many columns a row has.
        bytes: bytes of rows handed out so far.
    """

    def __init__(
        self,
        sock: Socket,
        *,
        source: str,
        on_broken: Any,
        hint: str = "",
        region: int = _REGION,
        patience: float = math.inf,
    ) -> None:
        """Read the head of the result.

        Args:
            sock: where the answer comes from.
            source: keyspace/shard, for messages.
            on_broken: called if the end was not reached.
            hint: what a server that hangs up may mean by it.
            region: bytes handed out at a time, about.
            patience: seconds of waiting, after which some rows must have come.
        """
        self._sock = sock
        self._source = source
        self._hint = hint
        self._on_broken = on_broken
        self._region, self._patience = region, patience
        # Seconds in which nothing else was done; bytes that came in them, and in how many pieces.
        self._waited, self._came, self._pieces = 0.0, 0, 0
        self._buffer = ReceiveBuffer()
        self._open = True
        self.bytes = 0
        try:
            self.columns = self._read_head()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[tuple[Bytes, int, int]]:
        """Regions (buffer, start, end) of whole rows. A region is good until the next is asked."""
        buffer = self._buffer
        scanned = buffer.start
        while self._open:
            stop, status = scan_rows(buffer.data, scanned, buffer.end)
            scanned = stop
            if status == FAILED:
                self._fail(stop)
            if status == END or stop - buffer.start >= self._region:
                self._open = status != END
                if stop > buffer.start:
                    self.bytes += stop - buffer.start
                    yield buffer.data, buffer.start, stop
                buffer.start = stop
                continue
            if buffer.end - stop > LARGEST_PACKET:
                self.close()
                raise self._unsound("a row of more than 1 GiB")
            scanned -= buffer.start
            self._receive()
            scanned += buffer.start

    def close(self) -> None:
        """Let go. Before the end of the result this makes the session unusable."""
        if self._open:
            self._open = False
            self._on_broken()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _receive(self) -> None:
        began = time.monotonic()
        try:
            self._came += self._buffer.receive(self._sock)
        except TimeoutError as error:
            raise self._slow("no rows") from error
        except RetryableError as error:
            self.close()
            raise RetryableError(
                error.message, operation="read rows", source=self._source, hint=self._hint
            ) from error.__cause__
        self._waited += time.monotonic() - began
        self._pieces += 1
        # Drops that come in time would hold up whoever waits for the rows for good.
        if self._waited > self._patience and self._pieces > _FEW_PIECES:
            if self._came < LEAST_PACE * self._waited:
                raise self._slow(f"fewer than {LEAST_PACE} bytes a second")
            self._waited, self._came, self._pieces = 0.0, 0, 0

    def _slow(self, what: str) -> RetryableError:
        self.close()
        return RetryableError(
            f"the server sent {what} within the read time-out",
            operation="read rows",
            source=self._source,
            hint="raise read_timeout if the server is slow on purpose",
        )

    def _packet(self) -> bytes:
        buffer = self._buffer
        while len(buffer) < 4:
            self._receive()
        length = int.from_bytes(buffer.data[buffer.start : buffer.start + 3].tobytes(), "little")
        if length > _LARGEST_HEAD:
            raise self._unsound(f"{length:,} bytes came instead of the description of the columns")
        while len(buffer) < 4 + length:
            self._receive()
        payload = buffer.data[buffer.start + 4 : buffer.start + 4 + length].tobytes()
        buffer.start += 4 + length
        return payload

    def _unsound(self, what: str) -> DecodeError:
        return DecodeError(
            what,
            operation="read rows",
            source=self._source,
            hint="the connection may be damaged, or the server is not MySQL; try again",
        )

    def _read_head(self) -> int:
        payload = self._packet()
        if payload[:1] == b"\xff":
            self._open = False  # the session goes on: an error ends the result
            raise self._failure(payload)
        columns = _lenenc(payload)
        if payload[:1] == b"\xfb":
            raise self._unsound("the server asks for a file of this machine (LOCAL INFILE)")
        if columns > MOST_COLUMNS:
            raise self._unsound(f"a result set of {columns} columns")
        if columns == 0:
            self._open = False
            raise self._unsound("the statement returns no rows")
        for _ in range(columns + 1):  # the definitions and an EOF packet
            payload = self._packet()
        if payload[:1] != b"\xfe":
            raise self._unsound("no end of the column definitions")
        return columns

    def _fail(self, at: int) -> None:
        self._open = False
        payload, _ = _logical_packet(bytes(self._buffer.data[at : self._buffer.end]))
        raise self._failure(payload)

    def _failure(self, payload: bytes) -> Exception:
        code, text = parse_error_packet(payload)
        return binlog_failure(text, code=code, operation="read rows", source=self._source)


def parse_error_packet(payload: bytes) -> tuple[int, str]:
    """Error number and message of an error packet (first byte 0xff)."""
    code = int.from_bytes(payload[1:3], "little")
    text = payload[3:].decode("utf-8", "replace")
    return code, text[6:] if text[:1] == "#" else text


def _lenenc(payload: bytes) -> int:
    """A length-encoded number; 0 of an empty payload."""
    first = payload[0] if payload else 0
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first, 0)
    return int.from_bytes(payload[1 : 1 + width], "little") if width else first
