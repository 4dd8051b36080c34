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
