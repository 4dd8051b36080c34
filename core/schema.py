"""A table's shape as the source server describes it, whether by information_schema or by the log.

What a column becomes in the lake is not here but in `core.types`, one module per family.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """A MySQL or MariaDB column type with the parts that matter to values.

    Attributes:
        name: the type's name in lower case as information_schema's DATA_TYPE has it ("bigint",
            "varchar", "enum", "inet6" ...).
        unsigned: integers, decimals and floats only.
        length: bytes for binary, char and vector types, bits for bit, 2 for MariaDB's YEAR(2);
            None elsewhere (also for blob and text, whose length follows from their name).
        precision: digits in all (decimal).
        scale: digits behind the point (decimal).
        fraction: digits of fractional seconds (time, datetime, timestamp), 0 to 6.
        charset: the server's charset name for character types, enum and set; None elsewhere.
        members: labels of enum and set, in their order.
        legacy: stored in the temporal format of MariaDB 5.3, whose fraction the log does not tell.
    """

    name: str
    unsigned: bool = False
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    fraction: int = 0
    charset: str | None = None
    members: tuple[str, ...] = ()
    legacy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column, by its own name.

    Attributes:
        name: the column's name, any characters.
        type: see ColumnType.
        nullable: whether the source allows NULL.
    """

    name: str
    type: ColumnType
    nullable: bool = True

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values. By hand: of 1,000 columns `asdict` takes ten times as long."""
        kind = {name: getattr(self.type, name) for name in ColumnType.__slots__}
        return {
            "name": self.name,
            "type": {**kind, "members": list(self.type.members)},
            "nullable": self.nullable,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Column:
        """Read what `to_json` wrote."""
        kind = ColumnType(**{**data["type"], "members": tuple(data["type"]["members"])})
        return cls(name=data["name"], type=kind, nullable=data["nullable"])


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """A table of a keyspace.

    Attributes:
        keyspace: name of the source in the config, and of the database in the lake.
        table: the table's name.
        columns: in the server's order; every column that a row image holds.
        key: names of the columns that identify a row: the primary key, else the first unique key
            without nullable columns; empty when there is neither.
    """

    keyspace: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    _fingerprint: str = field(default="", init=False, compare=False, repr=False)

    @property
    def name(self) -> str:
        """keyspace.table, for messages."""
        return f"{self.keyspace}.{self.table}"

    def column(self, name: str) -> Column:
        """The column of that name; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; `from_json` reads it back."""
        return {
            "keyspace": self.keyspace,
            "table": self.table,
            "columns": [column.to_json() for column in self.columns],
            "key": list(self.key),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TableSchema:
        """Read what `to_json` wrote."""
        return cls(
            keyspace=data["keyspace"],
            table=data["table"],
            columns=tuple(Column.from_json(column) for column in data["columns"]),
            key=tuple(data["key"]),
        )

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with anything in the schema: its id in file names."""
        if not self._fingerprint:
            found = fingerprint_of(self.to_json())
            object.__setattr__(self, "_fingerprint", found)  # it never changes
        return self._fingerprint


def fingerprint_of(data: dict[str, Any]) -> str:
    """The fingerprint of what `TableSchema.to_json` wrote, by whatever version."""
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
