"""Changes of one table, ready for a change file; what a transaction says of its rows.

What both doors to a source make: the binlog (`binlog.changes`) and VStream (`vstream.changes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ratchet.core.change import TOKEN_TYPE
from ratchet.core.errors import TableStoppedError
from ratchet.core.rounds import STATEMENT_LENGTH, TableEvent
from ratchet.core.schema import TableSchema
from ratchet.core.shard import ShardId

Ints = npt.NDArray[np.int64]

_INCOMPLETE: Final = (
    "its row events lack columns (on a MariaDB, INSERT ... ON DUPLICATE KEY UPDATE in a session "
    "whose binlog_format is MIXED)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges:
    """Changes of one table under one schema.

    Attributes:
        schema: the table's schema.
        rows: columns as in core.change.change_schema.
        min_seq: lowest seq inside.
        max_seq: highest seq inside.
        counts: how many inserts, updates and deletes.
        misfits: column -> values that its lake type could not hold.
        silent: updates and deletes for which SILENT_COLUMN holds; None: the rows do not have it.
        began: when the first statement of these began, seconds since the epoch by its session's
            clock; 0: there is none, or it is not known.
        unchecked: inserts and updates of sessions that did not look at foreign keys.
    """

    schema: TableSchema
    rows: pa.Table
    min_seq: int
    max_seq: int
    counts: tuple[int, int, int]
    misfits: dict[str, int]
    silent: int | None = None
    began: int = 0
    unchecked: int = 0


class Tokens:
    """Makes the tokens of rows, and of what stands in their place, given their transactions.

    Args:
        ts: per transaction its commit time, microseconds UTC.
        seq: per transaction its `seq`.
        gtids: per transaction its name in the server's notation.
        shard: where all of them were read.
        generation: of the stream.
    """

    def __init__(
        self,
        *,
        ts: npt.NDArray[Any],
        seq: npt.NDArray[Any],
        gtids: pa.StringArray,
        shard: ShardId,
        generation: int,
    ) -> None:
        self.seq = np.asarray(seq)
        self._ts = np.asarray(ts)
        self._gtids = gtids
        self._shard = shard
        self._generation = generation

    def column(self, txn: Ints, idx: Ints) -> pa.StructArray:
        """The tokens of some rows.

        Args:
            txn: per row the number of its transaction.
            idx: per row its place in it.
        """
        parts = [
            pa.array(self._ts[txn]).view(TOKEN_TYPE.field("ts").type),
            pa.repeat(str(self._shard), txn.size),
            self._gtids.take(pa.array(txn)),
            pa.repeat(pa.scalar(self._generation, pa.int64()), txn.size),
            pa.array(self.seq[txn]),
            pa.array(idx),
        ]
        return pa.StructArray.from_arrays(parts, fields=list(TOKEN_TYPE))

    def unreadable(self, table: str, error: TableStoppedError, txn: int) -> TableEvent:
        """The event in place of rows that are left out, since the mirror cannot take them.

        Args:
            table: their table's own name.
            error: why.
            txn: the number of the first one's transaction.
        """
        why = error.message + (f" ({error.hint})" if error.hint else "")
        return TableEvent(
            keyspace=self._shard.keyspace,
            table=table,
            shard=str(self._shard),
            kind="unreadable",
            statement=why[:STATEMENT_LENGTH],
            gtid=self._gtids[txn].as_py(),
            seq=int(self.seq[txn]),
            ts=int(self._ts[txn]),
        )

    def incomplete(self, table: str, txn: int) -> TableEvent:
        """The event in place of rows that are left out, since their images lack columns."""
        return TableEvent(
            keyspace=self._shard.keyspace,
            table=table,
            shard=str(self._shard),
            kind="ddl",
            statement="",
            gtid=self._gtids[txn].as_py(),
            seq=int(self.seq[txn]),
            ts=int(self._ts[txn]),
            effect="untold",
            reason=_INCOMPLETE,
        )
