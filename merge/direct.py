"""Merges a small batch in this process, without Spark.

A MERGE of 10,000 changes takes seconds, nearly all of them for itself; here it takes tenths of one
(docs/decisions/0025-small-merges.md).

Lives here: when that can be done, what is written, and the commit. Does not live here: the newest
change of each key (`newest`), the rows of their keys (`lookup`), the log (`store.delta_files`),
vectors (`store.deletion_vectors`), the merge of all else (`table`).

The rule is the same as in `table.merge_statement`, and so is the order of the commits: tombstones
first. What needs more than the rule (two shards that meet in a key, changes older than a tombstone,
a TRUNCATE, a catch-up) is left to Spark, as is whatever is large.

Invariant: either one commit with the batch's transaction version brings all of it, or the mirrored
table is untouched.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from core.change import TOKEN_COLUMN
from merge.batch import Batch
from merge.lookup import Hits, look
from merge.newest import (
    ChangeFiles,
    Flags,
    Images,
    Ints,
    Newest,
    Unfit,
    has_inexact_key,
    newest,
)
from merge.side import TOMBSTONE, ensure_side
from store.commits import commit_files, committed
from store.crashpoints import reach
from store.data_files import write_data_file
from store.deletion_vectors import vector_of, write_vectors
from store.delta_files import (
    Action,
    TableFiles,
    commit_info,
    keep_log_short,
    marked,
    removed,
    replay,
)
from store.delta_tables import stats_columns
from store.files import Lake

log: Final = logging.getLogger(__name__)

MOST_BYTES: Final = 96 << 20  # of change files
# Changes. Each takes half a kilobyte for a while, however small its file is.
MOST_ROWS: Final = 1 << 20
_MANY_ROWS: Final = 1 << 17
# Tables are merged side by side, but not two batches that take much memory each.
_one_of_many: Final = threading.Lock()
_TRIES: Final = 3
_WRITERS: Final = 2
_FILE_ROWS: Final = 1 << 18  # a new file has so many at least, if there are that many


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """What was done.

    Attributes:
        files: the table afterwards.
        side: the side table, if it was looked at.
        changed: rows inserted, updated and deleted.
        tombstones: whether the side table has got some.
    """

    files: TableFiles
    side: TableFiles | None
    changed: int
    tombstones: bool


def merge_directly(
    lake: Lake, batch: Batch, known: TableFiles | None, *, side: TableFiles | None = None
) -> Direct | None:
    """Bring a batch into its table; None if it is one for Spark, and the table is untouched.

    The caller knows that no change of the batch is older than a tombstone, and that nothing but row
    changes is in it.

    Args:
        lake: the lake.
        batch: what to merge.
        known: the table as far as it is known.
        side: the side table, likewise.

    Raises:
        LakeError: the lake cannot be read or written.
    """
    shape = batch.shape
    if batch.bytes > MOST_BYTES or batch.rows > MOST_ROWS or has_inexact_key(shape):
        return None
    if batch.rows < _MANY_ROWS:
        return _tried(lake, batch, known, side)
    with _one_of_many:
        done = _tried(lake, batch, known, side)
        pa.default_memory_pool().release_unused()
        return done


def _tried(
    lake: Lake, batch: Batch, known: TableFiles | None, side: TableFiles | None
) -> Direct | None:
    try:
        changes = ChangeFiles.load(lake, batch.files)
        found = newest(changes, batch.shape)
        for _ in range(_TRIES):
            files = replay(lake, batch.path, known)
            done = _merge(lake, batch, _Change(changes, found), files, side)
            if done is not None:
                return done
            known = files  # another commit came in between
    except Unfit as why:
        log.debug("%s: merged by Spark: %s", batch.shape.name, why)
    return None


@dataclass(frozen=True, slots=True)
class _Change:
    """What a batch brings: its files, and the newest change of each key."""

    files: ChangeFiles
    newest: Newest


def _merge(
    lake: Lake, batch: Batch, change: _Change, files: TableFiles | None, side: TableFiles | None
) -> Direct | None:
    if files is None or not (files.writable and files.vectors):
        raise Unfit("the table's rules")
    if set(files.schema.names) != {*batch.shape.columns.names, TOKEN_COLUMN}:
        raise Unfit("the table's columns")
    if (committed(files, batch.app_id) or 0) >= batch.round:
        return Direct(files=files, side=side, changed=0, tombstones=False)
    hits = look(lake, batch.path, change.newest, files)
    wins, changed = decide(hits, change.newest)
    needed = wins | change.newest.dead  # the rows that come, and tombstones
    images = Images.of(change.files, change.newest, needed, batch.shape.columns)
    reach("merge.before_side")
    buried = _bury(lake, batch, change.newest, images, side)
    reach("merge.after_side")
    actions = [
        *_head(batch, files.version),
        *_vectors(lake, batch, hits, wins),
        *_new_rows(lake, batch, images, np.flatnonzero(wins & ~change.newest.dead)),
    ]
    reach("merge.before_merge")
    after = commit_files(lake, batch.path, files, actions)
    if after is None:
        return None
    reach("merge.after_merge")
    keep_log_short(lake, batch.path, after.version)
    return Direct(files=after, side=buried or side, changed=changed, tombstones=buried is not None)


# --- the rule -------------------------------------------------------------------------------------


def decide(hits: Sequence[Hits], found: Newest) -> tuple[Flags, int]:
    """For each key whether its change applies, and how many rows that changes.

    Raises:
        Unfit: a key stands in the table twice.
    """
    met = np.zeros(len(found), np.int64)
    wins = np.ones(len(found), np.bool_)
    for one in hits:
        met += np.bincount(one.number, minlength=len(met))
        wins[one.number] = one.newer
    if (met > 1).any():
        raise Unfit("a key stands in the table twice")
    applies = wins & ((met == 1) | ~found.dead)
    return wins, int(np.count_nonzero(applies))


# --- what is written ------------------------------------------------------------------------------


def _vectors(lake: Lake, batch: Batch, hits: Sequence[Hits], wins: Flags) -> Iterator[Action]:
    """The files whose rows make way."""
    touched, vectors = [], []
    for one in hits:
        goes = one.at[wins[one.number]]
        if goes.size:
            touched.append(one.file)
            vectors.append(one.gone | vector_of(goes))
    if not touched:
        return
    whole = [len(vector) == file.rows for vector, file in zip(vectors, touched, strict=True)]
    kept = [vector for vector, all_gone in zip(vectors, whole, strict=True) if not all_gone]
    descriptors = iter(write_vectors(lake, batch.path, kept) if kept else [])
    for file, all_gone in zip(touched, whole, strict=True):
        yield removed(file, now=batch.now)
        if not all_gone:
            yield marked(file, next(descriptors))


def _new_rows(lake: Lake, batch: Batch, images: Images, come: Ints) -> list[Action]:
    """The files of the rows that come, each with a range of keys of its own."""
    if not come.size:
        return []
    columns = batch.shape.columns
    described = [name for name in batch.shape.key if stats_columns(columns, [name])]

    def write(part: Ints) -> Action:
        rows = images.rows(part)
        return _data_file(lake, batch.path, rows, described=described, now=batch.now)

    parts = np.array_split(come, max(1, come.size // _FILE_ROWS))
    with ThreadPoolExecutor(_WRITERS, "merge-write") as pool:
        return list(pool.map(write, parts))


def _bury(
    lake: Lake, batch: Batch, found: Newest, images: Images, side: TableFiles | None
) -> TableFiles | None:
    """Record what the batch deletes; the side table afterwards, None if there was nothing."""
    dead = np.flatnonzero(found.dead)
    if not dead.size:
        return None
    shape = batch.shape
    if side is None:
        ensure_side(lake, batch.side_path, shape, now=batch.now)
    rows = _tombstones(batch, found, images, dead)
    for _ in range(_TRIES):
        side = replay(lake, batch.side_path, side)
        if side is None or not side.writable or set(side.schema.names) != set(rows.column_names):
            raise Unfit("the side table's rules")
        if (committed(side, batch.app_id) or 0) >= batch.round:
            return side
        actions = [
            *_head(batch, side.version),
            _data_file(lake, batch.side_path, rows, described=(), now=batch.now),
        ]
        after = commit_files(lake, batch.side_path, side, actions)
        if after is not None:
            keep_log_short(lake, batch.side_path, after.version)
            return after
    raise Unfit("the side table is being written to")


def _tombstones(batch: Batch, found: Newest, images: Images, dead: Ints) -> pa.Table:
    """Rows of the side table, as merge.side.tombstones makes them."""
    schema, count, chosen = batch.shape.side_schema, len(dead), pa.array(dead)
    key = found.keys.take(chosen).columns[: len(batch.shape.key)]
    return pa.table(
        [
            pa.StructArray.from_arrays(
                [column.combine_chunks() for column in key],
                fields=list(schema.field("key").type),
            ),
            found.shard.take(chosen),
            pa.repeat(pa.scalar(TOMBSTONE, pa.int8()), count),
            images.rows(dead)[TOKEN_COLUMN].combine_chunks(),
            pa.nulls(count, schema.field("row").type),
            pa.repeat(pa.scalar(batch.round, pa.int64()), count),
            pa.repeat(pa.scalar(batch.now, schema.field("written_at").type), count),
        ],
        schema=schema,
    )


def _data_file(
    lake: Lake, folder: str, rows: pa.Table, *, described: Sequence[str], now: int
) -> Action:
    return write_data_file(
        lake, folder, [rows], rows.schema, kind="merge", described=described, now=now
    )


def _head(batch: Batch, read: int) -> list[Action]:
    """What each commit of the batch says of itself: the first two actions of it."""
    info = commit_info(
        "MERGE",
        read=read,
        isolation="Serializable",
        now=batch.now,
        userMetadata=json.dumps(batch.metadata, sort_keys=True),
    )
    done = {"appId": batch.app_id, "version": batch.round, "lastUpdated": batch.now // 1000}
    return [info, {"txn": done}]
