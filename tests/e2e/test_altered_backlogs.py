"""Several ALTERs of a table while no run is there, of which each hides what the one before it did.

The source's server knows only the columns of the end, and a row, if one follows, has only those.
What each statement did to the rows stands in the statements alone, or is read from the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, execute, status

from lab.servers import create_ratchet_user

COLUMNS: Final = "(id INT PRIMARY KEY, a INT, v VARCHAR(20), n INT)"
ROWS: Final = "(1, 1000, 'abcdefgh', NULL), (2, -5, 'x', 7)"
# `ALTER TABLE t` and this, but for the SETs; with sql_mode='' before each, so that all is possible.
CASES: Final[dict[str, tuple[str, ...]]] = {
    "first_label": ("ADD e ENUM('b','a') NOT NULL", "MODIFY e ENUM('a','b') NOT NULL"),
    "labels_swapped": (
        "ADD x ENUM('a','b') NOT NULL, ADD y ENUM('b','a') NOT NULL",
        "RENAME COLUMN x TO y, RENAME COLUMN y TO x",
    ),
    "labels_alike": ("ADD e ENUM('A','a') DEFAULT 'a'",),
    "cut": ("ADD w VARCHAR(9) NOT NULL DEFAULT 'abcdef'", "MODIFY w VARCHAR(3) NOT NULL"),
    "no_longer_null": ("ADD p INT, ADD q INT NOT NULL", "MODIFY p INT NOT NULL"),
    "pending": ("ADD x INT", "MODIFY x INT NOT NULL", "DROP a", "MODIFY x INT"),
    "clipped": ("MODIFY a TINYINT", "ADD y INT NOT NULL DEFAULT 0", "MODIFY a INT"),
    "clipped_and_wider": ("MODIFY a TINYINT", "ADD y INT NOT NULL", "MODIFY a BIGINT"),
    "clipped_together": ("MODIFY a TINYINT", "MODIFY a INT, ADD y INT NOT NULL DEFAULT 6"),
    "clipped_to_text": ("MODIFY a TINYINT", "MODIFY a VARCHAR(20)"),
    "through_text": ("MODIFY a VARCHAR(2)", "MODIFY a INT"),
    "through_text_and_more": ("MODIFY a VARCHAR(2)", "ADD y INT NOT NULL", "MODIFY a BIGINT"),
    "through_a_float": ("MODIFY a FLOAT", "ADD y INT DEFAULT 1", "MODIFY a SMALLINT"),
    "unsigned_and_back": ("MODIFY a INT UNSIGNED", "ADD y INT NOT NULL", "MODIFY a SMALLINT"),
    "null_to_text": ("MODIFY n VARCHAR(9) NOT NULL",),
    "null_to_narrower": ("MODIFY n TINYINT NOT NULL", "MODIFY n TINYINT", "MODIFY n BIGINT"),
    "rounded_and_back": (
        "ADD d DECIMAL(10,4) NOT NULL DEFAULT 1.2345",
        "MODIFY d DECIMAL(10,2)",
        "ADD y INT NOT NULL",
        "MODIFY d DECIMAL(12,4)",
    ),
    "narrower_and_renamed": ("CHANGE a b TINYINT", "CHANGE b a INT", "RENAME COLUMN a TO c"),
    "to_text_and_renamed": ("CHANGE a n VARCHAR(30), CHANGE n a VARCHAR(30)", "MODIFY a INT"),
    "cut_and_longer": ("MODIFY v VARCHAR(3)", "RENAME COLUMN n TO m", "MODIFY v VARCHAR(20)"),
    "cut_and_renamed": ("MODIFY v VARCHAR(3)", "CHANGE v w VARCHAR(20)"),
    "null_and_back": ("MODIFY n INT NOT NULL", "DROP a", "MODIFY n INT"),
    "two_words": ("ADD x INT NOT NULL NULL", "ADD y INT NULL NOT NULL"),
    "other_letters": ("MODIFY A INT, ADD y INT NOT NULL DEFAULT 1",),
    "other_letters_renamed": ("CHANGE A B INT, ADD y INT NOT NULL DEFAULT 1",),
    "connection": (
        "SET character_set_connection = swe7",
        "ADD x VARCHAR(5) CHARACTER SET utf8mb4 NOT NULL DEFAULT '['",
    ),
    "long_digits": ("ADD d DECIMAL(38,30) NOT NULL DEFAULT 0.0000001", "MODIFY d DECIMAL(40,30)"),
    "asked": ("ADD g INT AS (a * 2) STORED", "ADD y INT"),
    "asked_twice": ("ADD g INT AS (a * 2) STORED", "ADD h INT AS (a * 3) STORED"),
    "asked_clipped": ("MODIFY a TINYINT", "ADD g INT AS (a * 2) STORED"),
    "asked_gone": ("ADD g INT AS (a * 2) STORED", "DROP g", "ADD g INT AS (a * 3) STORED"),
    "another_key": ("DROP PRIMARY KEY, ADD PRIMARY KEY (a, id)", "ADD y INT DEFAULT 1"),
    "key_and_back": (
        "DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)",
        "UPDATE key_and_back SET a = a + 1",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
    ),
    "null_in_the_key": (
        "UPDATE null_in_the_key SET n = 3 WHERE id = 2",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)",
    ),
    "longer_then_shorter": (
        "MODIFY v VARCHAR(80)",
        f"UPDATE longer_then_shorter SET v = '{'x' * 60}' WHERE id = 1",
        "ADD y INT NOT NULL DEFAULT 2",
        "MODIFY v VARCHAR(30)",
    ),
}
ON_MARIADB: Final[dict[str, tuple[str, ...]]] = {
    "empty_is_null": ("SET sql_mode = 'EMPTY_STRING_IS_NULL'", "ADD w VARCHAR(5) DEFAULT ''"),
    "if_there_is_none": ("DROP a, ADD COLUMN IF NOT EXISTS a INT DEFAULT 7", "ADD a INT"),
    "if_none_renamed": ("RENAME COLUMN a TO b, ADD COLUMN IF NOT EXISTS a INT DEFAULT 7",),
    "two_phases": (
        "SET binlog_alter_two_phase = 1",
        "RENAME COLUMN a TO n, RENAME COLUMN n TO a",
        "ADD z INT NOT NULL DEFAULT 4",
    ),
}


@pytest.mark.quick_on("written")
@pytest.mark.parametrize("written", [False, True], ids=["quiet", "written"])
def test_on_mariadb(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], *, written: bool
) -> None:
    equal_in_the_end(mariadb, database, make_ratchet, {**CASES, **ON_MARIADB}, written=written)


@pytest.mark.quick_on("quiet")
@pytest.mark.parametrize("written", [False, True], ids=["quiet", "written"])
def test_on_mysql(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], *, written: bool
) -> None:
    equal_in_the_end(mysql, database, make_ratchet, CASES, written=written)


def equal_in_the_end(
    server: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    cases: dict[str, tuple[str, ...]],
    *,
    written: bool,
) -> None:
    """Whether a row is written behind the last statement or not; `verify` agrees."""
    for name in cases:
        execute(server, f"CREATE TABLE {name} {COLUMNS}", database=database)
        execute(server, f"INSERT INTO {name} VALUES {ROWS}", database=database)
    create_ratchet_user(server, PASSWORD, [database])
    ratchet = make_ratchet({"-": server}, database)
    ratchet.run("run", "--until-caught-up")
    for name, changes in cases.items():
        whole = (
            one if one.startswith(("SET ", "UPDATE ")) else f"ALTER TABLE {name} {one}"
            for one in changes
        )
        row = f"INSERT INTO {name} (id) VALUES (100)"
        statements = ("SET sql_mode = ''", *whole, *[row] * written)
        execute(server, *statements, database=database)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], database, list(cases))
    assert {one["phase"] for one in status(ratchet)["tables"]} == {"streaming"}
    ratchet.run("verify")


@pytest.mark.quick_on("quiet")
@pytest.mark.parametrize("row", [False, True], ids=["quiet", "written"])
def test_a_column_that_the_lake_refuses_stops_its_table_alone(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], *, row: bool
) -> None:
    """Whoever may alter one table could end the run of all by it, and each next one."""
    for name in ("odd", "good"):
        execute(mariadb, f"CREATE TABLE {name} {COLUMNS}", database=database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database)
    ratchet.run("run", "--until-caught-up")
    execute(
        mariadb,
        "ALTER TABLE odd ADD _metadata INT NOT NULL DEFAULT 3",
        f"INSERT INTO good VALUES {ROWS}",
        *["INSERT INTO odd (id) VALUES (1)"] * row,
        database=database,
    )
    for _ in range(2):
        ratchet.run("run", "--until-caught-up", expect=6)
        assert_identical(ratchet.lake, [mariadb], database, ["good"])
    (told,) = (one for one in status(ratchet)["tables"] if one["table"] == "odd")
    assert "_metadata" in told["stopped"] + told["hint"]
    execute(mariadb, "ALTER TABLE odd RENAME COLUMN _metadata TO metadata_", database=database)
    ratchet.run("table", "redump", "odd")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, ["odd", "good"])
