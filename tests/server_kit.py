"""A server that says what a test wants it to, in MySQL's protocol.

Lives here: packets, a greeting, and a port that plays one script with each connection. Does not
live here: a real server (`lab`).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ratchet.core.shard import ShardId
from ratchet.wire.connect import SourceConfig

PASSWORD = "s3cret-word"
OK = b"\0\0\0\2\0\0\0"
EOF = b"\xfe\0\0\2\0"
ROW = 0xFD  # the type of a column of text

_PLAIN = 0x000F_A20D | 0x0008_0000  # 4.1, secure connection, plugins, a database
_TLS = 0x0800


def packet(number: int, body: bytes) -> bytes:
    """A packet, or what of one is at its beginning: its length is that of the body."""
    return struct.pack("<I", len(body))[:3] + bytes([number & 0xFF]) + body


def greeting(plugin: str = "mysql_native_password", *, tls: bool = False) -> bytes:
    """What a server says first."""
    capabilities = _PLAIN | (_TLS if tls else 0)
    return (
        b"\x0a8.0.30\0" + struct.pack("<I", 7) + b"12345678\0"
        + struct.pack("<HBHH", capabilities & 0xFFFF, 45, 2, capabilities >> 16)
        + bytes([21]) + bytes(10) + b"123456789012\0" + plugin.encode() + b"\0"
    )  # fmt: skip


def column(name: bytes = b"v") -> bytes:
    """The description of a column of text."""
    parts = (b"def", b"", b"", b"", name, name)
    head = b"".join(bytes([len(part)]) + part for part in parts)
    return head + struct.pack("<BHIBHBH", 12, 45, 255, ROW, 0, 0, 0)


def result(*rows: bytes, columns: int = 1) -> list[bytes]:
    """The bodies of the packets of a result."""
    return [bytes([columns]), *([column()] * columns), EOF, *rows, EOF]


class Client:
    """What a script has of one connection.

    Attributes:
        heard: all that has come.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock: Any = sock
        self.heard = b""

    def read(self) -> bytes:
        """What comes next; empty at the end."""
        more: bytes = self.sock.recv(1 << 16)
        self.heard += more
        return more

    def send(self, number: int, *bodies: bytes) -> None:
        """Send packets, numbered from there on."""
        self.sock.sendall(b"".join(packet(number + n, body) for n, body in enumerate(bodies)))

    def to_tls(self, certificate: Path, key: Path) -> None:
        """Take the client's request for TLS, and go over to it."""
        wanted = b""  # the request alone: the first bytes of TLS may have come behind it
        while len(wanted) < 36:
            more = self.sock.recv(36 - len(wanted))
            if not more:
                raise ConnectionError("it has hung up")
            wanted += more
        self.heard += wanted
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.sock = context.wrap_socket(self.sock, server_side=True)

    def log_in(self, plugin: str = "mysql_native_password") -> None:
        """Greet, and take whoever comes; then be asked for its settings."""
        self.send(0, greeting(plugin))
        self.read()
        self.send(2, OK)
        self.read()  # SET NAMES; the session is in autocommit by the status of the OK
        self.send(1, OK)


@contextmanager
def fake_server(script: Callable[[Client], None]) -> Iterator[tuple[int, list[Client]]]:
    """A port that plays the script with every connection; its number, and the connections."""
    clients: list[Client] = []
    playing: list[threading.Thread] = []  # a stream has two connections at once

    def play(client: Client) -> None:
        # The other side hangs up on what it does not like.
        with client.sock, contextlib.suppress(OSError):
            script(client)
            while client.read():
                pass
        with contextlib.suppress(OSError):
            client.sock.close()

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                clients.append(Client(sock))
                playing.append(threading.Thread(target=play, args=(clients[-1],)))
                playing[-1].start()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1], clients
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in playing:
                one.join()


def source_at(port: int, **more: Any) -> SourceConfig:
    """How to connect to it."""
    given = {"host": "127.0.0.1", "user": "me", "password": PASSWORD, "database": "d"}
    given |= {"connect_timeout": 5.0, **more}
    return SourceConfig(shard=ShardId("s", "-"), port=port, **given)
