"""What a changed schema means for a mirrored table, and what statements of older lakes did. Pure.

Every row event describes its own columns. Where they no longer fit the mirrored table, it stops
(`misfit`). Where they fit, but the server may have rewritten values without row events, it is in
doubt (`unproven`): a list says which changes of type keep every value.

What a statement does is judged where it is captured (`core.sql`), and stands in its event; only
rounds that earlier versions wrote are judged here, by what they kept of the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from ratchet.core.columnrules import unfit_key
from ratchet.core.rounds import STATEMENT_LENGTH, TableEvent
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.sql.effects import Change
from ratchet.core.sql.lexer import Mode
from ratchet.core.sql.names import Scope
from ratchet.core.sql.statements import classify
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.core.types.numeric import INTEGER_BITS
from ratchet.core.types.text import TEXTS, WIDEST, are_apart, capacity


def changes_of(event: TableEvent) -> Sequence[Change]:
    """What a statement did to the event's table."""
    if event.effect:
        return (Change(event.effect, event.reason, event.nulls),)
    scope = Scope(database="", default="", known=(event.table,))
    # Neither the session's mode is known nor, for sure, whose server it was.
    found = classify(event.statement, mode=Mode(mariadb=True, known=False), scope=scope)
    changes = [change for table, change in found.changes if table == event.table]
    if len(event.statement) >= STATEMENT_LENGTH:
        moved = [change for change in changes if change.effect == "rows"]
        return moved or (Change("doubt", "a statement was cut in the log of rounds"),)
    return changes


def misfit(
    lake: TableSchema,
    found: TableSchema,
    policy: InvalidValuePolicy,
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
    loose = [
        name
        for name in lake.key
        if name in come.names and found.column(name).nullable and not lake.column(name).nullable
    ]
    if loose:
        # Rows whose keys are NULL are told apart by nothing.
        parts.append(f"NULL may be in the key ({', '.join(loose)})")
    parts += _odd_key(lake, found)
    # The log tells the primary key only; a key by a unique index is missing in it.
    if not parts and found.key and set(found.key) != set(lake.key):
        parts.append(f"primary key is now ({', '.join(found.key)})")
    return "; ".join(parts) or None


def _odd_key(lake: TableSchema, found: TableSchema) -> list[str]:
    """Why the key of a table no longer tells its rows apart, as where a member '' comes."""
    there = {column.name for column in found.columns}
    if unfit_key(lake) is not None or not there.issuperset(lake.key):
        return []
    odd = unfit_key(replace(found, key=lake.key))
    return [] if odd is None else [odd.message]


def key_lost(old: TableSchema, new: TableSchema) -> str | None:
    """Why rows may not be told apart any more by the key that they had; None if they can."""
    if set(old.key) == set(new.key):
        return None
    return f"primary key was ({', '.join(old.key)}), is now ({', '.join(new.key)})"


def unproven(old: TableSchema, new: TableSchema) -> str | None:
    """Why a change of shape may have changed values without row events; None if it cannot have.

    They fit each other (`misfit`): what both have has the same lake type.
    """
    names = {column.name for column in new.columns}
    for column in (column for column in old.columns if column.name in names):
        reason = _rewritten(column, new.column(column.name))
        if reason:
            return f"{column.name}: {reason}"
    return None


_BYTES: Final = frozenset(["varbinary", "tinyblob", "blob", "mediumblob", "longblob"])
# Character sets, and those that have each of their characters; None: not told.
_THREE: Final = frozenset(["utf8", "utf8mb3"])
_INTO: Final = frozenset(
    (old, new)
    for old, several in (
        ("latin1", {"utf8mb4", None}),
        *((one, _THREE | {"utf8mb4", None}) for one in _THREE),
        ("utf8mb4", {None}),
    )
    for new in several
)
_SAME_BYTES: Final = _THREE | {"utf8mb4"}
_PLAIN_LABEL: Final = re.compile(r"[0-9A-Za-z _-]*\Z")


def _is_shorter(old: ColumnType, new: ColumnType) -> bool:
    """Whether a value may have been cut. CHAR and VARCHAR count characters, the others bytes."""
    if {old.name, new.name} <= {"char", "varchar"} and {old.charset, new.charset} <= WIDEST.keys():
        before, after = capacity(old) // WIDEST[old.charset], capacity(new)
        return after // WIDEST[new.charset] < before
    if new.name in {"char", "varchar"} and old.name not in {"char", "varchar"}:
        # As many characters as the other has bytes, at most.
        return capacity(new) < capacity(old) * WIDEST.get(new.charset, 4)
    same = old.charset == new.charset or (old.charset in _THREE and new.charset in _SAME_BYTES)
    return capacity(new) < capacity(old) * (1 if same else WIDEST.get(new.charset, 4))


def _rewritten(old: Column, new: Column) -> str | None:
    """Why a column's values may be others; None where it is proven that they are not."""
    a, b = old.type, new.type
    if old.nullable and not new.nullable:
        return "no longer NULL, so NULLs became values"
    if a == b:
        return None
    reasons = {
        f"type {a.name} became {b.name}": a.name != b.name and not _same_family(a.name, b.name),
        "it became unsigned": b.unsigned and not a.unsigned,
        "it is no longer unsigned": a.unsigned and not b.unsigned,
        "fraction of seconds is shorter": b.fraction < a.fraction,
        "length is shorter": _is_shorter(a, b),
        "length changed": a.length != b.length
        and a.name == b.name
        and a.name not in {*TEXTS, *_BYTES, "char"},
        "number of digits changed": (a.precision, a.scale) != (b.precision, b.scale)
        and not _keeps_digits(a, b),
        "members of the list were removed or changed": not _keeps_members(a, b),
        "character set changed": not _keeps_characters(a, b),
        "stored in another format": a.legacy != b.legacy,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _same_family(old: str, new: str) -> bool:
    if old in INTEGER_BITS and new in INTEGER_BITS:
        return INTEGER_BITS[new] >= INTEGER_BITS[old]  # the lake's types are compared in `misfit`
    return any(old in family and new in family for family in (TEXTS, _BYTES))


def _keeps_digits(old: ColumnType, new: ColumnType) -> bool:
    """Whether a wider DECIMAL shows every value with the same digits."""
    if None in {old.precision, old.scale, new.precision, new.scale}:
        return False
    return old.scale == new.scale and (new.precision or 0) >= (old.precision or 0)


def _keeps_members(old: ColumnType, new: ColumnType) -> bool:
    """Whether labels are there still, and stand in a SET's values in the same order.

    The server looks a label up by its collation, for which others may be the same: so those that
    stand where they stood are sure, and others only where no collation takes two for one.
    """
    if new.members[: len(old.members)] == old.members:
        return True
    plain = all(_PLAIN_LABEL.match(label) for label in new.members)
    return (
        old.name == "enum"
        and are_apart(new.members)
        and plain
        and set(old.members) <= set(new.members)
    )


def _keeps_characters(old: ColumnType, new: ColumnType) -> bool:
    return old.charset == new.charset or (old.charset, new.charset) in _INTO
