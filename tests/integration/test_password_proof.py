"""A MariaDB that made its certificate itself, verified by the password; and whoever stands between.

`tls: verify_password` is for servers from 11.4 on. The relay below is what an attacker on the
network path can be: TLS to both sides, the login passed on as it comes.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from capture_kit import source_of
from fix_e2e import PASSWORD, Ratchet, assert_identical
from server_kit import OK, Client, fake_server, greeting, source_at

from lab.servers import NewMariadbServer, Server, create_ratchet_user
from lab.tls import make_certificates
from ratchet.core.errors import ConfigError, RatchetError, RetryableError, SourceUnfitError
from ratchet.wire.connect import SourceConfig
from ratchet.wire.session import Session

_REQUEST = 36  # bytes of a client's wish for TLS: a packet's head and 32


@pytest.fixture(scope="module")
def maria() -> Iterator[Server]:
    """A MariaDB 11.8 as it comes: nobody has given it a certificate."""
    with NewMariadbServer() as running:
        running.execute("CREATE DATABASE d")
        running.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)")
        running.execute("INSERT INTO d.t VALUES (1, 'a'), (2, 'b')")
        log = running.home / "general.log"
        running.execute(f"SET GLOBAL general_log_file = '{log}'")
        running.execute("SET GLOBAL general_log = ON")
        yield running


def proven(server: Server, port: int = 0) -> SourceConfig:
    source = source_of(server, "d", tls="verify_password")
    return replace(source, port=port or source.port)


def test_the_server_proves_that_it_knows_the_password(maria: Server) -> None:
    with Session.connect(proven(maria)) as session:
        assert session.verified == "password"
        assert session.query("SHOW STATUS LIKE 'Ssl_cipher'")[0][1]
        assert session.query("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
    with pytest.raises(SourceUnfitError, match="login refused"):
        Session.connect(replace(proven(maria), password="another"))


def test_a_login_that_the_server_sends_to_another_plugin_first(maria: Server) -> None:
    """The scramble that counts is that of the switch."""
    maria.execute(
        "CREATE OR REPLACE USER two@'%' IDENTIFIED VIA unix_socket OR mysql_native_password "
        f"USING PASSWORD('{PASSWORD}')"
    )
    maria.execute("GRANT SELECT ON d.* TO two@'%'")
    with Session.connect(replace(proven(maria), user="two", password=PASSWORD)) as session:
        assert session.verified == "password"


def test_without_a_password_there_is_nothing_to_prove(maria: Server) -> None:
    with pytest.raises(ConfigError, match="needs a password"):
        Session.connect(replace(proven(maria), password=""))
    with pytest.raises(ConfigError, match="tls_ca has no use"):
        Session.connect(replace(proven(maria), tls_ca="ca.pem"))


def test_a_server_with_a_certificate_of_its_own_proves_it_too() -> None:
    with NewMariadbServer(tls=True) as server:
        server.execute("CREATE DATABASE d")
        with Session.connect(proven(server)) as session:
            assert session.verified == "password"


def test_one_in_between_is_found_out_before_the_first_statement(
    maria: Server, tmp_path: Path
) -> None:
    """He can pass the login on, but not the proof: it has the server's certificate in it."""
    log = maria.home / "general.log"
    before = len(log.read_text(errors="replace"))
    with relay(maria.port, tmp_path) as port:
        with Session.connect(replace(proven(maria, port), tls="required")) as session:
            assert session.query("SELECT 1") == [(1,)], "he is not noticed else"
        source = proven(maria, port)
        between = len(log.read_text(errors="replace"))
        with pytest.raises(SourceUnfitError, match="did not prove") as caught:
            connect_again(source)
    assert "whether the address is the server's own" in caught.value.hint
    assert "Query" in log.read_text(errors="replace")[before:between]
    assert "Query" not in log.read_text(errors="replace")[between:]


def test_servers_that_prove_nothing(make_server: Callable[..., Server]) -> None:
    """An older MariaDB, and MySQL, whose accounts log in another way."""
    for flavor, said in (("mariadb", "did not prove"), ("mysql", "which proves nothing")):
        server = make_server(flavor, tls=True)
        server.execute("CREATE DATABASE d")
        with pytest.raises(SourceUnfitError, match=said) as caught:
            Session.connect(proven(server))
        assert "verify_identity" in caught.value.hint


@pytest.mark.parametrize("said", [OK, OK + b"A\1" + b"0" * 64])
def test_a_proof_that_is_none(tmp_path: Path, said: bytes) -> None:
    made = make_certificates(tmp_path)

    def script(client: Client) -> None:
        client.send(0, greeting(tls=True))
        client.to_tls(made.certificate, made.key)
        client.read()
        client.send(3, said)

    with fake_server(script) as (port, clients):
        with pytest.raises(RatchetError, match="did not prove"):
            Session.connect(source_at(port, tls="verify_password"))
        assert len(clients) == 1


def test_a_whole_run(maria: Server, make_ratchet: Callable[..., Ratchet]) -> None:
    create_ratchet_user(maria, PASSWORD, ["d"])
    ratchet = make_ratchet({"-": maria}, "d")
    config = yaml.safe_load(ratchet.config.read_text())
    config["sources"]["shop"]["shards"]["-"]["tls"] = "verify_password"
    ratchet.config.write_text(yaml.safe_dump(config))
    assert "verified by the password" in ratchet.run("check").stdout
    ratchet.run("run", "--until-caught-up")
    maria.execute("UPDATE d.t SET v = 'changed' WHERE id = 1")
    ratchet.run("run", "--until-caught-up")
    ratchet.run("verify")
    assert_identical(ratchet.lake, [maria], "d", ["t"])


def connect_again(source: SourceConfig) -> None:
    """Some times, as the one in between may lose a connection."""
    for _ in range(5):
        with contextlib.suppress(RetryableError):
            Session.connect(source)


@contextmanager
def relay(target: int, folder: Path) -> Iterator[int]:
    """Somebody on the network path, with a certificate of his own; the port that he listens on."""
    made = make_certificates(folder / "relay")
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(made.certificate, made.key)
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    other.check_hostname, other.verify_mode = False, ssl.CERT_NONE

    def serve(near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", target)) as far:
            near.sendall(far.recv(4096))  # the greeting
            wish = near.recv(_REQUEST, socket.MSG_WAITALL)
            far.sendall(wish)
            with own.wrap_socket(near, server_side=True) as here, other.wrap_socket(far) as there:
                _pass_on(here, there)

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    near, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(near,), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def _pass_on(here: ssl.SSLSocket, there: ssl.SSLSocket) -> None:
    """What comes from one side goes to the other, until one hangs up."""
    with contextlib.suppress(OSError):
        while True:
            waiting = [one for one in (here, there) if one.pending()]
            for one in waiting or select.select([here, there], [], [])[0]:
                data = one.recv(1 << 16)
                if not data:
                    return
                (there if one is here else here).sendall(data)
