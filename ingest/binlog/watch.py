"""What statements in the log mean for the mirrored tables: table events, XA transactions.

Lives here: `StatementWatch`. Does not live here: what a statement is (`statements`), what follows
from its kind (`machine`).

Invariant: of every DDL statement in a transaction that counts there is an event for each table of
the mirror that occurs in it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from core.errors import TableStoppedError
from core.patterns import TablePatterns
from core.rounds import STATEMENT_LENGTH, TableEvent
from core.shard import ShardId
from ingest.binlog.events import Query
from ingest.binlog.machine import Kind
from ingest.binlog.statements import Statement, classify


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The open transaction: its name in the server's notation, seq, commit time in microseconds."""

    gtid: str
    seq: int
    ts: int


class StatementWatch:
    """Looks at the statements of one stream.

    Attributes:
        events: table events since somebody took them away.
    """

    def __init__(self, *, shard: ShardId, database: str, patterns: TablePatterns) -> None:
        self._shard = shard
        self._database = database
        self._patterns = patterns
        self._prepared: set[str] = set()
        self.events: list[TableEvent] = []

    def look(self, query: Query, *, known: Collection[str], now: Moment | None) -> Statement:
        """Classify a statement and note what it does to tables.

        Args:
            query: the statement.
            known: names of tables that are mirrored already.
            now: the open transaction; None if it leaves no trace.
        """
        found = classify(
            query.statement,
            default_database=query.database,
            database=self._database,
            known=known,
        )
        if found.kind in {Kind.XA_COMMIT_UNSEEN, Kind.XA_FINISH}:
            name = found.xid.lower()
            if name in self._prepared:
                self._prepared.discard(name)
                return Statement(Kind.XA_FINISH)
        if now is not None:
            self.events += [
                TableEvent(
                    keyspace=self._shard.keyspace,
                    table=table,
                    shard=str(self._shard),
                    kind="truncate" if found.truncates else "ddl",
                    statement=query.statement[:STATEMENT_LENGTH],
                    gtid=now.gtid,
                    seq=now.seq,
                    ts=now.ts,
                )
                for table in self._spelled(found.tables, known)
                if self._patterns.matches(table)
            ]
        return found

    def _spelled(self, tables: Collection[str], known: Collection[str]) -> list[str]:
        """Names as the mirror has them: statements may have them in any letter case there."""
        if not self._patterns.folded:
            return list(tables)
        own = {name.lower(): name for name in known}
        return list(dict.fromkeys(own.get(name.lower(), name.lower()) for name in tables))

    def unreadable(self, table: str, error: TableStoppedError, now: Moment) -> None:
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

    def prepare(self, body: bytes) -> None:
        """An XA transaction without mirrored rows was prepared: its commit is of no concern.

        Args:
            body: of the XA_PREPARE event: a flag, three numbers of four bytes, both name parts.
        """
        kind = int.from_bytes(body[1:5], "little")
        first = int.from_bytes(body[5:9], "little")
        name, branch = body[13 : 13 + first], body[13 + first :]
        self._prepared.add(f"x'{name.hex()}',x'{branch.hex()}',{kind}")
