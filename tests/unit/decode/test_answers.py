"""See wire.decode.answers; what becomes of whole answers is in test_lying_answers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from ratchet.core.errors import DecodeError
from ratchet.wire.decode.answers import (
    Column,
    as_count,
    as_flag,
    as_is,
    as_name,
    as_number,
    as_text,
    as_whole,
    or_null,
    shaped,
    single,
    single_value,
)


@pytest.mark.parametrize(
    ("column", "value", "read"),
    [
        (as_text, b"\xc3\xa4", "\u00e4"),
        (as_text, 7, "7"),
        (as_text, "", ""),
        (as_whole, "-7", -7),
        (as_whole, Decimal(7), 7),
        (as_whole, b"7", 7),
        (as_count, 2**64 - 1, 2**64 - 1),
        (as_flag, "0", False),
        (as_number, Decimal("1.5"), 1.5),
        (as_is, None, None),
        (or_null(as_name), None, None),
        (or_null(as_name), "t", "t"),
    ],
)
def test_a_value(column: Column, value: object, read: object) -> None:
    assert single_value([(value,)], column) == read


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (as_text, (None, b"\xff")),
        (as_name, (None, "", b"", "\ud800")),
        (as_whole, (None, "", "1.5", 1.5, float("nan"), "\u0663", "\u00b2", "9" * 6000)),
        (as_count, (-1, "-1", 2**64, "x")),
        (as_number, (None, "nan", "1e999", float("inf"), "x")),
        (as_flag, ("ON",)),
        (or_null(as_whole), ("x",)),
    ],
)
def test_what_is_none(column: Column, values: tuple[object, ...]) -> None:
    for value in values:
        with pytest.raises(DecodeError, match="the expected shape"):
            single_value([(value,)], column)


@pytest.mark.parametrize("rows", [[], [(1,), (2,)], [()], [(1, 2)]])
def test_another_number_of_rows_or_columns(rows: list[Any]) -> None:
    with pytest.raises(DecodeError):
        single(rows, as_whole)


def test_more_columns_than_are_read() -> None:
    assert shaped([("a", 1, 2), ("b", 3, 4)], as_name, as_whole, wider=True) == [("a", 1), ("b", 3)]
    with pytest.raises(DecodeError, match="1 columns instead of 2"):
        shaped([("a",)], as_name, as_whole, wider=True)


def test_a_message_has_the_beginning_of_a_value() -> None:
    with pytest.raises(DecodeError) as caught:
        single_value([("x" * 10**6,)], as_whole)
    assert len(str(caught.value)) < 1000
