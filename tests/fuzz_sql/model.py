"""What the grammar knows of the database: its tables as they are now.

Lives here: plain values. Does not live here: asking a server for them (`catalog`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        name: its name.
        kind: DATA_TYPE of information_schema, small letters.
        full: COLUMN_TYPE.
        nullable: whether it takes NULL.
        generated: whether it is computed.
        length: characters or bytes; 0 where that says nothing.
        charset: of text; empty of others.
        auto: AUTO_INCREMENT.
        hidden: whether `SELECT *` leaves it out.
    """

    name: str
    kind: str
    full: str
    nullable: bool = True
    generated: bool = False
    length: int = 0
    charset: str = ""
    auto: bool = False
    hidden: bool = False

    @property
    def unsigned(self) -> bool:
        """Whether it takes no negative numbers."""
        return "unsigned" in self.full

    @property
    def numbers(self) -> tuple[int, ...]:
        """What stands in the type's parentheses."""
        found = re.match(r"\w+\(([\d, ]+)\)", self.full)
        return tuple(int(n) for n in found[1].split(",")) if found else ()

    @property
    def members(self) -> tuple[str, ...]:
        """Labels of an ENUM or a SET."""
        found = re.findall(r"'((?:[^']|'')*)'", self.full)
        return tuple(label.replace("''", "'") for label in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """One index.

    Attributes:
        name: PRIMARY for the primary key.
        unique: whether it is one.
        columns: in their order; expressions are left out.
    """

    name: str
    unique: bool
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table.

    Attributes:
        name: its name.
        engine: small letters.
        columns: in their order.
        indexes: all.
        references: foreign key's name -> table that it refers to.
        partitions: names, in their order.
        method: how it is partitioned; empty if it is not.
    """

    name: str
    engine: str = "innodb"
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...] = ()
    references: dict[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    method: str = ""

    @property
    def key(self) -> tuple[Column, ...]:
        """The columns of its primary key; else of a unique one."""
        for index in sorted(self.indexes, key=lambda one: (one.name != "PRIMARY", one.name)):
            if index.unique and index.columns:
                return tuple(c for c in self.columns if c.name in index.columns)
        return ()

    @property
    def plain(self) -> tuple[Column, ...]:
        """The columns that one may write."""
        return tuple(column for column in self.columns if not column.generated)

    @property
    def values(self) -> tuple[Column, ...]:
        """The columns that one may write, without the key's."""
        names = {column.name for column in self.key}
        return tuple(column for column in self.plain if column.name not in names)

    def column(self, name: str) -> Column | None:
        """One by its name."""
        return next((one for one in self.columns if one.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """All tables.

    Attributes:
        tables: base tables by name.
        views: names of views.
        sequences: names of sequences (MariaDB).
    """

    tables: dict[str, Table] = field(default_factory=dict)
    views: tuple[str, ...] = ()
    sequences: tuple[str, ...] = ()
