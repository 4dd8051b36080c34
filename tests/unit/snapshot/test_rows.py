"""Rows as values that compare exactly, and keys as literals."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from ratchet.core.errors import BugError
from ratchet.core.schema import Column, ColumnType
from ratchet.snapshot.rows import different_columns, frozen_row, key_literal


def test_exact_comparison() -> None:
    """A zero's sign counts, a time zone's name does not."""
    here = {"a": 0.0, "b": datetime(2024, 1, 1, tzinfo=UTC), "c": None}
    east = timezone(timedelta(hours=1))
    there = {"a": -0.0, "b": datetime(2024, 1, 1, 1, tzinfo=east), "c": 0}
    columns = ("a", "b", "c")
    x, y = frozen_row(here, columns), frozen_row(there, columns)
    assert x is not None
    assert y is not None
    assert different_columns(x, y, columns) == ("a", "c")
    assert frozen_row(None, columns) is None


@pytest.mark.parametrize(
    ("kind", "value", "literal"),
    [
        ("int", -5, "-5"),
        ("bigint", Decimal(2**64 - 1), "18446744073709551615"),
        ("decimal", Decimal("1E+2"), "100"),
        ("decimal", "1.5", "1.5"),
        ("bit", 3, "3"),
        ("year", 2024, "2024"),
        ("time", -3_600_000_001, "'-01:00:00.000001'"),
        ("time", 838 * 3_600_000_000, "'838:00:00.000000'"),
        ("date", date(2024, 2, 29), "'2024-02-29'"),
        ("datetime", datetime(2024, 1, 1, 0, 0, 0, 5), "'2024-01-01 00:00:00.000005'"),  # noqa: DTZ001
        ("timestamp", datetime(2024, 1, 1, tzinfo=UTC), "'2024-01-01 00:00:00.000000'"),
        ("varchar", "O'x", "_utf8mb4 x'4f2778'"),
        ("varchar", "", "''"),
        ("enum", "a", "_utf8mb4 x'61'"),
        ("date", "0000-00-00", "_utf8mb4 x'303030302d30302d3030'"),
        ("binary", b"\x00'", "x'0027'"),
    ],
)
def test_key_values_as_literals(kind: str, value: Any, literal: str) -> None:
    """A value out of the lake, as the source compares it."""
    assert key_literal(Column(name="k", type=ColumnType(name=kind)), value) == literal


def test_a_text_key_that_its_charset_may_lack() -> None:
    """It is converted beforehand: a server refuses to compare what it cannot convert."""

    def literal(charset: str, collation: str) -> str:
        kind = ColumnType(name="varchar", charset=charset)
        return key_literal(Column(name="k", type=kind), "\u65e5", collation)

    assert literal("utf8mb4", "utf8mb4_bin") == "_utf8mb4 x'e697a5'"
    assert literal("latin1", "latin1_bin") == (
        "CONVERT(_utf8mb4 x'e697a5' USING latin1) COLLATE latin1_bin"
    )


def test_a_key_is_never_null() -> None:
    """A NULL in a key is a bug of ours."""
    with pytest.raises(BugError):
        key_literal(Column(name="k", type=ColumnType(name="int")), None)
