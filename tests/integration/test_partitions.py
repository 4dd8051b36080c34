"""Rows in a wrong partition, as a server may be made to hold them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pymysql
import pytest
from capture_kit import source_of

from lab.servers import Server
from ratchet.core.errors import TableStoppedError
from ratchet.snapshot.partitions import misplaced
from ratchet.snapshot.source import SourceCatalog, SourceTable
from ratchet.wire.session import Session, SourceConfig

# What a table is made of, how it is partitioned, and two keys of each of its partitions.
KINDS = {
    "number": ("id INT", "RANGE (id)", ("5", "MAXVALUE"), ("-9", "7")),
    "unsigned": (
        "id BIGINT UNSIGNED", "RANGE (id)", ("10", "18446744073709551610"),
        ("9", "18446744073709551609"),
    ),
    "day": ("id DATE", "RANGE (TO_DAYS(id))", ("TO_DAYS('2024-01-01')", "MAXVALUE"),
            ("'2023-12-31'", "'2024-01-01'")),
    "year": ("id DATETIME(3)", "RANGE (YEAR(id))", ("2024", "2030"),
             ("'2023-12-31 23:59:59.999'", "'2024-01-01'")),
    "stamp": ("id TIMESTAMP", "RANGE (UNIX_TIMESTAMP(id))",
              ("UNIX_TIMESTAMP('2024-01-01')", "MAXVALUE"), ("'2023-12-31'", "'2024-01-01'")),
    "columns": ("id DATETIME", "RANGE COLUMNS (id)", ("'2024-01-01'", "MAXVALUE"),
                ("'2023-12-31'", "'2024-01-01'")),
    "text": ("id VARCHAR(20) CHARACTER SET latin1", "RANGE COLUMNS (id)", ("'it''s'", "MAXVALUE"),
             ("'a'", "'Z'")),
}  # fmt: skip


@pytest.fixture
def source(server: Server, database: str) -> SourceConfig:
    return source_of(server, database)


def make(server: Server, database: str, kind: str) -> str:
    column, by, bounds, _ = KINDS[kind]
    table = f"{kind} {{0}} `t"
    parts = ", ".join(
        f"PARTITION `p {n}` VALUES LESS THAN "
        + (bound if bound == "MAXVALUE" and "COLUMNS" not in by else f"({bound})")
        for n, bound in enumerate(bounds)
    )
    name = "`" + table.replace("`", "``") + "`"
    server.execute(
        f"CREATE TABLE {name} ({column} NOT NULL, v INT, PRIMARY KEY (id, v))"
        f" PARTITION BY {by} ({parts})",
        database=database,
    )
    return name


def look(source: SourceConfig, kind: str) -> SourceTable:
    shard = str(source.shard)
    return SourceCatalog({shard: source}).table(shard, f"{kind} {{0}} `t")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_in_their_partitions(
    server: Server, database: str, source: SourceConfig, kind: str
) -> None:
    name = make(server, database, kind)
    assert look(source, kind).schema.table
    for key in KINDS[kind][3]:
        server.execute(f"INSERT INTO {name} VALUES ({key}, 1), ({key}, 2)", database=database)
    assert look(source, kind).schema.table


def test_a_bound_with_a_part_of_a_second(server: Server, database: str) -> None:
    """A column without such parts rounds it, or cuts it off, and the server shows it as typed."""
    parts = [f"PARTITION p{n} VALUES LESS THAN ('2024-01-01 00:00:0{n}.{n}')" for n in range(4, 8)]
    server.execute(
        "CREATE TABLE t (id DATETIME NOT NULL PRIMARY KEY) PARTITION BY RANGE COLUMNS (id) "
        f"({', '.join(parts)})",
        database=database,
    )
    for second in range(8):
        with suppress(pymysql.MySQLError):  # above the last bound
            moment = f"2024-01-01 00:00:0{second}"
            server.execute(f"INSERT INTO t VALUES ('{moment}')", database=database)
    source = source_of(server, database)
    shard = str(source.shard)
    assert SourceCatalog({shard: source}).table(shard, "t").schema.table == "t"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("into", [0, 1])
def test_rows_in_a_wrong_partition(mysql: Server, database: str, kind: str, into: int) -> None:
    source = source_of(mysql, database)
    name = make(mysql, database, kind)
    mysql.execute(f"CREATE TABLE other ({KINDS[kind][0]} NOT NULL, v INT, PRIMARY KEY (id, v))",
                  database=database)  # fmt: skip
    keys = KINDS[kind][3]
    mysql.execute(f"INSERT INTO other VALUES ({keys[into]}, 1), ({keys[1 - into]}, 1)",
                  database=database)  # fmt: skip
    mysql.execute(
        f"ALTER TABLE {name} EXCHANGE PARTITION `p {into}` WITH TABLE other WITHOUT VALIDATION",
        database=database,
    )
    with pytest.raises(TableStoppedError, match=f"partition p {into} holds rows of other"):
        look(source, kind)


def test_what_is_not_looked_at(mysql: Server, database: str) -> None:
    """Partitions by HASH, and by a column that is not the key's first: every read looks at all."""
    source = source_of(mysql, database)
    shard = str(source.shard)
    for table, by in {
        "h": "HASH (id) PARTITIONS 3",
        "second": "RANGE (v) (PARTITION p0 VALUES LESS THAN (5), "
        "PARTITION p1 VALUES LESS THAN (9))",
        "negative": "RANGE (id) (PARTITION p0 VALUES LESS THAN (-5), "
        "PARTITION p1 VALUES LESS THAN (9))",
        "two": "RANGE COLUMNS (id, v) (PARTITION p0 VALUES LESS THAN (5, 5), "
        "PARTITION p1 VALUES LESS THAN (MAXVALUE, MAXVALUE))",
        "sub": "RANGE (id) SUBPARTITION BY HASH (v) SUBPARTITIONS 2 "
        "(PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN MAXVALUE)",
    }.items():
        mysql.execute(
            f"CREATE TABLE {table} (id INT, v INT, PRIMARY KEY (id, v)) PARTITION BY {by}",
            database=database,
        )
        mysql.execute(f"INSERT INTO {table} VALUES (1, 1), (7, 7)", database=database)
        assert SourceCatalog({shard: source}).table(shard, table).schema.table == table


def test_a_partition_that_is_dropped_between_two_questions(server: Server, database: str) -> None:
    name = make(server, database, "number")
    source = source_of(server, database)
    plan = look(source, "number").plan
    dropped: list[str] = []
    with Session.connect(source) as session:

        def query(sql: str) -> list[tuple[Any, ...]]:
            found = session.query(sql)
            if "PARTITION_NAME" in sql and not dropped:
                dropped.append("p 0")
                server.execute(f"ALTER TABLE {name} DROP PARTITION `p 0`", database=database)
            return found

        assert misplaced(query, plan) is None
    assert dropped
