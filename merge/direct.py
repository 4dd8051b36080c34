"""Merges a small batch in this process, without Spark.

A MERGE of 10,000 changes takes seconds, nearly all of them for itself; here it takes tenths of one
(docs/decisions/0025-small-merges.md).

Lives here: when that can be done, what is written, and the commit. Does not live here: the newest
change of each key (`newest`), the rows of their keys (`lookup`), the log (`store.delta.log`),
vectors (`store.delta.vectors`), the merge of all else (`table`).

The rule is the same as in `table.merge_statement`, and so is the order of the commits: tombstones
first. What needs more than the rule (two shards that meet in a key, changes older than a tombstone)
is left to Spark, as are very many changes.

Invariant: either one commit with the batch's transaction version brings all of it, or the mirrored
table is untouched.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from ratchet.core.change import TOKEN_COLUMN
from ratchet.merge.batch import MergeBatch
from ratchet.merge.lookup import Hits, ReplacedRows, look, look_for_truncated
from ratchet.merge.newest import (
    ChangeFiles,
    Flags,
    Images,
    Ints,
    NeedsSpark,
    NewestChanges,
    Oversized,
    has_inexact_key,
    newest,
)
from ratchet.merge.side import TOMBSTONE, ensure_side, truncation_rows
from ratchet.store.crashpoints import reach
from ratchet.store.delta.actions import (
    Action,
    AppTransaction,
    DataFile,
    FileAction,
    rewrite_info,
)
from ratchet.store.delta.checkpoints import checkpoint_if_due
from ratchet.store.delta.commits import commit_files, committed
from ratchet.store.delta.datafiles import write_data_file
from ratchet.store.delta.log import TableFiles, replay
from ratchet.store.delta.tables import stats_columns
from ratchet.store.delta.vectors import vector_of, write_vectors
from ratchet.store.files import Lake

log: Final = logging.getLogger(__name__)

# Of change files in memory. Larger ones are read where they lie.
MOST_HELD: Final = 96 << 20
# Of the rows that come, by the footers; decoded they may be twice that. If they are more they are
# read and written in pieces: large rows take no more memory than their piece.
MOST_ROW_BYTES: Final = 256 << 20
_PIECE_BYTES: Final = 96 << 20
_GROUP_BYTES: Final = 16 << 20  # of a row group
# Changes. Each takes half a kilobyte for a while, however small its file is.
MOST_ROWS: Final = 1 << 20
_MANY_ROWS: Final = 1 << 17
_MANY_BYTES: Final = 16 << 20
# Tables are merged side by side, but not two batches that take much memory each.
_one_of_many: Final = threading.Lock()
_TRIES: Final = 3
_WRITERS: Final = 2
_FILE_ROWS: Final = 1 << 18  # a new file has so many at least, if there are that many


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectMergeResult:
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
    lake: Lake,
    batch: MergeBatch,
    known: TableFiles | None,
    *,
    side: TableFiles | None = None,
    must_win: bool = False,
) -> DirectMergeResult | None:
    """Bring a batch into its table; None if it is one for Spark, and the table is untouched.

    The caller knows that no change of the batch is older than a tombstone, and that where it
    truncates no other shard's rows wait behind those that go.

    Args:
        lake: the lake.
        batch: what to merge.
        known: the table as far as it is known.
        side: the side table, likewise.
        must_win: whether it is one for Spark where a row stands that is newer than its change.

    Raises:
        LakeError: the lake cannot be read or written.
    """
    shape = batch.shape
    if batch.rows > MOST_ROWS or has_inexact_key(shape):
        return None
    if batch.rows < _MANY_ROWS and batch.bytes < _MANY_BYTES:
        return _tried(lake, batch, known, side, must_win=must_win)
    with _one_of_many:
        done = _tried(lake, batch, known, side, must_win=must_win)
        pa.default_memory_pool().release_unused()
        return done


def _tried(
    lake: Lake,
    batch: MergeBatch,
    known: TableFiles | None,
    side: TableFiles | None,
    *,
    must_win: bool,
) -> DirectMergeResult | None:
    try:
        held = batch.bytes <= MOST_HELD
        changes = (ChangeFiles.load if held else ChangeFiles.at)(lake, batch.files)
        found = newest(
            changes,
            batch.shape,
            since=batch.since,
            until=batch.until,
            marks=batch.marks,
            floors=batch.floors,
        )
        for _ in range(_TRIES):
            files = replay(lake, batch.path, known)
            done = _merge(lake, batch, _Change(changes, found, must_win), files, side)
            if done is not None:
                return done
            known = files  # another commit came in between
    except NeedsSpark as why:
        log.debug("%s: merged by Spark: %s", batch.shape.name, why)
    return None


@dataclass(frozen=True, slots=True)
class _Change:
    """What a batch brings: its files, the newest change of each key, whether all must win."""

    files: ChangeFiles
    newest: NewestChanges
    must_win: bool


def _merge(
    lake: Lake,
    batch: MergeBatch,
    change: _Change,
    files: TableFiles | None,
    side: TableFiles | None,
) -> DirectMergeResult | None:
    if files is None or not (files.writable and files.vectors):
        raise NeedsSpark("the table's rules")
    if set(files.schema.names) != {*batch.shape.columns.names, TOKEN_COLUMN}:
        raise NeedsSpark("the table's columns")
    if (committed(files, batch.app_id) or 0) >= batch.round:
        return DirectMergeResult(files=files, side=side, changed=0, tombstones=False)
    hits = look(lake, batch.path, change.newest, files)
    wins, changed = decide(hits, change.newest)
    if change.must_win and not wins.all():
        raise NeedsSpark("a row is newer than the change of its key")
    leaving = _leaving(hits, wins)
    if batch.truncated:
        changed += _truncate(lake, batch, files, leaving)
    rows = _rows_that_come(change, wins & ~change.newest.dead, batch.shape.columns)
    reach("merge.before_side")
    buried = _bury(lake, batch, change, rows, side)
    reach("merge.after_side")
    actions = [
        *_head(batch, files.version),
        *_vectors(lake, batch, leaving),
        *_new_rows(lake, batch, change, rows),
    ]
    reach("merge.before_merge")
    after = commit_files(lake, batch.path, files, actions)
    if after is None:
        return None
    reach("merge.after_merge")
    checkpoint_if_due(lake, batch.path, after.version)
    return DirectMergeResult(
        files=after, side=buried or side, changed=changed, tombstones=buried is not None
    )


# --- the rule -------------------------------------------------------------------------------------


def decide(hits: Sequence[Hits], found: NewestChanges) -> tuple[Flags, int]:
    """For each key whether its change applies, and how many rows that changes.

    Raises:
        NeedsSpark: a key is in the table twice.
    """
    met = np.zeros(len(found), np.int64)
    wins = np.ones(len(found), np.bool_)
    for one in hits:
        met += np.bincount(one.number, minlength=len(met))
        wins[one.number] = one.newer
    if (met > 1).any():
        raise NeedsSpark("a key is in the table twice")
    applies = wins & ((met == 1) | ~found.dead)
    return wins, int(np.count_nonzero(applies))


# --- what is written ------------------------------------------------------------------------------


def _leaving(hits: Sequence[Hits], wins: Flags) -> dict[str, ReplacedRows]:
    """By the path of their file."""
    found = {}
    for one in hits:
        at = one.at[wins[one.number]]
        if at.size:
            found[one.file.path] = ReplacedRows(file=one.file, gone=one.gone, at=at)
    return found


def _truncate(
    lake: Lake, batch: MergeBatch, files: TableFiles, leaving: dict[str, ReplacedRows]
) -> int:
    """Let the rows go as well that a TRUNCATE has removed; how many they are besides."""
    besides = 0
    for one in look_for_truncated(lake, batch.path, files, marks=batch.marks, floors=batch.floors):
        known = leaving.get(one.file.path)
        at = one.at if known is None else np.union1d(known.at, one.at)
        besides += at.size - (0 if known is None else known.at.size)
        leaving[one.file.path] = ReplacedRows(file=one.file, gone=one.gone, at=at)
    return besides


def _vectors(
    lake: Lake, batch: MergeBatch, leaving: Mapping[str, ReplacedRows]
) -> Iterator[FileAction]:
    """The files whose rows make way."""
    touched = [one.file for one in leaving.values()]
    vectors = [one.gone | vector_of(one.at) for one in leaving.values()]
    whole = [len(vector) == file.rows for vector, file in zip(vectors, touched, strict=True)]
    kept = [vector for vector, all_gone in zip(vectors, whole, strict=True) if not all_gone]
    descriptors = iter(write_vectors(lake, batch.path, kept) if kept else [])
    for file, all_gone in zip(touched, whole, strict=True):
        yield file.removed(now=batch.now)
        if not all_gone:
            yield file.with_vector(next(descriptors))


@dataclass(frozen=True, slots=True)
class _IncomingRows:
    """The rows that a batch brings.

    Attributes:
        keys: whose they are: places among the newest changes, in the order of the keys.
        weights: about how many bytes each takes, decoded.
        images: theirs, and those of the deletes; None if all of them are too much to be held.
    """

    keys: Ints
    weights: Ints
    images: Images | None


def _rows_that_come(change: _Change, come: Flags, columns: pa.Schema) -> _IncomingRows:
    found = change.newest
    keys = np.flatnonzero(come)
    weights = change.files.weights()[found.source[keys]]
    images = None
    if weights.sum() <= MOST_ROW_BYTES:
        with suppress(Oversized):
            needed = come | found.dead
            images = Images.of(change.files, found, needed, columns, most=2 * MOST_ROW_BYTES)
    return _IncomingRows(keys, weights, images)


def _new_rows(
    lake: Lake, batch: MergeBatch, change: _Change, rows: _IncomingRows
) -> list[DataFile]:
    """The files of the rows that come, each with a range of keys of its own."""
    if not rows.keys.size:
        return []
    columns = batch.shape.columns
    described = [name for name in batch.shape.key if stats_columns(columns, [name])]

    def write(number: Ints, images: Images) -> DataFile:
        """A file of these rows: places in `rows`."""
        groups = _cut(rows.weights[number], _GROUP_BYTES)
        parts = (images.rows(rows.keys[number[group]]) for group in groups)
        return _data_file(lake, batch.path, parts, described=described, now=batch.now)

    def read_and_write(number: Ints) -> Iterator[DataFile]:
        """Files of these rows, each read by itself."""
        needed = np.zeros(len(change.newest), np.bool_)
        needed[rows.keys[number]] = True
        most = 2 * _PIECE_BYTES if number.size > 1 else math.inf
        try:
            images = Images.of(change.files, change.newest, needed, columns, most=most)
        except Oversized:
            for half in np.array_split(number, 2):
                yield from read_and_write(half)
        else:
            yield write(number, images)

    if rows.images is None:
        pieces = _cut(rows.weights, _PIECE_BYTES)
        return [action for number in pieces for action in read_and_write(number)]
    files = np.array_split(np.arange(rows.keys.size), max(1, rows.keys.size // _FILE_ROWS))
    with ThreadPoolExecutor(_WRITERS, "merge-write") as pool:
        return list(pool.map(partial(write, images=rows.images), files))


def _cut(weights: Ints, most: int) -> list[Ints]:
    """Places one behind the other, in runs of about so much weight, of at least one place each."""
    run = np.cumsum(weights) // most
    return np.split(np.arange(weights.size), np.flatnonzero(np.diff(run)) + 1)


def _bury(
    lake: Lake, batch: MergeBatch, change: _Change, coming: _IncomingRows, side: TableFiles | None
) -> TableFiles | None:
    """Record what the batch deletes; the side table afterwards, None if there was nothing."""
    found = change.newest
    dead = np.flatnonzero(found.dead)
    if not (dead.size or batch.truncated):
        return None
    shape, images = batch.shape, coming.images
    if images is None:
        key = pa.schema([shape.columns.field(name) for name in shape.key])
        images = Images.of(change.files, found, found.dead, key, narrow=True)
    if side is None:
        ensure_side(lake, batch.side_path, shape, now=batch.now)
    rows = pa.concat_tables(
        [
            _tombstones(batch, found, images, dead),
            truncation_rows(batch.truncated, shape, round_number=_said_at(batch), now=batch.now),
        ]
    )
    for _ in range(_TRIES):
        side = replay(lake, batch.side_path, side)
        if side is None or not side.writable or set(side.schema.names) != set(rows.column_names):
            raise NeedsSpark("the side table's rules")
        if (committed(side, batch.app_id) or 0) >= batch.round:
            return side
        actions = [
            *_head(batch, side.version),
            _data_file(lake, batch.side_path, [rows], described=(), now=batch.now),
        ]
        after = commit_files(lake, batch.side_path, side, actions)
        if after is not None:
            checkpoint_if_due(lake, batch.side_path, after.version)
            return after
    raise NeedsSpark("the side table is being written to")


def _said_at(batch: MergeBatch) -> int:
    return batch.round if batch.said_at is None else batch.said_at


def _tombstones(batch: MergeBatch, found: NewestChanges, images: Images, dead: Ints) -> pa.Table:
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
            pa.repeat(pa.scalar(_said_at(batch), pa.int64()), count),
            pa.repeat(pa.scalar(batch.now, schema.field("written_at").type), count),
        ],
        schema=schema,
    )


def _data_file(
    lake: Lake, folder: str, parts: Iterable[pa.Table], *, described: Sequence[str], now: int
) -> DataFile:
    rest = iter(parts)
    first = next(rest)
    return write_data_file(
        lake,
        folder,
        chain([first], rest),
        first.schema,
        kind="merge",
        described=described,
        now=now,
    )


def _head(batch: MergeBatch, read: int) -> list[Action]:
    """What each commit of the batch says of itself: the first two actions of it."""
    note = json.dumps(batch.metadata, sort_keys=True)
    return [
        rewrite_info("MERGE", read=read, now=batch.now, note=note),
        AppTransaction(app_id=batch.app_id, version=batch.round, updated_at=batch.now),
    ]
