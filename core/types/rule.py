"""What a source column becomes in the lake: the record that every type family fills in.

Lives here: `TypeRule`, `InvalidValuePolicy` and the Arrow types that several families use. Does not
live
here: which type gets which rule (the family modules), and how bytes are decoded (`wire.decode`).

Invariant: a rule depends on the column's type and the policy only, so a snapshot, the log and
every later run give a column the same type in the lake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from ratchet.core.schema import ColumnType

ZeroDates = Literal["null", "text", "fail"]

Family = Literal[
    "integer",
    "decimal",
    "float",
    "double",
    "bit",
    "year",
    "date",
    "datetime",
    "timestamp",
    "time",
    "text",
    "binary",
    "padded",
    "enum",
    "set",
    "json",
    "uuid",
    "inet4",
    "inet6",
]

DECIMAL_DIGITS: Final = 38  # of Arrow's and Delta's widest decimal
UNSIGNED_64: Final = pa.decimal128(20, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidValuePolicy:
    """What happens to source values that their lake type cannot hold.

    Attributes:
        zero_dates: for DATE, DATETIME and TIMESTAMP values that are no day of the calendar
            ("0000-00-00", month or day 0, "2024-02-31", year 0). "null": they become NULL, are
            counted and reported. "text": all such columns become strings with the server's own
            text. "fail": the table stops with an error.
    """

    zero_dates: ZeroDates = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRule:
    """How a column of one type is kept in the lake.

    Attributes:
        family: which decoder serves it.
        arrow: its type in Arrow, and by that in Parquet and Delta.
        note: what a reader of the lake must know about its values; may be empty.
        can_misfit: whether the source has values that `arrow` cannot hold.
    """

    family: Family
    arrow: pa.DataType
    note: str = ""
    can_misfit: bool = False

    @property
    def delta(self) -> str:
        """The name of the Delta (Spark SQL) type that `arrow` is stored as."""
        return delta_name(self.arrow)


RuleMaker = Callable[[ColumnType, InvalidValuePolicy], TypeRule]
Rules = Mapping[str, RuleMaker]


def always(rule: TypeRule) -> RuleMaker:
    """For types whose rule depends neither on the column nor on the policy."""
    return lambda _column, _policy: rule


_DELTA_NAMES: Final[Mapping[pa.DataType, str]] = {
    pa.int8(): "BYTE",
    pa.int16(): "SHORT",
    pa.int32(): "INTEGER",
    pa.int64(): "LONG",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}


def delta_name(arrow: pa.DataType) -> str:
    """The Delta type that an Arrow type of ours is stored as; KeyError for any other."""
    if pa.types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision},{arrow.scale})"
    return _DELTA_NAMES[arrow]
