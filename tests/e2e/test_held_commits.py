"""Servers whose log tells of statements that are not committed yet: what is read then is older.

With a semi-synchronous replica that does not answer, a server hands its log out, and then waits
before it commits (AFTER_SYNC). Whoever compares meanwhile sees rows, columns and keys of before.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, mirror_rows, status

from lab.servers import create_ratchet_user

HELD = 12.0  # seconds: some more than a comparison waits for what is just being committed
PLUGIN = "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'"
MYSQL = (
    "SET GLOBAL rpl_semi_sync_source_wait_point = AFTER_SYNC",
    f"SET GLOBAL rpl_semi_sync_source_timeout = {HELD * 1000:.0f}",
    "SET GLOBAL rpl_semi_sync_source_enabled = 0",  # it has given up waiting, the second time
    "SET GLOBAL rpl_semi_sync_source_enabled = 1",
)
MARIADB = (
    "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
    f"SET GLOBAL rpl_semi_sync_master_timeout = {HELD * 1000:.0f}",
    "SET GLOBAL rpl_semi_sync_master_enabled = 0",
    "SET GLOBAL rpl_semi_sync_master_enabled = 1",
)
# What is held back, one behind the other, some of it in several sessions. An ALTER keeps others
# from its table meanwhile, but not from looking up its columns and keys.
KEY = "CONSTRAINT k FOREIGN KEY (up) REFERENCES parent (id) ON DELETE"
HELD_BACK = (
    (("SET binlog_format = 'STATEMENT'", "UPDATE told SET v = v + 10"),),
    (
        ("SET sql_mode = ''", "ALTER TABLE cut MODIFY s VARCHAR(2)"),
        ("ALTER TABLE child DROP FOREIGN KEY k, ADD " + KEY.replace(" k ", " l ") + " SET NULL",),
    ),
)
TABLES = ("told", "cut", "child", "parent")


def execute(server: Any, *statements: str) -> None:
    with server.connect(database="shop", autocommit=True) as connection:
        for statement in statements:
            connection.cursor().execute(statement)


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.2)


@pytest.mark.parametrize("kind", ["mysql", "file", "mariadb"])
def test_statements_that_the_log_tells_before_they_are_committed(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], kind: str
) -> None:
    """They are compared when they are in force; "file" is a MySQL without GTIDs."""
    server = make_server("mysql", gtid=False) if kind == "file" else make_server(kind)
    server.execute("CREATE DATABASE shop")
    execute(
        server,
        "CREATE TABLE told (id INT PRIMARY KEY, v INT)",
        "INSERT INTO told VALUES (1, 1), (2, 2)",
        "CREATE TABLE cut (id INT PRIMARY KEY, s VARCHAR(20))",
        "INSERT INTO cut VALUES (1, 'a'), (2, 'longer')",
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "INSERT INTO parent VALUES (1), (2)",
        f"CREATE TABLE child (id INT PRIMARY KEY, up INT, {KEY} CASCADE)",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
    )
    create_ratchet_user(server, PASSWORD, ["shop"], triggers=True)
    verify = {"every": "off", "on_difference": "repair"}
    ratchet = make_ratchet({"-": server}, "shop", verify=verify)
    ratchet.run("run", "--until-caught-up")
    run = ratchet.start("run")
    execute(server, "INSERT INTO parent VALUES (3)")
    _wait(lambda: {"id": 3} in mirror_rows(ratchet.lake, "shop", "parent"))

    if kind != "mariadb":
        execute(server, PLUGIN)
    for sessions in HELD_BACK:
        execute(server, *(MARIADB if kind == "mariadb" else MYSQL))
        held = [threading.Thread(target=execute, args=(server, *one)) for one in sessions]
        began = time.monotonic()
        for thread in held:
            thread.start()
        for thread in held:
            thread.join()
        assert time.monotonic() - began > HELD, "it was not held back"
    run.terminate()
    _, told = end_of(run, 60)
    assert "shows rows from before what its log has told already" in " ".join(told.split())
    ratchet.run("run", "--until-caught-up")
    phases = {one["table"]: (one["phase"], one["stopped"]) for one in status(ratchet)["tables"]}
    assert {phase for phase, _ in phases.values()} == {"streaming"}, json.dumps(phases)
    assert_identical(ratchet.lake, [server], "shop", TABLES)
    execute(server, "DELETE FROM parent WHERE id = 1")  # by the key of now
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", TABLES)
    ratchet.run("verify")
