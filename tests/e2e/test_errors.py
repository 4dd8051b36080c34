"""First errors: each ends with the right exit code and says what to do; nothing is lost by it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix_disk import SmallDisk
from fix_e2e import (
    PASSWORD,
    TABLES,
    Ratchet,
    Writer,
    assert_identical,
    create_tables,
    end_of,
    mirror_rows,
    status,
)
from fix_servers import purge_binlogs
from process_kit import descendants, program_of

from lab.servers import create_ratchet_user
from ratchet.store.files import Lake
from ratchet.store.tables import Tables


@pytest.fixture
def prepared(server: Any, database: str) -> Any:
    """The shared server with the writer's tables and some rows."""
    return _prepare(server, database)


@pytest.fixture(params=["mariadb", "mysql"])
def own_server(request: pytest.FixtureRequest, make_server: Callable[..., Any]) -> Any:
    """A server of the test's own, with the same in the database `shop`: to kill and to purge."""
    server = make_server(request.param)
    server.execute("CREATE DATABASE shop")
    return _prepare(server, "shop")


def _prepare(server: Any, database: str) -> Any:
    create_tables(server, database)
    create_ratchet_user(server, PASSWORD, [database])
    writer = Writer(server, database, seed=3)
    writer.start()
    while writer.transactions < 100 and writer.is_alive():
        writer.join(0.05)
    writer.finish()
    return server


@pytest.mark.quick_on("mysql")
def test_wrong_password(prepared: Any, database: str, make_ratchet: Callable[..., Ratchet]) -> None:
    """A refused login is the source's unfitness, without the password in any output."""
    ratchet = make_ratchet({"-": prepared}, database)
    for command in ("check", "run"):
        done = ratchet.run(command, expect=3, RATCHET_TEST_PASSWORD="wrong-Passw0rd")
        assert "wrong-Passw0rd" not in done.stdout + done.stderr
        assert "ratchet" in done.stdout + done.stderr


@pytest.mark.quick_on("mariadb")
def test_unknown_host(prepared: Any, database: str, make_ratchet: Callable[..., Ratchet]) -> None:
    """A host that does not answer is named, with what to look at."""
    ratchet = make_ratchet({"-": prepared}, database, capture={"reconnect_seconds": 2})
    text = ratchet.config.read_text().replace("127.0.0.1", "no-such-host.invalid")
    ratchet.config.write_text(text)
    done = ratchet.run("run", expect=4)
    assert "no-such-host.invalid" in done.stderr


@pytest.mark.long
def test_numbers_that_go_back(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet]
) -> None:
    """MariaDB: a position below ours that another server has made is not "caught up"."""
    server = make_server("mariadb")
    server.execute("CREATE DATABASE shop")
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database="shop")
    create_ratchet_user(server, PASSWORD, ["shop"])

    def insert(number: int, *, server_id: int) -> None:
        with server.connect(database="shop", autocommit=True) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SET SESSION server_id = {server_id}, gtid_seq_no = {number}")
            cursor.execute(f"INSERT INTO t VALUES ({number})")

    insert(50_000, server_id=99)
    ratchet = make_ratchet({"-": server}, "shop", capture={"reconnect_seconds": 2})
    ratchet.run("run", "--until-caught-up")
    insert(100, server_id=98)
    done = ratchet.run("run", "--until-caught-up", expect=4)
    assert "lacks transactions that the mirror holds: 0-99-50000" in done.stderr
    assert "caught up" not in done.stderr
    assert "with --shard KEYSPACE/SHARD if it leaves this one as it is" in done.stderr
    ratchet.run("heal", "--shard", "shop/-")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", ["t"])


@pytest.mark.long
@pytest.mark.parametrize("new", [pytest.param(False, marks=pytest.mark.long), True])
def test_numbers_given_again(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], *, new: bool
) -> None:
    """MariaDB without strict mode: what is printed gets out; `new`: also of a new lake."""
    server = make_server("mariadb")
    server.execute("CREATE DATABASE shop")
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database="shop")
    create_ratchet_user(server, PASSWORD, ["shop"])

    def insert(number: int, seq: int) -> None:
        with server.connect(database="shop", autocommit=True) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SET SESSION gtid_domain_id = 7, gtid_seq_no = {seq}")
            cursor.execute(f"INSERT INTO t VALUES ({number})")

    insert(1, 10)
    insert(2, 11)
    ratchet = make_ratchet({"-": server}, "shop", capture={"reconnect_seconds": 2})
    if not new:
        ratchet.run("run", "--until-caught-up")
    insert(3, 1)
    said = ratchet.run("run", "--until-caught-up", expect=3 if new else 5).stderr
    assert "SET GLOBAL gtid_strict_mode=ON; and FLUSH BINARY LOGS;" in said
    server.execute("SET GLOBAL gtid_strict_mode=ON")
    server.execute("FLUSH BINARY LOGS")
    if new:
        assert "`ratchet dump CONFIG --again 'shop.*'`" in said
        ratchet.run("dump", "--again", "shop.*")
    else:
        ratchet.run("heal")
    for number in (4, 5):
        ratchet.run("run", "--until-caught-up")
        assert_identical(ratchet.lake, [server], "shop", ["t"])
        insert(number, 8 + number)


@pytest.mark.quick_on("mysql")
def test_no_privilege(prepared: Any, database: str, make_ratchet: Callable[..., Ratchet]) -> None:
    """A missing privilege comes with the GRANT that mends it."""
    prepared.execute("CREATE USER IF NOT EXISTS 'poor'@'%%' IDENTIFIED BY %s", (PASSWORD,))
    prepared.execute(f"GRANT SELECT ON `{database}`.* TO 'poor'@'%'")
    ratchet = make_ratchet({"-": prepared}, database)
    ratchet.config.write_text(ratchet.config.read_text().replace("user: ratchet", "user: poor"))
    assert "GRANT" in ratchet.run("check", expect=3).stdout
    assert "GRANT" in ratchet.run("run", expect=3).stderr


@pytest.mark.long
def test_server_killed_and_restarted_in_mid_stream(
    own_server: Any, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Capture reconnects by itself, and the mirror ends identical."""
    prepared, database = own_server, "shop"
    ratchet = make_ratchet({"-": prepared}, database)
    running = ratchet.start("run")
    writer = Writer(prepared, database, seed=4)
    writer.start()
    while not (ratchet.lake / "_ratchet" / "cuts").exists() and running.poll() is None:
        writer.join(0.2)
    prepared.kill()
    prepared.start()
    reached = writer.transactions + 200
    while writer.transactions < reached and writer.is_alive():
        writer.join(0.1)
    writer.finish()
    assert running.poll() is None, running.communicate()
    running.send_signal(signal.SIGTERM)
    out, err = end_of(running, 120)
    assert running.returncode == 0, (out, err)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [prepared], database, TABLES)


@pytest.mark.quick_on("mariadb")
def test_purged_binlog(own_server: Any, make_ratchet: Callable[..., Ratchet]) -> None:
    """A purged position is a named error with a remedy, never a silent jump."""
    prepared, database = own_server, "shop"
    ratchet = make_ratchet({"-": prepared}, database)
    ratchet.run("run", "--until-caught-up")
    before = mirror_rows(ratchet.lake, "shop", "orders")
    prepared.execute(f"DELETE FROM `{database}`.orders")
    purge_binlogs(prepared)
    done = ratchet.run("run", "--until-caught-up", expect=5)
    assert "purged" in done.stderr
    assert mirror_rows(ratchet.lake, "shop", "orders") == before
    ended = status(ratchet)["ended"]
    assert (ended["command"], ended["exit_code"]) == ("run", 5)
    assert "purged" in ended["message"]
    assert ended["hint"].startswith("`ratchet heal CONFIG`")
    told = ratchet.run("status").stdout
    assert "the last run (`ratchet run`) ended with exit 5 at " in told
    ratchet.run("heal")
    ratchet.run("run", "--until-caught-up")
    assert status(ratchet)["ended"] is None


@pytest.mark.quick_on("mariadb")
def test_table_without_a_key_stops_alone(
    prepared: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """The keyless table is named with the remedy; the others are mirrored."""
    prepared.execute(f"CREATE TABLE `{database}`.keyless (a INT, b INT)")
    prepared.execute(f"INSERT INTO `{database}`.keyless VALUES (1, 2)")
    ratchet = make_ratchet({"-": prepared}, database)
    done = ratchet.run("run", "--until-caught-up", expect=6)
    assert "keyless" in done.stderr
    assert "primary key" in done.stderr.lower()
    assert_identical(ratchet.lake, [prepared], database, TABLES)
    phases = {table["table"]: table["phase"] for table in status(ratchet)["tables"]}
    assert phases.pop("keyless") == "stopped"
    assert set(phases.values()) == {"streaming"}


@pytest.mark.long
def test_statement_format_is_never_skipped(
    prepared: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """A change logged as a statement puts its table in doubt, and the run reads its rows again."""
    ratchet = make_ratchet({"-": prepared}, database)
    ratchet.run("run", "--until-caught-up")
    with prepared.connect(database=database, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute("UPDATE orders SET customer = customer + 1")
        cursor.execute("SET SESSION binlog_format = 'ROW'")
        cursor.execute("INSERT INTO people (name) VALUES ('behind it')")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [prepared], database, TABLES)
    states = {state.table: state for state in Tables(Lake.at(ratchet.lake)).list()}
    assert (states["orders"].phase, states["orders"].doubts) == ("streaming", {})


@pytest.mark.long
def test_changed_columns_stop_one_table_and_dumping_again_heals_it(
    prepared: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """ALTER stops that table by name; the others go on; the remedy in the message works."""
    ratchet = make_ratchet({"-": prepared}, database, source={"schema_changes": "stop"})
    ratchet.run("run", "--until-caught-up")
    prepared.execute(f"ALTER TABLE `{database}`.orders ADD COLUMN extra INT NOT NULL DEFAULT 7")
    prepared.execute(f"UPDATE `{database}`.orders SET customer = customer + 1 LIMIT 5")
    prepared.execute(f"INSERT INTO `{database}`.people (name) VALUES ('after the change')")
    done = ratchet.run("run", "--until-caught-up", expect=6)
    assert "redump" in done.stderr
    assert_identical(ratchet.lake, [prepared], database, ("items", "people"))
    named = ratchet.run("verify", "--table", "orders", "--table", "people", expect=6)
    assert "not compared: shop.orders" in named.stdout
    ratchet.run("dump", "--again", "orders")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [prepared], database, TABLES)


@pytest.mark.long
def test_a_lost_data_file(
    prepared: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """The run, a query and verify name it; a new dump of that one table is the remedy."""
    ratchet = make_ratchet({"-": prepared}, database)
    ratchet.run("run", "--until-caught-up")
    (lost,) = (ratchet.lake / "shop" / "items").glob("*.parquet")
    lost.unlink()
    prepared.execute(f"UPDATE `{database}`.items SET sku = concat(sku, '!')")
    for args in (
        ("run", "--until-caught-up"),
        ("sql", "SELECT count(sku) FROM shop.items"),
        ("verify", "--table", "items"),
    ):
        done = ratchet.run(*args, expect=7)
        assert lost.name in done.stderr, args
        assert "redump" in done.stderr, args
    ratchet.run("table", "redump", "items")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [prepared], database, TABLES)


@pytest.mark.long
def test_truncate_is_followed(
    prepared: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """TRUNCATE has no row events, and the mirror still empties."""
    ratchet = make_ratchet({"-": prepared}, database)
    ratchet.run("run", "--until-caught-up")
    prepared.execute(f"TRUNCATE TABLE `{database}`.items")
    prepared.execute(f"INSERT INTO `{database}`.items (order_id, line, sku) VALUES (1, 1, 'after')")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [prepared], database, TABLES)


@pytest.mark.quick_on("mariadb")
def test_second_run_names_the_first(
    prepared: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Two runs on one lake: the second refuses and says who holds it."""
    ratchet = make_ratchet({"-": prepared}, database)
    first = ratchet.start("run")
    lease = ratchet.lake / "_ratchet" / "lease.json"
    while not lease.exists() and first.poll() is None:
        os.sched_yield()
    second = ratchet.run("run", "--until-caught-up", expect=7)
    owner = json.loads(lease.read_text())
    assert str(owner["pid"]) in second.stderr
    rounds = ratchet.lake / "_ratchet" / "rounds"
    while not list(rounds.glob("*.parquet")) and first.poll() is None:
        time.sleep(0.2)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
    out, err = end_of(first, 120)
    assert first.returncode == 0, (out, err)
    assert "SIGINT: stopping after the current step" in err
    assert "Traceback" not in err
    assert "cancelled" not in err


@pytest.mark.long
def test_a_java_machine_that_is_killed(
    prepared: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """The run ends and says so, and the next one goes on: it is no bug of ours."""
    ratchet = make_ratchet({"-": prepared}, database)
    writer = Writer(prepared, database, seed=8)
    writer.start()
    run = ratchet.start("run")
    rounds = ratchet.lake / "_ratchet" / "cuts"
    while not list(rounds.glob("*.parquet")) and run.poll() is None:
        time.sleep(0.2)
    java = next(pid for pid in descendants(run.pid) if program_of(pid) == "java")
    os.kill(java, signal.SIGKILL)
    out, err = end_of(run, 600)
    assert run.returncode == 9, (out, err)
    assert "Spark's JVM has ended" in err
    assert "nothing was lost" in err
    writer.finish()
    ratchet.run("run", "--until-caught-up")
    assert assert_identical(ratchet.lake, [prepared], database, TABLES) > 0


@pytest.mark.long
def test_full_disk(
    mariadb: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    make_disk: Callable[[Path, str], SmallDisk],
) -> None:
    """In the dump and in the merge: the run ends by name, and goes on when there is room again."""
    prepared = _prepare(mariadb, database)
    ratchet = make_ratchet({"-": prepared}, database, lake="./disk/lake", lake_wait=0)
    disk = make_disk(ratchet.config.parent / "disk", "200m")
    ratchet.inside = disk.inside
    refused = 0
    for turn in range(3):
        # The less room there is, the earlier it ends: opening the lake, capture, dump, merge.
        for room in (0, 12, 24, 40, 56):
            disk.fill(but=room << 10)
            done = ratchet.run("run", "--until-caught-up", expect=None)
            disk.free()
            if done.returncode == 0:
                break
            assert done.returncode == 7, done.stderr
            assert "no space left" in done.stderr.lower()
            assert "free space" in done.stderr
            assert "Traceback" not in done.stderr
            refused += 1
        ratchet.run("run", "--until-caught-up")
        found = disk.copy("lake", ratchet.config.parent / f"found{turn}")
        assert_identical(found, [prepared], database, TABLES)
        prepared.execute(f"UPDATE `{database}`.orders SET note = MD5(CONCAT(id, note))")
        prepared.execute(f"DELETE FROM `{database}`.items LIMIT 10")
    assert refused > 6


@pytest.mark.quick_on("mysql")
def test_lake_that_is_not_ours(
    prepared: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """A folder with other people's files is not written to."""
    ratchet = make_ratchet({"-": prepared}, database)
    ratchet.lake.mkdir()
    (ratchet.lake / "thesis.txt").write_text("mine")
    ratchet.run("run", expect=7)
    assert [path.name for path in ratchet.lake.iterdir()] == ["thesis.txt"]
