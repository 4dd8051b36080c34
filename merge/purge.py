"""Clean-up of side tables: tombstones that no older event can meet any more, shadows that are over.

A shadow is over when something newer is known of the same key and shard: a tombstone, another
shadow, a truncation, or the table's own row. Shadows go before tombstones, in a commit of their
own: a shadow that outlived the tombstone of its row would bring the row back.
Invariant: what `merge.order` would decide is the same before and after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.core.types import InvalidValuePolicy
from ratchet.merge import order, side, sql
from ratchet.merge.ancestry import Ancestry
from ratchet.merge.delta import plain_session, read_delta, view
from ratchet.merge.failures import spark_errors
from ratchet.merge.patch import may_have_shadows
from ratchet.merge.plan import app_id, shape_of
from ratchet.merge.shape import Shape
from ratchet.store import layout
from ratchet.store.delta.appendlog import microseconds
from ratchet.store.delta.commits import check_epoch
from ratchet.store.delta.tables import app_version, open_delta, query, table_version
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.staged import other_folders, remove_given_up
from ratchet.store.tables import TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def purge_is_due(lake: Lake, state: TableState, *, now: int, keep: float) -> bool:
    """Whether a table's side tables have something that `purge_side` would remove.

    Cheap: one column of small files is read, without Spark.

    Args:
        lake: the lake.
        state: the table.
        now: microseconds UTC.
        keep: what was written longer ago than this many seconds counts.

    Raises:
        LakeError: the side table cannot be read.
    """
    if state.phase != "streaming" or state.dump is None:
        return False
    if any(other_folders(lake, state, kind) for kind in (layout.SIDE, layout.STAGED)):
        return True
    table = open_delta(lake, state.side_path)
    if table is None or not table.version():
        return False
    if may_have_shadows(lake, state.side_path):
        return True
    found = query(table, state.side_path, "SELECT min(written_at) AS oldest FROM t")
    moments = [one for batch in found for one in batch.column("oldest").to_pylist() if one]
    return any(microseconds(one) < now - int(keep * 1e6) for one in moments)


def purge_side(
    spark: SparkSession,
    lake: Lake,
    state: TableState,
    *,
    policy: InvalidValuePolicy,
    now: int,
    keep: float,
) -> bool:
    """Remove from a streaming table's side table what can no longer matter.

    Nothing happens to a table in another phase: while it is dumped, chunks may bring rows that are
    older than a tombstone. Never while the table is merged; a Merger that lives on should
    `forget` it afterwards.

    Args:
        spark: any session.
        lake: the lake.
        state: the table.
        policy: decides about the lake's types.
        now: microseconds UTC.
        keep: seconds that tombstones are kept; at least as long as an event may be delivered late.

    Returns:
        Whether anything was there to look at.
    """
    if state.phase != "streaming" or state.dump is None:
        return False
    _remove_old_dumps(lake, state)
    if not table_version(lake, state.side_path):
        return False
    shape = shape_of(state, policy, Ancestry.of(state, RoundLog(lake).streams()))
    merged = app_version(lake, state.path, app_id(state)) or 0
    session = plain_session(spark)
    with spark_errors("clean up tombstones", table=state.name):
        if shape.contested:
            _drop_shadows(session, lake, state, shape)
        target = f"delta.{sql.quoted(lake.hadoop_uri(state.side_path))}"
        session.sql(
            f"DELETE FROM {target} WHERE kind <> {side.SHADOW} AND round <= {merged} "
            f"AND written_at < timestamp_micros({now - int(keep * 1e6)}L)"
        ).collect()
    return True


def _drop_shadows(session: SparkSession, lake: Lake, state: TableState, shape: Shape) -> None:
    uri = lake.hadoop_uri(state.side_path)
    recorded = read_delta(session, uri)
    if not side.read_stats(session, recorded).shadows:
        return
    registers = side.registers(session, recorded, shape)
    known = order.Sources(
        main=read_delta(session, lake.hadoop_uri(state.path)),
        side=registers,
        batch=None,
        marks=side.read_marks(session, recorded),
    )
    over = order.over_shadows(session, registers, known, shape).localCheckpoint()
    if over.isEmpty():
        return
    match = shape.row_has_key("t.key", "s")
    session.sql(
        f"MERGE INTO delta.{sql.quoted(uri)} t USING {view(over)} s ON {match} "
        f"AND t.shard = s.shard AND t.kind = {side.SHADOW} "
        f"AND {sql.rank('t.token')} <= struct(s.generation, s.seq, s.idx) "
        "WHEN MATCHED THEN DELETE"
    ).collect()


def _remove_old_dumps(lake: Lake, state: TableState) -> None:
    """Remove side tables of earlier dumps, and staged tables: nobody reads them any more."""
    old = other_folders(lake, state, layout.SIDE)
    # Listed before the look: what a successor's dump has made since is not among them.
    check_epoch(lake, RoundLog(lake).epoch(), state.side_path, "remove what old dumps left")
    for folder in old:
        lake.delete_folder(folder)
    remove_given_up(lake, state)
