"""What is older than a table's dump says nothing about it: no statement, and no row.

All tables of a server come into one stretch of its log, which the mirror reads from before their
dumps on: a server without GTIDs has it read from the beginning of its current file, another one
where the run was away while the tables were made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, execute, status

from lab.servers import create_ratchet_user

TABLES = ("made", "again", "emptied", "altered", "narrowed", "parted", "told", "keyed", "renamed")
OLDER = (
    "CREATE TABLE made (id INT PRIMARY KEY, v INT)",
    "INSERT INTO made VALUES (1, 1), (2, 2)",
    # Rows of a table that is gone, in the shape of the one that took its name.
    "CREATE TABLE again (id INT PRIMARY KEY, v INT)",
    "INSERT INTO again VALUES (1, 1), (2, 2)",
    "DROP TABLE again",
    "CREATE TABLE again (id INT PRIMARY KEY, v INT)",
    "INSERT INTO again VALUES (2, 20), (3, 30)",
    "CREATE TABLE emptied (id INT PRIMARY KEY, v INT)",
    "INSERT INTO emptied VALUES (1, 1), (2, 2)",
    "TRUNCATE emptied",
    "INSERT INTO emptied VALUES (2, 20)",
    "CREATE TABLE altered (id INT PRIMARY KEY, v INT)",
    "INSERT INTO altered VALUES (1, 1)",
    "ALTER TABLE altered MODIFY v BIGINT",
    "INSERT INTO altered VALUES (2, 5000000000)",
    "CREATE TABLE narrowed (id INT PRIMARY KEY, v INT, gone TEXT)",
    "INSERT INTO narrowed VALUES (1, 1, 'x')",
    "ALTER TABLE narrowed DROP COLUMN gone",
    "INSERT INTO narrowed VALUES (2, 2)",
    (
        "CREATE TABLE parted (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) "
        "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    ),
    "INSERT INTO parted VALUES (1, 1), (11, 11)",
    "ALTER TABLE parted DROP PARTITION p0",
    "CREATE TABLE told (id INT PRIMARY KEY, v INT)",
    "INSERT INTO told VALUES (1, 1), (2, 2)",
    "SET binlog_format = 'STATEMENT'",
    "UPDATE told SET v = v + 10",
    "SET binlog_format = 'ROW'",
    "CREATE TABLE keyed (id INT PRIMARY KEY, v INT NOT NULL)",
    "INSERT INTO keyed VALUES (1, 7), (2, 8)",
    "ALTER TABLE keyed DROP PRIMARY KEY, ADD PRIMARY KEY (v)",
    "CREATE TABLE before_it (id INT PRIMARY KEY, v INT)",
    "INSERT INTO before_it VALUES (4, 4)",
    "CREATE TABLE renamed (id INT PRIMARY KEY, v INT)",
    "INSERT INTO renamed VALUES (1, 1)",
    "DROP TABLE renamed",
    "RENAME TABLE before_it TO renamed",
)
LATER = tuple(f"UPDATE {table} SET v = v + 100" for table in TABLES)


def streaming(ratchet: Ratchet) -> None:
    tables = {one["table"]: (one["phase"], one["stopped"]) for one in status(ratchet)["tables"]}
    assert {phase for phase, _ in tables.values()} == {"streaming"}, tables


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        "files",
        pytest.param("mysql", marks=pytest.mark.long),
        pytest.param("mariadb", marks=pytest.mark.long),
    ],
)
def test_statements_that_are_older_than_a_dump(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], kind: str
) -> None:
    """First dump, `table redump`, `dump --again`, with each kind of statement behind it."""
    server = make_server("mysql", gtid=False) if kind == "files" else make_server(kind)
    server.execute("CREATE DATABASE shop")
    create_ratchet_user(server, PASSWORD, ["shop"])
    ratchet = make_ratchet(
        {"-": server}, "shop", verify={"every": "off"}, source={"schema_changes": "stop"}
    )
    if kind != "files":  # the stream begins before the tables are there
        execute(server, "CREATE TABLE first (id INT PRIMARY KEY, v INT)")
        ratchet.run("run", "--until-caught-up")
    execute(server, *OLDER)
    ratchet.run("run", "--until-caught-up")
    streaming(ratchet)
    assert_identical(ratchet.lake, [server], "shop", TABLES)

    execute(server, *LATER, "ALTER TABLE narrowed ADD COLUMN c INT NOT NULL DEFAULT 5")
    ratchet.run("run", "--until-caught-up", expect=6)
    ratchet.run("table", "redump", "narrowed")
    ratchet.run("run", "--until-caught-up")
    streaming(ratchet)
    execute(server, "DROP TABLE again", "CREATE TABLE again (id INT PRIMARY KEY, v INT)")
    ratchet.run("run", "--until-caught-up", expect=6)
    ratchet.run("dump", "--again", "*")
    execute(server, "INSERT INTO again VALUES (9, 9)", *LATER)
    ratchet.run("run", "--until-caught-up")
    streaming(ratchet)
    assert_identical(ratchet.lake, [server], "shop", TABLES)
