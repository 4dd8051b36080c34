"""What the source had of some keys at a cut that it has gone past.

Lives here: reading the keys, and taking back by the log what came after the cut. Does not live
here: which keys (`jobs.recovery.rowheal`), capturing (a function that comes in from outside).

Invariant: a row is told only if the read contains the cut and the log reaches beyond the read;
else there is a reason, and nothing is told of any key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ratchet.core.position import Position
from ratchet.snapshot.judge import events_of, row_at_cut
from ratchet.snapshot.keychanges import Changes, changes_of_keys
from ratchet.snapshot.positions import is_committed
from ratchet.snapshot.records import DumpSettings, ShardSource, TableDumpRequest
from ratchet.snapshot.reread import read_keys
from ratchet.snapshot.rows import frozen_row, thawed_row
from ratchet.snapshot.sessions import open_session
from ratchet.snapshot.source import SourceCatalog, common_columns
from ratchet.snapshot.verify import unreached

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAt:
    """What the source had of a key.

    Attributes:
        key: the key's values as the lake has them.
        rows: shard -> its whole row there; None where there was none.
    """

    key: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any] | None]

    @property
    def is_contested(self) -> bool:
        """Whether several shards had it."""
        return sum(row is not None for row in self.rows.values()) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAt:
    """What the source had of some keys.

    Attributes:
        keys: each of them once; none if there is a reason.
        reason: why it cannot be told; empty if it can.
    """

    keys: Sequence[KeyAt] = field(default=())
    reason: str = ""


def rows_at(
    spark: SparkSession,
    wanted: TableDumpRequest,
    keys: Sequence[Mapping[str, Any]],
    *,
    key: Sequence[str],
    columns: pa.Schema,
    positions: Mapping[str, Position],
    shards: Mapping[str, ShardSource],
    changes: Callable[[Mapping[str, Position]], Changes],
    settings: DumpSettings,
) -> RowsAt:
    """The rows of some keys at a cut, on every shard of a table.

    Args:
        spark: the session.
        wanted: the table and its shards.
        keys: values of the key's columns as the lake has them, each key once.
        key: columns that identify a row.
        columns: the mirror's, which the source must have too. What else it has is not read: a
            column that was added is NULL in the mirror until a changed row brings it.
        positions: shard -> where the cut is.
        shards: ShardId as text -> its source.
        changes: called with positions to reach: gives all changes after the cut up to there.
        settings: how the source is read.

    Raises:
        TableStoppedError: the table is gone, or differs between the shards.
        RetryableError: a server stays away, or has not come as far as the cut yet.
    """
    catalog = SourceCatalog({shard: source.primary for shard, source in shards.items()})
    tables = {shard: catalog.table(shard, wanted.table) for shard in wanted.shards}
    found = common_columns(list(tables.values()), settings.policy)
    types = {one.name: one.type for one in found}
    if odd := sorted(one.name for one in columns if types.get(one.name) != one.type):
        lacking = ", ".join(odd)
        return RowsAt(reason=f"the source lacks columns, or has them as other types: {lacking}")
    names = list(columns.names)
    for shard in wanted.shards:
        with open_session(shards[shard].config) as session:
            if not is_committed(session, positions[shard]):
                return RowsAt(reason=f"a server of {shard} is behind the mirror")
    again = read_keys(keys, tables=tables, shards=shards, columns=names, settings=settings)
    for shard, looks in again.seen.items():
        # By a vtgate another tablet may have answered. Of a file only the beginning is sure.
        cut = positions[shard].executed
        floors = [look.floor.executed for look in looks.values() if look.floor.flavor != "file"]
        if not all(floor.contains_all(cut) for floor in floors):
            return RowsAt(reason=f"a server of {shard} is behind the mirror")
    known = changes(again.end)
    if known.disturbed:
        return RowsAt(reason=known.disturbed)
    if short := unreached(again, known):
        return RowsAt(reason=f"the log was not read far enough on {short[0]}")
    events = events_of(changes_of_keys(spark, known, keys, key), key=key, columns=names)
    told = []
    for values in keys:
        name = frozen_row(values, key) or ()
        rows = {
            shard: row_at_cut([e for e in events.get(name, ()) if e.shard == shard], looks[name])
            for shard, looks in again.seen.items()
        }
        told.append(
            KeyAt(
                key=values,
                rows={
                    shard: None if row is None else thawed_row(row, names, columns)
                    for shard, row in rows.items()
                },
            )
        )
    return RowsAt(keys=told)
