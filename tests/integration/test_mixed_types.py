"""Columns of all types beside each other, in any order: each is read as what it is.

A table map's metadata has lists with something for columns of some types only. Which types count in
which list shows only where others stand behind them.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pymysql
import pytest
from capture_kit import Capturer, source_of
from fix_faker import FakeTable, every_type_tables
from fix_servers import FLAVORS

from ratchet.store.schemas import get_schema
from ratchet.wire.decode.catalog import read_schemas
from ratchet.wire.session import Session

TABLES = 60
COLUMNS = 12
_TOO_LONG = 1118  # a row of such a table


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_columns_of_mixed_types(flavor: str, tmp_path: Path) -> None:
    """The log's own shape is the catalog's."""
    rng = random.Random(7)
    pool = [c for table in every_type_tables(flavor) for c in table.columns if c.pool]
    with FLAVORS[flavor]() as server:
        server.execute("CREATE DATABASE mixed")
        capturer = Capturer(source_of(server, "mixed"), tmp_path)
        names = []
        with server.connect(database="mixed", charset="utf8mb4", autocommit=True) as connection:
            cursor = connection.cursor()
            while len(names) < TABLES:
                table = FakeTable(f"t{len(names)}", tuple(rng.sample(pool, COLUMNS)))
                try:
                    cursor.execute(table.create_sql)
                except pymysql.err.OperationalError as error:
                    if error.args[0] != _TOO_LONG:
                        raise
                    continue
                # What a character set lacks is of no concern here.
                rows = table.insert_sql(1, table.rows(rng, 2)[-3:])
                cursor.execute(rows.replace("INSERT", "INSERT IGNORE", 1))
                names.append(table.name)
        capturer.catch_up()
        with Session.connect(capturer.source) as session:
            known = read_schemas(session.query, keyspace="shop", database="mixed")
        logged = {
            file.table: get_schema(capturer.lake, "shop", file.table, file.schema)
            for one in capturer.log.since(0)
            for file in one.files
        }
        assert logged.keys() == set(names)
        for name in names:
            assert shape(logged[name]) == shape(known[name])


def shape(schema: object) -> list[tuple[str, object]]:
    return [(column.name, column.type) for column in schema.columns]  # type: ignore[attr-defined]


def test_labels_that_a_server_left_in_another_charset(tmp_path: Path) -> None:
    """MariaDB converts a table, and not the labels: that table stops, the others go on."""
    with FLAVORS["mariadb"]() as server:
        server.execute("CREATE DATABASE mixed")
        capturer = Capturer(source_of(server, "mixed"), tmp_path)
        with server.connect(database="mixed", charset="utf8mb4", autocommit=True) as connection:
            for statement in (
                "CREATE TABLE odd (id INT PRIMARY KEY, v ENUM('d', 'ä')) CHARSET latin1",
                "CREATE TABLE other (id INT PRIMARY KEY)",
                "ALTER TABLE odd CONVERT TO CHARACTER SET utf8mb4",
                "INSERT INTO odd VALUES (1, 'd')",
                "INSERT INTO other VALUES (1)",
                "ALTER TABLE odd MODIFY v ENUM('d', 'ä')",
                "INSERT INTO odd VALUES (2, 'ä')",
            ):
                connection.cursor().execute(statement)
        capturer.catch_up()
        assert capturer.final("other") == {1: {"id": 1}}
        assert capturer.final("odd") == {2: {"id": 2, "v": "ä"}}
        (told,) = [event for event in capturer.events() if event.kind == "unreadable"]
        assert (told.table, "not in its charset" in told.statement) == ("odd", True)


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_text_that_is_not_in_its_charset(flavor: str, tmp_path: Path) -> None:
    """As old servers have let in: one table's files under another one's columns make some."""
    with FLAVORS[flavor]() as server:
        server.execute("CREATE DATABASE mixed")
        capturer = Capturer(source_of(server, "mixed"), tmp_path)
        with server.connect(database="mixed", autocommit=True) as connection:
            cursor = connection.cursor()
            for name, kind in (("bytes", "VARBINARY(36)"), ("texts", "VARCHAR(9)")):
                options = "ENGINE = MyISAM CHARSET = utf8mb4"
                cursor.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v {kind}) {options}")
            cursor.execute("INSERT INTO bytes VALUES (1, x'ff')")
            cursor.execute("CREATE TABLE other (id INT PRIMARY KEY)")
            cursor.execute("FLUSH TABLES")
            for kind in ("MYD", "MYI"):
                folder = server.datadir / "mixed"
                shutil.copyfile(folder / f"bytes.{kind}", folder / f"texts.{kind}")
            cursor.execute("UPDATE texts SET id = 2")
            cursor.execute("INSERT INTO other VALUES (1)")
        capturer.catch_up()
        assert capturer.final("other") == {1: {"id": 1}}
        (told,) = [event for event in capturer.events() if event.kind == "unreadable"]
        assert (told.table, "holds no value" in told.statement) == ("texts", True)
