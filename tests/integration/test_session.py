"""Sessions on real servers: logging in, first errors, positions, raw rows, TLS."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from capture_kit import source_of
from fix_proxy import Proxy

from lab.servers import Server
from ratchet.core.errors import (
    ConfigError,
    RatchetError,
    RetryableError,
    SourceUnfitError,
    TableStoppedError,
)
from ratchet.snapshot.sessions import open_session
from ratchet.wire.session import Session, quoted

MakeServer = Callable[..., Server]


def text_rows(session: Session, sql: str) -> list[bytes]:
    """The packets of a result, without their headers."""
    found = []
    with session.stream_rows(sql) as rows:
        for data, start, end in rows:
            at = start
            while at < end:
                size = int.from_bytes(data[at : at + 3].tobytes(), "little")
                found.append(data[at + 4 : at + 4 + size].tobytes())
                at += 4 + size
    return found


def test_a_session_knows_its_server(server: Server, database: str) -> None:
    with Session.connect(source_of(server, database)) as session:
        assert session.flavor == server.flavor
        assert session.version.split("-")[0] == server.version.split("-")[0]
        (number,) = server.execute("SELECT @@server_id")[0]
        uuid = server.execute("SELECT @@server_uuid")[0][0] if server.flavor == "mysql" else ""
        assert session.server_identity in {uuid, f"{number}@{_host(server)}:{server.port}"}
        settings = "@@time_zone, @@sql_mode, @@character_set_results, @@autocommit"
        assert session.query(f"SELECT {settings}") == [("+00:00", "", "utf8mb4", 1)]
        isolation = "tx_isolation" if session.is_mariadb else "transaction_isolation"
        assert session.query(f"SELECT @@{isolation}") == [("REPEATABLE-READ",)]


def _host(server: Server) -> Any:
    return server.execute("SELECT @@hostname")[0][0]


@pytest.mark.parametrize(
    ("change", "kind", "hint"),
    [
        ({"password": "wrong"}, SourceUnfitError, "CREATE USER"),
        ({"user": "nobody_here"}, SourceUnfitError, "CREATE USER 'nobody_here'"),
        ({"database": "not_there"}, SourceUnfitError, "GRANT SELECT ON `not_there`"),
        ({"host": "no-such-host.invalid"}, RetryableError, "reached"),
        ({"port": 1}, RetryableError, "reached"),
        ({"tls": "required"}, SourceUnfitError, "tls"),
        ({"tls": "preferred", "tls_ca": "/x"}, ConfigError, "verify_ca"),
        ({"tls_ca": "/x"}, ConfigError, "tls_ca"),
        ({"tls": "verify_ca", "tls_ca": "/nowhere/ca.pem"}, ConfigError, "tls_ca"),
    ],
)
def test_first_errors(
    server: Server, database: str, change: dict[str, Any], kind: type[RatchetError], hint: str
) -> None:
    source = replace(source_of(server, database), **change)
    with pytest.raises(kind) as caught:
        Session.connect(source)
    assert hint in caught.value.hint
    assert "shop/-" in str(caught.value) or kind is ConfigError
    assert source.password not in str(caught.value) + caught.value.hint or not source.password


def test_a_database_that_is_loaded_anew(server: Server) -> None:
    """Who begins is told that it is not there; who was in it a moment ago tries again."""
    server.execute("CREATE DATABASE goes")
    source = source_of(server, "goes")
    server.execute("CREATE TABLE goes.t (id INT PRIMARY KEY)")
    with open_session(source) as session:
        session.query("SELECT * FROM goes.t")
    server.execute("DROP DATABASE goes")
    with pytest.raises(TableStoppedError), open_session(source, table="shop.t") as session:
        session.query("SELECT * FROM goes.t")
    with pytest.raises(RetryableError, match="no such database") as caught:
        Session.connect(source)
    assert "correct `database` of this shard" in caught.value.hint
    with pytest.raises(SourceUnfitError, match="no such database"):
        Session.connect(replace(source, connect_timeout=5.0))
    server.execute("CREATE DATABASE goes")
    Session.connect(source).close()
    server.execute("DROP DATABASE goes")


def test_a_port_that_never_answers(server: Server, database: str, deaf_port: int) -> None:
    source = replace(source_of(server, database), port=deaf_port, connect_timeout=0.5)
    began = time.monotonic()
    with pytest.raises(RetryableError):
        Session.connect(source)
    assert time.monotonic() - began < 10


def test_statements_that_fail(server: Server, database: str) -> None:
    with Session.connect(source_of(server, database)) as session:
        with pytest.raises(TableStoppedError):
            session.query("SELECT * FROM nothing_here")
        with pytest.raises(SourceUnfitError, match="does not accept our statement"):
            session.execute("SELEKT 1")
        with pytest.raises(SourceUnfitError, match="privilege") as caught:
            session.query("SELECT * FROM mysql.user")
        assert f"GRANT SELECT ON `{database}`" in caught.value.hint
        assert session.query("SELECT 1") == [(1,)]


def test_raw_rows(server: Server, database: str) -> None:
    server.execute("CREATE TABLE t (a INT, b TEXT)", database=database)
    server.execute("INSERT INTO t VALUES (1, 'x'), (NULL, ''), (3, NULL)", database=database)
    with Session.connect(source_of(server, database)) as session:
        found = text_rows(session, "SELECT a, b FROM t ORDER BY b, a")
        assert found == [b"\x013\xfb", b"\xfb\x00", b"\x011\x01x"]
        assert text_rows(session, "SELECT a FROM t WHERE a = 99") == []
        with pytest.raises(TableStoppedError):
            session.stream_rows("SELECT * FROM nothing_here")
        assert session.query("SELECT 1") == [(1,)]  # in turn with other statements


def test_raw_rows_beyond_a_packet(server: Server, database: str) -> None:
    size = (1 << 24) + 10
    server.execute("SET GLOBAL max_allowed_packet = 64 * 1024 * 1024")
    with Session.connect(source_of(server, database)) as session:
        packets = text_rows(session, f"SELECT REPEAT('a', {size}) UNION ALL SELECT 'end'")
    assert [len(p) for p in packets] == [0xFFFFFF, 9 + size - 0xFFFFFF, 4]
    assert packets[-1] == b"\x03end"


def test_many_raw_rows(server: Server, database: str) -> None:
    digits = "(SELECT 0 d " + " ".join(f"UNION ALL SELECT {n}" for n in range(1, 10)) + ")"
    joined = ", ".join(f"{digits} t{n}" for n in range(5))
    with Session.connect(source_of(server, database)) as session:
        count = len(text_rows(session, f"SELECT t0.d, 'some text' FROM {joined}"))
    assert count == 100_000


def test_leaving_a_result_early_ends_the_session(server: Server, database: str) -> None:
    session = Session.connect(source_of(server, database))
    with session.stream_rows("SELECT 1 UNION ALL SELECT 2"):
        pass
    assert not session.usable
    with pytest.raises(RetryableError):
        session.query("SELECT 1")


def test_a_link_that_breaks_under_a_result(
    server: Server, database: str, make_proxy: Callable[[str, int], Proxy]
) -> None:
    proxy = make_proxy(server.host, server.port)
    source = replace(source_of(server, database), host=proxy.host, port=proxy.port)
    session = Session.connect(source)
    proxy.cut_after(2_000_000)
    with pytest.raises(RetryableError):
        text_rows(session, "SELECT REPEAT('a', 9000000) UNION ALL SELECT 1")
    assert not session.usable


def test_a_snapshot_stays_what_it_was(server: Server, database: str) -> None:
    server.execute("CREATE TABLE t (a INT) ENGINE=InnoDB", database=database)
    with Session.connect(source_of(server, database)) as session:
        before = session.executed()
        with session.snapshot() as snapshot:
            assert snapshot.floor.executed.contains_all(before.executed)
            server.execute("INSERT INTO t VALUES (1)", database=database)
            assert session.query("SELECT COUNT(*) FROM t") == [(0,)]
            now = session.query("SELECT CAST(UNIX_TIMESTAMP() * 1000000 AS SIGNED)")[0][0]
            assert abs(now - snapshot.read_at) < 10_000_000
        after = session.executed()
        assert session.query("SELECT COUNT(*) FROM t") == [(1,)]
        assert after.seq == before.seq + 1
        assert session.head().executed == after.executed


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_tls(make_server: MakeServer, flavor: str) -> None:
    server = make_server(flavor, tls=True)
    server.execute("CREATE DATABASE d")
    source = source_of(server, "d")
    assert server.tls is not None
    ca = str(server.tls.ca)
    for change in (
        {"tls": "preferred"},
        {"tls": "required"},
        {"tls": "verify_ca", "tls_ca": ca},
        {"tls": "verify_identity", "tls_ca": ca},
    ):
        with Session.connect(replace(source, **change)) as session:  # type: ignore[arg-type]
            assert session.query("SHOW STATUS LIKE 'Ssl_cipher'")[0][1] != ""
            assert len(text_rows(session, "SELECT REPEAT('a', 200000)")[0]) == 200_004
    with Session.connect(replace(source, tls="disabled")) as session:
        assert session.query("SHOW STATUS LIKE 'Ssl_cipher'")[0][1] == ""
    with pytest.raises(SourceUnfitError, match="TLS"):
        Session.connect(replace(source, tls="verify_ca"))  # an authority that nobody knows
    with pytest.raises(SourceUnfitError, match="TLS"):
        Session.connect(replace(source, tls="verify_identity", tls_ca=ca, host="127.1"))


def test_names_are_quoted() -> None:
    assert quoted("a`b") == "`a``b`"
