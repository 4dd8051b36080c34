"""What a statement and a changed schema mean for a mirrored table. Pure.

Correctness does not rest on parsing: every row event describes its own columns, and a table stops
as soon as they no longer fit. But some statements change rows without row events (DROP, RENAME,
partitions), so those are recognised, and a statement of an unknown kind stops the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from enum import Enum
from typing import Final

from core.schema import Column, ColumnType, TableSchema
from core.types import MisfitPolicy, arrow_schema
from merge.alter import Altered, altered

CUT_AT: Final = 2000  # statements in events are cut at this length


class Effect(Enum):
    """What a statement may have done to a table."""

    NONE = "none"  # nothing that the mirror shows
    SHAPE = "shape"  # its columns: the next row events tell
    KEY = "key"  # an index is gone that may have made rows unique
    ROWS = "rows"  # its rows, without row events


_COMMENTS: Final = re.compile(r"/\*(?!!|M!).*?\*/|(?:--\s|#)[^\n]*", re.DOTALL)
_VERSIONED: Final = re.compile(r"/\*M?!\d*|\*/")
_NAME: Final = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$]+)"
_TABLE: Final = rf"({_NAME}(?:\s*\.\s*{_NAME})?)"
_HARMLESS: Final = re.compile(
    r"(CREATE|ALTER|DROP)\s+(OR\s+REPLACE\s+)?(ALGORITHM\s*=\s*\w+\s+)?"
    r"(DEFINER\s*=\s*\S+\s+)?(SQL\s+SECURITY\s+\w+\s+)?(AGGREGATE\s+)?"
    r"(VIEW|TRIGGER|PROCEDURE|FUNCTION|EVENT|USER|ROLE|SERVER|SEQUENCE|PACKAGE|LOADABLE)\b"
    r"|CREATE\s+(OR\s+REPLACE\s+)?(UNIQUE\s+|FULLTEXT\s+|SPATIAL\s+|VECTOR\s+)?INDEX\b"
    r"|(CREATE|DROP)\s+TEMPORARY\s+TABLE"
    r"|(GRANT|REVOKE|ANALYZE|OPTIMIZE|CHECK|REPAIR|FLUSH|SET|LOCK|UNLOCK|COMMENT)\b",
    re.IGNORECASE,
)
_CREATE: Final = re.compile(
    rf"CREATE\s+(OR\s+REPLACE\s+)?TABLE\s+(IF\s+NOT\s+EXISTS\s+)?{_TABLE}", re.IGNORECASE
)
_DROP: Final = re.compile(r"DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?(.*)", re.IGNORECASE | re.DOTALL)
_RENAME: Final = re.compile(r"RENAME\s+TABLES?\s(.*)", re.IGNORECASE | re.DOTALL)
_DROP_INDEX: Final = re.compile(r"DROP\s+INDEX\b", re.IGNORECASE)
_ALTER: Final = re.compile(
    rf"ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?{_TABLE}(.*)",
    re.IGNORECASE | re.DOTALL,
)
_ALTER_ROWS: Final = re.compile(
    r"\bRENAME\s+(?!COLUMN\b|INDEX\b|KEY\b)|\b(DISCARD|IMPORT)\s+(PARTITION|TABLESPACE)\b"
    r"|\b(DROP|TRUNCATE|EXCHANGE|CONVERT)\s+PARTITION\b|\bCONVERT\s+TABLE\b",
    re.IGNORECASE,
)
_ALTER_OTHER: Final = re.compile(
    rf"\bWITH\s+TABLE\s+{_TABLE}|\bCONVERT\s+TABLE\s+{_TABLE}"
    rf"|\bRENAME\s+(?:TO\s+|AS\s+|=\s*)?{_TABLE}",
    re.IGNORECASE,
)
_ALTER_KEY: Final = re.compile(r"\bDROP\s+(INDEX|KEY|CONSTRAINT|PRIMARY)\b", re.IGNORECASE)


def effect_of(statement: str, table: str) -> Effect:
    """What a statement that names a table may have done to it.

    Args:
        statement: as logged, maybe cut at CUT_AT characters.
        table: the table's name without its database.
    """
    plain = _VERSIONED.sub(" ", _COMMENTS.sub(" ", statement)).strip()
    cut = len(statement) >= CUT_AT
    for head, judge in _JUDGES:
        if found := head.match(plain):
            return judge(found, table, cut)
    return Effect.ROWS


def altered_by(statement: str, table: str) -> Altered:
    """What an ALTER of the table does to its columns; nothing for other statements.

    Args:
        statement: as logged, maybe cut at CUT_AT characters.
        table: the table's name without its database.
    """
    found = _ALTER.match(_VERSIONED.sub(" ", statement).strip())
    if found is None:  # a comment in front of it, or another statement
        found = _ALTER.match(_VERSIONED.sub(" ", _COMMENTS.sub(" ", statement)).strip())
        return Altered() if found is None else altered(found[2], whole=False)
    if not _is(found[1], table):
        return Altered()
    return altered(found[2], whole=len(statement) < CUT_AT)


def _created(found: re.Match[str], table: str, _: bool) -> Effect:  # noqa: FBT001 - a table's row
    if not _is(found[3], table):
        return Effect.NONE
    # IF NOT EXISTS is logged also where there was one already.
    return Effect.SHAPE if found[2] and not found[1] else Effect.ROWS


def _listed(found: re.Match[str], table: str, cut: bool) -> Effect:  # noqa: FBT001 - a table's row
    return Effect.ROWS if cut or _names(found[1], table) else Effect.NONE


def _altered(found: re.Match[str], table: str, cut: bool) -> Effect:  # noqa: FBT001 - a table's row
    target, what = found[1], found[2]
    if not _is(target, table):
        others = [name for names in _ALTER_OTHER.findall(what) for name in names if name]
        return Effect.ROWS if cut or any(_is(name, table) for name in others) else Effect.NONE
    if _ALTER_ROWS.search(what):
        return Effect.ROWS
    return Effect.KEY if _ALTER_KEY.search(what) else Effect.SHAPE


def _names(text: str, table: str) -> bool:
    return any(_is(name, table) for name in re.findall(_TABLE, text))


def _is(name: str, table: str) -> bool:
    last = re.findall(_NAME, name)[-1]
    if last[0] in '`"':
        last = last[1:-1].replace(last[0] * 2, last[0])
    return bool(last.casefold() == table.casefold())


_JUDGES: Final[tuple[tuple[re.Pattern[str], Callable[..., Effect]], ...]] = (
    (_HARMLESS, lambda *_: Effect.NONE),
    (_DROP_INDEX, lambda *_: Effect.KEY),
    (_CREATE, _created),
    (_DROP, _listed),
    (_RENAME, _listed),
    (_ALTER, _altered),
)


def misfit(
    lake: TableSchema,
    found: TableSchema,
    policy: MisfitPolicy,
    *,
    known: TableSchema,
    nulls: Collection[str] = (),
) -> str | None:
    """Why row events of one shape do not fit into a table; None if they do.

    Args:
        lake: the shape of the table: as it was dumped, and the columns that came since.
        found: the shape that the events describe.
        policy: decides about the lake's types.
        known: the shape of the same shard's events before.
        nulls: columns that may come: the rows that were there have NULL in them.
    """
    have, come = arrow_schema(lake, policy), arrow_schema(found, policy)
    before = {column.name for column in known.columns}
    added = [
        column.name
        for column in found.columns
        if column.name not in before and not (column.name in nulls and column.nullable)
    ]
    gone = [name for name in have.names if name in before and name not in come.names]
    changed = [
        f"{name} from {have.field(name).type} to {come.field(name).type}"
        for name in have.names
        if name in come.names and have.field(name).type != come.field(name).type
    ]
    parts = [
        f"{what} {', '.join(names)}"
        for what, names in (("added", added), ("removed", gone), ("changed", changed))
        if names
    ]
    # The log tells the primary key only; a key by a unique index is missing in it.
    if not parts and found.key and set(found.key) != set(lake.key):
        parts.append(f"primary key is now ({', '.join(found.key)})")
    return "; ".join(parts) or None


def lossy(old: TableSchema, new: TableSchema) -> str | None:
    """Why a change of shape may have changed values without row events; None if it cannot have.

    They fit each other (`misfit`): what both have has the same lake type.
    """
    if set(old.key) != set(new.key):
        return f"primary key was ({', '.join(old.key)}), is now ({', '.join(new.key)})"
    names = {column.name for column in new.columns}
    for column in (column for column in old.columns if column.name in names):
        reason = _narrowed(column, new.column(column.name))
        if reason:
            return f"{column.name}: {reason}"
    return None


_BITS: Final = {"tiny": 8, "": 16, "medium": 24, "long": 32}
_CAPACITY: Final = {
    size + kind: (1 << bits) - 1 for size, bits in _BITS.items() for kind in ("text", "blob")
}


def _capacity(kind: ColumnType) -> int:
    """Bytes that a value may have; 0 where the length says nothing."""
    return _CAPACITY.get(kind.name, kind.length or 0)


def _narrowed(old: Column, new: Column) -> str | None:
    a, b = old.type, new.type
    # BINARY is not among them: it is padded with zeros, so the values are others.
    wide = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
    bytes_ = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")
    checks = {
        f"type {a.name} became {b.name}": a.name != b.name
        and not any(a.name in family and b.name in family for family in (wide, bytes_)),
        "fraction of seconds is shorter": b.fraction < a.fraction,
        "length is shorter": _capacity(b) < _capacity(a),
        "members of the list are gone": not set(a.members) <= set(b.members),
        "character set changed": a.charset != b.charset and b.charset not in {"utf8mb4", None},
        "no longer NULL, so NULLs became values": old.nullable and not new.nullable,
    }
    return next((reason for reason, holds in checks.items() if holds), None)
