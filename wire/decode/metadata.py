"""The optional metadata behind a table map (binlog_row_metadata=FULL), as it stands in the event.

Lives here: the fields and which columns they count. Does not live here: what they mean for a
column (`tablemap`). A field that is not known is skipped: it says more about columns, and what
must be known about them is checked to be there.

The two servers differ in which columns have a charset in the log: MySQL counts CHAR, VARCHAR and
BLOB columns, MariaDB also GEOMETRY, UUID, INET4, INET6 and compressed ones. (Found by experiment
on 9.7.4 and 10.11.19; YEAR counts as a number on both.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ratchet.wire.decode.cursor import ByteCursor

_SIGNEDNESS: Final = 1
_CHARSET_DEFAULT: Final = 2
_CHARSET_COLUMNS: Final = 3
_NAMES: Final = 4
_SET_MEMBERS: Final = 5
_ENUM_MEMBERS: Final = 6
_GEOMETRY_TYPES: Final = 7
_KEY: Final = 8
_KEY_WITH_PREFIXES: Final = 9
_ENUM_CHARSET_DEFAULT: Final = 10
_ENUM_CHARSET_COLUMNS: Final = 11
_VISIBILITY: Final = 12
_VECTOR_SIZES: Final = 13

_OPERATION: Final = "read a table map's metadata"


@dataclass(slots=True)
class Metadata:
    """The fields as they stand in the event; each list counts only the columns it applies to.

    Attributes:
        unsigned: per number column, in bits that may fill up the last byte.
        collations: per character column: the listed ones, or those that differ from the default.
        default_collation: of character columns, if given.
        enum_collations: per ENUM or SET column, as `collations`.
        default_enum_collation: of ENUM and SET columns, if given.
        names: of all columns.
        set_members: per SET column the labels, in the column's charset.
        enum_members: per ENUM column, likewise.
        geometries: per GEOMETRY column its subtype.
        key: numbers of the primary key's columns.
        vector_sizes: per VECTOR column its dimensions.
        from_mysql: it holds a field that only MySQL writes.
    """

    unsigned: list[bool] = field(default_factory=list)
    collations: dict[int, int] | list[int] | None = None
    default_collation: int | None = None
    enum_collations: dict[int, int] | list[int] | None = None
    default_enum_collation: int | None = None
    names: list[str] = field(default_factory=list)
    set_members: list[list[bytes]] = field(default_factory=list)
    enum_members: list[list[bytes]] = field(default_factory=list)
    geometries: list[int] = field(default_factory=list)
    key: list[int] = field(default_factory=list)
    vector_sizes: list[int] = field(default_factory=list)
    from_mysql: bool = False

    def collation(self, number: int) -> int | None:
        """The collation id of the character column with that number among them."""
        return _pick(self.collations, self.default_collation, number)

    def enum_collation(self, number: int) -> int | None:
        """The collation id of the ENUM or SET column with that number among them."""
        return _pick(self.enum_collations, self.default_enum_collation, number)


def _pick(given: dict[int, int] | list[int] | None, default: int | None, number: int) -> int | None:
    if isinstance(given, list):
        return given[number] if number < len(given) else None
    return (given or {}).get(number, default)


def read_metadata(data: bytes) -> Metadata:
    """Read the fields behind a table map's NULL bitmap; DecodeError if they are cut short."""
    found = Metadata()
    cursor = ByteCursor(data, operation=_OPERATION)
    while cursor.left:
        kind = cursor.little(1)
        _read_field(kind, ByteCursor(cursor.lenenc_bytes(), operation=_OPERATION), found)
    return found


def _read_field(kind: int, cursor: ByteCursor, found: Metadata) -> None:
    if kind == _SIGNEDNESS:
        found.unsigned = cursor.bits(cursor.left * 8)
    elif kind == _CHARSET_DEFAULT:
        found.default_collation, found.collations = _defaults(cursor)
    elif kind == _CHARSET_COLUMNS:
        found.collations = _numbers(cursor)
    elif kind == _ENUM_CHARSET_DEFAULT:
        found.default_enum_collation, found.enum_collations = _defaults(cursor)
    elif kind == _ENUM_CHARSET_COLUMNS:
        found.enum_collations = _numbers(cursor)
    elif kind == _NAMES:
        while cursor.left:
            found.names.append(cursor.lenenc_text())
    elif kind in {_SET_MEMBERS, _ENUM_MEMBERS}:
        into = found.set_members if kind == _SET_MEMBERS else found.enum_members
        while cursor.left:
            into.append([cursor.lenenc_bytes() for _ in range(cursor.lenenc())])
    elif kind == _GEOMETRY_TYPES:
        found.geometries = _numbers(cursor)
    elif kind == _KEY:
        found.key = _numbers(cursor)
    elif kind == _KEY_WITH_PREFIXES:
        found.key = _numbers(cursor)[::2]  # column, length of its prefix, column, ...
    elif kind == _VISIBILITY:
        found.from_mysql = True
    elif kind == _VECTOR_SIZES:
        found.from_mysql = True
        found.vector_sizes = _numbers(cursor)


def _numbers(cursor: ByteCursor) -> list[int]:
    found = []
    while cursor.left:
        found.append(cursor.lenenc())
    return found


def _defaults(cursor: ByteCursor) -> tuple[int, dict[int, int]]:
    default = cursor.lenenc()
    rest = _numbers(cursor)
    return default, dict(zip(rest[::2], rest[1::2], strict=False))
