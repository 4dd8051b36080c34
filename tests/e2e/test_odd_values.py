"""Values that are none of their column's type, as servers have let in: one table stops, by name."""

from __future__ import annotations

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
