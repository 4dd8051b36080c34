"""What Vitess writes beside the rows in a tablet's binlog: journals, and where copies come from.

Lives here: `Workflows`, which takes the rows of Vitess's own tables out of a batch and says what
they mean for the rest of it. Does not live here: finding these rows (`slots`), the texts in them
(`wire.journal`), what a reshard leads to (`jobs.topology.reshard`).

While rows are copied to another shard (by VReplication), each transaction there updates its row of
`_vt.vreplication`, whose position then holds the source's transactions that were copied: those are
its coordinates on the source. A stream may begin before its shard took over: then it brings copies
of what was captured on the source. They are told by these coordinates, and left out; to merge them
would take rows back.

Invariant: a copy is left out if, and only if, the mirror has all of it from its source. Where that
cannot be told there is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ratchet.core.change import INSERT
from ratchet.core.errors import DecodeError, PositionLostError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import Journal
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.binlog.changes import Decoders, changes_of
from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.wire.failures import HEAL_HINT
from ratchet.wire.journal import executed_of, journal_of, parse_journal, parse_source

SIDECAR: Final = "_vt"  # the database of Vitess's own tables, unless --sidecar-db-name says else
JOURNAL: Final = "resharding_journal"
STREAMS: Final = "vreplication"
COPYING: Final = "copy_state"
# A stream's message when its shard is about to take over, and when it has.
_STOPPED: Final = b"stopped for cutover"
_TAKEN_OVER: Final = b"FROZEN"


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a stream of VReplication has come.

    Attributes:
        source: the shard that it copies from.
        executed: what of it is copied; None before the first position.
    """

    source: str
    executed: GtidSet | None


class Workflows:
    """The reader of Vitess's own tables in one stream.

    Attributes:
        journal: how the stream has ended; None: it goes on.
        seen: shard -> what the mirror has of it; copies of that are left out. A shard is gone from
            here as soon as its copies go further than that, or its rows have been taken over.
    """

    def __init__(
        self, *, shard: ShardId, database: str, generation: int, seen: Mapping[str, Position]
    ) -> None:
        self.journal: Journal | None = None
        self.seen = dict(seen)
        self._shard = shard
        self._database = database.encode()
        self._generation = generation
        self._decoders = Decoders(InvalidValuePolicy())
        self._streams: dict[int, CopyProgress] = {}  # by the id of their rows
        self._copies_of_batch: frozenset[int] = frozenset()
        # The `seq` from which statements count. Before a shard takes over they are Vitess's own:
        # it makes the tables before it copies their rows.
        self._counts_from = None if seen else 0

    def watched(self) -> frozenset[str]:
        """Which of Vitess's tables have to be read."""
        return frozenset({JOURNAL, STREAMS, COPYING} if self.seen else {JOURNAL})

    def look(self, batch: TransactionBatch) -> TransactionBatch:
        """The batch without Vitess's own rows, and without copies of what the mirror has.

        Raises:
            DecodeError: a text of Vitess's is not understood.
            PositionLostError: the shard lacks what was written on its source, or may lack it.
        """
        own = np.array(
            [one is not None and one.database == SIDECAR for one in batch.maps], np.bool_
        )[batch.rows["slot"]]
        copies = self._copies(replace(batch, rows=batch.rows[own])) if own.any() else set()
        self._copies_of_batch = frozenset(copies)
        kept = ~own
        if copies:
            kept &= ~np.isin(batch.txns["seq"][batch.rows["txn"]], sorted(copies))
        since = self._counts_from
        return replace(
            batch,
            rows=batch.rows[kept],
            events=tuple(e for e in batch.events if since is not None and e.seq >= since),
        )

    def leaves_out(self, seq: int) -> bool:
        """Whether a transaction that ended in the newest batch was left out."""
        return seq in self._copies_of_batch

    def knows(self, batch: TransactionBatch) -> bool:
        """Whether each of the batch's transactions is known to be a copy or not.

        The end of one tells, and a large one is handed out before it is there.
        """
        return not self.seen or batch.ended == len(batch.txns)

    def too_large(self) -> PositionLostError:
        """What to raise for a transaction that cannot be kept until its end."""
        return PositionLostError(
            "a transaction is too large to be kept until its end, which shows whether it is a copy "
            f"of what was written on {', '.join(sorted(self.seen))}",
            operation="follow a reshard",
            source=str(self._shard),
            hint=HEAL_HINT,
        )

    def _copies(self, batch: TransactionBatch) -> set[int]:
        """The `seq` of each transaction that is a copy of what the mirror has."""
        tables, _, left_out = changes_of(
            batch, self._decoders, shard=self._shard, generation=self._generation
        )
        if left_out:
            raise DecodeError(
                f"{left_out[0].table} cannot be read: {left_out[0].statement}",
                operation="follow a reshard",
                source=str(self._shard),
            )
        found = [
            (row["token"]["seq"], row["token"]["idx"], table.schema.table, row)
            for table in tables
            for row in table.rows.to_pylist()
        ]
        copies = set()
        for seq, _, table, row in sorted(found, key=lambda one: one[:2]):
            if table == JOURNAL:
                self._note_journal(row["after"])
            elif self._is_copy(table, row):
                copies.add(seq)
            stops = table == STREAMS and row["after"] and row["after"]["message"] == _STOPPED
            if self._counts_from is None and (stops or not self.seen):
                self._counts_from = seq
        return copies

    def _is_copy(self, table: str, row: Mapping[str, Any]) -> bool:
        if table == STREAMS:
            return self._moves(row["before"], row["after"])
        return row["op"] == INSERT and self._copies_old(row["after"])

    def _note_journal(self, row: Mapping[str, Any] | None) -> None:
        if row is not None and row["db_name"] == self._database:
            self.journal = journal_of(parse_journal(row["val"]), self._shard) or self.journal

    def _moves(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
        """Take note of a stream's row; whether its transaction copies what the mirror has."""
        row = after or before
        if row is None or row["db_name"] != self._database:
            return False
        source = str(parse_source(row["source"]))
        executed = executed_of(row["pos"].decode()) if row["pos"] else None
        self._streams[row["id"]] = CopyProgress(source, executed)
        if source not in self.seen:
            return False
        inside = executed is None or self._has(source, executed)
        old = executed_of(before["pos"].decode()) if before and before["pos"] else None
        if not inside and (row["state"] == b"Copying" or old is None or not self._has(source, old)):
            raise self._gap(source)
        if inside and after is not None and row["message"] != _TAKEN_OVER:
            return True
        del self.seen[source]  # what comes from now on is new
        return False

    def _copies_old(self, row: Mapping[str, Any]) -> bool:
        """Whether rows copied in bulk are those of what the mirror has of their shard.

        They are as they were at their stream's position: what was deleted before is not told.
        """
        if row["lastpk"] is None:
            return False  # the table's turn has not come
        found = self._streams.get(row["vrepl_id"])
        if found is None or found.executed is None:
            if self.seen:
                raise self._gap(", ".join(sorted(self.seen)))
            return False
        if found.source not in self.seen:
            return False
        if not self._has(found.source, found.executed):
            raise self._gap(found.source)
        return True

    def _has(self, source: str, executed: GtidSet) -> bool:
        return source in self.seen and self.seen[source].executed.contains_all(executed)

    def _gap(self, source: str) -> PositionLostError:
        return PositionLostError(
            f"rows of {source} were copied here from a later position than the mirror's: what was "
            "deleted there in between is in no stream",
            operation="follow a reshard",
            source=str(self._shard),
            hint=HEAL_HINT,
        )
