"""What every type becomes in the lake, and that the documentation says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from ratchet.core.errors import TableStoppedError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import FAMILIES, InvalidValuePolicy, arrow_schema, rule_for
from ratchet.core.types.doc import page, source_name

ROOT = Path(__file__).parents[3]
POLICY = InvalidValuePolicy()
EXAMPLES = [example for family in FAMILIES.values() for example in family.EXAMPLES]


def arrow(name: str, **parts: object) -> pa.DataType:
    return rule_for(ColumnType(name=name, **parts), POLICY).arrow  # type: ignore[arg-type]


def test_integers_are_as_wide_as_their_values() -> None:
    """Unsigned ones take the next type up; the widest is a decimal."""
    signed = [arrow(name) for name in ("tinyint", "smallint", "mediumint", "int", "bigint")]
    assert signed == [pa.int8(), pa.int16(), pa.int32(), pa.int32(), pa.int64()]
    names = ("tinyint", "smallint", "mediumint", "int", "bigint")
    unsigned = [arrow(name, unsigned=True) for name in names]
    assert unsigned == [pa.int16(), pa.int32(), pa.int32(), pa.int64(), pa.decimal128(20, 0)]


def test_decimals_of_more_than_38_digits_are_text() -> None:
    assert arrow("decimal", precision=38, scale=30) == pa.decimal128(38, 30)
    assert arrow("decimal", precision=39, scale=0) == pa.string()


def test_bits_are_numbers() -> None:
    assert arrow("bit", length=63) == pa.int64()
    assert arrow("bit", length=64) == pa.decimal128(20, 0)


@pytest.mark.parametrize("name", ["date", "datetime", "timestamp"])
def test_dates_are_text_if_the_policy_says_so(name: str) -> None:
    rule = rule_for(ColumnType(name=name), InvalidValuePolicy(zero_dates="text"))
    assert rule.arrow == pa.string()
    assert not rule.can_misfit
    assert rule_for(ColumnType(name=name), POLICY).can_misfit
    failing = rule_for(ColumnType(name=name), InvalidValuePolicy(zero_dates="fail"))
    assert failing.arrow == arrow(name)


def test_a_type_without_a_rule_stops_the_table() -> None:
    with pytest.raises(TableStoppedError, match="'xmltype'") as caught:
        arrow("xmltype")
    assert caught.value.hint


def test_every_example_has_a_delta_type() -> None:
    """A new Arrow type needs its name in Delta."""
    for example in EXAMPLES:
        for zero_dates in ("null", "text", "fail"):
            assert rule_for(example, InvalidValuePolicy(zero_dates=zero_dates)).delta


def test_the_lakes_schema_has_the_columns_in_order_and_nullable() -> None:
    columns = (
        Column(name="id", type=ColumnType(name="bigint"), nullable=False),
        Column(name="ts", type=ColumnType(name="timestamp", fraction=6)),
    )
    schema = TableSchema(keyspace="k", table="t", columns=columns, key=("id",))
    assert arrow_schema(schema, POLICY) == pa.schema(
        [("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))]
    )


@pytest.mark.parametrize("name", ["_token", "_TOKEN"])
def test_a_column_with_the_tokens_name_stops_the_table(name: str) -> None:
    """Delta's names do not differ by case."""
    columns = (Column(name=name, type=ColumnType(name="int")),)
    schema = TableSchema(keyspace="k", table="t", columns=columns, key=())
    with pytest.raises(TableStoppedError, match="own column") as caught:
        arrow_schema(schema, POLICY)
    assert caught.value.table == "k.t"


def test_the_documentation_is_up_to_date() -> None:
    """docs/types.md is what the module writes."""
    assert (ROOT / "docs" / "types.md").read_text() == page()
    command = [sys.executable, "-m", "ratchet.core.types.doc"]
    written = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert written.stdout == page()


def test_every_type_is_in_the_documentation() -> None:
    text = page()
    for example in EXAMPLES:
        assert source_name(example) in text


def test_names_as_sql_writes_them() -> None:
    kinds = {
        "DECIMAL(18,2) UNSIGNED": ColumnType(name="decimal", unsigned=True, precision=18, scale=2),
        "TIMESTAMP(3)": ColumnType(name="timestamp", fraction=3),
        "VECTOR(3)": ColumnType(name="vector", length=12),
        "ENUM(...)": ColumnType(name="enum", members=("a",)),
        "INT": ColumnType(name="int"),
    }
    for name, kind in kinds.items():
        assert source_name(kind) == name
