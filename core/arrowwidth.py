"""How much memory a row takes in Arrow at least, whatever its values are.

A NULL takes a bit in a server's log and next to nothing in a Parquet file, but in memory as much as
any other value of its type. So bytes of the log, or of a file, say too little of rows of NULLs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

_OFFSET: Final = 8  # of a value of variable length; arrays of numbers are made in 64 bits first


def least_width(fields: Iterable[pa.Field]) -> int:
    """Bytes that one row of some columns takes at least.

    >>> least_width(pa.schema([("a", pa.decimal128(19, 0)), ("b", pa.string())]))
    24
    """
    return sum(_width(field.type) for field in fields)


def _width(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return least_width(kind)
    try:
        return max(_OFFSET, int(kind.bit_width) // 8)
    except ValueError:  # of variable length
        return _OFFSET
