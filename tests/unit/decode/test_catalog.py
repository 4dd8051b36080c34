"""information_schema's rows as schemas: labels, keys, hints. (Real servers: integration.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ratchet.core.errors import DecodeError
from ratchet.core.schema import Column, ColumnType
from ratchet.wire.decode.catalog import hints, read_schemas
from ratchet.wire.decode.unfit import unfit_tables

Row = tuple[Any, ...]


def column(
    name: str, data_type: str, declared: str = "", *, nullable: str = "YES", **more: Any
) -> Row:
    """A row of information_schema.columns of table t, as the query selects it."""
    names = ("octets", "precision", "scale", "fraction", "charset")
    return ("t", name, nullable, data_type, declared or data_type, *(more.get(n) for n in names))


def index(
    name: str, column_name: str | None, nullable: str | None = "", prefix: int | None = None
) -> Row:
    """A row of information_schema.statistics."""
    return ("t", name, column_name, nullable, prefix)


def read(columns: Sequence[Row], keys: Sequence[Row] = (), order: Sequence[str] = ()) -> Any:
    def query(sql: str, args: Sequence[object]) -> Sequence[Row]:
        if sql.startswith("SHOW INDEX"):
            assert sql == "SHOW INDEX FROM `shop_db`.`t`"
            return [("t", 0, name) for name in order]
        assert set(args) == {"shop_db"}
        if "'VIEW'" in sql:
            return ()
        return keys if "information_schema.statistics" in sql else columns

    return read_schemas(query, keyspace="shop", database="shop_db")


def read_type(*args: Any, **more: Any) -> ColumnType:
    found: Column = read([column("c", *args, **more)])["t"].columns[0]
    return found.type


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("int", "int(10) unsigned"), ColumnType(name="int", unsigned=True)),
        (("BIGINT", "bigint(20) unsigned zerofill"), ColumnType(name="bigint", unsigned=True)),
        (("double", "double(20,5)"), ColumnType(name="double")),
        (("year", "year(4)"), ColumnType(name="year")),
        (("year", "year(2)"), ColumnType(name="year", length=2)),
        (("enum", "enum('unsigned')"), ColumnType(name="enum", members=("unsigned",))),
        (
            ("enum", "enum('it''s','a,b',')')"),
            ColumnType(name="enum", members=("it's", "a,b", ")")),
        ),
        (
            ("set", r"set('back\\slash','n\nr\r0\0','x\\n')"),
            ColumnType(name="set", members=("back\\slash", "n\nr\r0\0", "x\\n")),
        ),
        (("uuid",), ColumnType(name="uuid")),
    ],
)
def test_types(row: tuple[str, ...], expected: ColumnType) -> None:
    assert read_type(*row) == expected


def test_types_with_numbers_beside_them() -> None:
    """Names are lower case; displays' widths and collations do not matter."""
    decimal = read_type("decimal", "decimal(10,2) unsigned", precision=10, scale=2)
    assert decimal == ColumnType(name="decimal", unsigned=True, precision=10, scale=2)
    assert read_type("bit", "bit(9)", precision=9) == ColumnType(name="bit", length=9)
    text = read_type("char", "char(8)", octets=32, charset="utf8mb4")
    assert text == ColumnType(name="char", length=32, charset="utf8mb4")
    assert read_type("text", octets=65535, charset="utf8") == ColumnType(
        name="text", charset="utf8mb3"
    )
    assert read_type("vector", "vector(3)", octets=12) == ColumnType(name="vector", length=12)
    time = read_type("time", "time(3) /* mariadb-5.3 */", fraction=3)
    assert time == ColumnType(name="time", fraction=3, legacy=True)


def test_names_may_come_as_bytes() -> None:
    """MySQL gives some columns of information_schema as binary text."""
    row = tuple(part.encode() if isinstance(part, str) else part for part in column("é", "int"))
    found = read([row], [(b"t", b"PRIMARY", "é".encode(), b"", None)])["t"]
    assert found.columns == (Column(name="é", type=ColumnType(name="int")),)
    assert found.key == ("é",)


def test_the_key_is_the_primary_key_in_its_own_order() -> None:
    columns = [column("a", "int", nullable="NO"), column("b", "int", nullable="NO")]
    found = read(columns, [index("PRIMARY", "b"), index("PRIMARY", "a"), index("aaa", "a")])["t"]
    assert found.key == ("b", "a")
    assert not found.columns[0].nullable


def test_the_key_is_else_the_first_unique_key_without_null() -> None:
    """Not one with a column that may be NULL, nor one over an expression or a prefix."""
    columns = [column(name, "int") for name in "abcd"]
    keys = [index("k1", "a", "YES"), index("k2", None, None), index("k3", "b", prefix=3)]
    keys += [index("k4", "c"), index("k4", "d")]
    assert read(columns, keys)["t"].key == ("c", "d")
    half = [index("k1", "b"), index("k1", "a", "YES")]
    assert read(columns, half)["t"].key == ()
    assert read(columns)["t"].key == ()
    prefix = [index("PRIMARY", "b", prefix=3)]
    assert read(columns, prefix)["t"].key == ("b",)


def test_of_several_unique_keys_the_servers_first_is_taken() -> None:
    """Its order is not that of the names."""
    keys = [index("a", "x", "YES"), index("b", "y"), index("c", "z")]
    found = read([column("y", "int"), column("z", "int")], keys, order=["c", "b", "a"])
    assert found["t"].key == ("z",)


def test_hints_for_what_the_log_does_not_tell() -> None:
    rows = [
        column("u", "uuid"),
        column("i", "inet6"),
        column("y", "year", "year(2)"),
        column("t", "datetime", "datetime(4) /* mariadb-5.3 */", fraction=4),
        column("DB_ROW_HASH_1", "bigint"),
        column("plain", "int"),
    ]
    assert hints(read(rows)["t"]) == {
        "u": "uuid",
        "i": "inet6",
        "y": "year2",
        "t": "legacy:4",
        "DB_ROW_HASH_1": "plain",
    }


def test_tables_that_cannot_be_mirrored_come_with_the_reason() -> None:
    tables = [
        ("h", "SYSTEM VERSIONED", "InnoDB"),
        (b"s", b"SEQUENCE", b"MyISAM"),
        ("f", "BASE TABLE", "FEDERATED"),
        ("new", "BASE TABLE", "SomethingNew"),
    ]
    found = unfit_tables(
        lambda sql, _: tables if "'VIEW'" not in sql and "tables" in sql else [], database="shop_db"
    )
    assert list(found) == ["h", "s", "f", "new"]
    assert "history" in found["h"]
    assert "FEDERATED" in found["f"]
    assert "SomethingNew" in found["new"]


def test_what_a_merge_table_writes_to_is_named_in_any_database() -> None:
    shown = {
        "`shop_db`.`mm`": "CREATE TABLE `mm` (\n  `a` int COMMENT 'UNION=(`'\n) ENGINE=MRG_MyISAM "
        "COMMENT='it''s UNION=(`free`)' UNION=(`m1`,`m``2`)",
        "`other`.`x`": "CREATE TABLE `x` (...) ENGINE=MRG_MYISAM UNION=(`far`,`shop_db`.`m3`)",
    }

    def query(sql: str, _args: object) -> list[tuple[str, ...]]:
        if sql.startswith("SHOW"):
            return [("t", shown[sql.removeprefix("SHOW CREATE TABLE ")])]
        if "mrg_myisam" in sql and "%s" not in sql:
            return [("shop_db", "mm"), ("other", "x")]
        if "information_schema.columns" in sql or "'VIEW'" in sql:
            return []
        names = ("m1", "m`2", "m3", "free")
        kinds = [(name, "BASE TABLE", "MyISAM") for name in names]
        return [*kinds, ("mm", "BASE TABLE", "MRG_MyISAM")]

    found = unfit_tables(query, database="shop_db")
    assert sorted(found) == ["m1", "m3", "m`2", "mm"]
    assert "other.x" in found["m3"]


@pytest.mark.parametrize("union", ["(`a`", "('a')", "(=)"])
def test_a_union_that_no_server_shows_is_an_error_of_the_source(union: str) -> None:
    """Not a bug, and not a table that counts as free."""

    def query(sql: str, _args: object) -> list[tuple[str, ...]]:
        if sql.startswith("SHOW"):
            return [("t", f"CREATE TABLE `mm` (...) ENGINE=MRG_MyISAM UNION={union}")]
        if "mrg_myisam" in sql:
            return [("shop_db", "mm")]
        if "'VIEW'" in sql:
            return []
        return [("a", "BASE TABLE", "MyISAM")] if "information_schema.tables" in sql else []

    with pytest.raises(DecodeError, match="the tables of a MERGE table"):
        unfit_tables(query, database="shop_db")
