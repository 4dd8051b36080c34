"""What a change of columns does to the rows that are there, as values."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from ratchet.core.reshaping import NotComputableError, Reshaping, reshape, retype
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.sql.logged import table_changes
from ratchet.core.types import InvalidValuePolicy, arrow_schema

POLICY = InvalidValuePolicy()
INT, BIG = ColumnType(name="int"), ColumnType(name="bigint")
SCHEMA = TableSchema(
    keyspace="shop",
    table="t",
    columns=(
        Column(name="id", type=INT, nullable=False),
        Column(name="a", type=ColumnType(name="varchar", length=80, charset="utf8mb4")),
        Column(name="b", type=ColumnType(name="decimal", precision=5, scale=2)),
    ),
    key=("id",),
)
ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "a": ["x", None],
        "b": pa.array([Decimal("1.50"), Decimal("2.25")], pa.decimal128(5, 2)),
        "_token": [7, 8],
    }
)


def computed(what: str, *come: Column) -> Reshaping:
    changes = table_changes(f"ALTER TABLE t {what}", "t")
    assert changes is not None, what
    described = replace(SCHEMA, columns=(*SCHEMA.columns, *come))
    return reshape(SCHEMA, changes, described=described, policy=POLICY)


def rows(found: Reshaping) -> list[dict[str, object]]:
    return found.rows(ROWS, ["_token"]).to_pylist()


def test_a_value_comes_into_every_row() -> None:
    found = computed("ADD n INT NOT NULL DEFAULT 7", Column(name="n", type=INT, nullable=False))
    assert [row["n"] for row in rows(found)] == [7, 7]
    assert rows(found)[1] == {"id": 2, "a": None, "b": Decimal("2.25"), "n": 7, "_token": 8}


def test_names_are_those_of_before_and_change_all_at_once() -> None:
    assert rows(computed("RENAME COLUMN a TO c, DROP COLUMN b"))[0] == {
        "id": 1, "c": "x", "_token": 7,
    }  # fmt: skip
    swapped = computed("RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    assert rows(swapped)[0] == {"id": 1, "b": "x", "a": Decimal("1.50"), "_token": 7}
    described = Column(name="a", type=INT)
    changes = table_changes("ALTER TABLE t DROP COLUMN A, ADD COLUMN a INT", "t")
    assert changes is not None
    shape = replace(SCHEMA, columns=(SCHEMA.columns[0], described))
    anew = reshape(SCHEMA, changes, described=shape, policy=POLICY)
    assert rows(anew)[0] == {"id": 1, "b": Decimal("1.50"), "a": None, "_token": 7}


def test_a_key_keeps_its_columns_under_their_new_names() -> None:
    assert computed("RENAME COLUMN id TO ident").schema.key == ("ident",)
    with pytest.raises(NotComputableError, match="key goes"):
        computed("DROP COLUMN id")


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("DROP COLUMN z", "no column z"),
        ("DROP COLUMN a, RENAME COLUMN a TO c", "twice"),
        ("RENAME COLUMN a TO b", "one name"),
        ("ADD n INT DEFAULT 7", "type of n"),
        ("DROP COLUMN ä", "no column ä"),
    ],
)
def test_what_is_not_understood_is_refused(what: str, why: str) -> None:
    with pytest.raises(NotComputableError, match=why):
        computed(what)


def test_another_type_than_the_statement_has_is_asked_for() -> None:
    """The column has been changed since: what it was before is not known."""
    assert computed("ADD n INT NOT NULL DEFAULT 7", Column(name="n", type=BIG)).asked == ("n",)


@pytest.mark.parametrize(
    "what",
    [
        "ADD n INT AUTO_INCREMENT UNIQUE", "ADD n INT DEFAULT (1 + 1)", "ADD n SERIAL",
        "ADD n INT AS (id) VIRTUAL FIRST", "ADD n FLOAT(7,2)", "ADD n INT NOT NULL NULL",
        "ADD n DATE DEFAULT CURRENT_DATE",
    ],
)  # fmt: skip
def test_a_value_that_is_not_told_is_asked_for(what: str) -> None:
    found = computed(what, Column(name="n", type=INT))
    assert found.asked == ("n",)


@pytest.mark.parametrize(
    "what",
    [
        "ADD n INT AUTO_INCREMENT PRIMARY KEY", "DROP PRIMARY KEY",
        "ADD n INT DEFAULT 5, ALTER n SET DEFAULT 6", "DROP a, CONVERT TO CHARACTER SET latin1",
        "DROP a, ADD FOREIGN KEY (b) REFERENCES u (b)", "DROP a, ENGINE=BLACKHOLE",
        "DROP a, RENAME TO u", "DROP PARTITION p, DROP a", "DROP a, DROP INDEX i", "FORCE what", "",
    ],
)  # fmt: skip
def test_more_than_columns_is_not_told_as_such(what: str) -> None:
    found = table_changes(f"ALTER TABLE t {what}", "t")
    assert found is None or (what == "" and not found.added)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE other DROP a",
        "ALTER IGNORE TABLE t DROP a",
        "ALTER TABLE t DROP a /*!80000 , DROP b */",
        "DROP TABLE t",
        "SET STATEMENT sql_mode='' FOR ALTER TABLE t DROP a",
        "ALTER TABLE t DROP a COMMENT " + "x" * 2000,
    ],
)
def test_other_statements_are_not_told(statement: str) -> None:
    assert table_changes(statement, "t") is None


def with_types(**kinds: ColumnType) -> TableSchema:
    columns = (replace(c, type=kinds.get(c.name, c.type)) for c in SCHEMA.columns)
    return replace(SCHEMA, columns=tuple(columns))


@pytest.mark.parametrize("scale", [2, 3])
def test_wider_types_keep_every_value(scale: int) -> None:
    wide = ColumnType(name="decimal", precision=20, scale=scale)
    found = retype(SCHEMA, with_types(id=BIG, b=wide), POLICY)
    assert found is not None
    assert rows(found) == ROWS.to_pylist()
    assert found.rows(ROWS, []).schema.field("id").type == pa.int64()
    for other in (
        {}, {"id": ColumnType(name="varchar", length=80, charset="utf8mb4")},  # of the key
    ):  # fmt: skip
        assert retype(SCHEMA, with_types(**other), POLICY) is None, other


@pytest.mark.parametrize(
    "other",
    [
        {"b": ColumnType(name="bigint", unsigned=True)},
        # A long number is the server's own text, which nobody else writes.
        {"b": ColumnType(name="decimal", precision=39, scale=2)},
        {"id": BIG, "b": ColumnType(name="double")},
    ],
)
def test_the_source_is_asked_for_values_that_only_it_knows(other: dict[str, ColumnType]) -> None:
    found = retype(SCHEMA, with_types(**other), POLICY)
    assert found is not None
    assert found.asked == ("b",)
    assert found.schema.column("b").type == other["b"]
    assert found.retyped == other.keys() - {"b"}
    given: list[pa.Table] = []

    def find(keys: pa.Table) -> pa.Table:
        given.append(keys)
        return pa.table({"b": pa.nulls(2, found.columns.field("b").type)})

    shown = found.rows(ROWS, ["_token"], find)
    assert shown.column_names == ["id", "a", "b", "_token"]
    assert shown.column("b").null_count == 2
    assert given == [shown.select(["id"])]


def test_the_source_is_asked_for_what_a_new_column_has() -> None:
    come = Column(name="g", type=INT)
    found = computed("ADD g INT AS (id + 1) STORED, RENAME COLUMN id TO i", come)
    assert found.asked == ("g",)
    shown = found.rows(ROWS, [], lambda keys: pa.table({"g": keys["i"]}))
    assert [row["g"] for row in shown.to_pylist()] == [1, 2]
    for what in ("ADD g INT PRIMARY KEY", "ADD g INT REFERENCES o (id)", "ADD g INT KEY"):
        assert table_changes(f"ALTER TABLE t {what}", "t") is None, what


def test_a_key_is_not_asked_for() -> None:
    found = retype(SCHEMA, with_types(id=BIG), POLICY)
    assert found is not None
    with pytest.raises(NotComputableError, match="key"):
        found.asking(found.retyped)
    other = retype(SCHEMA, with_types(b=BIG), POLICY)
    assert other is not None
    assert other.asking(other.retyped).asked == ("b",)
    assert not other.asking(other.retyped).retyped


def number(
    name: str, digits: tuple[int, int] | None = None, *, unsigned: bool = False
) -> ColumnType:
    precision, scale = digits or (None, None)
    return ColumnType(name=name, precision=precision, scale=scale, unsigned=unsigned)


@pytest.mark.parametrize(
    ("old", "new", "fits", "does_not"),
    [
        (INT, number("tinyint"), "127", "128"),
        (INT, number("tinyint"), "-128", "-129"),
        (BIG, number("mediumint"), "8388607", "8388608"),
        (number("int", unsigned=True), number("mediumint", unsigned=True), "16777215", "16777216"),
        (INT, number("tinyint", unsigned=True), "255", "256"),
        (INT, number("int", unsigned=True), "0", "-1"),
        (BIG, number("bigint", unsigned=True), "7", "-1"),
        (number("decimal", (5, 2)), number("tinyint"), "7.00", "7.01"),
        (
            number("decimal", (5, 2)),
            number("decimal", (3, 1)),
            "99.90",
            "99.99",
        ),
        (
            number("decimal", (5, 2)),
            number("decimal", (5, 2), unsigned=True),
            "0.00",
            "-0.01",
        ),
        (BIG, number("decimal", (5, 2)), "999", "1000"),
        (
            number("bigint", unsigned=True),
            number("decimal", (38, 30)),
            "99999999",
            "18446744073709551615",
        ),
        (number("decimal", (38, 0)), number("decimal", (38, 30)), "-99999999", "9" * 38),
        (number("decimal", (38, 30)), number("decimal", (38, 0)), "-7", "0." + "0" * 29 + "1"),
        (
            number("bigint", unsigned=True),
            number("bigint"),
            "9223372036854775807",
            "9223372036854775808",
        ),
    ],
)
def test_narrower_numbers_keep_what_fits(
    old: ColumnType, new: ColumnType, fits: str, does_not: str
) -> None:
    """A server may have cut what does not fit, as its sql_mode says: such rows are read again."""
    before = replace(SCHEMA, columns=(SCHEMA.columns[0], Column(name="x", type=old)))
    # Another column changes as well, so that the lake's own types differ for certain.
    wide = replace(before.columns[0], type=BIG)
    behind = replace(SCHEMA, columns=(wide, Column(name="x", type=new)))
    found = retype(before, behind, POLICY)
    assert found is not None
    kinds = arrow_schema(before, POLICY)
    for value in (fits, does_not, None):
        held = None if value is None else Decimal(value)
        held = (
            int(held) if held is not None and pa.types.is_integer(kinds.field("x").type) else held
        )
        table = pa.Table.from_pylist([{"id": 1, "x": held}], kinds)
        if value == does_not:
            with pytest.raises(NotComputableError, match="does not fit"):
                found.rows(table, [])
        else:
            ((given, given_x),) = (tuple(row.values()) for row in found.rows(table, []).to_pylist())
            assert given == 1
            assert given_x == held


@pytest.mark.parametrize(
    ("charset", "length", "fits", "does_not"),
    [("utf8mb4", 80, -2147483648, None), ("latin1", 3, -99, -100), ("utf8mb3", 6, 99, 100)],
)
def test_a_number_becomes_its_digits(
    charset: str, length: int, fits: int, does_not: int | None
) -> None:
    text = ColumnType(name="varchar", length=length, charset=charset)
    before = replace(SCHEMA, columns=(SCHEMA.columns[0], Column(name="x", type=INT)))
    behind = replace(before, columns=(SCHEMA.columns[0], Column(name="x", type=text)))
    found = retype(before, behind, POLICY)
    assert found is not None
    kinds = arrow_schema(before, POLICY)
    given = [{"id": 1, "x": fits}, {"id": 2, "x": None}]
    assert found.rows(pa.Table.from_pylist(given, kinds), []).to_pylist() == [
        {"id": 1, "x": str(fits)},
        {"id": 2, "x": None},
    ]
    assert found.rows(pa.Table.from_pylist([], kinds), []).num_rows == 0
    if does_not is not None:
        with pytest.raises(NotComputableError, match="too long"):
            found.rows(pa.Table.from_pylist([{"id": 1, "x": does_not}], kinds), [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (number("int", unsigned=True), ColumnType(name="varchar", length=80, charset="utf8mb4")),
        (INT, ColumnType(name="char", length=80, charset="utf8mb4")),
        (INT, ColumnType(name="varchar", length=80, charset="gb18030")),
        (INT, ColumnType(name="varbinary", length=80)),
        (INT, ColumnType(name="enum", charset="utf8mb4", members=("1",))),
    ],
)
def test_what_is_not_sure_to_be_its_digits(old: ColumnType, new: ColumnType) -> None:
    """ZEROFILL would be shown: it is unsigned, and stands in no log."""
    before = replace(SCHEMA, columns=(SCHEMA.columns[0], Column(name="x", type=old)))
    behind = replace(before, columns=(SCHEMA.columns[0], Column(name="x", type=new)))
    found = retype(before, behind, POLICY)
    assert found is not None
    assert (found.asked, found.retyped) == (("x",), frozenset())


def test_another_key_leaves_the_rows_alone() -> None:
    found = computed("DROP PRIMARY KEY, ADD PRIMARY KEY (B DESC, `id`), ADD INDEX (a)")
    assert found.schema.key == ("b", "id")
    assert not found.schema.column("b").nullable
    assert found.rows(ROWS, ["_token"]).to_pylist() == ROWS.to_pylist()
    with pytest.raises(NotComputableError, match="NULL in a"):
        computed("DROP PRIMARY KEY, ADD PRIMARY KEY (a)").rows(ROWS, [])


@pytest.mark.parametrize(
    "what",
    [
        "DROP PRIMARY KEY", "ADD PRIMARY KEY (a)", "DROP INDEX `PRIMARY`, ADD PRIMARY KEY (a)",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (a(10))", "DROP PRIMARY KEY, ADD UNIQUE (a)",
        "DROP PRIMARY KEY, ADD PRIMARY KEY ((a + 1))", "DROP PRIMARY KEY, ADD PRIMARY KEY (a, )",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (a), ADD PRIMARY KEY (b)",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (a, p WITHOUT OVERLAPS)",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (a), CONVERT TO CHARACTER SET latin1",
        "DROP PRIMARY KEY, ADD n INT, ADD PRIMARY KEY (n)",
    ],
)  # fmt: skip
def test_what_is_not_sure_to_be_another_key(what: str) -> None:
    assert table_changes(f"ALTER TABLE t {what}", "t") is None


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("ADD PRIMARY KEY (a), RENAME COLUMN b TO c", "other columns"),
        ("ADD PRIMARY KEY (a), DROP COLUMN b", "other columns"),
        ("ADD PRIMARY KEY (a), MODIFY b INT", "other columns"),
        ("ADD PRIMARY KEY (a, A)", "names a column twice"),
        ("ADD PRIMARY KEY (z)", "no column z"),
    ],
)
def test_another_key_that_is_not_understood_is_refused(what: str, why: str) -> None:
    with pytest.raises(NotComputableError, match=why):
        computed(f"DROP PRIMARY KEY, {what}")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (ColumnType(name="enum", charset="utf8mb4", members=("a", "")), "a member ''"),
        (ColumnType(name="set", charset="utf8mb4", members=("", "a")), "a member ''"),
        (ColumnType(name="double"), "no exact value"),
        (ColumnType(name="year", length=2), "look alike"),
        (ColumnType(name="varchar", length=9, charset="cp932"), "look alike"),
        (ColumnType(name="char", length=9, charset="big5"), "look alike"),
        (ColumnType(name="text"), "look alike"),
    ],
)
def test_a_key_whose_values_look_alike_in_the_lake_is_refused(kind: ColumnType, why: str) -> None:
    """Two rows would be one: the next change of either would have been made to both."""
    before = replace(SCHEMA, columns=(*SCHEMA.columns, Column(name="k", type=kind)))
    changes = table_changes("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, k)", "t")
    assert changes is not None
    with pytest.raises(NotComputableError, match=why):
        reshape(before, changes, described=None, policy=POLICY)


def test_a_day_of_zeros_does_not_become_a_key() -> None:
    """It is NULL in the lake, although the column is NOT NULL."""
    day = Column(name="d", type=ColumnType(name="date"), nullable=False)
    before = replace(SCHEMA, columns=(SCHEMA.columns[0], day))
    changes = table_changes("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (d)", "t")
    assert changes is not None
    found = reshape(before, changes, described=None, policy=POLICY)
    rows = pa.table({"id": pa.array([1], pa.int32()), "d": pa.nulls(1, pa.date32())})
    with pytest.raises(NotComputableError, match="NULL in d"):
        found.rows(rows, [])


def test_names_that_only_look_alike() -> None:
    """MariaDB passes over a DROP COLUMN IF EXISTS of ss where there is only ß."""
    odd = Column(name="ß", type=ColumnType(name="int"))
    schema = replace(SCHEMA, columns=(*SCHEMA.columns, odd))
    for what in ("DROP COLUMN IF EXISTS ss", "DROP COLUMN IF EXISTS SS", "RENAME COLUMN ss TO t"):
        changes = table_changes(f"ALTER TABLE t {what}", "t")
        assert changes is not None
        with pytest.raises(NotComputableError, match="has no column"):
            reshape(schema, changes, described=schema, policy=POLICY)
    changes = table_changes("ALTER TABLE t DROP COLUMN `ß`", "t")
    assert changes is not None
    assert reshape(schema, changes, described=schema, policy=POLICY).schema == SCHEMA
