"""Columns that a mirrored table cannot have."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from ratchet.core.columnrules import TAKEN, unfit_column, unfit_key, unfit_name
from ratchet.core.patterns import TablePatterns
from ratchet.core.schema import Column, ColumnType, TableSchema


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_taken_names_in_any_letter_case(name: str) -> None:
    found = unfit_name(("id", name.upper()), table="t`x")
    assert found is not None
    assert found.column == name.upper()
    assert found.hint.startswith(f"ALTER TABLE `t``x` RENAME COLUMN `{name.upper()}` TO `")
    new = found.hint.split("TO `")[1].split("`")[0]
    assert unfit_name(("id", new), table="t") is None


def test_the_hint_excludes_the_table_whatever_its_name_is_made_of() -> None:
    """`"!fx\\"` is no YAML: the backslash takes the quote."""
    name = 'fx"\n*\\'
    column = Column(name="k", type=ColumnType(name="float"), nullable=False)
    schema = TableSchema(keyspace="shop", table=name, columns=(column,), key=("k",))
    for found in (
        unfit_key(schema),
        unfit_name(("_token",), table=name),
        unfit_name(("a", "A"), table=name),
    ):
        assert found is not None
        printed = found.hint.split("exclude the table: ")[1]
        (pattern,) = yaml.safe_load(f"[{printed}]")
        assert not TablePatterns(("*", pattern)).matches(name)


def test_other_names_will_do() -> None:
    names = ("a b", "path", "filePath", "metadata", "token", "_change_type", "Ä", "a")
    assert unfit_name(names, table="t") is None


@pytest.mark.parametrize(
    "names",
    [
        ("k", "\N{KELVIN SIGN}"),
        ("\u03c3", "\u03c2"),  # the two small sigmas
        ("\u00b5", "\u03bc"),  # the micro sign and mu
        ("i", "\u0131"),
        ("a_s", "a_\u017f"),
        ("\u03b2", "\u03d0"),
        ("\u0345", "\u03b9"),
        ("\u1e9b", "\u1e61"),
        ("\u1c80", "\u0432"),
        ("\u1fb3", "\u1fbc"),
    ],
)
def test_names_that_are_one_to_spark(names: tuple[str, str]) -> None:
    """MySQL takes them for two letters; Java compares the lower case of their upper case."""
    for one in (names, names[::-1]):
        found = unfit_name(("x", *one), table="t")
        assert found is not None
        assert "one name to Spark" in found.message


def test_a_name_that_is_taken_in_other_letters() -> None:
    found = unfit_name(("\u017fource", "_\u017fource_row_index"), table="t")
    assert found is not None
    assert found.column == "_\u017fource_row_index"
    assert "RENAME COLUMN" in found.hint
    assert "`source_row_index_`" in found.hint


@pytest.mark.parametrize("kind", ["float", "double"])
def test_keys_without_exact_values(kind: str) -> None:
    columns = (
        Column(name="k", type=ColumnType(name=kind), nullable=False),
        Column(name="v", type=ColumnType(name="double"), nullable=True),
    )
    found = unfit_column(TableSchema(keyspace="shop", table="t", columns=columns, key=("k",)))
    assert found is not None
    assert f"'k' is a {kind.upper()}" in found.message
    assert "ADD PRIMARY KEY" not in found.hint
    assert unfit_column(TableSchema(keyspace="shop", table="t", columns=columns, key=())) is None


@pytest.mark.parametrize("kind", ["enum", "set"])
def test_a_key_with_a_member_that_looks_like_none(kind: str) -> None:
    """The values 0 and '' differ at the source, and are one text in the lake."""
    column = Column(name="k", type=ColumnType(name=kind, members=("", "x")), nullable=False)
    schema = TableSchema(keyspace="shop", table="t", columns=(column,), key=("k",))
    found = unfit_key(schema)
    assert found is not None
    assert "looks like no member" in found.message
    assert unfit_key(replace(schema, key=())) is None
    plain = replace(column, type=ColumnType(name=kind, members=("x", "y")))
    assert unfit_key(replace(schema, columns=(plain,))) is None


@pytest.mark.parametrize(
    ("kind", "charset", "members", "why"),
    [
        ("enum", "cp932", ("a", "\u7e8a", "\u7e8a"), "members that are one text"),
        ("set", "cp1251", ("?", "?"), "members that are one text"),
        ("set", "armscii8", ("a", "b,c"), "a comma"),
        ("enum", "armscii8", ("a", "b,c"), ""),
        ("enum", "cp932", ("a", "b"), ""),
        # information_schema shows "?" for what is beyond the basic plane.
        ("enum", "utf8mb4", ("?", "?"), ""),
    ],
)
def test_keys_whose_members_look_alike(
    kind: str, charset: str, members: tuple[str, ...], why: str
) -> None:
    kinds = ColumnType(name=kind, charset=charset, members=members)
    column = Column(name="k", type=kinds, nullable=False)
    found = unfit_key(TableSchema(keyspace="shop", table="t", columns=(column,), key=("k",)))
    assert (found is not None) == bool(why)
    assert found is None or why in found.message


def test_a_key_of_two_digits_of_a_year() -> None:
    """MariaDB keeps 1901 to 2155 in it, and shows two digits."""
    short = Column(name="k", type=ColumnType(name="year", length=2), nullable=False)
    schema = TableSchema(keyspace="shop", table="t", columns=(short,), key=("k",))
    found = unfit_key(schema)
    assert found is not None
    assert "1955 and 2055 look alike" in found.message
    whole = replace(short, type=ColumnType(name="year"))
    assert unfit_key(replace(schema, columns=(whole,))) is None
