"""To whom the password goes: fake servers that ask for it in each way there is."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from server_kit import OK, PASSWORD, Client, fake_server, greeting, source_at

from lab.tls import Certificates, make_certificates
from ratchet.core.errors import SourceUnfitError
from ratchet.wire import connected
from ratchet.wire.connect import open_connection
from ratchet.wire.peer import is_local, reaches_this_machine

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate that anybody can make."""
    return make_certificates(tmp_path_factory.mktemp("evil"), self_signed=True)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate of an authority that stands in a file with another one."""
    made = make_certificates(tmp_path_factory.mktemp("good"))
    other = make_certificates(tmp_path_factory.mktemp("other"))
    made.ca.write_text(other.ca.read_text() + made.ca.read_text())
    return made


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake server counts as one on another machine."""
    monkeypatch.setattr(connected, "reaches_this_machine", lambda _: False)


def deciphered(client: Client) -> bytes:
    """The password, if it came under our key."""
    found = b""
    for at in range(len(client.heard) - KEY.key_size // 8 + 1):
        try:
            plain = KEY.decrypt(
                client.heard[at : at + KEY.key_size // 8],
                padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None),
            )
        except ValueError:
            continue
        salt = b"12345678" + b"123456789012"
        found = bytes(one ^ salt[n % 20] for n, one in enumerate(plain))
    return found


SALT = b"12345678123456789012\0"
KEY_SENT = b"\1" + PUBLIC
# What the greeting names, and what the server says then, each time it has heard something.
WAYS: dict[str, tuple[str, list[bytes]]] = {
    "clear text": ("mysql_native_password", [b"\xfemysql_clear_password\0"]),
    "dialog": ("mysql_native_password", [b"\xfedialog\0\0Password: "]),
    "sha256": ("mysql_native_password", [b"\xfesha256_password\0" + SALT, KEY_SENT]),
    "sha256 at once": ("sha256_password", [b"\xfesha256_password\0" + SALT, KEY_SENT]),
    "caching": (
        "mysql_native_password",
        [b"\xfecaching_sha2_password\0" + SALT, b"\1\4", KEY_SENT],
    ),
    "caching at once": ("caching_sha2_password", [b"\1\4", KEY_SENT]),
}


def script_of(
    plugin: str, says: list[bytes], certificates: Certificates | None = None
) -> Callable[[Client], None]:
    """A server that then lets everybody in."""

    def script(client: Client) -> None:
        client.send(0, greeting(plugin, tls=certificates is not None))
        number = 2
        if certificates is not None:
            client.to_tls(certificates.certificate, certificates.key)
            number = 3
        client.read()
        for body in says:
            client.send(number, body)
            client.read()
            number += 2
        client.send(number, OK)
        client.read()
        client.send(1, OK)

    return script


@pytest.mark.parametrize("mode", ["preferred", "required"])
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.usefixtures("elsewhere")
def test_no_password_to_whom_nobody_verified(evil: Certificates, way: str, mode: str) -> None:
    """Also over TLS: it may be with anybody."""
    with (
        fake_server(script_of(*WAYS[way], evil)) as (port, clients),
        pytest.raises(SourceUnfitError, match="its certificate was not verified") as caught,
    ):
        open_connection(source_at(port, tls=mode))
    assert b"me\0" in clients[0].heard
    assert PASSWORD.encode() not in clients[0].heard
    assert PASSWORD.encode() not in deciphered(clients[0])
    assert "verify_identity" in caught.value.hint
    assert "tls_ca" in caught.value.hint


@pytest.mark.parametrize("way", ["sha256", "sha256 at once", "caching", "caching at once"])
@pytest.mark.usefixtures("elsewhere")
def test_no_password_under_a_key_that_just_came(way: str) -> None:
    """TLS taken off under `preferred`, and the taker's own RSA key."""
    with (
        fake_server(script_of(*WAYS[way])) as (port, clients),
        pytest.raises(SourceUnfitError, match="its certificate was not verified"),
    ):
        open_connection(source_at(port, tls="preferred"))
    assert PASSWORD.encode() not in deciphered(clients[0])


@pytest.mark.parametrize("mode", ["verify_identity", "verify_ca"])
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.usefixtures("elsewhere")
def test_a_verified_server_is_shown_it(good: Certificates, way: str, mode: str) -> None:
    """One that an authority of tls_ca signed for, which is the second in the file."""
    plugin, says = WAYS[way]
    wanted = [] if way == "sha256 at once" else [body for body in says if body != KEY_SENT]
    source = {"tls": mode, "tls_ca": str(good.ca)}
    with fake_server(script_of(plugin, wanted, good)) as (port, clients):
        connection = open_connection(source_at(port, **source))
        assert connection.verified == ("identity" if mode == "verify_identity" else "authority")
        connection.close()
    assert PASSWORD.encode() in clients[0].heard


def test_this_machine_is_shown_it() -> None:
    """No network is in between, and the key's owner is a process here."""

    with fake_server(script_of(*WAYS["caching at once"])) as (port, clients):
        open_connection(source_at(port)).close()
    assert PASSWORD.encode() in deciphered(clients[0])


@pytest.mark.usefixtures("elsewhere")
def test_another_machine_is_verified_unless_the_config_says_otherwise(
    evil: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a word of TLS in the config: a self-signed certificate, and none at all."""
    monkeypatch.setattr("ratchet.wire.connect.is_local", lambda _: False)
    assert source_at(1).tls_mode == "verify_identity"
    with (
        fake_server(script_of(*WAYS["clear text"], evil)) as (port, clients),
        pytest.raises(SourceUnfitError, match="self-signed") as caught,
    ):
        open_connection(source_at(port))
    assert b"me\0" not in clients[0].heard
    for part in ("`tls` is not in the config", "tls_ca", "verify_ca", "tls: required"):
        assert part in caught.value.hint
    with (
        fake_server(lambda client: client.send(0, greeting())) as (port, clients),
        pytest.raises(SourceUnfitError, match="server doesn't support it") as caught,
    ):
        open_connection(source_at(port))
    assert clients[0].heard == b""
    assert "`tls` is not in the config" in caught.value.hint


def test_what_is_local() -> None:
    for host in ("localhost", "LOCALHOST.", "127.0.0.1", "127.8.9.1", "::1", "[::1]"):
        assert is_local(host), host
        assert source_at(1, host=host).tls_mode == "preferred"
        assert source_at(1, host=host, tls_ca="ca.pem").tls_mode == "verify_identity"
    for host in ("db", "10.0.0.1", "localhost.example.org", "0.0.0.0", "fe80::1%lo", ""):
        assert not is_local(host), host
        assert source_at(1, host=host).tls_mode == "verify_identity"
        assert source_at(1, host=host, tls="preferred").tls_mode == "preferred"


def test_standbys_are_judged_by_their_own_hosts() -> None:
    here, there = source_at(1, standbys=(("db2", 3306),)).servers()
    assert (here.tls_mode, there.tls_mode) == ("preferred", "verify_identity")


@pytest.mark.parametrize(
    ("given", "verified"),
    [
        ({"tls": "required"}, ""),
        ({"tls": "verify_ca"}, ""),  # of the system's authorities any will do
        ({"tls": "verify_ca", "tls_ca": "ca.pem"}, "authority"),
        ({"tls": "verify_identity"}, "identity"),
    ],
)
def test_what_each_mode_verifies(given: dict[str, Any], verified: str) -> None:
    assert source_at(1, **given).verifies == verified


def test_a_socket_that_ends_here() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert reaches_this_machine(one)
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as near:
            assert reaches_this_machine(near)
        assert not reaches_this_machine(server)  # it has no other end
