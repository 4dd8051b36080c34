"""Names in another letter case than the server's own: lost nowhere, refused where they differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from fix_e2e import PASSWORD, Ratchet, assert_identical, status

from lab.servers import create_ratchet_user

both = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])


@pytest.mark.long
@both
def test_a_server_that_folds_names(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """lower_case_table_names=1: config, tables and statements in any letter case."""
    server = make_server(flavor, options={"lower-case-table-names": "1"})
    server.execute("CREATE DATABASE Shop")
    for table in ("Orders", "Kept", "TP", "tmp_X"):
        server.execute(f"CREATE TABLE Shop.{table} (id INT NOT NULL PRIMARY KEY, v INT)")
        server.execute(f"INSERT INTO SHOP.{table} VALUES (1, 1), (2, 2)")
    create_ratchet_user(server, PASSWORD, ["Shop"])
    wanted = {"tables": ["Orders", "K*", "T*", "!TMP_*"]}
    ratchet = make_ratchet({"-": server}, "Shop", source=wanted)
    found = json.loads(ratchet.run("check", "--json").stdout)["findings"]
    assert [one["check"] for one in found if one["status"] == "fail"] == []

    assert [one["check"] for one in found if one["check"].startswith("table ")] == []

    ratchet.run("run", "--until-caught-up")
    server.execute("INSERT INTO ORDERS VALUES (3, 3)", database="Shop")
    server.execute("UPDATE shop.oRDERS SET v = 9 WHERE id = 1")
    server.execute("TRUNCATE TABLE KEPT", database="SHOP")
    server.execute("INSERT INTO kEPT VALUES (7, 7)", database="shop")
    server.execute("ALTER TABLE SHOP.TP ADD w INT")
    server.execute("INSERT INTO Shop.tp VALUES (5, 5, 5)")
    ratchet.run("run", "--until-caught-up")
    tables = {
        f"{one['keyspace']}.{one['table']}": one["phase"] for one in status(ratchet)["tables"]
    }
    assert tables == dict.fromkeys(("shop.orders", "shop.kept", "shop.tp"), "streaming")
    assert_identical(ratchet.lake, [server], "shop", ["orders", "kept", "tp"])
    ratchet.run("table", "redump", "orders")
    ratchet.run("run", "--until-caught-up")
    ratchet.run("verify")


@pytest.mark.quick_on("mysql")
def test_a_server_that_does_not_fold_names(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """The other spelling is another database: refused, with the one that may be meant."""
    server.execute(f"CREATE TABLE `{database}`.t (id INT NOT NULL PRIMARY KEY)")
    create_ratchet_user(server, PASSWORD, [database])
    ratchet = make_ratchet({"-": server}, database.upper())
    for command in ("check", "run"):
        done = ratchet.run(command, expect=3)
        said = done.stdout + done.stderr
        assert f"did you mean {database!r}? Letter case matters" in said
    config = yaml.safe_load(ratchet.config.read_text())
    config["sources"]["shop"]["shards"]["-"]["database"] = database
    ratchet.config.write_text(yaml.safe_dump(config))
    ratchet.run("check")
