"""Merges one batch of changes into one table.

The order of the commits is the whole of crash safety: first the side table gets whatever is about
to leave the mirrored table, then the mirrored table is changed in one MERGE that carries the round
as its transaction version. Killed in between, the batch is merged again, with the same or more
rounds, and comes to the same end: the side table may hold a register twice, which counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ratchet.merge import order, prune, reduce, side, sql
from ratchet.merge.ancestry import LAST_SEQ
from ratchet.merge.batch import MergeBatch
from ratchet.merge.delta import append_delta, commit_session, read_delta, view
from ratchet.merge.direct import merge_directly
from ratchet.merge.reduce import Mark
from ratchet.merge.shape import Shape
from ratchet.merge.side import SideStats
from ratchet.store.crashpoints import reach
from ratchet.store.delta.log import TableFiles
from ratchet.store.delta.tables import table_version
from ratchet.store.files import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NO_TURN: Final[AbstractContextManager[object]] = nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """What a merge did.

    Attributes:
        version: the table's Delta version afterwards.
        changed: rows inserted, updated and deleted.
        side: what is now known of the side table.
    """

    version: int
    changed: int
    side: SideStats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What the two commits will write. Frames are computed and kept (localCheckpoint).

    Attributes:
        changes: reduced changes (merge.reduce) to apply by the merge rule.
        drops: registers (k0, k1 ..., shard) whose row in the table must go whatever its rank.
        side: rows for the side table.
        shadows: whether there may be shadows among them.
    """

    changes: DataFrame
    drops: DataFrame | None
    side: tuple[DataFrame, ...]
    shadows: bool = False


@dataclass(slots=True)
class TableCache:
    """What a process remembers of a table from one merge to the next; what is None was not read.

    Attributes:
        main: the mirrored table's files.
        side: its side table's.
        sides: what is known of the side table.
        merged: the round of the last merge that changed it.
    """

    main: TableFiles | None = None
    side: TableFiles | None = None
    sides: SideStats | None = None
    merged: int | None = None


def merge_table(
    spark: SparkSession,
    lake: Lake,
    batch: MergeBatch,
    known: SideStats,
    held: TableCache | None = None,
    *,
    turn: AbstractContextManager[object] = _NO_TURN,
) -> MergeResult:
    """Bring a batch into its table; done before (by transaction version), it changes nothing.

    Args:
        spark: any session of the application.
        lake: the lake.
        batch: what to merge.
        known: what is known of the side table.
        held: remembered of the table. None: it is merged by Spark, however small the batch is.
        turn: entered for as long as Spark works.
    """
    if held is not None and _is_plain(batch, known):
        done = merge_directly(lake, batch, held.main, side=held.side)
        if done is not None:
            held.main, held.side = done.files, done.side
            if done.tombstones:
                known = known.with_marks(_later(batch.highest, batch.marks), shadows=False)
            return MergeResult(version=done.files.version, changed=done.changed, side=known)
    with turn:
        return _merged_by_spark(spark, lake, batch, known)


def _merged_by_spark(
    spark: SparkSession, lake: Lake, batch: MergeBatch, known: SideStats
) -> MergeResult:
    session = commit_session(
        spark,
        lake=lake,
        path=batch.path,
        app_id=batch.app_id,
        version=batch.round,
        metadata=batch.metadata,
        now=batch.now,
        extra=batch.settings,
    )
    batch = _pruned(lake, _with_ended_marks(session, lake, batch))
    plan = _plan(session, lake, batch, known)
    reach("merge.before_side")
    known = _write_side(session, lake, batch, plan, known, app_id=batch.app_id)
    reach("merge.after_side")
    reach("merge.before_merge")
    changed = _write_main(session, lake, batch, plan)
    reach("merge.after_merge")
    version = table_version(lake, batch.path)
    return MergeResult(version=version or 0, changed=changed, side=known)


def _is_plain(batch: MergeBatch, known: SideStats) -> bool:
    """Whether no other shard's rows, and nothing in the side table, have a say."""
    if batch.collapse or batch.ancestry:
        return False
    # Behind a row that goes another shard's may come to be shown.
    contests = batch.shape.contested and (known.shadows or bool(batch.truncated))
    return not (contests or known.may_matter(batch.lowest))


def collapse_id(app_id: str) -> str:
    """Whose transaction versions say that a table's doubled keys are collapsed."""
    return f"{app_id}/collapse"


def collapse(spark: SparkSession, lake: Lake, batch: MergeBatch, known: SideStats) -> MergeResult:
    """Show one row per key after the dumps of several shards brought one each.

    The winner stays, the others become shadows. Done again, it finds nothing to do.
    """
    session = commit_session(
        spark,
        lake=lake,
        path=batch.path,
        app_id=collapse_id(batch.app_id),
        version=batch.round,
        metadata=batch.metadata,
        now=batch.now,
        extra=batch.settings,
    )
    main = read_delta(session, lake.hadoop_uri(batch.path))
    keys = order.doubled_keys(session, main, batch.shape).localCheckpoint()
    changed = 0
    if not keys.isEmpty():
        shown = order.Sources(main=main, side=None, batch=None, marks={})
        decided = order.resolve(session, keys, shown, batch.shape).localCheckpoint()
        losers = decided.where("shadow")
        plan = _Plan(
            changes=decided.where("false").selectExpr(*_names(batch.shape), "token", "dead", "row"),
            drops=decided.where("drop"),
            side=(side.shadows(session, losers, batch.shape),),
            shadows=True,
        )
        known = _write_side(session, lake, batch, plan, known, app_id=collapse_id(batch.app_id))
        changed = _write_main(session, lake, batch, plan)
    return MergeResult(version=table_version(lake, batch.path) or 0, changed=changed, side=known)


def _with_ended_marks(session: SparkSession, lake: Lake, batch: MergeBatch) -> MergeBatch:
    """With the truncations of ended shards of which the last heir is truncated in this batch.

    The siblings' marks of earlier steps stand in the side table: that is what keeps them waiting.
    """
    if not (batch.truncated and batch.ancestry):
        return batch
    marks = batch.marks
    if table_version(lake, batch.side_path):
        recorded = read_delta(session, lake.hadoop_uri(batch.side_path))
        marks = _later(side.read_marks(session, recorded), marks)
    last = max(ts for _, ts in batch.truncated.values())
    ended = {shard: (mark, last) for shard, mark in batch.ancestry.truncated(marks).items()}
    return replace(batch, truncated={**ended, **batch.truncated})


def _pruned(lake: Lake, batch: MergeBatch) -> MergeBatch:
    """With the ranges of its keys, which tell Spark the files that it need not read."""
    if batch.wide:
        return batch
    ranges = prune.key_ranges(lake, batch.files, batch.shape)
    return replace(batch, prune=prune.condition(ranges, batch.shape))


def _plan(session: SparkSession, lake: Lake, batch: MergeBatch, known: SideStats) -> _Plan:
    shape = batch.shape
    changes = _changes(session, lake, batch)
    outdated = known.may_matter(batch.lowest)
    registers, marks = None, batch.marks
    if outdated or (shape.contested and known.shadows):
        recorded = read_delta(session, lake.hadoop_uri(batch.side_path))
        registers = side.registers(session, recorded, shape)
        marks = _later(side.read_marks(session, recorded), marks)
    dead = (_tombstones(session, changes, batch),) if batch.may_delete else ()
    if shape.contested and not batch.collapse:
        sources = order.Sources(
            main=read_delta(session, lake.hadoop_uri(batch.path)),
            side=registers,
            batch=changes,
            marks=marks,
            truncated=bool(batch.truncated),
            prune=batch.prune,
            ancestry=batch.ancestry,
        )
        keys = order.contested_keys(session, changes, sources, shape).localCheckpoint()
        if not keys.isEmpty():
            decided = order.resolve(session, keys, sources, shape).localCheckpoint()
            changes = order.without(session, changes, keys, shape)
            if outdated and registers is not None:
                changes = order.not_outdated(session, changes, registers, marks, shape)
            puts = decided.where("put").selectExpr(*_names(shape), "token", "dead", "row")
            return _Plan(
                changes=changes.drop("fresh").unionByName(puts).localCheckpoint(),
                drops=decided.where("drop"),
                side=(
                    *dead,
                    *_implied_tombstones(session, decided, batch, known),
                    side.shadows(session, decided.where("shadow"), shape),
                ),
                shadows=True,
            )
    if outdated and registers is not None:
        changes = order.not_outdated(session, changes, registers, marks, shape).localCheckpoint()
    return _Plan(changes=changes.drop("fresh"), drops=None, side=dead)


def _tombstones(session: SparkSession, changes: DataFrame, batch: MergeBatch) -> DataFrame:
    """Of the deletes. Implied ones say nothing that late changes could meet (reduce.wanted)."""
    if batch.ancestry:
        changes = changes.where(f"token.seq < {LAST_SEQ}")
    return side.tombstones(session, changes, batch.shape)


def _implied_tombstones(
    session: SparkSession, decided: DataFrame, batch: MergeBatch, known: SideStats
) -> tuple[DataFrame, ...]:
    """Those that a shadow in the side table must not outlive. Keys with shadows are contested."""
    if not (batch.ancestry and known.shadows):
        return ()
    implied = decided.where(f"dead AND token.seq = {LAST_SEQ}")
    return (side.tombstones(session, implied, batch.shape),)


def _changes(session: SparkSession, lake: Lake, batch: MergeBatch) -> DataFrame:
    changes = reduce.read_changes(session, lake, batch.files, batch.shape)
    changes = reduce.wanted(changes, until=batch.until, since=batch.since, ancestry=batch.ancestry)
    found = reduce.newest(
        session, changes, batch.shape, ancestry=batch.ancestry, truncated=batch.marks
    )
    # Kept, because MERGE reads it three times, and the side table and contests before it. Delta
    # refuses a cached source (`persist`), and a copy in Parquet costs more (bench/results).
    return found.localCheckpoint()


def _write_side(
    session: SparkSession,
    lake: Lake,
    batch: MergeBatch,
    plan: _Plan,
    known: SideStats,
    *,
    app_id: str,
) -> SideStats:
    frames = list(plan.side)
    if batch.truncated:
        frames.append(side.truncations(session, batch.truncated, batch.shape))
    frames = [frame for frame in frames if not frame.isEmpty()]
    if not frames:
        return known
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame)
    side.ensure_side(lake, batch.side_path, batch.shape, now=batch.now)
    stamped = side.stamped(rows, round_number=batch.round, now=batch.now)
    append_delta(stamped, lake, batch.side_path, app_id=app_id, now=batch.now)
    marks = _later(batch.highest, batch.marks)
    return known.with_marks(marks, shadows=plan.shadows)


def _write_main(session: SparkSession, lake: Lake, batch: MergeBatch, plan: _Plan) -> int:
    source = plan.changes.selectExpr(*_names(batch.shape), "token", "dead", "row", "false AS drop")
    if plan.drops is not None:
        source = source.unionByName(
            plan.drops.selectExpr(*_names(batch.shape), "true AS dead", "true AS drop"),
            allowMissingColumns=True,
        )
    target = sql.quoted(lake.hadoop_uri(batch.path))
    statement = merge_statement(f"delta.{target}", view(source), batch)
    found = session.sql(statement).collect()
    return int(found[0]["num_affected_rows"] or 0) if found else 0


def merge_statement(target: str, source: str, batch: MergeBatch) -> str:
    """The MERGE of a batch: the merge rule in SQL.

    Args:
        target: the table as SQL names it.
        source: a view with k0, k1 ..., shard, token, dead, row, drop.
        batch: says what may happen, and which part of the table can be touched.
    """
    shape, names = batch.shape, batch.shape.columns.names
    newer = sql.newer("s.token", f"t.{sql.TOKEN}", batch.floors)
    match = [shape.row_has_key("t", "s")]
    if shape.many_shards:
        said = f"NOT s.drop AND s.token.seq < {LAST_SEQ}" if batch.ancestry else "NOT s.drop"
        match.append(f"(t.{sql.TOKEN}.shard <=> s.shard OR (t.{sql.TOKEN} IS NULL AND {said}))")
    if batch.prune != "true":
        match.append(batch.prune)
    updates = ", ".join(f"t.{sql.quoted(n)} = s.row.{sql.quoted(n)}" for n in names)
    columns = ", ".join(map(sql.quoted, names))
    values = ", ".join(f"s.row.{sql.quoted(n)}" for n in names)
    update = f"UPDATE SET {updates}, t.{sql.TOKEN} = s.token"
    insert = f"INSERT ({columns}, {sql.TOKEN}) VALUES ({values}, s.token)"
    clauses = [
        f"WHEN MATCHED AND NOT s.dead AND {newer} THEN {update}",
        f"WHEN MATCHED AND (s.drop OR (s.dead AND {newer})) THEN DELETE",
        f"WHEN NOT MATCHED AND NOT s.dead THEN {insert}",
    ]
    if batch.truncated:
        gone = sql.before_marks(f"t.{sql.TOKEN}", batch.marks, batch.floors)
        clauses.append(f"WHEN NOT MATCHED BY SOURCE AND ({gone}) THEN DELETE")
    return f"MERGE INTO {target} t USING {source} s ON {' AND '.join(match)} " + " ".join(clauses)


def _names(shape: Shape) -> list[str]:
    return [*shape.key_list.split(", "), "shard"]


def _later(a: Mapping[str, Mark], b: Mapping[str, Mark]) -> dict[str, Mark]:
    return {s: max(m for m in (a.get(s), b.get(s)) if m is not None) for s in {*a, *b}}
