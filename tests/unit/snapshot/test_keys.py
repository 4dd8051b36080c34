"""SQL along a key: what the conditions say. That servers read it by the index is tested on them."""

from __future__ import annotations

import pytest

from ratchet.core.errors import DecodeError, TableStoppedError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.snapshot.keys import ChunkRange, KeyColumn, KeyPlan, find_plan

NUMBER = KeyColumn(name="a", kind="integer")
TEXT = KeyColumn(name="b", kind="text", charset="latin1", collation="latin1_german1_ci")
ENUM = KeyColumn(name="e", kind="enum", members=4)


def _plan(*columns: KeyColumn) -> KeyPlan:
    return KeyPlan(database="shop", table="t`x", index="PRIMARY", columns=columns)


def test_conditions_are_expanded() -> None:
    """A bound becomes one case per column, each with the columns before it held fast."""
    where = _plan(NUMBER, TEXT).where(ChunkRange(after=("5", "E4"), upto=("9",)))
    text = "_latin1 x'E4' COLLATE latin1_german1_ci"
    assert where == f" WHERE ((`a` > 5) OR (`a` = 5 AND `b` > {text})) AND ((`a` <= 9))"
    assert _plan(NUMBER).where(ChunkRange()) == ""


def test_falling_columns_turn_the_comparison() -> None:
    """What is behind a key in a falling index is smaller than it."""
    falling = KeyColumn(name="a", kind="integer", descending=True)
    plan = _plan(falling, NUMBER)
    assert plan.where(ChunkRange(after=("5",))) == " WHERE ((`a` < 5))"
    assert plan.where(ChunkRange(upto=("5",))) == " WHERE ((`a` >= 5))"
    assert plan.order() == " ORDER BY `a` DESC, `a`"
    assert plan.order(backwards=True) == " ORDER BY `a`, `a` DESC"


@pytest.mark.parametrize(
    ("text", "behind", "upto"),
    [
        ("0", "1, 2, 3, 4", "0"),
        ("3", "4", "0, 1, 2, 3"),
        ("4", "70000", "0, 1, 2, 3, 4"),
    ],
)
def test_enum_is_compared_by_lists(text: str, behind: str, upto: str) -> None:
    """Servers read lists of numbers as index ranges; behind the last member is what no ENUM has."""
    plan = _plan(ENUM)
    assert plan.where(ChunkRange(after=(text,))) == f" WHERE ((`e` IN ({behind})))"
    assert plan.where(ChunkRange(upto=(text,))) == f" WHERE ((`e` IN ({upto})))"


def test_names_are_quoted() -> None:
    """Backticks in names cannot end them."""
    assert _plan(NUMBER).source == "`shop`.`t``x` FORCE INDEX (`PRIMARY`)"


@pytest.mark.parametrize(
    ("column", "value", "text", "literal"),
    [
        (NUMBER, -5, "-5", "-5"),
        (KeyColumn(name="k", kind="bytes"), b"\x00'", "0027", "x'0027'"),
        (KeyColumn(name="k", kind="temporal"), b"-01:00:00.5", "-01:00:00.5", "'-01:00:00.5'"),
        (
            KeyColumn(name="k", kind="number"),
            b"18446744073709551615",
            *["18446744073709551615"] * 2,
        ),
        (TEXT, b"\xe4'", "E427", "_latin1 x'E427' COLLATE latin1_german1_ci"),
        (
            KeyColumn(name="k", kind="text", charset="utf8mb4", collation="utf8mb4_bin"),
            "é'\\",
            "C3A9275C",
            "_utf8mb4 x'C3A9275C' COLLATE utf8mb4_bin",
        ),
    ],
)
def test_values_as_literals(column: KeyColumn, value: object, text: str, literal: str) -> None:
    """A value becomes a bound's text, and that a literal without anything to break out of."""
    assert column.text_of(value) == text
    assert column.literal(text) == literal


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (NUMBER, "x"), (NUMBER, "NULL"), (NUMBER, None), (NUMBER, "1 OR 1"), (NUMBER, "\u0661"),
        (ENUM, "5"), (ENUM, "10000000000"), (ENUM, "-1"),
        (TEXT, "E"), (TEXT, "e4"), (TEXT, "E4' OR '"),
        (KeyColumn(name="k", kind="temporal"), "2020-01-01' OR '"),
        (KeyColumn(name="k", kind="temporal"), None),
        (KeyColumn(name="k", kind="address"), "a' -- "),
        (KeyColumn(name="k", kind="decimal"), "1e9"),
        (KeyColumn(name="k", kind="decimal"), ""), (KeyColumn(name="k", kind="decimal"), "-"),
        (KeyColumn(name="k", kind="number"), "1.5"),
    ],
)  # fmt: skip
def test_what_is_no_value_of_a_key_never_gets_into_a_statement(
    column: KeyColumn, text: object
) -> None:
    """A server's answer goes back to it within statements: as a value, or not at all."""
    with pytest.raises(DecodeError, match="as a value of the key column"):
        _plan(column).bound((text,))


def test_a_bound_has_the_columns_of_its_key() -> None:
    assert _plan(NUMBER, TEXT).bound(("5", "E4")) == ("5", "E4")
    with pytest.raises(DecodeError, match="columns of a key"):
        _plan(NUMBER, TEXT).bound(("5",))


def test_ranges_as_json() -> None:
    """A range survives JSON."""
    for keys in (
        ChunkRange(),
        ChunkRange(after=("1", "2")),
        ChunkRange(after=("1",), upto=("", "x")),
    ):
        assert ChunkRange.from_json(keys.to_json()) == keys


def _schema(kind: str, key: tuple[str, ...]) -> TableSchema:
    columns = (
        Column(name="k", type=ColumnType(name=kind)),
        Column(name="j", type=ColumnType(name="int")),
    )
    return TableSchema(keyspace="shop", table="t", columns=columns, key=key)


def test_another_index_is_walked_where_the_key_cannot_be() -> None:
    """A primary key on prefixes gives no order; a unique index on whole values does."""
    rows = [
        ("PRIMARY", "k", "A", 5, "", "BTREE"),
        ("other", "j", "A", None, "", "BTREE"),
        ("nullable", "j", "A", None, "YES", "BTREE"),
    ]

    def query(sql: str) -> list[tuple[object, ...]]:
        return list(rows) if "STATISTICS" in sql else [("k", "utf8mb4", "utf8mb4_bin")]

    plan = find_plan(query, database="d", schema=_schema("text", ("k",)), mariadb=True)
    assert (plan.index, plan.walkable) == ("other", True)
    del rows[1]
    plan = find_plan(query, database="d", schema=_schema("text", ("k",)), mariadb=True)
    assert (plan.index, plan.walkable, plan.order()) == ("PRIMARY", False, "")
    with pytest.raises(TableStoppedError, match="FLOAT"):
        find_plan(query, database="d", schema=_schema("float", ("k",)), mariadb=True)
    with pytest.raises(TableStoppedError, match="can be read in order"):
        find_plan(lambda _: [], database="d", schema=_schema("text", ("k",)), mariadb=False)
