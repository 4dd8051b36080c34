"""A port of this machine that another user has taken: he is told nothing, and believed nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from server_kit import OK, PASSWORD, Client, fake_server, greeting, source_at
from stranger_kit import needs_root, stranger

from lab.tls import make_certificates
from ratchet import socketowners
from ratchet.core.errors import RetryableError
from ratchet.wire import peer
from ratchet.wire.connect import open_connection
from ratchet.wire.peer import distrusted


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever serves a port here is somebody else; a process of ours stands for him."""
    if socketowners.read_entries(1) is None:
        pytest.skip("the kernel does not tell whose a socket is")
    monkeypatch.setattr(peer, "is_trusted", lambda _: False)


def asks_for_it(client: Client) -> None:
    client.send(0, greeting("sha256_password"))
    client.read()
    client.send(2, b"\xfesha256_password\0" + b"1" * 20 + b"\0")
    client.read()
    client.send(4, OK)


@needs_root
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_another_user_is_told_nothing(address: str, host: str) -> None:
    with stranger("mysql", address) as (port, told):
        with pytest.raises(RetryableError, match="served by a process of uid 65534") as caught:
            open_connection(source_at(port, host=host))
        assert told() == ""
    assert f":{port} is served" in str(caught.value)
    for part in ("ss -ltnp", "verify_identity", "tls_ca", "verify_password", "tls: preferred"):
        assert part in caught.value.hint


@needs_root
@pytest.mark.parametrize("mode", ["preferred", "required"])
def test_the_password_is_not_shown_to_another_user(mode: str) -> None:
    """Who is accepted, because the config names the mode."""
    with stranger("mysql") as (port, told):
        with pytest.raises(RetryableError, match="asks for the password itself") as caught:
            open_connection(source_at(port, tls=mode))
        heard = told()
    assert "me\0" in heard
    assert PASSWORD not in heard
    assert "uid 65534" in str(caught.value)


def accepted(clients: Sequence[Client], count: int) -> Sequence[Client]:
    """That many: we may have hung up before he has taken the connection."""
    deadline = time.monotonic() + 30
    while len(clients) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(clients) == count
    return clients


@pytest.mark.usefixtures("strangers")
def test_nothing_is_said_before_the_look() -> None:
    with fake_server(asks_for_it) as (port, clients):
        with pytest.raises(RetryableError, match="nothing was sent to it"):
            open_connection(source_at(port))
        with pytest.raises(RetryableError, match="nothing was sent to it"):
            open_connection(source_at(port, password=""))  # his rows would be believed
        assert [client.heard for client in accepted(clients, 2)] == [b"", b""]


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize("mode", ["disabled", "preferred"])
def test_no_key_of_his_is_taken(mode: str) -> None:
    with (
        fake_server(asks_for_it) as (port, clients),
        pytest.raises(RetryableError, match=r"sha256_password.*served by a process of uid"),
    ):
        open_connection(source_at(port, tls=mode))
    assert b"me\0" in clients[0].heard


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize("mode", ["verify_identity", "verify_ca"])
def test_whoever_is_verified_may_be_anybodys(tmp_path: Path, mode: str) -> None:
    made = make_certificates(tmp_path)

    def script(client: Client) -> None:
        client.send(0, greeting(tls=True))
        client.to_tls(made.certificate, made.key)
        client.read()
        client.send(3, b"\xfemysql_clear_password\0")
        client.read()
        client.send(5, OK)
        client.read()
        client.send(1, OK)

    with fake_server(script) as (port, clients):
        open_connection(source_at(port, tls=mode, tls_ca=str(made.ca))).close()
    assert PASSWORD.encode() in clients[0].heard


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize("mode", ["disabled", "preferred"])
def test_the_config_may_accept_him(mode: str) -> None:
    with fake_server(Client.log_in) as (port, clients):
        open_connection(source_at(port, tls=mode)).close()
    assert b"me\0" in clients[0].heard


def test_our_own_are_accepted() -> None:
    with fake_server(Client.log_in) as (port, _):
        open_connection(source_at(port)).close()


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_each_stage_of_a_connection(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip("this machine has no such address")
    with server, socket.create_connection(server.getsockname()[:2]) as near:
        assert "uid" in distrusted(near)  # nobody has accepted it
        far, _ = server.accept()
        with far:
            assert "uid" in distrusted(near)
            server.close()
            assert "uid" in distrusted(near)  # nobody listens any more
        with pytest.raises(ConnectionError, match="any more"):
            distrusted(near)  # nor has it anybody; he may have sent all that he has to say


def test_where_the_kernel_names_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only root can bring about; and no Linux."""
    monkeypatch.setattr(peer, "is_trusted", lambda _: False)
    for answer in ([], None):
        monkeypatch.setattr(peer, "read_entries", lambda _, answer=answer: answer)
        with fake_server(Client.log_in) as (port, _):
            open_connection(source_at(port)).close()


def test_a_kernel_that_cannot_be_asked_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> Any:
        raise OSError(23, "Too many open files in system")

    monkeypatch.setattr(peer, "read_entries", fail)
    with fake_server(Client.log_in) as (port, clients):
        with pytest.raises(RetryableError, match="Too many open files"):
            open_connection(source_at(port))
        assert [client.heard for client in accepted(clients, 1)] == [b""]
