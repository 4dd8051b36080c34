"""What MODIFY makes of values that are there, beside what the servers make of them.

Each type becomes each other one. Where the change counts as one that keeps values, all those that
fit are what the server shows behind it, in strict mode or not; those that do not fit are refused.
"""

from __future__ import annotations

import itertools
import random
from typing import Any, Final

import pyarrow as pa
import pymysql
import pytest

from lab.servers import Server
from ratchet.core.reshaping import NotComputableError, Reshaping, retype
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.wire.decode.catalog import read_schemas

POLICY: Final = InvalidValuePolicy()
_WHOLE: Final = ("0", "1", "-1", "127", "-128")
TYPES: Final = {
    "TINYINT": _WHOLE,
    "TINYINT UNSIGNED": ("0", "255"),
    "SMALLINT": (*_WHOLE, "32767", "-32768"),
    "MEDIUMINT": ("0", "8388607", "-8388608"),
    "MEDIUMINT UNSIGNED": ("0", "16777215"),
    "INT": (*_WHOLE, "2147483647", "-2147483648"),
    "INT UNSIGNED ZEROFILL": ("0", "7", "4294967295"),
    "BIGINT": (*_WHOLE, "9223372036854775807", "-9223372036854775808"),
    "BIGINT UNSIGNED": ("0", "18446744073709551615"),
    "DECIMAL(5,2)": ("0", "-0.01", "999.99", "-999.99", "1.5"),
    "DECIMAL(5,2) UNSIGNED": ("0", "0.01", "999.99"),
    "DECIMAL(10,4)": ("0", "-0.0001", "999999.9999"),
    "DECIMAL(12,2)": ("0", "2147483647.01", "-9999999999.99"),
    "DECIMAL(7,0)": ("0", "9999999", "-9999999"),
    "DECIMAL(20,0)": ("0", "18446744073709551615", "-1"),
    "DECIMAL(38,30)": ("0", "0.0000001", "-99999999.999999999999999999999999999999"),
    "DECIMAL(45,30)": ("0", "0.0000001", "-123456789012345.5"),
    "FLOAT": ("0", "1.5", "0.1"),
    "DOUBLE": ("0", "1.5", "0.1"),
    "YEAR": ("1901", "2155"),
    "DATE": ("'1000-01-01'", "'9999-12-31'", "'2024-02-29'"),
    "DATETIME": ("'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'"),
    "DATETIME(6)": ("'1000-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'"),
    "TIME": ("'00:00:00'", "'-838:59:59'"),
    "VARCHAR(20)": ("'1'", "'2024-02-29'"),
    "VARCHAR(3) CHARACTER SET latin1": ("'1'", "'-9'"),
    "TINYTEXT CHARACTER SET utf8mb3": ("'1'", "''"),
}  # fmt: skip
KEPT: Final = {
    ("INT", "BIGINT"), ("TINYINT UNSIGNED", "SMALLINT"), ("INT", "DECIMAL(12,2)"),
    ("MEDIUMINT", "DECIMAL(7,0)"), ("TINYINT UNSIGNED", "DECIMAL(5,2)"),
    ("MEDIUMINT UNSIGNED", "DECIMAL(38,30)"),
    ("BIGINT UNSIGNED", "DECIMAL(20,0)"), ("DECIMAL(5,2)", "DECIMAL(10,4)"),
    ("DECIMAL(5,2) UNSIGNED", "DECIMAL(12,2)"), ("DATE", "DATETIME"), ("DATE", "DATETIME(6)"),
    ("BIGINT", "TINYINT"), ("BIGINT", "MEDIUMINT UNSIGNED"), ("BIGINT", "BIGINT UNSIGNED"),
    ("BIGINT UNSIGNED", "INT"), ("INT UNSIGNED ZEROFILL", "SMALLINT"), ("DECIMAL(20,0)", "INT"),
    ("DECIMAL(10,4)", "DECIMAL(5,2)"), ("DECIMAL(12,2)", "DECIMAL(5,2) UNSIGNED"),
    ("DECIMAL(38,30)", "TINYINT"), ("INT", "DECIMAL(5,2)"),
    ("INT", "VARCHAR(20)"), ("BIGINT", "VARCHAR(20)"),
    ("MEDIUMINT", "TINYTEXT CHARACTER SET utf8mb3"),
    ("SMALLINT", "VARCHAR(3) CHARACTER SET latin1"),
}  # fmt: skip


SOME: Final = 12  # pairs, besides those that are known to keep values


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_values_are_mariadbs(mariadb: Server, database: str, *, every: bool) -> None:
    compare(mariadb, database, every=every)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_values_are_mysqls(mysql: Server, database: str, *, every: bool) -> None:
    compare(mysql, database, every=every)


def compare(server: Server, database: str, *, every: bool) -> None:
    kept, refused, wrong = set(), 0, []
    pairs = list(itertools.permutations(TYPES, 2))
    chosen = pairs if every else random.Random(SOME).sample(pairs, SOME)
    for old, values in TYPES.items():
        for new in (two for one, two in {*chosen, *KEPT} if one == old):
            rows = ", ".join(f"({n}, {value})" for n, value in enumerate(values))
            server.execute(f"CREATE TABLE t (id INT PRIMARY KEY, x {old})", database=database)
            server.execute(f"INSERT INTO t VALUES {rows}, (99, NULL)", database=database)
            before, found = _shape(server, database), _rows(server, database)
            if _altered(server, database, new):
                change = retype(before, _shape(server, database), POLICY)
                if change is not None and not change.asked:
                    kept.add((old, new))
                    schema = arrow_schema(before, POLICY)
                    for row, shown in zip(found, _rows(server, database), strict=True):
                        computed = _computed(change, pa.Table.from_pylist([row], schema))
                        refused += computed is None
                        told = computed is None or str(computed["x"]) == str(shown["x"])
                        if not (told and (computed is None or computed == shown)):
                            wrong.append((old, new, computed, shown))
            server.execute("DROP TABLE t", database=database)
    assert not wrong
    assert kept >= KEPT, KEPT - kept
    assert refused > 20


def _computed(change: Reshaping, row: pa.Table) -> dict[str, Any] | None:
    try:
        return change.rows(row, []).to_pylist()[0]
    except NotComputableError:
        return None


def _altered(server: Server, database: str, new: str) -> bool:
    """Whether the server lets the column become that."""
    with server.connect(database=database, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("SET sql_mode = ''")
        try:
            cursor.execute(f"ALTER TABLE t MODIFY x {new}")
        except pymysql.err.MySQLError:
            return False
        return True


def _shape(server: Server, database: str) -> TableSchema:
    return read_schemas(server.execute, keyspace="k", database=database)["t"]


def _rows(server: Server, database: str) -> list[dict[str, Any]]:
    with server.connect(database=database) as connection:
        cursor = connection.cursor(pymysql.cursors.DictCursor)
        cursor.execute("SELECT id, x FROM t ORDER BY id")
        return list(cursor.fetchall())
