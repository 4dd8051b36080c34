"""Values that are none of their column's type, as servers have let in: one table stops, by name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical

from lab.servers import create_ratchet_user


@pytest.mark.quick_on("mariadb")
def test_text_that_is_not_in_its_charset(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """In the dump and in the log; once the row is mended, the printed remedy gets out."""
    create_ratchet_user(server, PASSWORD, [database])
    for statement in (
        "CREATE TABLE fine (id INT PRIMARY KEY)",
        "INSERT INTO fine VALUES (1), (2)",
        # Text that is no text: one table's files under another one's columns.
        "CREATE TABLE bytes (id INT PRIMARY KEY, v VARBINARY(36)) ENGINE = MyISAM",
        "CREATE TABLE texts (id INT PRIMARY KEY, v VARCHAR(9)) ENGINE = MyISAM CHARSET = utf8mb4",
        "CREATE TABLE later (id INT PRIMARY KEY, v VARCHAR(9)) ENGINE = MyISAM CHARSET = utf8mb4",
        "INSERT INTO bytes VALUES (1, x'ff'), (2, 'ok')",
    ):
        server.execute(statement, database=database)
    swap(server, database, "texts")
    ratchet = make_ratchet({"-": server}, database)
    said = ratchet.run("run", "--until-caught-up", expect=6).stderr
    assert "shop.texts is stopped: column v: row 0 holds no value of type varchar" in said
    assert_identical(ratchet.lake, [server], database, ("fine", "bytes", "later"))
    swap(server, database, "later")
    server.execute("UPDATE later SET id = 3 WHERE id = 1", database=database)
    server.execute("INSERT INTO fine VALUES (3)", database=database)
    said = ratchet.run("run", "--until-caught-up", expect=6).stderr
    assert "shop.later is stopped: column v: row 0 holds no value of type varchar" in said
    assert_identical(ratchet.lake, [server], database, ("fine", "bytes"))
    assert "not compared: shop.later" in ratchet.run("verify").stdout
    for table in ("texts", "later"):
        server.execute(f"UPDATE {table} SET v = 'text' WHERE v <> 'ok'", database=database)
        ratchet.run("table", "redump", f"shop.{table}")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], database, ("fine", "bytes", "texts", "later"))


def swap(server: Any, database: str, table: str) -> None:
    server.execute("FLUSH TABLES", database=database)
    folder = server.datadir / database
    for kind in ("MYD", "MYI"):
        shutil.copyfile(folder / f"bytes.{kind}", folder / f"{table}.{kind}")


def test_two_rows_with_one_key(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet]
) -> None:
    """MySQL, a partition exchanged without a look: in the dump and later, and the way out."""
    server, database = make_server("mysql"), "shop"
    server.execute("CREATE DATABASE shop")
    create_ratchet_user(server, PASSWORD, [database])
    columns = "(id INT PRIMARY KEY, v INT)"
    # By HASH: of partitions by RANGE the dump says first that a row lies in a wrong one.
    parts = "PARTITION BY HASH (id) PARTITIONS 2"  # p1 has the odd ones
    for table in ("twice", "later"):
        for statement in (
            f"CREATE TABLE {table} {columns} {parts}",
            f"INSERT INTO {table} VALUES (1, 1), (500, 1), (501, 1)",
            f"CREATE TABLE new_{table} {columns}",
            f"INSERT INTO new_{table} VALUES (3, 2), (500, 2)",
        ):
            server.execute(statement, database=database)
    exchange = "ALTER TABLE {0} EXCHANGE PARTITION p1 WITH TABLE new_{0} WITHOUT VALIDATION"
    server.execute(exchange.format("twice"), database=database)
    ratchet = make_ratchet({"-": server}, database)
    why = "is stopped: two rows of the source have the same key"
    said = ratchet.run("run", "--until-caught-up", expect=6).stderr
    assert f"shop.twice {why}" in said
    others = ("later", "new_twice", "new_later")
    assert_identical(ratchet.lake, [server], database, others)
    server.execute(exchange.format("later"), database=database)
    server.execute("UPDATE later SET v = 3 WHERE id = 500", database=database)
    ratchet.run("run", "--until-caught-up", expect=6)
    for table in ("later", "new_later"):
        ratchet.run("table", "redump", f"shop.{table}")
    said = ratchet.run("run", "--until-caught-up", expect=6).stderr
    assert f"shop.later {why}" in said
    for table in ("twice", "later"):
        finds = re.search(rf"SELECT [^;]*`{table}`[^;]*? HAVING COUNT\(\*\) > 1", said)
        assert finds is not None
        with server.connect(database=database) as connection:
            cursor = connection.cursor()
            cursor.execute(finds[0])
            assert [tuple(row) for row in cursor.fetchall()] == [(500, 2)]
        # The server deletes no row that it finds in a wrong partition.
        server.execute(exchange.format(table), database=database)
        ratchet.run("table", "redump", f"shop.new_{table}")
        ratchet.run("table", "redump", f"shop.{table}")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], database, ("twice", "later", *others))
