"""The lab keeps its promises: servers start, die, come back, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest
from fix_proxy import Proxy

from lab.cache import prepared
from lab.servers import (
    RATCHET_PASSWORD,
    MariadbServer,
    Server,
    create_ratchet_user,
    replicate_from,
    stop_replication,
    wait_for_link,
    wait_for_replica,
)
from ratchet.core.errors import BugError, OperatorError

ROOT = Path(__file__).resolve().parents[2]
flavors = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
MakeServer = Callable[..., Server]


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie whom nobody waits for does not)."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended while we read
        return False


def test_has_the_settings_that_ratchet_needs(server: Server) -> None:
    rows = server.execute(
        "SELECT @@log_bin, @@binlog_format, @@binlog_row_image, @@binlog_row_metadata"
    )
    assert rows == ((1, "ROW", "FULL", "FULL"),)
    assert (server.flavor == "mariadb") == ("MariaDB" in server.version)
    if server.flavor == "mysql":
        assert server.execute("SELECT @@gtid_mode") == (("ON",),)


def test_listens_on_loopback_only(server: Server) -> None:
    listening = f":{server.port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    lines += Path("/proc/net/tcp6").read_text().splitlines()[1:]
    addresses = {line.split()[1] for line in lines if line.split()[3] == "0A"}
    assert {a for a in addresses if a.endswith(listening)} == {"0100007F" + listening}


@flavors
def test_leaves_the_temporary_tables_of_other_servers_alone(
    flavor: str, make_server: MakeServer
) -> None:
    """MariaDB deletes every `#sql*` file of its tmpdir when it starts."""
    first, name = make_server(flavor), f"#sql-temptable-dead-{os.getpid()}-1.MAI"
    (first.tmpdir / name).touch()
    (shared := Path(tempfile.gettempdir()) / name).touch()
    try:
        second = make_server(flavor)
        assert (first.tmpdir / name).exists()
        assert shared.exists()
    finally:
        shared.unlink(missing_ok=True)
    for server in (first, second):
        assert server.execute("SELECT @@tmpdir") == ((str(server.tmpdir),),)


@flavors
def test_survives_kill_and_restart(flavor: str, make_server: MakeServer) -> None:
    server = make_server(flavor)
    port, pid = server.port, server.daemon.pid
    server.execute("CREATE DATABASE d")
    server.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
    server.execute("INSERT INTO d.t VALUES (1), (2)")
    server.kill()
    assert not alive(pid)
    with pytest.raises(pymysql.err.OperationalError):
        server.connect()
    server.start()
    assert server.port == port
    assert server.execute("SELECT * FROM d.t") == ((1,), (2,))
    server.restart(options={"binlog_row_image": "MINIMAL"})
    assert server.execute("SELECT @@binlog_row_image, COUNT(*) FROM d.t") == (("MINIMAL", 2),)
    with pytest.raises(BugError, match="running already"):
        server.start()
    home = server.home
    server.close()
    assert not home.exists()


@flavors
def test_copies_of_the_template_are_servers_of_their_own(
    flavor: str, make_server: MakeServer
) -> None:
    one, two = make_server(flavor), make_server(flavor)
    identity = "@@server_uuid" if flavor == "mysql" else "@@server_uid"
    assert one.port != two.port
    assert one.execute("SELECT @@server_id") != two.execute("SELECT @@server_id")
    assert one.execute(f"SELECT {identity}") != two.execute(f"SELECT {identity}")
    position = "@@gtid_executed" if flavor == "mysql" else "@@gtid_binlog_pos"
    assert two.execute(f"SELECT {position}") == (("",),)


def test_mysql_without_gtids(make_server: MakeServer) -> None:
    assert make_server("mysql", gtid=False).execute("SELECT @@gtid_mode") == (("OFF",),)
    with pytest.raises(BugError, match="always has GTIDs"):
        MariadbServer(gtid=False)


def test_wrong_option_shows_the_log(make_server: MakeServer) -> None:
    with pytest.raises(OperatorError, match="unknown variable 'nonsense=1'") as caught:
        make_server("mariadb", options={"nonsense": "1"})
    assert "it ended by itself" in caught.value.message


def test_the_account_can_read_and_no_more(server: Server, database: str) -> None:
    server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    create_ratchet_user(server, databases=[database])
    with (
        server.connect(tcp=True, user="ratchet", password=RATCHET_PASSWORD) as connection,
        connection.cursor() as cursor,
    ):
        mysql = server.flavor == "mysql"
        log = "SHOW BINARY LOG STATUS" if mysql else "SHOW MASTER STATUS"
        for allowed in (f"SELECT * FROM {database}.t", "SHOW BINARY LOGS", log):
            cursor.execute(allowed)
        if not mysql:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            assert cursor.execute("SHOW STATUS LIKE 'binlog_snapshot%'") == 2
            file, position = (row[1] for row in cursor.fetchall())
            cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (file, int(position)))
            ((gtid,),) = cursor.fetchall()
            assert "-" in gtid
            cursor.execute("ROLLBACK")
        for forbidden in (
            f"INSERT INTO {database}.t VALUES (1)",
            "SELECT * FROM mysql.user",
            "FLUSH TABLES",
            f"LOCK TABLES {database}.t READ",
        ):
            with pytest.raises(pymysql.err.OperationalError):
                cursor.execute(forbidden)


def test_the_account_can_dump_the_binlog(server: Server) -> None:
    create_ratchet_user(server)
    ((first, *_), *_) = server.execute("SHOW BINARY LOGS")
    with server.connect(tcp=True, user="ratchet", password=RATCHET_PASSWORD) as connection:
        connection.query("SET @source_binlog_checksum='CRC32', @master_binlog_checksum='CRC32'")
        # COM_BINLOG_DUMP: position 4, flag 1 (end instead of waiting), a server id, the file.
        body = (4).to_bytes(4, "little") + b"\1\0" + (77).to_bytes(4, "little")
        connection._execute_command(0x12, body + str(first).encode())
        packet = connection._read_packet()
        assert packet.get_all_data()[:1] == b"\0"
        assert packet.get_all_data()[5] == 4  # a rotate event names the file first


@flavors
def test_tls(flavor: str, make_server: MakeServer) -> None:
    server = make_server(flavor, tls=True)
    create_ratchet_user(server)
    assert server.tls is not None
    account = {"user": "ratchet", "password": RATCHET_PASSWORD}
    with (
        server.connect(
            tcp=True, **account, ssl_ca=str(server.tls.ca), ssl_verify_identity=True
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        ((_, cipher),) = cursor.fetchall()
        assert cipher.startswith("TLS_")


def test_offers_no_tls_unless_asked(server: Server) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="SSL"):
        server.connect(tcp=True, ssl={"check_hostname": False})


@flavors
def test_replication(flavor: str, make_server: MakeServer) -> None:
    primary, replica = make_server(flavor), make_server(flavor)
    primary.execute("CREATE DATABASE d")
    primary.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
    replicate_from(replica, primary)
    wait_for_link(replica)
    primary.execute("INSERT INTO d.t VALUES (1)")
    wait_for_replica(replica, primary)
    position = "@@gtid_executed" if flavor == "mysql" else "@@gtid_binlog_pos"
    assert replica.execute("SELECT * FROM d.t") == ((1,),)
    assert replica.execute(f"SELECT {position}") == primary.execute(f"SELECT {position}")
    stop_replication(replica)
    replica.execute("INSERT INTO d.t VALUES (2)")


@flavors
def test_ends_with_its_starter(flavor: str) -> None:
    program = (
        "import sys, time; import lab.servers as s\n"
        f"server = s.{flavor.capitalize()}Server().start()\n"
        "print(server.daemon.pid, server.home, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        pid, home = starter.stdout.readline().split()
        assert alive(int(pid))
        starter.send_signal(signal.SIGKILL)
    eventually(lambda: not alive(int(pid)))
    eventually(lambda: not Path(home).exists())


def test_a_frozen_server_is_silent(make_server: MakeServer) -> None:
    server = make_server("mariadb")
    server.daemon.suspend()
    with pytest.raises(pymysql.err.OperationalError, match="timed out"):
        server.connect(tcp=True, read_timeout=1, connect_timeout=1)
    server.daemon.resume()
    assert server.execute("SELECT 1") == ((1,),)


def test_proxy_forwards_and_fails_on_command(
    mariadb: Server, make_proxy: Callable[[str, int], Proxy]
) -> None:
    create_ratchet_user(mariadb)
    proxy = make_proxy(mariadb.host, mariadb.port)

    def client(**more: object) -> pymysql.connections.Connection[pymysql.cursors.Cursor]:
        return pymysql.connect(
            host=proxy.host, port=proxy.port, user="ratchet", password=RATCHET_PASSWORD, **more
        )

    with client() as connection, connection.cursor() as cursor:
        assert cursor.execute("SELECT REPEAT('x', 1000000)") == 1
        assert proxy.connections == 1
        proxy.cut_after(10_000)
        with pytest.raises(pymysql.err.OperationalError):
            cursor.execute("SELECT REPEAT('x', 1000000)")
    for misbehave in (proxy.pause, proxy.half_open):
        with client() as connection, connection.cursor() as cursor:
            connection._read_timeout = 1  # from here on: to log in may take longer
            misbehave()
            with pytest.raises(pymysql.err.OperationalError, match="timed out"):
                cursor.execute("SELECT 1")
        proxy.resume()
    proxy.refuse()
    with pytest.raises(pymysql.err.OperationalError, match="refused"):
        client()
    proxy.accept()
    client().close()


def test_a_deaf_listener_times_out(deaf_port: int) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="timed out"):
        pymysql.connect(host="127.0.0.1", port=deaf_port, read_timeout=1, connect_timeout=1)


def test_a_failed_preparation_leaves_nothing(tmp_path: Path) -> None:
    def fail(work: Path) -> None:
        (work / "half").touch()
        raise OperatorError("the line was cut", operation="download")

    with pytest.raises(OperatorError, match="cut"):
        prepared(tmp_path / "thing", fail)
    stale = tmp_path / ".thing-of-a-killed-process"
    stale.mkdir()
    made = prepared(tmp_path / "thing", lambda work: (work / "whole").touch())
    assert [path.name for path in made.iterdir()] == ["whole"]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["thing"]


def test_two_preparations_at_once_build_once(tmp_path: Path) -> None:
    entered, go_on, built = threading.Event(), threading.Event(), []

    def build(work: Path) -> None:
        entered.set()
        assert go_on.wait(20)
        built.append(work)

    first = threading.Thread(target=prepared, args=(tmp_path / "thing", build))
    second = threading.Thread(target=prepared, args=(tmp_path / "thing", build))
    first.start()
    assert entered.wait(20)
    second.start()
    go_on.set()
    first.join(20)
    second.join(20)
    assert len(built) == 1
