"""A mirrored table together with changes that are not merged yet, as one DataFrame.

The same rule as the merge's, without writing anything: what `verify` compares with the source, and
what a reader gets who does not want to wait for the next merge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ratchet.merge import order, reduce, sql
from ratchet.merge.ancestry import NO_ANCESTRY, Ancestry
from ratchet.merge.delta import view
from ratchet.merge.reduce import Mark
from ratchet.merge.shape import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def overlay(
    session: SparkSession,
    table: DataFrame,
    changes: DataFrame,
    shape: Shape,
    *,
    side: DataFrame | None = None,
    marks: Mapping[str, Mark] | None = None,
    ancestry: Ancestry = NO_ANCESTRY,
    prune: str = "true",
) -> DataFrame:
    """The table as it will be once those changes are merged: its columns and `_token`.

    Only keys that the changes touch are looked at closely; all other rows pass through. A row that
    has lost its token makes way for any change of its key.

    Args:
        session: where the query runs; all frames must be its own.
        table: the mirrored table.
        changes: rows of change files (merge.reduce.read_changes), newer than what is merged.
        shape: the table's shape.
        side: tombstones and shadows (merge.side.registers): needed where changes may be older than
            what is merged, or where shards contest keys; None otherwise.
        marks: shard -> the newest truncation in the side table; as `side`.
        ancestry: what the changes' streams descend from. The changes must not go past a round that
            begins further streams by a reshard.
        prune: a condition on the table's row `t` that every changed key fulfils.
    """
    changes = reduce.wanted(changes, until={}, ancestry=ancestry)
    batch = reduce.newest(session, changes, shape, ancestry=ancestry)
    if side is not None:
        batch = order.not_outdated(session, batch, side, marks or {}, shape)
    touched = session.sql(f"SELECT DISTINCT {shape.key_list} FROM {view(batch)}")
    sources = order.Sources(
        main=table.where(f"{sql.TOKEN} IS NOT NULL"),
        side=side,
        batch=batch,
        marks=marks or {},
        prune=prune,
    )
    if shape.contested:
        found = order.resolve(session, touched, sources, shape)
        live = f"SELECT row, token FROM {view(found)} WHERE wins"
    else:
        found = order.newest_registers(session, touched, sources, shape)
        live = f"SELECT row, token FROM {view(found)} WHERE NOT dead"
    names = ", ".join(f"t.{sql.quoted(name)}" for name in shape.columns.names)
    values = ", ".join(f"row.{sql.quoted(name)}" for name in shape.columns.names)
    return session.sql(
        f"SELECT {names}, t.{sql.TOKEN} FROM {view(table)} t LEFT ANTI JOIN {view(touched)} c "
        f"ON {shape.row_has_key('t', 'c')} AND ({prune}) "
        f"UNION ALL SELECT {values}, token AS {sql.TOKEN} FROM ({live})"
    )
