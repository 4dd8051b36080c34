"""How one column lies in a row image, and the layout of a whole row for the walk.

Lives here: type codes of the log and what follows from them for the bytes: length prefixes and
sizes. Does not live here: types as the schema knows them (`tablemap`), values (`columns`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ratchet.core.errors import DecodeError
from ratchet.core.schema import ColumnType
from ratchet.wire.decode import decimals
from ratchet.wire.decode.arrays import Longs

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, NEWDATE, VARCHAR, BIT = 10, 11, 12, 13, 14, 15, 16
TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, NEWDECIMAL, ENUM, SET = 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB = 249, 250, 251, 252
VAR_STRING, STRING, GEOMETRY = 253, 254, 255

# Bytes of type metadata in a table map, for the codes that have any.
METADATA_BYTES: Final = {
    FLOAT: 1,
    DOUBLE: 1,
    VARCHAR: 2,
    BIT: 2,
    TIMESTAMP2: 1,
    DATETIME2: 1,
    TIME2: 1,
    BLOB_COMPRESSED: 1,
    VARCHAR_COMPRESSED: 2,
    VECTOR: 1,
    JSON: 1,
    NEWDECIMAL: 2,
    ENUM: 2,
    SET: 2,
    TINY_BLOB: 1,
    MEDIUM_BLOB: 1,
    LONG_BLOB: 1,
    BLOB: 1,
    VAR_STRING: 2,
    STRING: 2,
    GEOMETRY: 1,
}
_PLAIN: Final = {TINY, SHORT, LONG, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR, NEWDATE}
KNOWN: Final = _PLAIN | set(METADATA_BYTES)

NUMBERS: Final = {TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE, YEAR}
BLOBS: Final = {TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, BLOB_COMPRESSED}
VARIABLE: Final = {VARCHAR, VAR_STRING, VARCHAR_COMPRESSED}
COMPRESSED: Final = {BLOB_COMPRESSED, VARCHAR_COMPRESSED}

_FIXED: Final = {
    TINY: 1,
    SHORT: 2,
    INT24: 3,
    LONG: 4,
    LONGLONG: 8,
    YEAR: 1,
    DATE: 3,
    NEWDATE: 3,
    TIME: 3,
    TIMESTAMP: 4,
    DATETIME: 8,
}
_WITH_FRACTION: Final = {TIMESTAMP2: 4, DATETIME2: 5, TIME2: 3}

# MariaDB 5.3's temporal types with fractions: bytes by digits of the fraction.
_HIRES: Final = {
    TIME: (3, 4, 4, 5, 5, 5, 6),
    DATETIME: (8, 6, 6, 7, 7, 7, 8),
    TIMESTAMP: (4, 5, 5, 6, 6, 7, 7),
}
_ONE_BYTE_LENGTH: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WireColumn:
    """A column as row images hold it.

    Attributes:
        name: the column's name.
        type: its type.
        nullable: whether it may be NULL.
        code: its type code in the log; ENUM and SET where the log says STRING.
        prefix: bytes of the length in front of a value, 0 if it has none.
        size: bytes of a value without a length in front.
        hidden: it belongs to the server and is no column of the table.
    """

    name: str
    type: ColumnType
    nullable: bool
    code: int
    prefix: int
    size: int
    hidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkPlan:
    """A row's layout as the walk takes it.

    Attributes:
        prefixes: per column the bytes of a value's length.
        sizes: per column the bytes of a value that has no length in front.
    """

    prefixes: Longs
    sizes: Longs


def walk_plan(columns: tuple[WireColumn, ...]) -> WalkPlan:
    """The layout of rows of these columns."""
    return WalkPlan(
        prefixes=np.array([column.prefix for column in columns], dtype=np.int64),
        sizes=np.array([column.size for column in columns], dtype=np.int64),
    )


def layout(code: int, meta: bytes, kind: ColumnType) -> tuple[int, int]:
    """The length prefix and the size of a column's values.

    Args:
        code: its type code.
        meta: its type metadata, as many bytes as METADATA_BYTES says.
        kind: its type.
    """
    if code in _HIRES and kind.legacy and kind.fraction:
        return 0, _HIRES[code][kind.fraction]
    if code in _FIXED:
        return 0, _FIXED[code]
    if code in _WITH_FRACTION:
        return 0, _WITH_FRACTION[code] + (kind.fraction + 1) // 2
    if code in VARIABLE:
        return (1 if int.from_bytes(meta, "little") < _ONE_BYTE_LENGTH else 2), 0
    if code == STRING:
        return (1 if string_length(meta) < _ONE_BYTE_LENGTH else 2), 0
    if code in {ENUM, SET}:
        return 0, _checked(meta[1], 8)
    if code == BIT:
        return 0, _checked(meta[1] + (meta[0] > 0), 8)
    if code == NEWDECIMAL:
        return 0, decimals.size(kind.precision or 0, kind.scale or 0)
    if code in {FLOAT, DOUBLE}:
        return 0, _checked(meta[0], 8)
    return _checked(meta[0], 4), 0  # the blob family: the bytes of its length


def fraction(meta: bytes) -> int:
    """The digits of fractional seconds of a temporal column."""
    return _checked(meta[0], 6, least=0) if meta else 0


def _checked(value: int, limit: int, *, least: int = 1) -> int:
    if not least <= value <= limit:
        raise DecodeError(
            f"a table map gives {value} as a column's size; the most is {limit}",
            operation="read a table map",
            hint="the stream may be damaged: try again",
        )
    return value


def string_code(meta: bytes) -> int:
    """The real type of a STRING column: STRING, ENUM or SET."""
    real = meta[0] if meta[0] in {ENUM, SET} else meta[0] | 0x30
    if real not in {ENUM, SET, STRING}:
        raise DecodeError(
            f"a table map has STRING columns of the real type {meta[0]}, which is unknown here",
            operation="read a table map",
            hint="the stream may be damaged: try again",
        )
    return real


def string_length(meta: bytes) -> int:
    """The most bytes that a CHAR or BINARY may have.

    Lengths above 255 have their two high bits, inverted, in the byte of the real type.
    """
    return meta[1] | ((meta[0] & 0x30 ^ 0x30) << 4)
