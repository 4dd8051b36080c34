"""TLS to real servers with real certificates: what is accepted, what is refused, and that no
connection of a whole run is ever in plain text.

(test_session has the modes, test_capture_formats the stream, test_vtgate_tls gRPC.)
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from capture_kit import Capturer, close_streams, source_of
from fix_e2e import PASSWORD, Ratchet, assert_identical

from lab.servers import MariadbServer, MysqlServer, Server, create_ratchet_user
from lab.tls import Certificates, make_certificates
from ratchet.core.errors import ConfigError, SourceUnfitError
from ratchet.wire.connect import SourceConfig
from ratchet.wire.session import Session

KINDS: dict[str, type[Server]] = {"mariadb": MariadbServer, "mysql": MysqlServer}


@pytest.fixture(scope="module", params=sorted(KINDS))
def secure(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with TLS, that notes each connection in its general log."""
    with KINDS[request.param](tls=True) as running:
        running.execute("CREATE DATABASE d")
        running.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)")
        running.execute("INSERT INTO d.t VALUES (1, 'a'), (2, 'b')")
        log = running.home / "general.log"
        running.execute(f"SET GLOBAL general_log_file = '{log}'")
        running.execute("SET GLOBAL general_log = ON")
        yield running


@pytest.fixture
def shows(secure: Server, tmp_path: Path) -> Iterator[Callable[[Certificates], None]]:
    """Lets the server show another certificate, until the test is over."""
    assert secure.tls is not None
    own = (secure.tls.ca, secure.tls.certificate, secure.tls.key)
    kept = [Path(shutil.copy(one, tmp_path / f"kept-{one.name}")) for one in own]

    def show(*files: Path) -> None:
        for new, place in zip(files, own, strict=True):
            shutil.copy(new, place)
        reload = "ALTER INSTANCE RELOAD TLS" if secure.flavor == "mysql" else "FLUSH SSL"
        secure.execute(reload)

    yield lambda made: show(made.ca, made.certificate, made.key)
    show(*kept)


def connections(server: Server, since: int = 0, user: str = "ratchet") -> dict[str, str]:
    """Connection -> how it came, of one account's in the server's general log."""
    text = (server.home / "general.log").read_text(errors="replace")[since:]
    found = re.findall(rf"\s(\d+) Connect\s+{user}@\S+ on \S* ?using (\S+)", text)
    return dict(found)


def log_size(server: Server) -> int:
    path = server.home / "general.log"
    return len(path.read_text(errors="replace")) if path.exists() else 0


def verified(server: Server, mode: str = "verify_identity", **more: Any) -> SourceConfig:
    assert server.tls is not None
    source = source_of(server, "d", tls=mode, tls_ca=str(server.tls.ca))
    return replace(source, **more)


@pytest.mark.parametrize("mode", ["verify_ca", "verify_identity"])
def test_the_right_certificate_is_accepted(secure: Server, mode: str) -> None:
    with Session.connect(verified(secure, mode)) as session:
        assert session.query("SHOW STATUS LIKE 'Ssl_cipher'")[0][1]
    with Session.connect(verified(secure, mode, host="localhost")) as session:
        assert session.query("SELECT 1") == [(1,)]


SOON = timedelta(seconds=6)  # MySQL loads none that has expired already
BAD = {
    "wrong authority": ({}, "other", "in certificate chain|local issuer", "another authority"),
    "expired": ({"good_for": SOON}, "own", "expired", "renew"),
    "wrong host": ({"names": ("db.example.org",)}, "own", "is not valid for", "`host`"),
    "self-signed": ({"self_signed": True}, "own", "self-signed", "certificate is self-signed"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_a_wrong_certificate_is_refused_and_told(
    secure: Server, shows: Callable[[Certificates], None], tmp_path: Path, case: str
) -> None:
    """And no login is tried: the server never hears the account's name."""
    kind, authority, text, hint = BAD[case]
    assert secure.tls is not None
    made = make_certificates(tmp_path / "bad", **kind)  # type: ignore[arg-type]
    shows(made)
    if case == "expired":
        time.sleep(SOON.total_seconds() + 1)
    before_it = tmp_path / "kept-ca.pem"
    source = verified(secure, tls_ca=str(made.ca if authority == "own" else before_it))
    before = log_size(secure)
    for mode in ("verify_identity", "verify_ca"):
        if (case, mode) == ("wrong host", "verify_ca"):
            Session.connect(replace(source, tls="verify_ca")).close()  # it does not look at it
            continue
        with pytest.raises(SourceUnfitError, match=text) as caught:
            Session.connect(replace(source, tls=mode))  # type: ignore[arg-type]
        assert hint in caught.value.hint
        assert caught.value.source == "shop/-"
        assert "disabled" not in caught.value.hint
        if mode == "verify_identity":
            assert connections(secure, before) == {}


def test_a_server_without_tls_is_refused(server: Server, database: str) -> None:
    """Never in plain text where the config demands TLS, whatever is verified."""
    for mode in ("required", "verify_ca", "verify_identity"):
        source = source_of(server, database, tls=mode)
        with pytest.raises(SourceUnfitError, match="server doesn't support it") as caught:
            Session.connect(source)
        assert "offers no TLS" in caught.value.hint


def test_a_client_certificate(secure: Server, tmp_path: Path) -> None:
    """REQUIRE X509: sessions and the binlog's stream show it; without it, and with a stranger's,
    the login is refused with what to do."""
    assert secure.tls is not None
    source = verified(secure)
    with_it = replace(source, tls_cert=str(secure.tls.client), tls_key=str(secure.tls.client_key))
    secure.execute("ALTER USER ratchet@'%' REQUIRE X509")
    try:
        capture = Capturer(with_it, tmp_path)
        secure.execute("REPLACE INTO d.t VALUES (3, 'c')")
        capture.catch_up()
        assert [row["after"]["id"] for row in capture.changes("t")] == [3]
        close_streams()
        with pytest.raises(SourceUnfitError, match="login refused") as caught:
            Session.connect(source)
        assert "tls_cert" in caught.value.hint
        strange = make_certificates(tmp_path / "strange")
        with pytest.raises(SourceUnfitError, match=r"TLS failed|login refused") as caught:
            Session.connect(
                replace(source, tls_cert=str(strange.client), tls_key=str(strange.client_key))
            )
        assert "tls_cert" in caught.value.hint
        with pytest.raises(ConfigError, match="TLS file"):
            Session.connect(
                replace(with_it, tls_key=str(strange.client_key))  # of another certificate
            )
    finally:
        secure.execute("ALTER USER ratchet@'%' REQUIRE NONE")


@pytest.mark.long
def test_every_connection_of_a_run_is_encrypted(
    secure: Server, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Dump, merge, verify and check, under an account that must show a certificate: the server's
    own log says how each connection came, those that stream the binlog among them."""
    assert secure.tls is not None
    create_ratchet_user(secure, PASSWORD, ["d"])
    secure.execute("ALTER USER ratchet@'%' REQUIRE X509")
    ratchet = make_ratchet({"-": secure}, "d")
    config = yaml.safe_load(ratchet.config.read_text())
    config["sources"]["shop"]["shards"]["-"] |= {
        "tls": "verify_identity",
        "tls_ca": str(secure.tls.ca),
        "tls_cert": str(secure.tls.client),
        "tls_key": str(secure.tls.client_key),
    }
    ratchet.config.write_text(yaml.safe_dump(config))
    before = log_size(secure)
    try:
        ratchet.run("check")
        ratchet.run("run", "--until-caught-up")
        secure.execute("UPDATE d.t SET v = 'changed' WHERE id = 1")
        ratchet.run("run", "--until-caught-up")
        ratchet.run("verify")
    finally:
        secure.execute("ALTER USER ratchet@'%' REQUIRE NONE")
    assert_identical(ratchet.lake, [secure], "d", ["t"])
    found = connections(secure, before)
    assert set(found.values()) == {"SSL/TLS"}
    log = (secure.home / "general.log").read_text(errors="replace")[before:]
    streams = set(re.findall(r"\s(\d+) Binlog Dump", log))
    assert streams
    assert streams <= set(found)
    assert len(found) > 10
