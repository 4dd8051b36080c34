"""FIELD events of VStream as schemas: how the rows behind them look.

What a FIELD event does not tell: the order of a primary key's columns, a unique key in place of
one, and the character set where Vitess does not know it (its number is 0 then).
"""

from __future__ import annotations

import re
from typing import Any, Final

from ratchet.core.errors import TableStoppedError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.wire.decode.catalog import declared_type
from ratchet.wire.decode.collations import charset_of

# Of a field's flags, as the MySQL protocol numbers them.
_NOT_NULL: Final = 1
_PRIMARY: Final = 2
_NUMBERS: Final = re.compile(r"\((\d+)(?:,(\d+))?\)")
_NAME: Final = re.compile(r"[a-z0-9_]+")
_TEXTS: Final = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
_DIGITS: Final = 65
_SCALE: Final = 38
_FRACTIONS: Final = {"time", "datetime", "timestamp"}


def schema_of(event: Any, *, keyspace: str, table: str) -> TableSchema:
    """The schema that a FieldEvent describes.

    Args:
        event: the message.
        keyspace: the source's name.
        table: the table's own name.

    Raises:
        TableStoppedError: it describes a column in a way that is not known.
    """
    return TableSchema(
        keyspace=keyspace,
        table=table,
        columns=tuple(_column(field, f"{keyspace}.{table}") for field in event.fields),
        key=tuple(field.name for field in event.fields if field.flags & _PRIMARY),
    )


def _column(field: Any, table: str) -> Column:
    found = _NAME.match(field.column_type)
    if found is None:
        raise _unknown(field, table, "its type is not given")
    return Column(
        name=field.name,
        type=_type(found[0], field, table),
        nullable=not field.flags & _NOT_NULL,
    )


def _type(name: str, field: Any, table: str) -> ColumnType:
    numbers = _NUMBERS.search(field.column_type) if name not in {"enum", "set"} else None
    first, second = (int(n) if n else None for n in numbers.groups()) if numbers else (None, None)
    if name == "decimal" and not (
        1 <= (first or 0) <= _DIGITS and 0 <= (second or 0) <= min(first or 0, _SCALE)
    ):
        raise _unknown(field, table, "no decimal has as many digits")
    charset = None
    if name in _TEXTS:
        if not field.charset:
            raise _unknown(field, table, "Vitess does not know its character set")
        charset = charset_of(field.charset)
    return declared_type(
        name,
        field.column_type,
        octets=field.column_length,
        precision=first,
        scale=second,
        fraction=first if name in _FRACTIONS else None,
        charset=charset,
    )


def _unknown(field: Any, table: str, why: str) -> TableStoppedError:
    return TableStoppedError(
        f"column {field.name} ({field.column_type or 'no type'}) cannot be read: {why}",
        operation="read a FIELD event of VStream",
        table=table,
        hint="the table has changed since these rows were written: dump it again, or exclude it "
        "in `tables`",
    )
