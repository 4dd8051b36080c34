"""What is said of TLS, and that no password goes out where nobody said so."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ratchet.core.errors import RetryableError, SourceUnfitError
from ratchet.core.shard import ShardId
from ratchet.wire.connect import SourceConfig, open_connection
from ratchet.wire.tls import tls_context, tls_trouble
from ratchet.wire.vtgate import VStream, VtgateConfig

PASSWORD = "s3cret-word"


@contextmanager
def listener(answer: Callable[[socket.socket], bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """A port that does so with every connection; its number, and what came."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    heard.append(answer(connection))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1], heard
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def packet(number: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_no_password_in_clear_text(plugin: bytes) -> None:
    """Whoever sits between us and the server could ask for it, and it would not need to be it."""
    capabilities = 0x000F_A20F | 0x0008_0000  # 4.1, secure connection, plugins
    greeting = (
        b"\x0a8.0.30\0" + struct.pack("<I", 7) + b"12345678\0"
        + struct.pack("<HBHH", capabilities & 0xFFFF, 45, 2, capabilities >> 16)
        + bytes([21]) + bytes(10) + b"123456789012\0" + b"mysql_native_password\0"
    )  # fmt: skip

    def ask(connection: socket.socket) -> bytes:
        connection.sendall(packet(0, greeting))
        heard = connection.recv(4096)
        connection.sendall(packet(2, b"\xfe" + plugin + b"\0" + b"\x00Password: "))
        while more := connection.recv(4096):
            heard += more
        return heard

    with listener(ask) as (port, heard):
        config = SourceConfig(
            shard=ShardId("s", "-"),
            host="127.0.0.1",
            port=port,
            user="me",
            password=PASSWORD,
            database="d",
        )
        with pytest.raises(SourceUnfitError, match="clear text") as caught:
            open_connection(config)
    assert "tls" in caught.value.hint
    assert b"me\0" in heard[0]
    assert PASSWORD.encode() not in heard[0]


def test_no_password_before_grpc_has_greeted() -> None:
    """As when TLS is off here and wanted there: gRPC does not send a call into the blue."""

    def listen(connection: socket.socket) -> bytes:
        connection.settimeout(60)
        heard = connection.recv(4096)
        connection.settimeout(0.5)  # what else it says without an answer
        try:
            while more := connection.recv(4096):
                heard += more
        except TimeoutError:
            pass
        return heard

    with listener(listen) as (port, heard):
        config = VtgateConfig(host="127.0.0.1", port=port, user="me", password=PASSWORD)
        with VStream(config, [("s", "-", "current")]) as stream, pytest.raises(RetryableError):
            stream.receive()
    assert heard[0].startswith(b"PRI * HTTP/2.0")
    assert PASSWORD.encode() not in b"".join(heard)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("answer", [b"", b"\x16\x03"], ids=["hangs up", "breaks off"])
def test_a_lost_link_is_no_trouble_with_tls(answer: bytes, *, encrypted: bool) -> None:
    def break_off(connection: socket.socket) -> bytes:
        heard = connection.recv(4096)
        connection.sendall(answer)
        return heard

    context = tls_context(ca="", cert="", key="", verify=True, verify_host=True, source="s")
    with listener(break_off) as (port, _):
        given = context if encrypted else None
        assert tls_trouble("127.0.0.1", port, given, timeout=5) == ""


def test_no_trouble_where_nobody_answers() -> None:
    with socket.socket() as taken:  # nobody else can listen there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert tls_trouble("127.0.0.1", port, None, timeout=5) == ""


@pytest.mark.parametrize(
    ("verify", "host", "authorities"), [(False, False, 0), (True, False, 1), (True, True, 1)]
)
def test_the_systems_authorities_are_read_to_verify_by_them_alone(
    monkeypatch: pytest.MonkeyPatch, *, verify: bool, host: bool, authorities: int
) -> None:
    read = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: read.append(1))
    context = tls_context(ca="", cert="", key="", verify=verify, verify_host=host, source="s")
    assert len(read) == authorities
    assert context.verify_mode == (ssl.CERT_REQUIRED if verify else ssl.CERT_NONE)
    assert context.check_hostname is host
