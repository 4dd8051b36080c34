"""TLS and static authentication at both ports of a vtgate: what works, and what is said if not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from capture_kit import Capturer, close_streams, server_rows

from lab.tls import Certificates, make_certificates
from lab.vitess import VitessCluster, Vtgate
from ratchet.core.errors import ConfigError, RatchetError, SourceUnfitError, UnverifiedServerError
from ratchet.core.patterns import TablePatterns
from ratchet.core.shard import ShardId
from ratchet.wire.session import Session, SourceConfig
from ratchet.wire.vitess import gateway, serving_shards
from ratchet.wire.vtgate import VStream, VtgateConfig
from tests.fix_vitess import TabletServer

PASSWORD = "s3cret-word"
WRONG = "another-word"


@dataclass(frozen=True)
class Gates:
    """A vtgate with static authentication, one with TLS as well, one that wants our certificate."""

    plain: Vtgate
    tls: Vtgate
    mutual: Vtgate
    ours: Certificates
    others: Certificates
    no_pem: str

    def settings(self, gate: str) -> dict[str, Any]:
        """What a config needs for that vtgate."""
        found: dict[str, Any] = {"user": "mirror", "password": PASSWORD}
        if gate != "plain":
            found |= {"tls": "required", "tls_ca": str(self.ours.ca)}
        if gate == "mutual":
            found |= self.client(self.ours)
        return found

    @staticmethod
    def client(certificates: Certificates) -> dict[str, str]:
        return {"tls_cert": str(certificates.client), "tls_key": str(certificates.client_key)}


@pytest.fixture(scope="module")
def gates(vitess: VitessCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gates]:
    folder = tmp_path_factory.mktemp("vtgate")
    ours, others = (make_certificates(folder / name) for name in ("ours", "others"))
    grpc, mysql = folder / "grpc.json", folder / "mysql.json"
    grpc.write_text(json.dumps([{"Username": "mirror", "Password": PASSWORD}]))
    mysql.write_text(json.dumps({"mirror": [{"Password": PASSWORD, "UserData": "mirror"}]}))
    static = [
        "--grpc-auth-mode=static",
        f"--grpc-auth-static-password-file={grpc}",
        "--mysql-auth-server-impl=static",
        f"--mysql-auth-server-static-file={mysql}",
    ]
    tls = [
        f"--grpc-cert={ours.certificate}",
        f"--grpc-key={ours.key}",
        f"--mysql-server-ssl-cert={ours.certificate}",
        f"--mysql-server-ssl-key={ours.key}",
        "--mysql-server-require-secure-transport",
    ]
    mutual = [f"--grpc-ca={ours.ca}", f"--mysql-server-ssl-ca={ours.ca}"]
    with ExitStack() as stack:
        started = [
            stack.enter_context(vitess.vtgate(*flags))
            for flags in (static, static + tls, static + tls + mutual)
        ]
        yield Gates(*started, ours=ours, others=others, no_pem=str(grpc))
        close_streams()  # else a vtgate takes its time to end


def stream_config(gate: Vtgate, **settings: Any) -> VtgateConfig:
    return VtgateConfig(**{"host": "127.0.0.1", "port": gate.grpc_port, **settings})


def source_config(gate: Vtgate, **settings: Any) -> SourceConfig:
    """As jobs.vitess makes it."""
    required = settings.get("tls") == "required"
    given = {"host": "127.0.0.1", **settings, "tls": "verify_identity" if required else "disabled"}
    return SourceConfig(
        shard=ShardId("commerce", "0"),
        port=gate.mysql_port,
        database="vt_commerce",
        target="commerce:0@primary",
        **given,
    )


@pytest.mark.parametrize("name", ["plain", "tls", "mutual"])
def test_everything_works(gates: Gates, vitess: VitessCluster, tmp_path: Path, name: str) -> None:
    """Rows by VStream and by SELECT, positions, a consistent read, what is asked of vtgate."""
    gate, settings = getattr(gates, name), gates.settings(name)
    source = source_config(gate, **settings)
    tablet = TabletServer(vitess.tablets[1])
    tablet.execute("CREATE TABLE tls_t (id BIGINT PRIMARY KEY)", database="vt_commerce")
    capture = Capturer(
        source,
        tmp_path,
        vtgate=stream_config(gate, **settings),
        patterns=TablePatterns(("tls_*",)),
    )
    with Session.connect(source) as session:
        assert bool(session.cipher) == (name != "plain")
        with session.snapshot() as snapshot:
            floor = snapshot.floor.executed  # Vitess writes now and then, too
            assert floor.contains_all(capture.begin.executed)
            assert session.head().executed.contains_all(floor)
    with gateway(source) as query:
        assert serving_shards(query, "commerce") == ("0",)
    tablet.execute("INSERT INTO tls_t VALUES (1), (2)", database="vt_commerce")
    capture.catch_up()
    assert capture.final("tls_t") == server_rows(tablet, "vt_commerce", "tls_t")  # type: ignore[arg-type]
    tablet.execute("DROP TABLE tls_t", database="vt_commerce")


CASES: dict[str, tuple[str, dict[str, Any], type[RatchetError], str]] = {
    "wrong password": ("tls", {"password": WRONG}, SourceUnfitError, "check user and password"),
    "no password": ("plain", {"password": ""}, SourceUnfitError, "check user and password"),
    "unknown user": ("plain", {"user": "nobody"}, SourceUnfitError, "check user and password"),
    "no user": ("tls", {"user": ""}, SourceUnfitError, "check user and password"),
    "nobody's authority": ("tls", {"tls_ca": ""}, SourceUnfitError, "tls_ca"),
    "another authority": ("tls", {"tls_ca": "others"}, SourceUnfitError, "tls_ca"),
    "another host": ("tls", {"host": "127.1"}, SourceUnfitError, "tls_ca"),
    "not encrypted": ("tls", {"tls": "disabled", "tls_ca": ""}, SourceUnfitError, "tls"),
    "no encryption there": (
        "plain", {"tls": "required", "tls_ca": "ours"}, SourceUnfitError, "tls",
    ),
    "no certificate": (
        "mutual", {"tls_cert": "", "tls_key": ""}, SourceUnfitError, "tls_cert",
    ),
    "another's certificate": (
        "mutual", {"tls_cert": "others", "tls_key": "others"}, SourceUnfitError, "tls_cert",
    ),
    "another's key": ("mutual", {"tls_key": "others"}, ConfigError, "tls_key"),
    "no file": ("tls", {"tls_ca": "/nowhere/ca.pem"}, ConfigError, "tls_ca"),
    "no PEM": ("tls", {"tls_ca": "no_pem"}, ConfigError, "tls_ca"),
}  # fmt: skip
FILES = {"tls_ca": "ca", "tls_cert": "client", "tls_key": "client_key"}


@pytest.mark.parametrize("case", CASES)
def test_what_an_operator_has_to_change(
    gates: Gates, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    """At both ports: an error that is not tried again, with its hint, without the password."""
    name, change, kind, hint = CASES[case]
    for key, value in change.items():
        if value in {"ours", "others"}:
            change = change | {key: str(getattr(getattr(gates, value), FILES[key]))}
        if value == "no_pem":
            change = change | {key: gates.no_pem}
    settings = gates.settings(name) | change
    gate = getattr(gates, name)

    def stream() -> None:
        with VStream(stream_config(gate, **settings), [("commerce", "0", "current")]) as opened:
            opened.receive()

    def ask() -> None:
        with gateway(source_config(gate, **settings)):
            pass

    def connect() -> None:
        Session.connect(source_config(gate, **settings)).close()

    for way in (stream, ask, connect):
        with pytest.raises(RatchetError) as caught:
            way()
        wanted = {kind, UnverifiedServerError} if kind is SourceUnfitError else {kind}
        assert type(caught.value) in wanted, f"{way.__name__}: {caught.value!r}"
        assert hint in caught.value.hint, caught.value.hint
        assert "GRANT" not in caught.value.hint
        said = f"{caught.value} {caught.value!r} {caught.value.fields()} {caplog.text}"
        assert PASSWORD not in said
        assert WRONG not in said


def test_a_password_that_grpc_does_not_carry(gates: Gates) -> None:
    """Metadata are ASCII; gRPC would say of it that the call has failed, again and again."""
    config = replace(stream_config(gates.tls, **gates.settings("tls")), password="pässword")
    with pytest.raises(ConfigError, match="characters") as caught:
        VStream(config, [("commerce", "0", "current")])
    assert "pässword" not in f"{caught.value} {caught.value.hint} {config!r}"
