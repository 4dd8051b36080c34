"""A table with a column for every reader there is, and its rows in both protocols.

For warming up: a row of NULLs goes through every kernel without any need for values.
"""

from __future__ import annotations

from typing import Final

from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.wire.decode import plan
from ratchet.wire.decode.plan import WireColumn, walk_plan
from ratchet.wire.decode.tablemap import TableMap

_INTEGERS: Final = {
    "tinyint": (plan.TINY, 1),
    "smallint": (plan.SHORT, 2),
    "mediumint": (plan.INT24, 3),
    "int": (plan.LONG, 4),
    "bigint": (plan.LONGLONG, 8),
}

# (type, type code in the log, length prefix, size): one for each way there is to read a column.
_LAYOUTS: Final = (
    *(
        (ColumnType(name=name, unsigned=unsigned), code, 0, size)
        for name, (code, size) in _INTEGERS.items()
        for unsigned in (False, True)
    ),
    (ColumnType(name="decimal", precision=18, scale=2), plan.NEWDECIMAL, 0, 9),
    (ColumnType(name="decimal", precision=65, scale=30), plan.NEWDECIMAL, 0, 30),
    (ColumnType(name="float"), plan.FLOAT, 0, 4),
    (ColumnType(name="double"), plan.DOUBLE, 0, 8),
    (ColumnType(name="bit", length=10), plan.BIT, 0, 2),
    (ColumnType(name="bit", length=64), plan.BIT, 0, 8),
    (ColumnType(name="year"), plan.YEAR, 0, 1),
    (ColumnType(name="date"), plan.DATE, 0, 3),
    (ColumnType(name="datetime", fraction=6), plan.DATETIME2, 0, 8),
    (ColumnType(name="timestamp", fraction=6), plan.TIMESTAMP2, 0, 7),
    (ColumnType(name="time", fraction=6), plan.TIME2, 0, 6),
    (ColumnType(name="varchar", length=40, charset="utf8mb4"), plan.VARCHAR, 1, 0),
    (ColumnType(name="varchar", length=40, charset="latin1"), plan.VARCHAR, 1, 0),
    (ColumnType(name="varchar", length=40, charset="ucs2"), plan.VARCHAR, 1, 0),
    (ColumnType(name="blob"), plan.BLOB, 2, 0),
    (ColumnType(name="binary", length=8), plan.STRING, 1, 0),
    (ColumnType(name="enum", charset="utf8mb4", members=("a",)), plan.ENUM, 0, 1),
    (ColumnType(name="set", charset="utf8mb4", members=("a",)), plan.SET, 0, 1),
    (ColumnType(name="json"), plan.JSON, 4, 0),
    (ColumnType(name="uuid"), plan.STRING, 1, 0),
    (ColumnType(name="inet4"), plan.STRING, 1, 0),
    (ColumnType(name="inet6"), plan.STRING, 1, 0),
)


def every_reader() -> TableMap:
    """The table map of a table with a nullable column for each reader."""
    columns = tuple(
        WireColumn(name=f"c{number}", type=kind, nullable=True, code=code, prefix=prefix, size=size)
        for number, (kind, code, prefix, size) in enumerate(_LAYOUTS)
    )
    shape = tuple(Column(name=column.name, type=column.type) for column in columns)
    return TableMap(
        table_id=1,
        database="sample",
        table="sample",
        schema=TableSchema(keyspace="sample", table="sample", columns=shape, key=()),
        columns=columns,
        plan=walk_plan(columns),
    )


def null_row_event(columns: int) -> bytes:
    """A row event from its column count on, with one row that is NULL throughout."""
    width = (columns + 7) // 8
    return bytes([columns]) + b"\xff" * width + b"\xff" * width


def null_text_row(columns: int) -> bytes:
    """A packet with a text row that is NULL throughout."""
    return columns.to_bytes(3, "little") + b"\0" + b"\xfb" * columns
