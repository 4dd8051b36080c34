"""Whether the source may be asked for what a change of columns put into the rows that were there.

Its rows are read at some time behind the statement. What changed them in between stands in the log,
and is merged behind them; so a table counts as whole only when it has caught up with the last read.

Lives here: when that holds, and what was read. Does not live here: reading it
(`snapshot.columnscan`), the pass over the table's files (`remake`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from ratchet.core.position import Position
from ratchet.core.reshaping import NotComputableError, Reshaping
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.merge.askedvalues import AskedValues
from ratchet.merge.swap import about, is_in
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import ShapeChange
from ratchet.store.tables import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedColumns:
    """What was read of the source behind a change.

    Attributes:
        values: by key.
        end: shard -> a position that contains everything that was shown.
        generated: whether the table has generated columns then.
    """

    values: AskedValues
    end: Mapping[str, Position]
    generated: bool


def refuse_asking(
    lake: Lake,
    state: TableState,
    change: ShapeChange,
    reshaping: Reshaping,
    *,
    shape: TableSchema,
    policy: InvalidValuePolicy,
) -> None:
    """See that columns alone can be read again.

    Args:
        lake: the lake.
        state: the table.
        change: what stopped it.
        reshaping: what that does to its rows.
        shape: the table on its server now.
        policy: decides about the lake's types.

    Raises:
        NotComputableError: its rows have to be read as a whole; the argument says why.
        LakeError: the lake cannot be read.
    """
    if change.mark is not None:
        raise NotComputableError(f"{_named(reshaping)} would have to be read on several shards")
    if state.foreign_keys != ():
        raise NotComputableError("foreign keys may change its rows while they are read")
    key = reshaping.schema.key
    if set(state.key) != set(state.schema.key) or set(shape.key) != set(key):
        raise NotComputableError("its key on the server is another one")
    if any(pa.types.is_floating(reshaping.columns.field(name).type) for name in key):
        raise NotComputableError("its key is no exact number")
    now = arrow_schema(shape, policy)
    if {one.name: one.type for one in now} != {one.name: one.type for one in reshaping.columns}:
        raise NotComputableError("its columns have changed once more since")
    log = RoundLog(lake)
    for value in log.walk(change.round, log.last_number()):
        for event in about(value, state.keyspace, [state.table], change.shard).events:
            if not is_in(change, event):
                raise NotComputableError("another statement follows")


def _named(reshaping: Reshaping) -> str:
    return ", ".join(reshaping.asked)
