"""What every-type tables cannot have: old formats, hidden keys, tables without a primary key."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lab.servers import Server
from ratchet.core.change import INSERT
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.wire.decode.catalog import hints, read_schemas
from ratchet.wire.decode.rows import RowImageDecoder
from ratchet.wire.decode.tablemap import TableMap, parse_table_map
from ratchet.wire.decode.unfit import unfit_tables
from tests.binlog_file import rotate, rows_events

POLICY = InvalidValuePolicy()


def schema_of(server: Server, database: str, table: str) -> TableSchema:
    return read_schemas(server.execute, keyspace="k", database=database)[table]


def logged(binlog: Path, database: str, schema: TableSchema) -> Iterator[tuple[TableMap, Any]]:
    """Each insert event of a table: its map, and its rows as values."""
    for event in rows_events(binlog, database, schema.table):
        table_map = parse_table_map(event.table_map, keyspace="k", hints=hints(schema))
        body = np.frombuffer(event.body, np.uint8)
        span = np.zeros(1, np.int64), np.array([body.size], np.int64)
        images = RowImageDecoder(table_map, POLICY).decode(body, *span, INSERT).after
        assert isinstance(images, pa.StructArray)
        yield table_map, images.to_pylist()


def test_temporal_columns_of_old_mariadb(mariadb: Server, database: str) -> None:
    """Made with mysql56_temporal_format=OFF, as before 10.1: every fraction, also negative."""
    kinds = ("TIME", "DATETIME", "TIMESTAMP")
    names = [f"{kind}_{n}" for kind in kinds for n in range(7)]
    columns = ", ".join(f"{kind}_{n} {kind}({n}) NULL /* */" for kind in kinds for n in range(7))
    binlog = rotate(mariadb)
    mariadb.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        mariadb.execute(f"CREATE TABLE old ({columns})", database=database)
    finally:
        mariadb.execute("SET GLOBAL mysql56_temporal_format = ON")
    times = ("-838:59:59.999999", "-00:00:00.000001", "838:59:58.5", "00:00:00", "-12:34:56.789")
    moments = ("2024-02-29 23:59:59.999999", "1970-01-02 00:00:01.1", "2038-01-19 03:14:07",
               "2001-09-09 01:46:40.000001", "1999-12-31 23:59:59.5")  # fmt: skip
    with mariadb.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
        for time, moment in zip(times, moments, strict=True):
            row = ", ".join([f"'{time}'"] * 7 + [f"'{moment}'"] * 14)
            cursor.execute(f"INSERT INTO old VALUES ({row})")
        micros = [f"TIME_TO_SEC({name}) * 1000000" for name in names[:7]]
        cursor.execute(f"SELECT {', '.join([*micros, *names[7:]])} FROM old")
        own = cursor.fetchall()
    schema = schema_of(mariadb, database, "old")
    assert all(column.type.legacy for column in schema.columns)
    found = []
    for table_map, rows in logged(binlog, database, schema):
        assert table_map.schema == schema
        found += rows
    for row, expected in zip(found, own, strict=True):
        for name, value in zip(names, expected, strict=True):
            if isinstance(value, datetime):
                zone = UTC if name.startswith("TIMESTAMP") else None
                assert row[name] == value.replace(tzinfo=zone), name
            else:
                assert row[name] == int(value), name


def test_uuids_of_old_mariadb(mariadb: Server, database: str) -> None:
    """Tables of before 10.11.5 store UUIDs in another order of bytes; the log does not show it.

    Such a table is made by putting the older version into the file of its definition.
    """
    uuids = [
        "ffffffff-0000-1000-8000-000000000001",
        "00000000-0000-1000-8000-000000000002",
        "01890a5d-ac96-774b-bcce-b302099a8000",
        "123e4567-e89b-42d3-a456-426655440000",
    ]
    binlog = rotate(mariadb)
    mariadb.execute("CREATE TABLE old (id INT, u UUID)", database=database)
    mariadb.execute("FLUSH TABLES old", database=database)
    definition = mariadb.datadir / database / "old.frm"
    data = bytearray(definition.read_bytes())
    struct.pack_into("<I", data, 51, 101104)  # the version that made the table
    definition.write_bytes(data)
    mariadb.execute("FLUSH TABLES")
    for number, value in enumerate(uuids):
        mariadb.execute("INSERT INTO old VALUES (%s, %s)", (number, value), database=database)
    shown = mariadb.execute("SELECT u FROM old ORDER BY u", database=database)
    by_groups = sorted(uuids, key=lambda value: value.split("-")[::-1])
    assert [row[0] for row in shown] == by_groups, "the server does not treat it as an old table"
    schema = schema_of(mariadb, database, "old")
    found = [row["u"] for _, rows in logged(binlog, database, schema) for row in rows]
    assert found == uuids


def test_a_generated_invisible_primary_key_is_the_key(mysql: Server, database: str) -> None:
    binlog = rotate(mysql)
    with mysql.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_generate_invisible_primary_key = ON")
        cursor.execute("CREATE TABLE t (a INT)")
        cursor.execute("INSERT INTO t (a) VALUES (7)")
    schema = schema_of(mysql, database, "t")
    assert schema.key == ("my_row_id",)
    for table_map, rows in logged(binlog, database, schema):
        assert table_map.schema == schema
        assert rows == [{"my_row_id": 1, "a": 7}]


@pytest.mark.parametrize(
    ("definition", "key"),
    [
        ("a INT, b INT NOT NULL, UNIQUE z (b), PRIMARY KEY (b, a)", ("b", "a")),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE z (b, a), UNIQUE y (a)", ("b", "a")),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE z (a), UNIQUE y (b, a)", ("a",)),
        ("a INT, b INT NOT NULL, UNIQUE x (a), UNIQUE y (b)", ("b",)),
        ("a INT, b INT, UNIQUE x (a, b)", ()),
        ("a INT NOT NULL, b INT, KEY x (a)", ()),
        ("a VARCHAR(50) NOT NULL, b INT NOT NULL, UNIQUE x (a(3))", ()),
        ("a VARCHAR(50) NOT NULL, b INT NOT NULL, UNIQUE x (a(3)), UNIQUE y (b)", ("b",)),
        ("a VARCHAR(5) NOT NULL, b INT NOT NULL, UNIQUE x (a(5)), UNIQUE y (b)", ("a",)),
    ],
)
def test_keys(server: Server, database: str, definition: str, key: tuple[str, ...]) -> None:
    """The key that information_schema tells is the one that the server logs."""
    binlog = rotate(server)
    server.execute(f"CREATE TABLE t ({definition})", database=database)
    server.execute("INSERT INTO t VALUES (1, 1)", database=database)
    schema = schema_of(server, database, "t")
    assert schema.key == key
    assert [table_map.schema for table_map, _ in logged(binlog, database, schema)] == [schema]


@pytest.mark.parametrize(
    ("definition", "key"),
    [
        ("a TEXT NOT NULL, b INT NOT NULL, UNIQUE x (a)", ()),
        ("a TEXT NOT NULL, b INT NOT NULL, UNIQUE x (a), UNIQUE y (b)", ("b",)),
        ("a INT NOT NULL, b INT, UNIQUE x (a) USING HASH) ENGINE=MEMORY #", ("a",)),
    ],
)
def test_keys_over_hashes(
    mariadb: Server, database: str, definition: str, key: tuple[str, ...]
) -> None:
    """A unique key over a whole TEXT is none to the server, one of the MEMORY engine is."""
    test_keys(mariadb, database, definition, key)


def test_a_column_named_like_a_hidden_one_is_kept(mariadb: Server, database: str) -> None:
    binlog = rotate(mariadb)
    mariadb.execute("CREATE TABLE t (id INT, DB_ROW_HASH_1 BIGINT)", database=database)
    mariadb.execute("INSERT INTO t VALUES (1, 2)", database=database)
    schema = schema_of(mariadb, database, "t")
    assert [rows for _, rows in logged(binlog, database, schema)] == [
        [{"id": 1, "DB_ROW_HASH_1": 2}]
    ]


def test_labels_beyond_the_basic_plane_are_right_in_the_log(server: Server, database: str) -> None:
    """information_schema shows "?"; the values come from the log's own labels."""
    binlog = rotate(server)
    server.execute("CREATE TABLE t (e ENUM('ok', '😀') CHARSET utf8mb4)", database=database)
    server.execute("INSERT INTO t VALUES ('😀')", database=database)
    schema = schema_of(server, database, "t")
    assert schema.columns[0].type.members == ("ok", "?")
    assert [rows for _, rows in logged(binlog, database, schema)] == [[{"e": "😀"}]]


def test_tables_whose_names_differ_by_case_only(server: Server, database: str) -> None:
    """Each has its own columns and key, although MariaDB takes their names for the same."""
    for number, table in enumerate(("Orders", "orders", "ORDERS")):
        server.execute(
            f"CREATE TABLE {table} (id{number} INT PRIMARY KEY, v INT)", database=database
        )
    found = read_schemas(server.execute, keyspace="k", database=database)
    for number, table in enumerate(("Orders", "orders", "ORDERS")):
        assert [column.name for column in found[table].columns] == [f"id{number}", "v"]
        assert found[table].key == (f"id{number}",)


def test_tables_that_cannot_be_mirrored(mariadb: Server, database: str) -> None:
    """Found in information_schema: the log of a system-versioned table looks like any other."""
    mariadb.execute("CREATE TABLE h (id INT) WITH SYSTEM VERSIONING", database=database)
    mariadb.execute("CREATE SEQUENCE s", database=database)
    mariadb.execute("CREATE TABLE t (id INT)", database=database)
    mariadb.execute("CREATE VIEW v AS SELECT * FROM t", database=database)
    assert sorted(unfit_tables(mariadb.execute, database=database)) == ["h", "s"]
    assert sorted(read_schemas(mariadb.execute, keyspace="k", database=database)) == ["t"]
