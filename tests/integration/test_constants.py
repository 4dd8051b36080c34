"""The value of a new column in the rows that were there, beside what the servers say.

Definitions are generated. Where a value counts as known it is exactly the server's, whatever the
sql_mode and the character set are; where it does not, that is only more work.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

import pymysql
import pytest

from lab.servers import Server
from ratchet.core.rounds import StatementTime
from ratchet.core.sql.logged import table_changes
from ratchet.core.types import InvalidValuePolicy
from ratchet.core.types.constants import constant_value
from ratchet.ingest.binlog.events import parse_query
from ratchet.wire.decode.catalog import read_schemas

POLICY: Final = InvalidValuePolicy()
TRIES: Final = 100
MANY: Final = 1_500
MODES: Final = (
    None, "", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "REAL_AS_FLOAT",
    "STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE", "PAD_CHAR_TO_FULL_LENGTH",
)  # fmt: skip
TYPES: Final = (
    "TINYINT", "TINYINT UNSIGNED", "SMALLINT", "MEDIUMINT UNSIGNED", "INT", "INT(5)", "INTEGER",
    "INT UNSIGNED ZEROFILL", "BIGINT", "BIGINT UNSIGNED", "BOOL", "BOOLEAN",
    "DECIMAL", "DECIMAL(5)", "DECIMAL(10,2)", "NUMERIC(10,2)", "DEC(9,3) UNSIGNED", "FIXED(4,4)",
    "DECIMAL(65,30)", "FLOAT", "FLOAT(7,2)", "FLOAT(53)", "DOUBLE", "DOUBLE PRECISION", "REAL",
    "DOUBLE(9,2)", "DOUBLE UNSIGNED", "BIT(3)", "YEAR", "DATE", "DATETIME", "DATETIME(3)", "TIME",
    "TIMESTAMP", "CHAR", "CHAR(3)", "CHARACTER(20)", "VARCHAR(3)", "VARCHAR(20)",
    "VARCHAR(20) CHARACTER SET latin1", "VARCHAR(20) COLLATE utf8mb4_bin", "NVARCHAR(9)",
    "TEXT", "TINYTEXT", "TEXT(9)", "BINARY(4)", "VARBINARY(9)", "BLOB", "JSON",
    "ENUM('a','b''c','D')", "ENUM('1','2','0')", "SET('a','b')",
)  # fmt: skip
VALUES: Final = (
    "0", "1", "-1", "+1", "7", "-0", "007", "1.5", "-1.50", "1.555", "1e3", "300", "-129",
    "4294967295", "18446744073709551615", "99999999999999999999", "0.1", "123456789.123456",
    "TRUE", "false", "'0'", "'1'", "'7'", "'-1'", "' 1'", "'1 '", "'1.5'", "'1.50'", "'abc'",
    "'abcd'", "'a'", "'A'", "'D'", "'d'", "'b''c'", "''", "'x y'", "'trailing '",
    "'back\\\\slash'", "'ü'", '"abc"', "_latin1'abc'", "N'abc'", "X'616263'", "0x41", "b'101'",
    "'2024-02-29'", "'2023-02-29'", "'2024-2-9'", "'20240229'", "'2024-02-29 12:00:00'",
    "'2024-02-29 12:00:00.5'", "'2024-02-29T12:00:00'", "'0000-00-00'", "'0000-00-00 00:00:00'",
    "'0999-01-01'", "'24-02-29'", "DATE '2024-02-29'", "20240229",
    "TIMESTAMP '2024-02-29 12:00:00'", "'12:00:00'", "2024", "'2024'", "'a,b'", "('a')", "(1 + 1)",
    "CURRENT_TIMESTAMP", "'[1]'", "'ab' 'c'",
)  # fmt: skip


@pytest.mark.parametrize("tries", [TRIES, pytest.param(MANY, marks=pytest.mark.long)])
def test_a_known_value_is_mariadbs(mariadb: Server, database: str, tries: int) -> None:
    compare(mariadb, database, seed=tries, tries=tries)


@pytest.mark.parametrize("tries", [TRIES, pytest.param(MANY, marks=pytest.mark.long)])
def test_a_known_value_is_mysqls(mysql: Server, database: str, tries: int) -> None:
    compare(mysql, database, seed=tries, tries=tries)


def compare(server: Server, database: str, *, seed: int, tries: int) -> None:
    dice, told = random.Random(seed), Counter[str]()
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    server.execute("INSERT INTO t VALUES (1)", database=database)
    for _ in range(tries):
        mode, definition = dice.choice(MODES), _definition(dice)
        statement = f"ALTER TABLE t ADD COLUMN x {definition}"
        shown = _altered(server, database, mode, statement)
        if shown is None:
            told["refused by the server"] += 1
            continue
        if dice.random() < 0.2:
            _altered(server, database, "", f"ALTER TABLE t MODIFY x {dice.choice(TYPES)}")
        schema = read_schemas(server.execute, keyspace="k", database=database)["t"]
        changes = table_changes(statement, "t")
        found = None
        if changes is not None:
            found = constant_value(changes.added[0], schema.column("x"), POLICY)
        told["not known" if found is None else "known"] += 1
        if found is not None:
            # In another mode a CHAR shows blanks that the lake never has.
            assert found.as_py() == shown[0], (mode, definition, found, shown)
            assert isinstance(found.as_py(), str) == isinstance(shown[0], str), definition
        server.execute("ALTER TABLE t DROP COLUMN x", database=database)
    assert told["known"] > tries / 10, told


def _definition(dice: random.Random) -> str:
    kind = dice.choice(TYPES)
    null = dice.choice(["", "NOT NULL", "NULL"])
    default = dice.choice(["", f"DEFAULT {dice.choice(VALUES)}", f"DEFAULT {dice.choice(VALUES)}"])
    parts = [null, default, dice.choice(["", "", "COMMENT 'of a column'"])]
    dice.shuffle(parts)
    return " ".join(filter(None, [kind, *parts]))


def _altered(server: Server, database: str, mode: str | None, statement: str) -> Any:
    """What x is behind a statement; None: the server refused it."""
    with server.connect(database=database, autocommit=True) as connection:
        cursor = connection.cursor()
        if mode is not None:
            cursor.execute(f"SET sql_mode = '{mode}'")
        try:
            cursor.execute(statement)
        except pymysql.err.MySQLError:  # the server does not take it
            return None
        cursor.execute("SET sql_mode = ''")
        cursor.execute("SELECT DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s"
                       " AND TABLE_NAME = 't' AND COLUMN_NAME = 'x'", [database])  # fmt: skip
        exact = cursor.fetchall()[0][0] in {"float", "double"}
        cursor.execute(f"SELECT x{' * 1e0' * exact} FROM t")
        return cursor.fetchall()[0]


@pytest.mark.parametrize("mode", ["ANSI_QUOTES", "NO_BACKSLASH_ESCAPES"])
def test_quotes_of_another_mode_are_not_guessed(mode: str) -> None:
    text = {
        "ANSI_QUOTES": 'ALTER TABLE t ADD "x" INT DEFAULT 1',
        "NO_BACKSLASH_ESCAPES": r"ALTER TABLE t ADD x TEXT DEFAULT 'a\', ADD y INT DEFAULT ''",
    }[mode]
    assert table_changes(text, "t") is None


TIMES: Final = (
    "CURRENT_TIMESTAMP",
    "NOW()",
    "LOCALTIME",
    "current_timestamp()",
    "LOCALTIMESTAMP()",
)
ZONES: Final = ("'+00:00'", "'+05:30'", "'-11:45'", "SYSTEM")


def test_the_time_of_a_statement_is_mariadbs(mariadb: Server, database: str) -> None:
    compare_times(mariadb, database, seed=3)


def test_the_time_of_a_statement_is_mysqls(mysql: Server, database: str) -> None:
    compare_times(mysql, database, seed=3)


def compare_times(server: Server, database: str, *, seed: int) -> None:
    """CURRENT_TIMESTAMP in rows that were there, beside what the log says of the statement."""
    dice, told = random.Random(seed), Counter[str]()
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    server.execute("INSERT INTO t VALUES (1), (2), (3)", database=database)
    for _ in range(TRIES):
        zone, digits = dice.choice(ZONES), dice.choice([0, 0, 0, 1, 3, 6])
        kind = dice.choice(["TIMESTAMP", "DATETIME"]) + f"({digits})" * bool(digits)
        now = dice.choice(TIMES)
        if digits:
            now = now.removesuffix("()") + f"({digits})"
        null, more = dice.choice(["", "NOT NULL", "NULL"]), dice.choice(["", f"ON UPDATE {now}"])
        how = dice.choice(["", ", ALGORITHM=COPY", ", ALGORITHM=INPLACE", ", ALGORITHM=INSTANT"])
        what = f"{kind} {null} DEFAULT {now} {more}".strip()
        statement = f"ALTER TABLE t ADD COLUMN x {what}{how}"
        with server.connect(database=database, autocommit=True) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SET time_zone = {zone}")
            if dice.random() < 0.3:
                cursor.execute(
                    f"SET timestamp = {dice.randrange(1, 2**31)}.{dice.randrange(10**6)}"
                )
            try:
                cursor.execute(statement)
            except pymysql.err.MySQLError:
                told["refused by the server"] += 1
                continue
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute("SELECT DISTINCT x FROM t")
            ((shown,),) = cursor.fetchall()
        time = logged_time(server, statement)
        schema = read_schemas(server.execute, keyspace="k", database=database)["t"]
        changes = table_changes(statement, "t")
        assert changes is not None
        found = constant_value(changes.added[0], schema.column("x"), POLICY, time=time)
        told[f"{kind[:4]} {'not known' if found is None else 'known'}"] += 1
        if found is not None:
            assert found.as_py().replace(tzinfo=None) == shown, (zone, statement, time)
        assert constant_value(changes.added[0], schema.column("x"), POLICY) is None
        server.execute("ALTER TABLE t DROP COLUMN x", database=database)
    assert told["TIME known"] > TRIES / 10, told
    assert told["DATE known"] > TRIES / 20, told


def logged_time(server: Server, statement: str) -> StatementTime:
    """What the statement's event in the log says, by the decoder that captures."""
    (name, *_), *_ = server.execute("SHOW BINARY LOGS")[-1:]
    path = next(server.datadir.rglob(str(name)))
    data = path.read_bytes()
    at = data.rindex(statement.encode())
    for start in range(at - 1, 0, -1):
        size = int.from_bytes(data[start + 9 : start + 13], "little")
        ends = int.from_bytes(data[start + 13 : start + 17], "little")
        if data[start + 4] == 2 and start + size == ends and at < ends:
            body = data[start + 19 : ends - 4]
            seconds = int.from_bytes(data[start : start + 4], "little")
            found = parse_query(body, seconds=seconds)
            assert found.statement == statement
            assert found.time is not None
            return found.time
    raise AssertionError(statement)
