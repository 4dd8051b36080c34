"""Runs over a config that changes, and a lost position healed: nothing is silently left stale."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from fix_e2e import (
    PASSWORD,
    TABLES,
    Ratchet,
    Writer,
    assert_identical,
    create_tables,
    end_of,
    status,
)
from fix_servers import purge_binlogs

from lab.servers import MariadbServer, create_ratchet_user
from ratchet.store.files import Lake
from ratchet.store.tables import Tables

pytestmark = pytest.mark.long


def fill(server: Any, database: str, seed: int, transactions: int = 100) -> None:
    writer = Writer(server, database, seed=seed)
    writer.start()
    while writer.transactions < transactions and writer.is_alive():
        writer.join(0.05)
    writer.finish()


def edit(ratchet: Ratchet, change: Callable[[dict[str, Any]], None]) -> None:
    config = yaml.safe_load(ratchet.config.read_text())
    change(config["sources"]["shop"])
    ratchet.config.write_text(yaml.safe_dump(config))


def test_a_table_that_comes_back_is_dumped_again(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """While it was left out its changes were not captured: streaming on would lose them."""
    create_tables(mariadb, database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    fill(mariadb, database, 1)
    ratchet = make_ratchet({"-": mariadb}, database)
    ratchet.run("run", "--until-caught-up")
    edit(ratchet, lambda source: source.update(tables=["*", "!items"]))
    fill(mariadb, database, 2)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, ("orders", "people"))
    edit(ratchet, lambda source: source.update(tables=["*"]))
    fill(mariadb, database, 3)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, TABLES)


def test_a_shard_that_is_added_is_dumped(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Its rows were there before its stream began; and another key is refused by name."""
    with MariadbServer() as other:
        other.execute(f"CREATE DATABASE `{database}`")
        for number, server in enumerate((mariadb, other)):
            create_tables(server, database)
            create_ratchet_user(server, PASSWORD, [database])
            fill_half(server, database, number)
        both = make_ratchet({"-80": mariadb, "80-": other}, database)
        text = both.config.read_text()
        edit(both, lambda source: source["shards"].pop("80-"))
        both.run("run", "--until-caught-up")
        assert_identical(both.lake, [mariadb], database, ("orders", "items"))
        both.config.write_text(text)
        both.run("run", "--until-caught-up")
        assert_identical(both.lake, [mariadb, other], database, ("orders", "items"))
        edit(both, lambda source: source.update(key="shard+primary"))
        done = both.run("run", "--until-caught-up", expect=2)
        assert "dump CONFIG --again 'shop.*'" in done.stderr


def test_a_lost_position_is_healed_by_dumping_again(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """As docs/operations.md says under "The position is lost"."""
    create_tables(mariadb, database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    fill(mariadb, database, 1)
    ratchet = make_ratchet({"-": mariadb}, database)
    ratchet.run("run", "--until-caught-up")
    fill(mariadb, database, 2)
    purge_binlogs(mariadb)
    ratchet.run("run", "--until-caught-up", expect=5)
    assert "shop/-: begins from scratch" in ratchet.run("heal").stdout
    fill(mariadb, database, 3)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, TABLES)
    assert {table["phase"] for table in status(ratchet)["tables"]} == {"streaming"}


def test_one_shard_of_two_is_healed(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], make_server: Any
) -> None:
    """What it held is dumped again, and nothing else: after a purge, after lost transactions."""
    other = make_server("mysql")
    other.execute(f"CREATE DATABASE `{database}`")
    for number, server in enumerate((mysql, other)):
        create_tables(server, database)
        create_ratchet_user(server, PASSWORD, [database])
        fill_half(server, database, number)
    tables = ("orders", "items")
    ratchet = make_ratchet({"-80": mysql, "80-": other}, database)
    ratchet.run("run", "--until-caught-up")
    for number, server in enumerate((mysql, other)):
        fill_half(server, database, number)
    purge_binlogs(other)
    done = ratchet.run("run", "--until-caught-up", expect=5)
    assert "ratchet heal CONFIG" in done.stderr
    assert "purged transactions that the mirror lacks" in ratchet.run("check", expect=3).stdout
    healed = ratchet.run("heal")
    assert "shop/-80: can continue" in healed.stdout
    assert "shop/80-: begins from scratch (the server has purged" in healed.stdout
    fill_half(other, database, 1)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mysql, other], database, tables)
    assert dumped_shards(ratchet) == {"shop/80-"}
    assert "can continue" in ratchet.run("heal").stdout
    # A crash without its disk: what was written last is gone, and so is the log.
    ratchet.run("run", "--until-caught-up")
    with other.connect(database=database, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("SET SESSION sql_log_bin = 0")
        assert cursor.execute("DELETE FROM orders ORDER BY id DESC LIMIT 7") == 7
        cursor.execute("UPDATE orders SET customer = customer + 1 LIMIT 3")
    other.execute("RESET BINARY LOGS AND GTIDS")
    fill_half(other, database, 1)
    fill_half(mysql, database, 0)
    ratchet.run("run", "--until-caught-up", expect=5)
    config = yaml.safe_load(ratchet.config.read_text())
    config.setdefault("capture", {})["lost_position"] = "heal"
    ratchet.config.write_text(yaml.safe_dump(config))
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mysql, other], database, tables)
    assert dumped_shards(ratchet) == {"shop/80-"}
    assert "identical" in ratchet.run("verify").stdout


def fill_half(server: Any, database: str, number: int) -> None:
    """Write on one shard of two: its keys are its own."""
    writer = Writer(server, database, seed=number, first=number, step=2)
    writer.start()
    while writer.transactions < 100 and writer.is_alive():
        writer.join(0.05)
    writer.finish()


def dumped_shards(ratchet: Ratchet) -> set[str]:
    """Which shards the newest dumps have read, of all tables."""
    states = Tables(Lake.at(str(ratchet.lake))).list()
    return {shard for state in states if state.dump for shard in state.dump.read}


def test_a_table_made_later_is_dumped_while_the_others_stream(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    create_tables(mariadb, database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    fill(mariadb, database, 1)
    ratchet = make_ratchet({"-": mariadb}, database)
    running = ratchet.start("run")
    writer = Writer(mariadb, database, seed=2)
    writer.start()
    later = {"late": "new"}
    made = False
    while running.poll() is None and later.get("late") != "streaming":
        writer.join(1.0)
        if not (ratchet.lake / "_ratchet" / "cuts").exists():
            continue
        if not made:
            mariadb.execute(f"CREATE TABLE `{database}`.late (id INT PRIMARY KEY, v INT)")
            mariadb.execute(f"INSERT INTO `{database}`.late VALUES (1, 1), (2, 2)")
            made = True
        later = {table["table"]: table["phase"] for table in status(ratchet)["tables"]}
    assert running.poll() is None, running.communicate()
    mariadb.execute(f"UPDATE `{database}`.late SET v = 7 WHERE id = 2")
    writer.finish()
    running.send_signal(signal.SIGTERM)
    out, err = end_of(running, 120)
    assert running.returncode == 0, (out, err)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, (*TABLES, "late"))
