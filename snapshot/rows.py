"""Rows as Python values, for the few that a verification looks at one by one.

Lives here: values that compare as the lake's do, and SQL literals for key values out of the lake.

Invariant: two values are equal here if and only if the lake would show them as the same; -0.0 is
not 0.0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from ratchet.core.errors import BugError
from ratchet.core.schema import Column

Row = tuple[Any, ...]

_HOUR: Final = 3_600_000_000
_MINUTE: Final = 60_000_000
_SECOND: Final = 1_000_000
_NUMBERS: Final = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "bit", "year"}
)


def frozen_row(row: Mapping[str, Any] | None, columns: Sequence[str]) -> Row | None:
    """The values of these columns in a form that compares exactly; None if there is no row."""
    return None if row is None else tuple(_frozen(row.get(name)) for name in columns)


def thawed_row(row: Row, columns: Sequence[str], types: pa.Schema) -> dict[str, Any]:
    """The values of a frozen row by column, as the lake has them.

    Args:
        row: what `frozen_row` gave for those columns.
        columns: their names.
        types: the lake's columns.
    """
    return {
        name: _thawed(value, types.field(name).type)
        for name, value in zip(columns, row, strict=True)
    }


def _thawed(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_floating(kind) and value is not None:
        return struct.unpack("<d", value)[0]
    return value


def _frozen(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def different_columns(a: Row, b: Row, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns in which two frozen rows differ."""
    return tuple(name for name, x, y in zip(columns, a, b, strict=True) if x != y)


def key_literal(column: Column, value: Any, collation: str = "") -> str:
    """A key's value out of the lake as an SQL literal that equals it in the source.

    Both servers refuse the statement if a text has characters that the column's charset lacks
    (MySQL 3854, MariaDB 1267), as the old keys of a table have whose charset became a smaller one.
    Converted beforehand, it equals what has a question mark there.

    Args:
        column: as the source declares it.
        value: as the lake has it.
        collation: of a column of text; empty: the text is compared by the one of the session.
    """
    if value is None:
        raise BugError("a key's value is NULL", operation="read rows by key")
    name = column.type.name
    if name == "time" and isinstance(value, int):
        return f"'{_time_text(value)}'"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime):
        plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return f"'{plain.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, str) and name not in _NUMBERS:
        return _text_literal(value, column.type.charset or "", collation)
    return str(value) if name in _NUMBERS else f"'{value}'"


def _text_literal(value: str, charset: str, collation: str) -> str:
    text = f"_utf8mb4 x'{value.encode().hex()}'" if value else "''"
    if not collation or charset in {"", "utf8mb4"}:
        return text
    return f"CONVERT({text} USING {charset}) COLLATE {collation}"


def _time_text(value: int) -> str:
    hours, rest = divmod(abs(value), _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    seconds, micros = divmod(rest, _SECOND)
    sign = "-" if value < 0 else ""
    return f"{sign}{hours:02}:{minutes:02}:{seconds:02}.{micros:06}"
