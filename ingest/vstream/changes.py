"""Row events of VStream to changes: decoded by table, tokens attached, in stream order.

Invariant: every row event that is given comes out, or an event that stops its table; `idx` counts
the row changes that come out of a transaction from 0, over all its tables and pieces, an update
once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.errors import TableStoppedError
from ratchet.core.rounds import TableEvent
from ratchet.ingest.changes import TableChanges, Tokens

if TYPE_CHECKING:
    from ratchet.ingest.vstream.tables import StreamTables, TableDecoder
    from ratchet.wire.decode.vstream import DecodedChanges

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEvents:
    """Row events of mirrored tables, in stream order.

    Attributes:
        data: holds them.
        starts: where each RowEvent message begins.
        ends: where it ends.
        txn: per event the number of its transaction, rising.
        slot: per event the number of its table.
    """

    data: Bytes
    starts: Ints
    ends: Ints
    txn: Ints
    slot: Ints


def changes_of(
    events: RowEvents, tables: StreamTables, tokens: Tokens, *, before: tuple[int, int]
) -> tuple[list[TableChanges], tuple[int, int], list[TableEvent]]:
    """Decode row events.

    A table whose rows the mirror cannot take stops where the first of them stands; the other
    tables' rows are none the worse for it.

    Args:
        events: the events.
        tables: the tables, by number.
        tokens: makes tokens by transaction.
        before: a transaction, and how many of its row changes came before.

    Returns:
        The changes by table, the last transaction with all its row changes so far, and an event
        for each table of which rows are left out.
    """
    if not events.txn.size:
        return [], before, []
    decoded: list[tuple[TableDecoder, Ints, DecodedChanges]] = []
    left_out: list[TableEvent] = []
    counts = np.zeros(events.txn.size, np.int64)  # row changes per event
    for number in np.unique(events.slot).tolist():
        members = np.flatnonzero(events.slot == number)
        try:
            slot = tables.slot(number)
            found = slot.decoder.decode(events.data, events.starts[members], events.ends[members])
        except TableStoppedError as error:
            first = int(events.txn[members[0]])
            left_out.append(tokens.unreadable(tables.table(number), error, first))
            continue
        decoded.append((slot, members, found))
        counts[members] = np.bincount(found.event, minlength=members.size)
    firsts = np.cumsum(counts) - counts
    begins = np.searchsorted(events.txn, events.txn, side="left")
    idx = firsts - firsts[begins]
    idx[events.txn == before[0]] += before[1]
    last = int(events.txn[-1])
    total = int(counts[events.txn == last].sum()) + (before[1] if before[0] == last else 0)
    changes = [
        _assemble(slot, members, found, (events.txn, idx), tokens)
        for slot, members, found in decoded
        if found.op.size
    ]
    return changes, (last, total), left_out


def _assemble(
    slot: TableDecoder,
    members: Ints,
    found: DecodedChanges,
    events: tuple[Ints, Ints],
    tokens: Tokens,
) -> TableChanges:
    txn, idx = events
    counts = np.bincount(found.event, minlength=members.size)
    before = np.cumsum(counts) - counts
    within = np.arange(found.event.size) - before[found.event]
    event = members[found.event]
    schema = slot.changes
    rows = pa.Table.from_arrays(
        [
            pa.array(found.op),
            tokens.column(txn[event], idx[event] + within),
            found.before.cast(schema.field("before").type),
            found.after.cast(schema.field("after").type),
        ],
        schema=schema,
    )
    seqs = tokens.seq[txn[event]]
    inserts, updates, deletes = (
        int(np.count_nonzero(found.op == op)) for op in (INSERT, UPDATE, DELETE)
    )
    return TableChanges(
        schema=slot.schema,
        rows=rows,
        min_seq=int(seqs.min()),
        max_seq=int(seqs.max()),
        counts=(inserts, updates, deletes),
        misfits=found.misfits,
    )
