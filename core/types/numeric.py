"""Integers, decimals, floats, BIT and YEAR."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ratchet.core.schema import ColumnType
from ratchet.core.types.rule import (
    DECIMAL_DIGITS,
    UNSIGNED_64,
    InvalidValuePolicy,
    Rules,
    TypeRule,
    always,
)

# Type name -> (Arrow type when signed, Arrow type when unsigned: the next that holds all values).
_INTEGERS: Final = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), UNSIGNED_64),
}
INTEGER_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_BIT_64: Final = 64
_WIDE = f"more than {DECIMAL_DIGITS} digits: the number as text, all digits of its scale"


def _integer(column: ColumnType, _: InvalidValuePolicy) -> TypeRule:
    signed, unsigned = _INTEGERS[column.name]
    return TypeRule(family="integer", arrow=unsigned if column.unsigned else signed)


def _decimal(column: ColumnType, _: InvalidValuePolicy) -> TypeRule:
    digits, scale = column.precision or 0, column.scale or 0
    if digits > DECIMAL_DIGITS:
        return TypeRule(family="decimal", arrow=pa.string(), note=_WIDE)
    return TypeRule(family="decimal", arrow=pa.decimal128(digits, scale))


def _bit(column: ColumnType, _: InvalidValuePolicy) -> TypeRule:
    wide = (column.length or 1) >= _BIT_64
    note = "the bits as an unsigned number"
    return TypeRule(family="bit", arrow=UNSIGNED_64 if wide else pa.int64(), note=note)


_FLOAT: Final = TypeRule(
    family="float",
    arrow=pa.float32(),
    note="all 32 bits, also of FLOAT(M,D); the server's SELECT shows 6 digits",
)
_DOUBLE: Final = TypeRule(
    family="double", arrow=pa.float64(), note="all 64 bits, also of DOUBLE(M,D)"
)
_YEAR: Final = TypeRule(
    family="year",
    arrow=pa.int16(),
    note="'0000' is 0; of MariaDB's YEAR(2) the server shows two digits: 1970 to 2069",
)

RULES: Final[Rules] = {
    **dict.fromkeys(_INTEGERS, _integer),
    "decimal": _decimal,
    "float": always(_FLOAT),
    "double": always(_DOUBLE),
    "bit": _bit,
    "year": always(_YEAR),
}

EXAMPLES: Final = (
    *(ColumnType(name=name) for name in _INTEGERS),
    *(ColumnType(name=name, unsigned=True) for name in _INTEGERS),
    ColumnType(name="decimal", precision=18, scale=2),
    ColumnType(name="decimal", precision=65, scale=30),
    ColumnType(name="float"),
    ColumnType(name="double"),
    ColumnType(name="bit", length=10),
    ColumnType(name="bit", length=64),
    ColumnType(name="year"),
)
