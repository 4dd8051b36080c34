"""What statements in the log mean for the mirrored tables: table events, XA transactions.

Lives here: `StatementWatch`. Does not live here: what a statement is and does (`core.sql`), what
follows from its kind (`machine`).

Invariant: each statement in a transaction that counts is judged once, from its whole text. Of what
it may have done to a table of the mirror there is an event, one for each kind of effect.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from ratchet.core.errors import TableStoppedError
from ratchet.core.patterns import TablePatterns
from ratchet.core.rounds import STATEMENT_LENGTH, Effect, StatementTime, TableEvent
from ratchet.core.shard import ShardId
from ratchet.core.sql.columns import NOW
from ratchet.core.sql.effects import REBUILT, Change, TableName
from ratchet.core.sql.found import Log, Statement
from ratchet.core.sql.lexer import Mode
from ratchet.core.sql.names import Scope
from ratchet.core.sql.statements import classify
from ratchet.ingest.binlog.events import Query
from ratchet.ingest.binlog.machine import Kind
from ratchet.ingest.binlog.statements import KIND_OF

_REBUILT: Final = Change("rebuild", REBUILT)
_LATE: Final = Change("prepared", "an XA transaction that was prepared before changed it")
_UNSEEN: Final = Change(
    "prepared", "an XA transaction whose XA PREPARE was not seen may have changed it"
)
_UNKEYED: Final = Change("foreign_key", "it was changed with foreign_key_checks=0")
_NEEDED: Final = frozenset({"key", "types"})  # effects that a foreign key may lose its index by
_CROWD: Final = 4096
_MANY: Final = 8  # tables of a statement
# What is said once of a table holds, whatever is said of it later.
_STANDING: Final = frozenset({"untold", "doubt", "restored"})
_BULK: Final = Change(
    "bulk", "rows came in bulk (unique_checks=0, foreign_key_checks=0): one error takes all back"
)
_TWICE: Final = Change("untold", "it was changed under a GTID that another transaction has")
_LOST: Final = Change(
    "restored", "its server's log lacks changes, of any of its tables (an incident event)"
)
_OF_THE_TIME: Final = re.compile("|".join(NOW), re.IGNORECASE)
_NAMED: Final = 200  # characters of a list of GTIDs
_EARLY: Final = Change("prepared", "rows of an XA transaction came before it was committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStamp:
    """A transaction that something belongs to, or that is the last one before it.

    Attributes:
        gtid: its name in the server's notation.
        seq: its rank.
        ts: its commit time in microseconds; 0: not known.
        behind: what is told stands behind it. A dump that contains the transaction need not
            contain that.
    """

    gtid: str
    seq: int
    ts: int
    behind: bool = False


class Hooks(Protocol):
    """What the log does not tell about the server's tables; see wire.hints.ServerCatalog."""

    def folds(self) -> bool | None:
        """Whether names of tables are compared without regard to case; None: not known."""

    def is_plain(self, database: str, table: str) -> bool:
        """Whether it is sure that changes of this table lead to no other."""

    def is_base(self, table: str) -> bool:
        """Whether a name is that of a table now, and not of a view; False if nobody can tell."""


@dataclass(frozen=True, slots=True)
class StatementOutcome:
    """What the reader has to know of a statement.

    Attributes:
        kind: its kind for the machine.
        tables: tables of the mirror that may have another shape behind it.
    """

    kind: Kind
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noted:
    """What a statement was understood to do: None for a TRUNCATE."""

    text: str
    now: TransactionStamp
    changes: tuple[tuple[str, Change | None], ...]
    time: StatementTime | None

    @property
    def is_crowd(self) -> bool:
        return len(self.changes) >= _MANY and all(
            change is not None and change.effect in _STANDING for _, change in self.changes
        )


class StatementWatch:
    """Looks at the statements of one stream.

    Attributes:
        events: table events since somebody took them away.

    Args:
        shard: whose stream it is.
        database: the mirrored one.
        patterns: which of its tables.
        mariadb: whether a MariaDB wrote it.
        hooks: what the log does not tell.
    """

    def __init__(
        self,
        *,
        shard: ShardId,
        database: str,
        patterns: TablePatterns,
        mariadb: bool = False,
        hooks: Hooks | None = None,
    ) -> None:
        self._shard = shard
        self._database = database
        self._patterns = patterns
        self._mariadb = mariadb
        self._hooks = hooks
        self._folds: bool | None = None
        self._asked = False
        self._plain: dict[TableName, bool] = {}  # what was asked since the last statement but rows
        self._trusted: set[TableName] = set()  # of all that were passed over for that
        self._bases: dict[str, bool] = {}  # asked since the last statement but rows
        self._moved: set[str] = set()  # names that may be those of views by now
        # Of open and prepared XA transactions: what their statements did to tables.
        self._open: list[TableEvent] = []
        self._prepared: dict[str, list[TableEvent]] = {}
        self._crowd = _CROWD  # events at which those are left out that say nothing new
        self._matching: dict[str, bool] = {}
        self._before: _Noted | None = None  # by the last statement
        self._repeats: list[_Noted] = []  # the last two that said the same as the one before
        self._events: list[TableEvent] = []

    @property
    def events(self) -> list[TableEvent]:
        """Table events since somebody took them away."""
        repeats, self._repeats = self._repeats, []
        for noted in repeats:
            self._make(noted)
        return self._events

    @events.setter
    def events(self, events: list[TableEvent]) -> None:
        # A transaction that was taken back leaves its number to the next one.
        self._events, self._repeats, self._before = events, [], None

    def look(
        self, query: Query, *, known: Collection[str], now: TransactionStamp | None
    ) -> StatementOutcome:
        """Judge a statement and note what it does to tables.

        Args:
            query: the statement.
            known: names of tables that are mirrored already.
            now: the open transaction; None if it leaves no trace.
        """
        found = classify(
            query.statement,
            mode=Mode.of(query.sql_mode, mariadb=self._mariadb),
            scope=Scope(
                database=self._database,
                default=query.database,
                known=known,
                folds=self._case(),
                is_base=self._is_base,
                is_copy=self._is_mirrored,
            ),
            log=Log(
                temporary=query.temporary,
                written=query.written,
                clear=query.clear,
                heeds_default=query.explicit_defaults or not self._mariadb,
                substitutes=self._mariadb and not query.keeps_engine,
            ),
        )
        kind = KIND_OF[found.form]
        if now is not None and self._open and self._open[-1].seq != now.seq:
            self._open = []
        if len(self._events) >= self._crowd and now and self._events[-1].seq != now.seq:
            self._events = _without_repeats(self._events)
            self._crowd = max(_CROWD, 2 * len(self._events))
        if found.form in {"xa commit", "xa rollback"}:
            held = self._prepared.pop(found.xid.lower(), None)
            if found.form == "xa commit" and now is not None:
                self._commit(held, query.statement, known, now)
            return StatementOutcome(kind)
        if now is not None:
            self._note(found, query, sorted(known), now)
        return StatementOutcome(kind, () if kind is Kind.DML else found.tables)

    def _spelled(self, table: str, own: Mapping[str, str]) -> str:
        """A name as the mirror has it: a statement may have it in any letter case there."""
        if not self._patterns.folded:
            return table
        return own.get(table.lower(), table.lower())

    def unreadable(self, table: str, error: TableStoppedError, now: TransactionStamp) -> None:
        """Note that rows of a table are left out from here on, since they cannot be read."""
        why = error.message + (f" ({error.hint})" if error.hint else "")
        self.events.append(
            TableEvent(
                keyspace=self._shard.keyspace,
                table=table,
                shard=str(self._shard),
                kind="unreadable",
                statement=why[:STATEMENT_LENGTH],
                gtid=now.gtid,
                seq=now.seq,
                ts=now.ts,
            )
        )

    def inserted_in_bulk(self, tables: Mapping[str, TransactionStamp]) -> None:
        """Note that rows may be in the log and not in their tables.

        Args:
            tables: by name; the last transaction that inserted such rows.
        """
        text = "INSERT in bulk"
        self.events += [self._event(one, text, now, _BULK) for one, now in tables.items()]

    def repeated(self, table: str, now: TransactionStamp) -> None:
        """Note that a transaction changed a table which has the name of another one."""
        self.events.append(self._event(table, "two transactions with the same GTID", now, _TWICE))

    def lost(self, known: Collection[str], now: TransactionStamp) -> None:
        """Note that the server could not log what it did: any table may have other rows."""
        self._doubt_all(known, now, _LOST)

    def passed_over(self, gtids: str, known: Collection[str], now: TransactionStamp) -> None:
        """Note that the log lacks transactions of the server's: any table may have other rows."""
        named = gtids if len(gtids) <= _NAMED else f"{gtids[:_NAMED]}..."
        why = Change("restored", f"its server has executed what its log lacks: {named}")
        self._doubt_all(known, now, why)

    def _doubt_all(self, known: Collection[str], now: TransactionStamp, why: Change) -> None:
        tables = [table for table in sorted(known) if self._patterns.captures(table)]
        self.events += [self._event(table, "", now, why) for table in tables]

    def undone(self, tables: Collection[str], statement: str, now: TransactionStamp) -> None:
        """Note that rows of tables were rolled back which the log has nevertheless."""
        why = Change("untold", "a transaction that had changed it was rolled back, perhaps in part")
        self.events += [self._event(table, statement, now, why) for table in sorted(tables)]

    def prepare(
        self,
        body: bytes,
        *,
        tables: Collection[str],
        handed: Collection[str],
        now: TransactionStamp,
    ) -> None:
        """An XA transaction was prepared: what it did comes with the commit, whenever that is.

        Args:
            body: of the XA_PREPARE event: a flag, three numbers of four bytes, both name parts.
            tables: whose rows it changed.
            handed: those of which rows were handed on already, as it is too large to be held.
            now: the transaction that prepares it.
        """
        kind = int.from_bytes(body[1:5], "little")
        first = int.from_bytes(body[5:9], "little")
        name, branch = body[13 : 13 + first], body[13 + first :]
        self._events = self.events  # what was held back of them is in `_open` now
        held, self._open = self._open, []
        held = [*held, *(self._event(one, "XA COMMIT", now, _LATE) for one in sorted(tables))]
        self.events += [self._event(one, "XA PREPARE", now, _EARLY) for one in sorted(handed)]
        self._prepared[f"x'{name.hex()}',x'{branch.hex()}',{kind}"] = held

    def _commit(
        self,
        held: Sequence[TableEvent] | None,
        statement: str,
        known: Collection[str],
        now: TransactionStamp,
    ) -> None:
        """A prepared transaction happens. If nobody saw what it did, it may have been anything."""
        if held is None:
            held = [self._event(table, statement, now, _UNSEEN) for table in sorted(known)]
        self.events += [replace(one, gtid=now.gtid, seq=now.seq, ts=now.ts) for one in held]

    def _is_base(self, table: str) -> bool:
        """Whether a name of the mirror is that of a table, as far as anybody can tell.

        The server tells of now, and the log of what has been since it was read.
        """
        if table in self._moved:
            return False
        if self._hooks is None:
            return True
        if table not in self._bases:
            self._bases[table] = self._hooks.is_base(table)
        return self._bases[table]

    def _note(
        self, found: Statement, query: Query, known: Sequence[str], now: TransactionStamp
    ) -> None:
        changes = self._changes(found, known)
        if found.form == "statement":
            self._bases = {}
            gone = {"rows", "doubt"} if found.frees else {"rows"}
            self._moved |= {table for table, change in changes if change.effect in gone}
        noted: list[tuple[str, Change | None]] = [
            *changes,
            # What a foreign key needs may have gone by it: then MariaDB does not follow it.
            *(
                (table, _UNKEYED)
                for table, one in changes
                if query.unchecked and one.effect in _NEEDED
            ),
            *((table, None) for table in found.truncates),
            *((table, _REBUILT) for table in found.rebuilds),
        ]
        own = {name.lower(): name for name in known} if self._patterns.folded else {}
        text = query.statement[:STATEMENT_LENGTH]  # once: a statement may name very many tables
        mine = _Noted(
            text=text,
            now=now,
            changes=tuple(
                (self._spelled(table, own), change)
                for table, change in noted
                if self._is_mirrored(table)
            ),
            time=query.time if _OF_THE_TIME.search(text) else None,
        )
        before, self._before = self._before, mine
        if before and mine.is_crowd and mine.changes == before.changes:
            # Somebody may write thousands of such statements a second. Of each transaction one
            # counts, and the last two are kept: its server may never finish the newest one.
            if mine.now.seq != before.now.seq:
                self._repeats = [*self._repeats[-1:], mine]
        else:
            self._events = self.events
            self._make(mine)

    def _make(self, noted: _Noted) -> None:
        made = [self._event(table, noted.text, noted.now, one) for table, one in noted.changes]
        if noted.time is not None:
            made = [replace(one, time=noted.time) for one in made]
        self._events += made
        self._open += made

    def _is_mirrored(self, table: str) -> bool:
        """Whether what happens to it gets into the log; so it does for copies, too."""
        if (known := self._matching.get(table)) is None:
            known = self._matching[table] = self._patterns.captures(table)
        return known

    def _changes(self, found: Statement, known: Sequence[str]) -> Sequence[tuple[str, Change]]:
        """What it did, with what the server says of tables that triggers may lead on from."""
        if found.asks is not None:
            if not known or not self._is_plain(found.asks):
                return found.changes
            self._trusted.add(found.asks)
            return found.changes_alone
        if found.form != "statement":
            return found.changes
        # Any statement may make a trigger, so what was asked before holds no longer.
        self._plain = {}
        if self._trusted and (found.frees or self._trusted & found.named):
            self._trusted = set()
            why = "a trigger or view may have changed rows by statements, and is gone"
            return [*found.changes, *((table, Change("untold", why)) for table in known)]
        return found.changes

    def _is_plain(self, table: TableName) -> bool:
        if table not in self._plain:
            self._plain[table] = self._hooks is not None and self._hooks.is_plain(
                table.database or "", table.table
            )
        return self._plain[table]

    def _case(self) -> bool | None:
        if not self._asked and self._hooks is not None:
            self._folds = self._hooks.folds()
        self._asked = True
        return self._folds

    def _event(
        self, table: str, text: str, now: TransactionStamp, change: Change | None
    ) -> TableEvent:
        return TableEvent(
            keyspace=self._shard.keyspace,
            table=table,
            shard=str(self._shard),
            kind="truncate" if change is None else "ddl",
            statement=text[:STATEMENT_LENGTH],
            gtid=now.gtid,
            seq=now.seq,
            ts=now.ts,
            effect="" if change is None else _effect(change, now),
            reason="" if change is None else change.reason[:STATEMENT_LENGTH],
            nulls=() if change is None else change.nulls,
        )


def _told(event: TableEvent) -> tuple[object, ...]:
    """What an event says of its table, whichever statement it is of."""
    return event.kind, event.effect, event.reason, event.nulls


def _without_repeats(events: Sequence[TableEvent]) -> list[TableEvent]:
    """Of the doubts for one reason that a table is in, the first and the last; all else."""
    kept: list[TableEvent] = []
    places: dict[tuple[object, ...], list[int]] = {}  # where the first and the last are
    for event in events:
        found = places.setdefault((event.table, *_told(event)), [])
        if event.effect in _STANDING and len(found) > 1:
            kept[found[1]] = event
        else:
            found.append(len(kept))
            kept.append(event)
    return kept


def _effect(change: Change, now: TransactionStamp) -> Effect:
    """What has only the name of the transaction before counts whatever a dump contains."""
    return "restored" if now.behind and change.effect in {"untold", "doubt"} else change.effect
