"""Rows that MariaDB inserts in bulk and takes back: they stay in its log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pymysql
from fix_e2e import PASSWORD, Ratchet, assert_identical

from lab.servers import create_ratchet_user

OFF = "SET unique_checks = 0, foreign_key_checks = 0"


def test_rows_that_are_taken_back(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet]
) -> None:
    """Whatever the rule for differences says, as nothing is wrong: `stop` is the default."""
    server = make_server("mariadb")
    server.execute("CREATE DATABASE app")
    tables = [f"t{number}" for number in range(5)]
    for table in tables:
        server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database="app")
    create_ratchet_user(server, PASSWORD, ["app"])
    ratchet = make_ratchet({"-": server}, "app")
    ratchet.run("run", "--until-caught-up")

    def work(*statements: str) -> None:
        with server.connect(database="app", autocommit=True) as connection:
            cursor = connection.cursor()
            for statement in (OFF, *statements):
                try:
                    cursor.execute(statement)
                except pymysql.err.IntegrityError:
                    continue  # what the server does with it is the matter here

    work("INSERT IGNORE INTO t0 VALUES (1, 1), (1, 2), (2, 3)")
    twice = "INSERT INTO t1 VALUES (2, 9)"
    work("BEGIN", "INSERT INTO t1 SELECT seq, 1 FROM seq_1_to_5", twice, "COMMIT")
    # Another table's row fails, and all that the transaction has inserted in bulk goes.
    work("BEGIN", "INSERT INTO t2 VALUES (1, 1)", "INSERT INTO t3 VALUES (1, 1)",
         "INSERT INTO t3 VALUES (1, 2)", "COMMIT")  # fmt: skip
    work("INSERT INTO t4 VALUES (1, 1), (2, 2)")
    lost = [name for name in tables if not server.execute(f"SELECT 1 FROM {name}", database="app")]
    assert lost == ["t0", "t1", "t2", "t3"]
    said = ratchet.run("run", "--until-caught-up").stderr
    assert_identical(ratchet.lake, [server], "app", tables)
    assert "shop.t1: compared with its source after INSERT in bulk" in said
    assert "starting Spark" not in said, "few rows are compared and mended without it"
