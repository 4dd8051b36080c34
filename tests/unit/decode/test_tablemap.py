"""Table maps as MySQL 9.7.4 and MariaDB 10.11.19 wrote them, cut, damaged, and of any bytes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ratchet.core.errors import DecodeError, RatchetError, TableStoppedError
from ratchet.core.schema import ColumnType
from ratchet.wire.decode.collations import charset_of
from ratchet.wire.decode.tablemap import TableMap, parse_table_map, table_id_of
from tests.decode_kit import STEADY

# CREATE TABLE ch (a CHAR(255) utf8mb4, b CHAR(100) utf8mb4, c BINARY(255), d CHAR(255) latin1,
#   pk VARCHAR(20) utf8mb4, pk2 TEXT utf8mb4, PRIMARY KEY (pk, pk2(5)))
MYSQL_CHARS = bytes.fromhex(
    "74000000000001000174000263680006fefefefe0ffc0bcefcee90fefffeff5000020f"
    "0207fcff00023f0308040f016101620163016402706b03706b320904040005050c01fc"
)
# CREATE TABLE es (e ENUM('é','b') latin1, s SET('ж','y') utf8mb4, c CHAR(5) utf8mb4,
#   e2 ENUM('ж') ucs2, e3 ENUM('語','é') gbk)
MARIADB_LABELS = bytes.fromhex(
    "1a000000000001000174000265730005fefefefefe0af701f801fe14f701f7011f02012d040c016501730163"
    "0265320265330b04082d231c05060202d0b6017906100201e90162010204360202d55a02a8a6"
)
# CREATE TABLE u1 (u UUID, t1 TEXT utf8mb4, i4 INET4, t2 TEXT latin1, i6 INET6, b16 BINARY(16),
#   t3 VARCHAR(20) latin2)
MARIADB_ADDRESSES = bytes.fromhex(
    "16000000000001000174000275310007fefcfefcfefe0f0cfe1002fe0402fe10fe1014007f02073f012d0308"
    "06090415017502743102693402743202693603623136027433"
)
# CREATE TABLE uh (id INT PRIMARY KEY, a TEXT, UNIQUE (a))
MARIADB_HASH = bytes.fromhex(
    "1700000000000100017400027568000303fc0801020601014002012d041302696401610d44425f524f575f"
    "484153485f31080100"
)
# CREATE TABLE fi (id INT PRIMARY KEY, a VARCHAR(10), b INT, INDEX ((UPPER(a))), INDEX ((b + 1)))
MYSQL_FUNCTIONAL = bytes.fromhex(
    "70000000000001000174000266690003030f03022800060101000203fcff000407026964016101620801000c01e0"
)
ALL = [MYSQL_CHARS, MARIADB_LABELS, MARIADB_ADDRESSES, MARIADB_HASH, MYSQL_FUNCTIONAL]


def types(found: TableMap) -> dict[str, ColumnType]:
    return {column.name: column.type for column in found.schema.columns}


def test_characters_bytes_and_a_key_with_a_prefix() -> None:
    """CHAR(255) of utf8mb4 has 1020 bytes, whose high bits stand in the type byte."""
    found = parse_table_map(MYSQL_CHARS, keyspace="shop")
    assert (found.database, found.table, found.schema.keyspace) == ("t", "ch", "shop")
    assert found.schema.key == ("pk", "pk2")
    assert found.table_id == table_id_of(MYSQL_CHARS) == 0x74
    assert types(found) == {
        "a": ColumnType(name="char", length=1020, charset="utf8mb4"),
        "b": ColumnType(name="char", length=400, charset="utf8mb4"),
        "c": ColumnType(name="binary", length=255),
        "d": ColumnType(name="char", length=255, charset="latin1"),
        "pk": ColumnType(name="varchar", length=80, charset="utf8mb4"),
        "pk2": ColumnType(name="text", charset="utf8mb4"),
    }
    assert [column.nullable for column in found.schema.columns] == [True] * 4 + [False] * 2
    assert found.plan.prefixes.tolist() == [2, 2, 1, 1, 1, 2]


def test_labels_come_in_their_columns_charset() -> None:
    found = types(parse_table_map(MARIADB_LABELS, keyspace="shop"))
    assert found["e"] == ColumnType(name="enum", charset="latin1", members=("é", "b"))
    assert found["s"].members == ("ж", "y")
    assert found["e2"] == ColumnType(name="enum", charset="ucs2", members=("ж",))
    assert found["e3"] == ColumnType(name="enum", charset="gbk", members=("語", "é"))
    assert found["c"].name == "char"


def test_hints_tell_what_the_log_does_not() -> None:
    """A UUID is 16 bytes in the log. The charsets count these columns as characters."""
    without = types(parse_table_map(MARIADB_ADDRESSES, keyspace="shop"))
    assert without["u"] == without["i6"] == without["b16"] == ColumnType(name="binary", length=16)
    hints = {"u": "uuid", "i4": "inet4", "i6": "inet6"}
    found = types(parse_table_map(MARIADB_ADDRESSES, keyspace="shop", hints=hints))
    assert [found[name].name for name in ("u", "i4", "i6", "b16")] == [*hints.values(), "binary"]
    assert [found[name].charset for name in ("t1", "t2", "t3")] == ["utf8mb4", "latin1", "latin2"]


def test_hidden_columns_are_not_in_the_schema() -> None:
    """MariaDB logs the hash behind a long unique key, MySQL not what is behind an index."""
    found = parse_table_map(MARIADB_HASH, keyspace="shop")
    assert list(types(found)) == ["id", "a"]
    assert [column.hidden for column in found.columns] == [False, False, True]
    plain = parse_table_map(MARIADB_HASH, keyspace="shop", hints={"DB_ROW_HASH_1": "plain"})
    assert list(types(plain)) == ["id", "a", "DB_ROW_HASH_1"]
    mysql = parse_table_map(MARIADB_HASH, keyspace="shop", flavor="mysql")
    assert list(types(mysql)) == ["id", "a", "DB_ROW_HASH_1"]
    assert list(types(parse_table_map(MYSQL_FUNCTIONAL, keyspace="shop"))) == ["id", "a", "b"]


def test_without_names_the_setting_is_named() -> None:
    """As binlog_row_metadata=MINIMAL logs it: the optional fields end before the names."""
    names = MYSQL_FUNCTIONAL.index(b"\x04\x07\x02id")
    with pytest.raises(TableStoppedError, match="names of the columns") as caught:
        parse_table_map(MYSQL_FUNCTIONAL[:names], keyspace="shop")
    assert "binlog_row_metadata=FULL" in caught.value.hint
    assert caught.value.table == "t.fi"


def test_metadata_that_lacks_what_columns_need_is_an_error() -> None:
    """Names, but no charsets or labels."""
    charsets = MARIADB_LABELS.index(b"\x0b\x04\x08\x2d")
    with pytest.raises(TableStoppedError, match="too short") as caught:
        parse_table_map(MARIADB_LABELS[:charsets], keyspace="shop")
    assert caught.value.table == "t.es"


def test_unknown_types_and_collations_are_named() -> None:
    odd = bytearray(MYSQL_FUNCTIONAL)
    odd[odd.index(b"\x03\x03\x0f\x03") + 2] = 200
    with pytest.raises(TableStoppedError, match="type 200"):
        parse_table_map(bytes(odd), keyspace="shop")
    with pytest.raises(DecodeError, match="4711") as caught:
        charset_of(4711)
    assert caught.value.hint


def test_a_label_in_another_charset_stops_its_table() -> None:
    """The event is whole, so that it is no damage: the other tables go on."""
    latin = MARIADB_LABELS.replace("ж".encode(), b"\xd0 ", 1)
    assert latin != MARIADB_LABELS
    with pytest.raises(TableStoppedError, match="not in its charset") as caught:
        parse_table_map(latin, keyspace="shop")
    assert "MODIFY" in caught.value.hint


@pytest.mark.parametrize("body", ALL)
def test_a_map_cut_at_any_byte_is_an_error(body: bytes) -> None:
    """Unless all that is cut off is a field that nobody needs; then the columns are the same."""
    whole = parse_table_map(body, keyspace="shop")
    for length in range(len(body)):
        try:
            found = parse_table_map(body[:length], keyspace="shop", flavor="mariadb")
        except (DecodeError, TableStoppedError):
            continue
        assert [c.name for c in found.columns] == [c.name for c in whole.columns]


def parses_or_raises(body: bytes) -> None:
    try:
        found = parse_table_map(body, keyspace="shop")
    except RatchetError:
        return
    assert len(found.plan.sizes) == len(found.columns)


@STEADY
@given(st.binary(max_size=120))
@example(b"")
def test_any_bytes_parse_or_raise(body: bytes) -> None:
    parses_or_raises(body)


@STEADY
@given(
    st.sampled_from(ALL),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damaged_maps_parse_or_raise(body: bytes, changes: list[tuple[int, int]]) -> None:
    """No damage leads to another error than ours."""
    damaged = bytearray(body)
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    parses_or_raises(bytes(damaged))
