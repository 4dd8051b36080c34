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
    shapes: Mapping[str, TableSchema],
    policy: InvalidValuePolicy,
) -> None:
    """See that columns alone can be read again.

    Args:
        lake: the lake.
        state: the table.
        change: what stopped it.
        reshaping: what that does to its rows.
        shapes: ShardId as text -> the table there now.
        policy: decides about the lake's types.

    Raises:
        NotComputableError: its rows have to be read as a whole; the argument says why.
        LakeError: the lake cannot be read.
    """
    if state.foreign_keys != ():
        raise NotComputableError("foreign keys may change its rows while they are read")
    key, kinds = reshaping.schema.key, _kinds(reshaping.columns)
    if set(state.key) != set(state.schema.key):
        raise NotComputableError("its key is one that the config names")
    if any(pa.types.is_floating(reshaping.columns.field(name).type) for name in key):
        raise NotComputableError("its key is no exact number")
    there = {column.name for column in state.whole.columns}
    for shard, shape in shapes.items():
        if set(shape.key) != set(key):
            raise NotComputableError("its key on the server is another one")
        now = _kinds(arrow_schema(shape, policy))
        # A statement has brought them before this one, and no row has shown them yet.
        pending = set(state.nulls.get(shard, ())) - there
        if {name: kind for name, kind in now.items() if name not in pending} != kinds:
            raise NotComputableError("its columns have changed once more since")
    log = RoundLog(lake)
    for value in log.walk(change.first_round, log.last_number()):
        for one in change.every:
            events = about(value, state.keyspace, [state.table], one.shard).events
            if not all(is_in(one, event) for event in events):
                raise NotComputableError("another statement follows")


def _kinds(columns: pa.Schema) -> dict[str, pa.DataType]:
    return {one.name: one.type for one in columns}
