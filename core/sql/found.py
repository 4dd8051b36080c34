"""What a statement is and does, and the collecting of it while it is read.

Lives here: `Statement`, what is told of one; `StatementEffects`, one under way. Does not live here:
reading it (`statements`, `objects`, `dml`, `alter`), whose a name is (`names`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ratchet.core.sql.effects import Change, TableName
from ratchet.core.sql.lexer import SqlToken
from ratchet.core.sql.names import Scope

Form = Literal[
    "begin", "commit", "rollback", "rollback to", "savepoint", "xa start", "xa end", "xa prepare",
    "xa rollback", "xa commit", "statement", "rows",
]  # fmt: skip

BY_STATEMENT: Final = "rows were changed by a statement that was logged as its text"
_CHANGED: Final = Change("untold", BY_STATEMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What a statement's event says besides its text.

    Attributes:
        temporary: whether it used a temporary table.
        written: databases whose tables it changed, with what triggers, views and functions did on
            the way; None: not told, or foreign keys lead further.
        clear: whether its text is sure to be what the server read.
        heeds_default: whether DEFAULT NULL is enough for a TIMESTAMP to be NULL. MariaDB passes
            over it with explicit_defaults_for_timestamp=0, and takes the time of the statement.
        substitutes: whether a table may have been made in another engine than the one that it says
            (MariaDB's enforce_storage_engine, where sql_mode lacks NO_ENGINE_SUBSTITUTION).
    """

    temporary: bool = False
    written: frozenset[str] | None = None
    clear: bool = True
    heeds_default: bool = False
    substitutes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a statement is and does.

    Attributes:
        form: what it is to a transaction: "rows" changes rows, "statement" is any other.
        tables: tables of the mirror that it names, known or not.
        changes: what it does to which of them; a table that is missing is left alone.
        truncates: the table that it empties, with nothing else to it.
        rebuilds: tables whose rows it may write anew, besides what it does to them.
        xid: the XA transaction that it is about, as logged; empty if it is not about one.
        asks: the one table that it changes by itself. If that is a plain table, without triggers
            and foreign keys that refer to it, `changes_alone` holds instead of `changes`.
        changes_alone: see `asks`.
        frees: whether it may take away what led from a table to others: a trigger, a view.
        named: the tables whose shape or place it changes, of any database.
    """

    form: Form
    tables: tuple[str, ...] = ()
    changes: tuple[tuple[str, Change], ...] = ()
    truncates: tuple[str, ...] = ()
    rebuilds: tuple[str, ...] = ()
    xid: str = ""
    asks: TableName | None = None
    changes_alone: tuple[tuple[str, Change], ...] = ()
    frees: bool = False
    named: frozenset[TableName] = frozenset()


@dataclass(slots=True)
class StatementEffects:
    """A statement under way: what it does, to tables as it names them."""

    scope: Scope
    text: str
    tokens: Sequence[SqlToken]
    log: Log
    tables: dict[str, None] = field(default_factory=dict)
    changes: dict[tuple[str, Change], None] = field(default_factory=dict)
    truncates: list[str] = field(default_factory=list)
    rebuilds: dict[str, None] = field(default_factory=dict)
    only: tuple[list[str], list[str]] = ([], [])
    frees: bool = False
    named: set[TableName] = field(default_factory=set)

    def is_mirrored(self, named: TableName) -> bool:
        """Whether a name is surely that of a known table, which is no view."""
        sure, maybe = self.scope.tables(named)
        known = not maybe and len(sure) == 1 and sure[0] in self.scope.known
        return known and self.scope.is_base(sure[0])

    def add(self, named: TableName, *changes: Change) -> None:
        """It does this to a table that it names."""
        self.named.add(replace(named, database=named.database or self.scope.default))
        sure, maybe = self.scope.tables(named)
        self.tables |= dict.fromkeys([*sure, *maybe])
        self.changes |= {(table, change): None for table in sure for change in changes}
        for table in maybe:
            if changes:
                self.doubt([table], f"{named.table} may be its name: {changes[0].reason}")

    def rebuild(self, named: TableName) -> None:
        """It may write the rows of a table anew."""
        sure, maybe = self.scope.tables(named)
        self.rebuilds |= dict.fromkeys([*sure, *maybe])

    def doubt(self, tables: Sequence[str], why: str) -> None:
        """It may do anything to these."""
        self._may_have(tables, Change("doubt", why))

    def doubt_mentioned(self, why: str) -> None:
        """It may do anything to each known table that occurs in it."""
        self.doubt(self.scope.mentioned(self.tokens), why)

    def doubt_all(self, why: str) -> None:
        """It may do anything to every known table."""
        self.doubt(sorted(self.scope.known), why)

    def change_rows(self, why: str) -> None:
        """It may change rows of every known table, and nothing else of one."""
        self._may_have(sorted(self.scope.known), Change("untold", why))

    def _may_have(self, tables: Sequence[str], change: Change) -> None:
        self.tables |= dict.fromkeys(tables)
        self.changes |= {(table, change): None for table in tables}

    def done(self, form: Form, asks: TableName | None = None) -> Statement:
        """It has been read: what it does; see `Statement.asks`."""
        moved = {table for table, change in self.changes if change.effect == "rows"}
        return Statement(
            form=form,
            tables=tuple(self.tables),
            changes=tuple(
                one for one in self.changes if one[1].effect == "rows" or one[0] not in moved
            ),
            truncates=tuple(self.truncates),
            rebuilds=tuple(table for table in self.rebuilds if table not in moved),
            asks=asks,
            changes_alone=tuple((table, _CHANGED) for tables in self.only for table in tables),
            frees=self.frees,
            named=frozenset(self.named),
        )
