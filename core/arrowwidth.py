"""How much memory a row takes in Arrow: at least, and beyond what a log has of it.

A NULL takes a bit in a server's log and next to nothing in a Parquet file, but in memory as much as
any other value of its type. So bytes of the log, or of a file, say too little of rows of NULLs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from ratchet.core.schema import Column, ColumnType

_OFFSET: Final = 8  # of a value of variable length; arrays of numbers are made in 64 bits first


def least_width(fields: Iterable[pa.Field]) -> int:
    """Bytes that one row of some columns takes at least.

    >>> least_width(pa.schema([("a", pa.decimal128(19, 0)), ("b", pa.string())]))
    24
    """
    return sum(_width(field.type) for field in fields)


def spelled_out(columns: Iterable[Column]) -> int:
    """Bytes that a row may take besides, of values that a log has as a number or without their end.

    A SET is eight bytes in the log, and all its labels in memory; a BINARY's zeros are left out.

    >>> kind = ColumnType(name="set", members=("ab", "c"))
    >>> spelled_out([Column(name="s", type=kind)])
    4
    """
    return sum(_spelled(column.type) for column in columns)


def _spelled(kind: ColumnType) -> int:
    labels = [len(label.encode()) for label in kind.members]
    if kind.name == "set":
        return sum(labels) + max(0, len(labels) - 1)
    if kind.name == "binary":
        return kind.length or 0
    return max(labels, default=0)


def _width(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return least_width(kind)
    try:
        return max(_OFFSET, int(kind.bit_width) // 8)
    except ValueError:  # of variable length
        return _OFFSET
