"""A source whose `database` becomes another one: its rows are not taken for those of the first."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from fix_e2e import PASSWORD, Ratchet, assert_identical

from lab.servers import create_ratchet_user

TABLES = ("a", "b")


@pytest.mark.quick_on("mysql")
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_another_database_of_the_same_server(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    server = make_server(flavor)
    for database, rows in (("shop", "(1, 1), (2, 2)"), ("twin", "(2, 7), (3, 8)")):
        server.execute(f"CREATE DATABASE {database}")
        for table in TABLES:
            server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database=database)
            server.execute(f"INSERT INTO {table} VALUES {rows}", database=database)
    create_ratchet_user(server, PASSWORD, ["shop", "twin"])
    ratchet = make_ratchet({"-": server}, "shop")
    ratchet.run("run", "--until-caught-up")
    config = yaml.safe_load(ratchet.config.read_text())
    (source,) = config["sources"].values()
    source["shards"]["-"]["database"] = "twin"
    ratchet.config.write_text(yaml.safe_dump(config))
    server.execute("UPDATE a SET v = 70 WHERE id = 2", database="twin")
    said = "the database of shop/- is 'twin', but the mirror's rows are those of 'shop'"
    assert said in ratchet.run("check", expect=None).stdout
    refused = ratchet.run("run", "--until-caught-up", expect=2).stderr
    assert said in refused
    (remedy,) = (line for line in refused.splitlines() if "ratchet dump" in line)
    words = shlex.split(remedy.partition("ratchet dump CONFIG ")[2])
    ratchet.run("dump", *words)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "twin", TABLES, keyspace="shop")
    ratchet.run("verify")


def test_a_shard_that_the_config_lacks(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet]
) -> None:
    """Its rows would stay in the mirror as they are, and nobody would be told."""
    servers = {"-80": make_server("mariadb"), "80-": make_server("mariadb")}
    for key, server in enumerate(servers.values()):
        server.execute("CREATE DATABASE shop")
        for table in TABLES:
            server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database="shop")
            server.execute(f"INSERT INTO {table} VALUES ({key}, 1)", database="shop")
        create_ratchet_user(server, PASSWORD, ["shop"])
    servers["80-"].execute("CREATE TABLE alone (id INT PRIMARY KEY, v INT)", database="shop")
    servers["80-"].execute("INSERT INTO alone VALUES (1, 1)", database="shop")
    ratchet = make_ratchet(servers, "shop")
    ratchet.run("run", "--until-caught-up")
    whole = ratchet.config.read_text()
    config = yaml.safe_load(whole)
    (source,) = config["sources"].values()
    del source["shards"]["80-"]
    ratchet.config.write_text(yaml.safe_dump(config))
    for server in servers.values():
        server.execute("UPDATE a SET v = 2", database="shop")
    said = "sources.shop.shards lacks 80-, whose rows are in shop.a"
    assert said in ratchet.run("check", expect=2).stdout
    refused = ratchet.run("run", "--until-caught-up", expect=2).stderr
    assert said in refused
    # To these its rows would be wrong ones, and repair would remove them.
    for words in (["verify"], ["repair"], ["heal", "--dry-run"]):
        assert said in ratchet.run(*words, expect=2).stderr
    lacking = ratchet.config.read_text()
    ratchet.config.write_text(whole)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, list(servers.values()), "shop", TABLES)
    ratchet.config.write_text(lacking)
    (remedy,) = (line for line in refused.splitlines() if "ratchet dump" in line)
    words = shlex.split(remedy.partition("ratchet dump CONFIG ")[2].rstrip("`"))
    said = ratchet.run("dump", *words, expect=6).stderr
    assert "shop.alone: the source no longer has it" in said
    (source,) = config["sources"].values()
    source["tables"] = ["!alone"]
    ratchet.config.write_text(yaml.safe_dump(config))
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [servers["-80"]], "shop", TABLES)
    ratchet.run("verify")
    # Back again: its stream could go on, but the tables were dumped without it.
    ratchet.config.write_text(whole)
    servers["80-"].execute("INSERT INTO a VALUES (10, 1)", database="shop")
    assert "dumped without shop/80-" in ratchet.run("check").stdout
    assert "dumped without shop/80-" in ratchet.run("run", "--until-caught-up").stderr
    assert_identical(ratchet.lake, list(servers.values()), "shop", TABLES)
    assert_identical(ratchet.lake, [servers["80-"]], "shop", ["alone"])
    assert "to dump" not in ratchet.run("run", "--until-caught-up").stderr
    ratchet.run("verify")
