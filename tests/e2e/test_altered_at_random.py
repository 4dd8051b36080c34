"""Random backlogs of ALTERs of all kinds, with few rows between them, against the server's SELECT.

Few rows, so that one statement hides what the one before it did. Tables may end up as they were and
be dumped again; what counts is that no row is wrong, and that `verify` says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pymysql
import pytest
from fix_e2e import PASSWORD, Ratchet, mirror_rows, source_rows

from lab.servers import create_ratchet_user

pytestmark = pytest.mark.long

TABLES: Final = [f"t{n}" for n in range(8)]
HISTORIES: Final = 4
NAMES: Final = ("a", "b", "c", "d", "Ab", "É", "select", "x`y")
TYPES: Final = (
    "INT", "TINYINT", "SMALLINT UNSIGNED", "MEDIUMINT", "BIGINT UNSIGNED", "INT ZEROFILL", "BOOL",
    "DECIMAL(10,2)", "DECIMAL(20,4)", "DECIMAL(38,10)", "DECIMAL(45,2)", "DOUBLE", "YEAR", "BIT(7)",
    "DATE", "DATETIME", "DATETIME(6)", "TIMESTAMP NULL", "TIME(3)", "CHAR(4)", "VARCHAR(3)",
    "VARCHAR(20)", "VARCHAR(20) CHARACTER SET latin1", "VARCHAR(9) CHARACTER SET utf16", "TEXT",
    "CHAR(5) CHARACTER SET swe7", "VARBINARY(10)", "BLOB", "ENUM('a','b','c')", "ENUM('b','a')",
    "ENUM('A','a','x')", "SET('a','b','c')", "SET('c','b','a')", "JSON",
)  # fmt: skip
DEFAULTS: Final = (
    "0", "1", "-1", "300", "1.5", "'0'", "'7'", "''", "'a'", "'A'", "'abcdef'", "'[z'", "'it''s'",
    "'2024-02-29'", "'2024-02-29 12:00:00'", "TRUE", "123456789", "(1 + 1)", "CURRENT_TIMESTAMP",
)  # fmt: skip
LITERALS: Final = (
    "NULL", "0", "1", "-1", "300", "70000", "18446744073709551615", "99999999.99", "0.0000001",
    "''", "'a'", "'b'", "'A'", "'abcdefghijk'", "'ß→é'", "'x[{'", "'2024-02-29 12:34:56.789'",
    "'2024-02-29'", "'[1, 2]'", "X'00FF'",
)  # fmt: skip
MODES: Final = (
    "", "", "", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "STRICT_ALL_TABLES",
    "PAD_CHAR_TO_FULL_LENGTH",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_on_mariadb(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], seed: int
) -> None:
    never_wrong(mariadb, database, make_ratchet, random.Random(seed))


@pytest.mark.parametrize("seed", range(4))
def test_on_mysql(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], seed: int
) -> None:
    never_wrong(mysql, database, make_ratchet, random.Random(seed))


class AlteredTable:
    """One table, what is done to it, and the session that does it."""

    def __init__(self, server: Any, database: str, name: str, dice: random.Random) -> None:
        self.name, self.done = name, list[str]()
        self._dice, self._mariadb, self._next = dice, server.flavor == "mariadb", 1
        self._cursor = server.connect(database=database, autocommit=True).cursor()
        self._try("SET sql_mode = ''")
        columns = ", ".join(f"{_quoted(n)} {dice.choice(TYPES)}" for n in dice.sample(NAMES, 3))
        self._try(f"CREATE TABLE {name} (id INT PRIMARY KEY, {columns})")
        for _ in range(dice.choice([1, 3, 9])):
            self.write()

    def write(self) -> None:
        """Insert a row, or change some."""
        names = self._columns()
        self._next += 1
        values = [str(self._next), *(self._dice.choice(LITERALS) for _ in names)]
        into = ", ".join(["id", *map(_quoted, names)])
        if self._dice.random() < 0.6 or not names:
            self._try(f"INSERT IGNORE INTO {self.name} ({into}) VALUES ({', '.join(values)})")
        else:
            name, value = _quoted(self._dice.choice(names)), self._dice.choice(LITERALS)
            self._try(f"UPDATE IGNORE {self.name} SET {name} = {value} WHERE id % 2 = 0")

    def alter(self) -> None:
        """One ALTER TABLE of one to three clauses; the server may refuse it."""
        if self._dice.random() < 0.3:
            self._try(f"SET sql_mode = '{self._dice.choice(MODES)}'")
        clauses = [self._clause(self._columns()) for _ in range(self._dice.choice([1, 1, 2, 3]))]
        self._try(f"ALTER TABLE {self.name} {', '.join(clauses)}")

    def _clause(self, names: list[str]) -> str:
        dice = self._dice
        new = _quoted(dice.choice(NAMES))
        if len(names) < 2 or dice.random() < 0.35:
            there = "IF NOT EXISTS " * (self._mariadb and dice.random() < 0.2)
            return f"ADD COLUMN {there}{new} {self._definition()}{dice.choice(['', ' FIRST'])}"
        one, two = (_quoted(name) for name in dice.sample(names, 2))
        return dice.choice(
            [
                f"DROP COLUMN {one}",
                f"RENAME COLUMN {one} TO {new}",
                f"RENAME COLUMN {one} TO {two}, RENAME COLUMN {two} TO {one}",
                f"CHANGE {one} {new} {self._definition()}",
                f"MODIFY {one} {self._definition()}",
                f"MODIFY {one} {self._definition()} AFTER {two}",
                f"MODIFY {one.swapcase()} {self._definition()}",
                f"MODIFY id {dice.choice(['BIGINT', 'DECIMAL(12,0)'])} NOT NULL",
                "CONVERT TO CHARACTER SET utf8mb4",
                "COMMENT 'of a table'",
            ]
        )

    def _definition(self) -> str:
        dice = self._dice
        null = dice.choice(["", "", " NOT NULL", " NOT NULL", " NULL", " NOT NULL NULL"])
        default = f" DEFAULT {dice.choice(DEFAULTS)}" * (dice.random() < 0.5)
        return f"{dice.choice(TYPES)}{null}{default}"

    def _columns(self) -> list[str]:
        self._cursor.execute(f"SHOW COLUMNS FROM {self.name}")
        return [row[0] for row in self._cursor.fetchall() if row[0] != "id"]

    def _try(self, statement: str) -> None:
        with suppress(pymysql.err.MySQLError):
            self._cursor.execute(statement)
            self.done.append(statement)


def never_wrong(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet], dice: random.Random
) -> None:
    tables = [AlteredTable(server, database, name, dice) for name in TABLES]
    create_ratchet_user(server, PASSWORD, [database])
    ratchet = make_ratchet({"-": server}, database)
    ratchet.run("run", "--until-caught-up")
    for _ in range(HISTORIES):
        for table in tables:
            table.done.append("-- a run")
            for _ in range(dice.choice([1, 2, 3, 4])):
                table.alter()
                for _ in range(dice.choice([0, 0, 0, 1, 3])):
                    table.write()
        ratchet.run("run", "--until-caught-up")
        for table in tables:
            assert_equal(ratchet, server, database, table)
        ratchet.run("verify")


def assert_equal(ratchet: Ratchet, server: Any, database: str, table: AlteredTable) -> None:
    """The same rows; a column that is NULL in all of them comes to the mirror with a value."""
    source = source_rows(server, database, table.name)
    mirror = mirror_rows(ratchet.lake, "shop", table.name)
    names = {name for row in mirror for name in row}
    late = {n for row in source for n in row if n not in names and row[n] is None}
    for row in source:
        for name in late:
            assert row.pop(name) is None, name
    wanted, found = (
        sorted(map(repr, map(sorted, map(dict.items, rows)))) for rows in (source, mirror)
    )
    assert found == wanted, "\n".join(table.done)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
