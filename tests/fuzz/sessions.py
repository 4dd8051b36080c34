"""Targets: what a server says to who logs in, and its answers to statements.

Each input is what the server sends in each turn, as it goes over the wire. It says all of it at
once and hangs up, so that the client comes to an end, whatever lengths it is told.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from functools import cache

from ratchet.core.errors import (
    DecodeError,
    RetryableError,
    ServerRefusedError,
    SourceUnfitError,
    TableStoppedError,
)
from ratchet.wire.connect import open_connection
from ratchet.wire.session import Session
from tests.fuzz.target import Target, packed, unpacked
from tests.server_kit import EOF, OK, column, greeting, packet, source_at

# A server may refuse us as it likes, by any number: what it says is no fault of ours.
REFUSALS = (
    DecodeError,
    RetryableError,
    ServerRefusedError,
    SourceUnfitError,
    TableStoppedError,
)


class _Peer:
    """A port where somebody says what is to be said next, to one client at a time."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.turns: Sequence[bytes] = ()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._server.accept()
            with client, contextlib.suppress(OSError):  # the client hangs up on what it dislikes
                client.sendall(b"".join(self.turns))
                client.shutdown(socket.SHUT_WR)
                while client.recv(1 << 16):
                    pass


@cache
def _peer() -> _Peer:
    return _Peer()


def _body(number: int, *bodies: bytes) -> bytes:
    return b"".join(packet(number + n, body) for n, body in enumerate(bodies))


def _text(*values: str) -> bytes:
    return b"".join(bytes([len(value)]) + value.encode() for value in values)


def _rows(*rows: tuple[str, ...]) -> bytes:
    """An answer of text."""
    width = len(rows[0])
    names = [column(b"c%d" % n) for n in range(width)]
    return _body(1, bytes([width]), *names, EOF, *(_text(*row) for row in rows), EOF)


def login(data: bytes) -> None:
    """From the greeting on, until the session may send statements."""
    _peer().turns = unpacked(data)
    open_connection(source_at(_peer().port)).close()


def login_seeds() -> list[bytes]:
    ok, native = _body(2, OK), _body(0, greeting())
    switch = _body(2, b"\xfemysql_native_password\0" + b"12345678123456789012\0")
    denied = _body(2, b"\xff\x15\x04#28000Access denied for user 'me'@'localhost'")
    caching = _body(0, greeting("caching_sha2_password"))
    return [
        packed(native, ok, _body(1, OK)),
        packed(native, switch, _body(4, OK), _body(1, OK)),
        packed(caching, _body(2, b"\1\3", OK), _body(1, OK)),
        packed(caching, _body(2, b"\1\4"), _body(4, OK)),
        packed(native, denied),
        packed(_body(0, greeting(tls=True)), ok),
        packed(_body(0, b"\xff\x69\x04Host 'h' is not allowed to connect")),
    ]


def answers(data: bytes) -> None:
    """What a session asks at its beginning, and a statement of several rows."""
    hello = [_body(0, greeting()), _body(2, OK), _body(1, OK)]
    _peer().turns = [*hello, *unpacked(data)]
    with Session.connect(source_at(_peer().port)) as session:
        session.query("SELECT a, b FROM t")


def answers_seeds() -> list[bytes]:
    ok = _body(1, OK)
    some = _rows(("1", "one"), ("2", "two"), ("", "none"))
    failed = _body(1, b"\xff\xaa\x04#42S02Table 'd.t' doesn't exist")
    mariadb = [_rows(("10.11.6-MariaDB-log",)), ok, ok, _rows(("1", "host", "3306"))]
    gtids, name = _rows(("ON",)), _rows(("3e11fa47-71ca-11e1-9e33-c80aa9429562",))
    mysql = [_rows(("8.0.30",)), gtids, ok, ok, ok, ok, name]
    none = _body(1, b"\2", column(b"a"), column(b"b"), EOF, EOF)
    return [packed(*begin, end) for begin in (mariadb, mysql) for end in (some, none, failed)]


TARGETS: dict[str, Target] = {
    "login": Target(login, login_seeds, REFUSALS),
    "answers": Target(answers, answers_seeds, REFUSALS),
}
