"""From change files to at most one change per key and shard: the newest one.

The result has the key as k0, k1 ... and
  shard   the shard the change is from, or one that it descends from
  token   its token
  dead    whether the row is deleted by it
  fresh   whether the key may be new on the shard: an insert or a change of key is among the changes
  row     the whole row; null if dead
It has no chance in it: computed again, it gives the same rows, so MERGE may read it several times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.merge import sql
from ratchet.merge.ancestry import LAST_SEQ, NO_ANCESTRY, Ancestry
from ratchet.merge.delta import view
from ratchet.merge.parts import read_parts
from ratchet.merge.shape import Shape
from ratchet.store.files import Lake
from ratchet.store.segments import part_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Mark = tuple[int, int]  # generation and seq of a transaction

# Almost all keys of a batch have one change: a first sort to drop the others is not worth it.
WINDOW_SETTINGS: Final = {"spark.sql.optimizer.windowGroupLimitThreshold": "-1"}


def read_changes(
    session: SparkSession, lake: Lake, paths: Sequence[str], shape: Shape
) -> DataFrame:
    """The rows of change files (core.change.change_schema); none if there are no files.

    Args:
        session: where the query runs.
        lake: where they are.
        paths: as their rounds have them: files, and parts of segments.
        shape: the table's.

    Raises:
        LakeError: a path is none.
    """
    parts = [part for part in map(part_of, paths) if part is not None]
    files = [lake.hadoop_uri(path) for path in paths if part_of(path) is None]
    found = session.read.schema(shape.change_type).parquet(*files) if files else None
    if parts:
        small = read_parts(session, lake, parts, shape)
        found = small if found is None else found.unionAll(small)
    return session.createDataFrame([], shape.change_type) if found is None else found


def wanted(
    changes: DataFrame,
    *,
    until: Mapping[str, Mark],
    since: Mapping[tuple[str, int], int] | None = None,
    ancestry: Ancestry = NO_ANCESTRY,
) -> DataFrame:
    """Without the changes that come too late or too early.

    Args:
        changes: rows of change files.
        until: shard -> the first transaction that is left out, where the table stops.
        since: (shard, generation) -> the last one that is left out, as the dump has it.
        ancestry: which streams are over; what comes from them again was merged.
    """
    for shard, mark in until.items():
        late = f"token.shard = {sql.text(shard)} AND NOT {sql.below('token', *mark)}"
        changes = changes.where(f"NOT ({late})")
    for (shard, generation), seq in sorted((since or {}).items()):
        stream = f"token.shard = {sql.text(shard)} AND token.generation = {generation}"
        changes = changes.where(f"NOT ({stream} AND token.seq <= {seq})")
    for shard, generation in sorted(ancestry.ended.items()):
        again = f"token.shard = {sql.text(shard)} AND token.generation <= {generation}"
        changes = changes.where(f"NOT ({again})")
    return changes


def newest(
    session: SparkSession,
    changes: DataFrame,
    shape: Shape,
    *,
    ancestry: Ancestry = NO_ANCESTRY,
    truncated: Mapping[str, Mark] | None = None,
) -> DataFrame:
    """The newest change per key and shard, and what the changes imply on shards of before.

    An update that changes the key is a delete of the old key and an insert of the new one, with one
    token. Inside a transaction `idx` decides, so that rows may even swap their keys.

    Args:
        session: where the query runs; has the setting `WINDOW_SETTINGS`.
        changes: rows of change files.
        shape: the table.
        ancestry: what their streams descend from.
        truncated: shard -> the newest TRUNCATE; what stands before it is gone anyway. What that
            implies holds nevertheless: else the result would hang on where a step ends.
    """
    moved = f"(op = {UPDATE} AND ({sql.differs('before', 'after', shape.key)}))"
    source = view(changes)
    written = (
        f"SELECT {shape.key_from('after')}, token.shard AS shard, token, false AS dead, "
        f"(op = {INSERT} OR {moved}) AS fresh, after AS row "
        f"FROM {source} WHERE op IN ({INSERT}, {UPDATE})"
    )
    removed = (
        f"SELECT {shape.key_from('before')}, token.shard AS shard, token, true AS dead, "
        f"false AS fresh, CAST(NULL AS {shape.row_ddl}) AS row "
        f"FROM {source} WHERE op = {DELETE} OR (op = {UPDATE} AND {moved})"
    )
    both = session.sql(f"{written} UNION ALL {removed}")
    said = both.where(f"NOT ({sql.before_marks('token', truncated)})") if truncated else both
    if ancestry:
        said = said.unionByName(implied(session, both, shape, ancestry))
    return newest_per(session, said, shape)


def implied(
    session: SparkSession, registers: DataFrame, shape: Shape, ancestry: Ancestry
) -> DataFrame:
    """The tombstones that those registers imply on the shards that theirs descend from.

    Their tokens have neither time nor GTID: two that rank the same are the same.

    Args:
        session: where the query runs.
        registers: k0, k1 ..., shard; no streams of shards that are over are among them (`wanted`).
        shape: the table.
        ancestry: what the streams descend from.
    """
    return session.sql(
        f"SELECT {shape.key_list}, ended.shard AS shard, "
        "named_struct('ts', CAST(NULL AS timestamp), 'shard', ended.shard, "
        "'gtid', CAST(NULL AS string), 'generation', ended.generation, "
        f"'seq', {LAST_SEQ}L, 'idx', 0L) AS token, true AS dead, false AS fresh, "
        f"CAST(NULL AS {shape.row_ddl}) AS row FROM {view(registers)} "
        f"LATERAL VIEW explode({ancestry.implied('shard')}) AS ended"
    )


def newest_per(session: SparkSession, registers: DataFrame, shape: Shape) -> DataFrame:
    """One row per key and shard: that of the highest rank.

    `fresh` holds if it holds for any of the rows; it is false where no other shard can contest.
    A window was the cheapest of the ways tried (bench/results/reduce.md): 500,000 rows take 1.0 s
    of processor time, max_by over the row 1.9 s, the highest rank and a join back 2.5 s.

    Args:
        session: where the query runs; has the setting `WINDOW_SETTINGS`.
        registers: k0, k1 ..., shard, token, dead, fresh, row.
        shape: the table.
    """
    window = f"PARTITION BY {shape.key_list}, shard"
    order = ", ".join(f"token.{part} DESC" for part in sql.RANK_PARTS)
    fresh = f"bool_or(fresh) OVER ({window})" if shape.contested else "false"
    return session.sql(
        f"SELECT {shape.key_list}, shard, token, dead, fresh, row FROM "
        f"(SELECT {shape.key_list}, shard, token, dead, {fresh} AS fresh, row, "
        f"row_number() OVER ({window} ORDER BY {order}) AS nth FROM {view(registers)}) "
        "WHERE nth = 1"
    )
