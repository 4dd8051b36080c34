"""Statements that are logged as their text and change a table that they do not name.

Each is done by a real server; what was captured of it must put the table in doubt that a function
emptied, whatever way led to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capture_kit import Capturer, source_of

from lab.servers import Server

EMPTIES = (
    "CREATE FUNCTION {} (i INT) RETURNS INT DETERMINISTIC BEGIN DELETE FROM far; RETURN i; END"
)
SCHEMA = (
    "CREATE TABLE far (id INT PRIMARY KEY)",
    "CREATE TABLE near (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE b (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE later (id INT PRIMARY KEY, v INT)",
    *(EMPTIES.format(name) for name in ("f", "`max`", "`trim`")),
    "CREATE VIEW w AS SELECT f(5) AS id, 1 AS v",
)
VIEW = ("DROP TABLE later", "CREATE VIEW later AS SELECT f(6) AS id, 1 AS v")
BOTH = (
    ("INSERT INTO near VALUES (1, f(1))",),
    ("INSERT INTO near VALUES (1, max (1))",),
    ("INSERT INTO near SET id = 1, v = trim/**/(1)",),
    ("INSERT INTO near (SELECT 1, f(1))",),
    ("INSERT INTO near ((SELECT 1, f(1)))",),
    ("INSERT INTO near (SELECT * FROM w)",),
    ("INSERT INTO near SELECT b.id, 1 FROM b USE INDEX (PRIMARY), w",),
    ("INSERT INTO near SELECT y.id, 1 FROM b AS y FORCE INDEX FOR JOIN (PRIMARY), w",),
    ("INSERT INTO near SELECT x.id, 1 FROM b x JOIN b y ON x.id = y.id, w",),
    ("UPDATE near SET v = 1 WHERE id IN (SELECT b.id FROM b USE INDEX (PRIMARY), w)",),
    ("DELETE FROM b WHERE (SELECT id FROM w) = 5",),
    (*VIEW, "INSERT INTO near SELECT id, v FROM later"),
)
PLAIN = "SET STATEMENT sql_mode = 'NO_BACKSLASH_ESCAPES' FOR "
MARIADB = (
    (*VIEW, "CREATE TEMPORARY TABLE z AS SELECT * FROM later"),
    ("CREATE TEMPORARY TABLE z AS SELECT y.id FROM b AS y USE INDEX (PRIMARY), w",),
    ("CREATE TEMPORARY TABLE z AS SELECT trim (3) AS t",),
    ("INSERT INTO near (VALUES (1, f(1)))",),
    ("REPLACE near (WITH c AS (SELECT f(1) y) SELECT 3, y FROM c)",),
    ("CREATE TEMPORARY TABLE z AS VALUES (f(1))",),
    (PLAIN + r"INSERT INTO near VALUES (length('\''), f(1) + '+' ) -- '",),
    ("SET STATEMENT max_statement_time = 60 FOR INSERT INTO near VALUES (1, f(1))",),
)
MYSQL = (
    ("INSERT INTO near TABLE w",),
    ("INSERT INTO near VALUES ROW(1, f(1))",),
)


@pytest.fixture
def captured(server: Server, database: str, tmp_path: Path) -> Iterator[Any]:
    """What puts tables in doubt by some statements, each time from the same beginning."""
    capturer = Capturer(
        source_of(server, database, triggers=True), tmp_path, known=("far", "near", "b", "later")
    )
    settings = dict(server.execute("SHOW GLOBAL VARIABLES LIKE 'log_bin_trust%'"))
    server.execute("SET GLOBAL log_bin_trust_function_creators = 1")

    def work(*statements: str) -> set[str]:
        server.execute(f"DROP DATABASE {database}")
        server.execute(f"CREATE DATABASE {database}")
        for statement in (*SCHEMA, "INSERT INTO far VALUES (1)", "INSERT INTO b VALUES (1, 1)"):
            server.execute(statement, database=database)
        for statement in statements[:-1]:
            server.execute(statement, database=database)
        capturer.catch_up()
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
            cursor.execute(statements[-1])
        assert not server.execute("SELECT 1 FROM far", database=database)
        return {event.table for one in capturer.catch_up() for event in one.events}

    yield work
    (was,) = settings.values()
    server.execute(f"SET GLOBAL log_bin_trust_function_creators = {was}")


@pytest.mark.quick_on("mariadb", "mysql")
def test_what_was_reached_is_in_doubt(captured: Any, server: Server) -> None:
    own = MARIADB if server.flavor == "mariadb" else MYSQL
    missed = [statements for statements in (*BOTH, *own) if "far" not in captured(*statements)]
    assert not missed
