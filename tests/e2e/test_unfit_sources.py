"""What the log does not tell of is refused by `run` as by `check`, by name, with what mends it."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pymysql
import pytest
import yaml
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, mirror_rows, status
from fix_proxy import Proxy

from lab.replication import replicate_from, wait_for_replica
from lab.servers import create_ratchet_user

both = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
CRASHED = re.compile(r"shop\.(\w+) is compared with its source: its server may have crashed")


def name(one: dict[str, Any]) -> str:
    return f"{one['keyspace']}.{one['table']}"


def phases(ratchet: Ratchet) -> dict[str, str]:
    return {name(one): one["phase"] for one in status(ratchet)["tables"]}


def stopped(ratchet: Ratchet) -> dict[str, tuple[str, str]]:
    tables = status(ratchet)["tables"]
    found = [one for one in tables if one["phase"] == "stopped"]
    return {name(one): (one["stopped"], one["hint"]) for one in found}


def checked(ratchet: Ratchet, expect: int) -> dict[str, dict[str, Any]]:
    found = json.loads(ratchet.run("check", "--json", expect=expect).stdout)["findings"]
    return {one["check"]: one for one in found}


def exclude(ratchet: Ratchet, *tables: str) -> None:
    config = yaml.safe_load(ratchet.config.read_text())
    for source in config["sources"].values():
        source["tables"] += [f"!{table}" for table in tables]
    ratchet.config.write_text(yaml.safe_dump(config))


@pytest.mark.quick_on("mysql")
@both
@pytest.mark.long
def test_engines(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """Only engines of which the log has every change; the children of MERGE tables are not."""
    server = make_server(flavor)
    for database in ("shop", "other"):
        server.execute(f"CREATE DATABASE {database}")
    good = {"inno": "InnoDB", "my": "MyISAM", "mem": "MEMORY", "turns": "InnoDB"}
    good |= {"aria": "Aria"} if flavor == "mariadb" else {}
    odd = {"m1": "MyISAM", "m2": "MyISAM", "m3": "MyISAM"}
    odd |= {"hole": "BLACKHOLE"} if flavor == "mysql" else {}
    columns = "(id INT NOT NULL PRIMARY KEY, v INT)"
    for table, engine in (good | odd).items():
        server.execute(f"CREATE TABLE shop.{table} {columns} ENGINE={engine}")
        server.execute(f"INSERT INTO shop.{table} VALUES (1, 1), (2, 2)")
    if flavor == "mysql":
        archive = "(id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=ARCHIVE"
        server.execute(f"CREATE TABLE shop.arch {archive}")
        odd["arch"] = "ARCHIVE"
    merge = f"{columns} INSERT_METHOD=LAST ENGINE=MERGE"
    server.execute(f"CREATE TABLE shop.mm {merge} UNION=(shop.m1, shop.m2)")
    server.execute(f"CREATE TABLE other.mm {merge} UNION=(shop.m3)")
    server.execute("CREATE TABLE shop.csv (id INT NOT NULL, v INT NOT NULL) ENGINE=CSV")
    create_ratchet_user(server, PASSWORD, ["shop", "other"])
    ratchet = make_ratchet({"-": server}, "shop")
    odd |= {"mm": "MERGE", "csv": "CSV"}
    found = checked(ratchet, 0)
    assert {f"kind of {table}" for table in odd} == {n for n in found if n.startswith("kind of")}

    ratchet.run("run", "--until-caught-up")
    kept = sorted(good)
    assert phases(ratchet) == {f"shop.{table}": "streaming" for table in kept}
    for table in good:
        server.execute(f"UPDATE shop.{table} SET v = 7 WHERE id = 1")
        server.execute(f"DELETE FROM shop.{table} WHERE id = 2")
        server.execute(f"INSERT INTO shop.{table} VALUES (3, 3)")
    server.execute("INSERT INTO shop.mm VALUES (5, 5)")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", kept)

    # An engine that changes while nobody looks, and nobody writes.
    server.execute(f"CREATE TABLE shop.my2 {merge} UNION=(shop.my)")
    done = ratchet.run("run", "--until-caught-up", expect=6)
    assert list(stopped(ratchet)) == ["shop.my"]
    assert "shop.my2 includes it" in done.stderr
    exclude(ratchet, "my", "my2")
    ratchet.run("run", "--until-caught-up")


@pytest.mark.quick_on("mysql")
@both
def test_a_log_that_leaves_a_database_out(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """Refused at the start; what was lost meanwhile is dumped again by the remedy as printed."""
    server = make_server(flavor)
    for database in ("shop", "other"):
        server.execute(f"CREATE DATABASE {database}")
        server.execute(f"CREATE TABLE {database}.t (id INT NOT NULL PRIMARY KEY, v INT)")
        server.execute(f"INSERT INTO {database}.t VALUES (1, 1)")
    create_ratchet_user(server, PASSWORD, ["shop", "other"])
    ratchet = make_ratchet({"-": server}, "shop")
    ratchet.run("run", "--until-caught-up")

    server.restart(options={"binlog-ignore-db": "shop"})
    server.execute("INSERT INTO shop.t VALUES (2, 2)")
    refused = checked(ratchet, 3)["binlog filters"]
    assert refused["status"] == "fail"
    done = ratchet.run("run", "--until-caught-up", expect=3)
    assert refused["text"] in done.stderr
    assert "removed" in done.stderr  # the mend
    assert list(stopped(ratchet)) == ["shop.t"]

    # Of two sources the other one goes on, and the table that is new here is told of.
    server.execute("CREATE TABLE shop.late (id INT NOT NULL PRIMARY KEY)")
    one_source = ratchet.config.read_text()
    config = yaml.safe_load(one_source)
    shard = config["sources"]["shop"]["shards"]["-"]
    config["sources"]["more"] = {"kind": "binlog", "shards": {"-": {**shard, "database": "other"}}}
    ratchet.config.write_text(yaml.safe_dump(config))
    done = ratchet.run("run", "--until-caught-up", expect=6)
    assert set(stopped(ratchet)) == {"shop.t", "shop.late"}
    assert phases(ratchet)["more.t"] == "streaming"
    assert_identical(ratchet.lake, [server], "other", ["t"], keyspace="more")

    del server._options["binlog-ignore-db"]
    server.restart()
    ratchet.run("check")
    commands = re.findall(r"`ratchet ([^`]+)`", " ".join(h for _, h in stopped(ratchet).values()))
    assert any("redump" in command for command in commands)
    for command in commands:
        words = [word.strip("'") for word in command.split() if word != "CONFIG"]
        if words != ["run"]:  # comes last, for all of them
            ratchet.run(*words)
    ratchet.run("run", "--until-caught-up")
    assert phases(ratchet) == dict.fromkeys(("shop.t", "shop.late", "more.t"), "streaming")
    assert_identical(ratchet.lake, [server], "shop", ["t", "late"])


def _followed(
    server: Any, make_ratchet: Callable[..., Ratchet]
) -> tuple[Ratchet, subprocess.Popen[str]]:
    """A live run over a new table `shop.t`, which has begun and found all well."""
    server.execute("CREATE DATABASE shop")
    server.execute("CREATE TABLE shop.t (id INT NOT NULL PRIMARY KEY, v INT)")
    create_ratchet_user(server, PASSWORD, ["shop"])
    ratchet = make_ratchet({"-": server}, "shop")
    ratchet.run("run", "--until-caught-up")
    run = ratchet.start("run")
    server.execute("INSERT INTO shop.t VALUES (1, 1)")
    _wait(lambda: bool(mirror_rows(ratchet.lake, "shop", "t")))
    return ratchet, run


@pytest.mark.long
@both
def test_a_setting_that_changes_meanwhile(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """A live run stops the tables by name, with what mends it."""
    server = make_server(flavor)
    ratchet, run = _followed(server, make_ratchet)
    server.execute("SET GLOBAL binlog_row_image = 'MINIMAL'")
    _wait(lambda: phases(ratchet) == {"shop.t": "stopped"})
    message, hint = stopped(ratchet)["shop.t"]
    assert "binlog_row_image: MINIMAL" in message
    statement, _, command = hint.partition("  --")
    server.execute(statement)
    assert "`ratchet table CONFIG redump 'shop.t'`" in command
    ratchet.run("table", "redump", "shop.t")
    _wait(lambda: phases(ratchet) == {"shop.t": "streaming"})
    run.terminate()
    _, told = end_of(run, 120)
    assert run.returncode == 0, told


@pytest.mark.long
@both
def test_a_server_that_comes_back_without_its_log(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """A live run names the reason and remembers it: the next one finds a server with a log."""
    server = make_server(flavor)
    ratchet, run = _followed(server, make_ratchet)
    server.restart(options={"disable-log-bin": None})
    server.execute("UPDATE shop.t SET v = 2")
    _, told = end_of(run, 120)
    assert run.returncode == 3, told
    assert "log_bin is off" in told
    message, hint = stopped(ratchet)["shop.t"]
    assert "log_bin: off" in message

    del server._options["disable-log-bin"]
    server.restart()
    ratchet.run("run", "--until-caught-up", expect=6)
    (command,) = re.findall(r"`ratchet (table CONFIG redump [^`]+)`", hint)
    ratchet.run(*(word.strip("'") for word in command.split() if word != "CONFIG"))
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", ["t"])


@pytest.mark.quick_on("mysql")
@both
@pytest.mark.long
def test_a_server_that_gives_up_its_log(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """It cannot open the next file, and goes on without; its variable says that the log is on."""
    options = {"binlog-error-action": "IGNORE_ERROR"} if flavor == "mysql" else {}
    server = make_server(flavor, options=options)
    ratchet, run = _followed(server, make_ratchet)
    with server.connect() as connection, connection.cursor() as cursor:
        nofile = resource.prlimit(server.daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.daemon.pid, resource.RLIMIT_NOFILE, (3, nofile[1]))
        with suppress(pymysql.MySQLError):
            cursor.execute("FLUSH BINARY LOGS")
        resource.prlimit(server.daemon.pid, resource.RLIMIT_NOFILE, nofile)
    assert server.execute("SELECT @@log_bin") == ((1,),)
    server.execute("UPDATE shop.t SET v = 2")
    _wait(lambda: phases(ratchet) == {"shop.t": "stopped"})
    message, hint = stopped(ratchet)["shop.t"]
    assert "given up its log" in message
    run.terminate()
    end_of(run, 120)
    assert "given up its log" in checked(ratchet, expect=3)["log_bin"]["text"]

    server.restart()
    ratchet.run("run", "--until-caught-up", expect=6)
    (command,) = re.findall(r"`ratchet (table CONFIG redump [^`]+)`", hint)
    ratchet.run(*(word.strip("'") for word in command.split() if word != "CONFIG"))
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", ["t"])


@pytest.mark.long
@both
def test_a_server_that_comes_back_with_a_filter(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """It is looked at as soon as the stream is there again, also if the run is told to end then."""
    server = make_server(flavor)
    ratchet, run = _followed(server, make_ratchet)
    server.restart(options={"binlog-ignore-db": "shop"})
    server.execute("UPDATE shop.t SET v = 2")
    streams = "SELECT 1 FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    _wait(lambda: bool(server.execute(streams)))
    run.terminate()
    end_of(run, 120)
    assert phases(ratchet) == {"shop.t": "stopped"}
    del server._options["binlog-ignore-db"]
    server.restart()
    ratchet.run("run", "--until-caught-up", expect=6)


@pytest.mark.long
@both
def test_filters_of_a_replica(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """What a replica does not replicate is not in its log: the table by name, or all of it."""
    primary = make_server(flavor, options={"server-id": "11"})
    ignored = {"replicate-ignore-table": "shop.gone", "server-id": "12"}
    replica = make_server(flavor, options=ignored)
    replicate_from(replica, primary)
    primary.execute("CREATE DATABASE shop")
    for table in ("gone", "kept"):
        primary.execute(f"CREATE TABLE shop.{table} (id INT NOT NULL PRIMARY KEY)")
        primary.execute(f"INSERT INTO shop.{table} VALUES (1)")
    create_ratchet_user(primary, PASSWORD, ["shop"])
    wait_for_replica(replica, primary)
    replica.execute("CREATE TABLE shop.gone (id INT NOT NULL PRIMARY KEY)")
    ratchet = make_ratchet({"-": replica}, "shop")
    assert "replicate_ignore_table" in checked(ratchet, 0)["kind of gone"]["text"]
    ratchet.run("run", "--until-caught-up")
    assert phases(ratchet) == {"shop.kept": "streaming"}

    stop, start = ("REPLICA", "REPLICA") if flavor == "mysql" else ("SLAVE", "SLAVE")
    replica.execute(f"STOP {stop}")
    if flavor == "mysql":
        replica.execute("CHANGE REPLICATION FILTER REPLICATE_IGNORE_DB = (shop)")
    else:
        replica.execute("SET GLOBAL replicate_ignore_db = 'shop'")
    replica.execute(f"START {start}")
    refused = checked(ratchet, 3)["replica filters"]
    done = ratchet.run("run", "--until-caught-up", expect=3)
    assert "replicate_ignore_db leaves shop out" in done.stderr
    for statement in refused["mend"].split("  --")[0].split(";"):
        if statement.strip():
            replica.execute(statement)
    (command,) = re.findall(r"`ratchet ([^`]+)`", done.stderr)
    words = [word.strip("'") for word in command.split() if word != "CONFIG"]
    ratchet.run(*words)
    ratchet.run("run", "--until-caught-up")
    assert phases(ratchet) == {"shop.kept": "streaming"}


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(1)


@pytest.mark.long
@both
def test_memory_tables_of_a_server_that_was_restarted(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """Empty in the mirror too, though nobody has opened them since, or one who logs nothing.

    What a restart took differs rightly: the run mends it, whatever `on_difference` says.
    """
    server = make_server(flavor)
    server.execute("CREATE DATABASE shop")
    tables = ("mem", "mem_quiet", "inno")
    for table in tables:
        engine = "InnoDB" if table == "inno" else "MEMORY"
        server.execute(f"CREATE TABLE shop.{table} (id INT PRIMARY KEY, v INT) ENGINE={engine}")
        server.execute(f"INSERT INTO shop.{table} VALUES (1, 1), (2, 2)")
    create_ratchet_user(server, PASSWORD, ["shop"])
    ratchet = make_ratchet({"-": server}, "shop")
    ratchet.run("run", "--until-caught-up")
    assert [len(mirror_rows(ratchet.lake, "shop", table)) for table in tables] == [2, 2, 2]

    server.restart()
    with server.connect(database="shop") as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("SELECT * FROM mem_quiet")
    done = ratchet.run("run", "--until-caught-up")
    assert "shop.mem_quiet is compared with its source: its server was restarted" in done.stderr
    assert phases(ratchet) == {f"shop.{table}": "streaming" for table in tables}
    assert [len(mirror_rows(ratchet.lake, "shop", table)) for table in tables] == [0, 0, 2]

    for table in tables[:2]:
        server.execute(f"INSERT INTO shop.{table} VALUES (3, 3)")
    done = ratchet.run("run", "--until-caught-up")
    assert "was restarted" not in done.stderr  # once for each start
    assert_identical(ratchet.lake, [server], "shop", tables)


@pytest.mark.long
@both
def test_a_server_that_crashed(
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    make_proxy: Callable[[str, int], Proxy],
    flavor: str,
) -> None:
    """It may have lost rows that its log has; a shutdown loses none.

    Durable settings lose none either, if a run has seen them just before, but for statements about
    tables on MariaDB. What a crash of the machine takes is taken here by hand, behind one of the
    server.
    """
    server = make_server(flavor)
    server.execute("CREATE DATABASE shop")
    tables = {"inno": "InnoDB", "my": "MyISAM"}
    for table, engine in tables.items():
        server.execute(f"CREATE TABLE shop.{table} (id INT PRIMARY KEY, v INT) ENGINE={engine}")
        server.execute(f"INSERT INTO shop.{table} VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    create_ratchet_user(server, PASSWORD, ["shop"])
    link = make_proxy(server.host, server.port)
    ratchet = make_ratchet({"-": link}, "shop")

    def lose(number: int, *names: str) -> None:
        with server.connect(database="shop") as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            for table in names:
                cursor.execute(f"DELETE FROM {table} WHERE id = {number}")

    def doubted() -> set[str]:
        done = ratchet.run("run", "--until-caught-up")
        assert phases(ratchet) == {f"shop.{table}": "streaming" for table in tables}
        return set(CRASHED.findall(done.stderr))

    assert doubted() == set()
    server.kill()
    server.start()
    lose(1, *tables)
    assert doubted() == set(tables)
    assert_identical(ratchet.lake, [server], "shop", tables)
    assert doubted() == set()  # once for each start

    server.execute("FLUSH BINARY LOGS")
    server.restart()
    assert doubted() == set()
    server.kill()  # a life that no run has looked at, before one that ended well
    server.start()
    lose(2, *tables)
    server.restart(options={"innodb-flush-log-at-trx-commit": "1", "sync-binlog": "1"})
    assert doubted() == set(tables)  # the settings of the life that ended count, too
    assert_identical(ratchet.lake, [server], "shop", tables)
    server.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0")  # for a while, and unseen
    server.execute("INSERT INTO shop.inno VALUES (5, 5)")
    server.kill()
    server.start()
    lose(3, *tables)
    assert doubted() == set(tables)
    assert_identical(ratchet.lake, [server], "shop", tables)

    run = ratchet.start("run")  # this one has seen that each commit was durable
    server.execute("INSERT INTO shop.inno VALUES (6, 6)")
    _wait(lambda: {"id": 6, "v": 6} in mirror_rows(ratchet.lake, "shop", "inno"))
    link.refuse()  # else it may compare before the row is lost
    server.kill()
    server.start()
    lose(4, "my")
    link.accept()
    _wait(lambda: mirror_rows(ratchet.lake, "shop", "my") == [])
    run.terminate()
    _, told = end_of(run, 120)
    unsure = set(tables) if flavor == "mariadb" else {"my"}
    assert set(CRASHED.findall(told)) == unsure
    assert_identical(ratchet.lake, [server], "shop", tables)

    config = yaml.safe_load(ratchet.config.read_text())
    config["capture"]["reconnect_seconds"] = "3s"
    ratchet.config.write_text(yaml.safe_dump(config))
    run = ratchet.start("run")  # this one ends before the server is back, and leaves word
    server.execute("INSERT INTO shop.inno VALUES (7, 7)")
    _wait(lambda: {"id": 7, "v": 7} in mirror_rows(ratchet.lake, "shop", "inno"))
    server.kill()
    end_of(run, 120)
    assert run.returncode == 4
    server.start()
    assert doubted() == unsure
    assert_identical(ratchet.lake, [server], "shop", tables)
