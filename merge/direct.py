"""Merges a small batch in this process, without Spark.

A MERGE of 10,000 changes takes seconds, nearly all of them for itself; here it takes tenths of one
(docs/decisions/0025-small-merges.md).

Lives here: when that can be done, finding the rows of the changed keys, and the commit. Does not
live here: the log (`store.delta_files`), vectors (`store.deletion_vectors`), the merge of all else
(`table`).

The rule is the same as in `table.merge_statement`, and so is the order of the commits: tombstones
first. What needs more than the rule (two shards that meet in a key, changes older than a tombstone,
a TRUNCATE, a catch-up) is left to Spark, as is whatever is large.

Invariant: either one commit with the batch's transaction version brings all of it, or the mirrored
table is untouched.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from core.change import DELETE, INSERT, TOKEN_COLUMN, UPDATE, change_schema
from core.errors import LakeError
from merge.batch import Batch
from merge.shape import Shape
from merge.side import TOMBSTONE, ensure_side
from store.crashpoints import reach
from store.deletion_vectors import read_vector, write_vectors
from store.delta_files import (
    CHECKPOINT_EVERY,
    Action,
    DataFile,
    TableFiles,
    added,
    commit_files,
    marked,
    removed,
    replay,
    write_checkpoint,
)
from store.delta_tables import stats_columns
from store.files import LOST_FILE_HINT, Lake, lake_errors, sound
from store.stats import file_stats

log: Final = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]

MOST_BYTES: Final = 32 << 20  # of change files
MOST_ROWS: Final = 50_000_000  # of the files that may hold the keys: their keys are looked through
_TRIES: Final = 3
_READERS: Final = 2
_TOKEN: Final = [f"{TOKEN_COLUMN}.{name}" for name in ("shard", "generation", "seq", "idx")]
_NUMBER: Final = "number"


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


class _Unfit(Exception):  # noqa: N818 - no error: the other way is taken
    """This batch is for Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Newest:
    """The newest change of each key, by key.

    Attributes:
        keys: the key's columns, in the table's types.
        shard: of each.
        rank: generation, seq, idx of each: three columns.
        dead: whether it deletes.
        source: for each the number of its row in `changes`.
        changes: rows of change files, as core.change.change_schema.
    """

    keys: pa.Table
    shard: pa.Array
    rank: Ints
    dead: npt.NDArray[np.bool_]
    source: Ints
    changes: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hits:
    """Rows of a data file whose keys are in the batch.

    Attributes:
        file: the file.
        gone: positions that its vector has.
        at: positions of the rows.
        number: for each the number of its key in the batch.
        shard: its token's.
        rank: its token's: generation, seq, idx.
    """

    file: DataFile
    gone: Ints
    at: Ints
    number: Ints
    shard: pa.Array
    rank: Ints


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
    floating = any(pa.types.is_floating(shape.columns.field(name).type) for name in shape.key)
    if batch.bytes > MOST_BYTES or floating or (shape.many_shards and shape.shard_in_key):
        return None
    try:
        reduced = _reduced(_read(lake, batch.files, batch.shape), batch.shape)
        for _ in range(_TRIES):
            files = replay(lake, batch.path, known)
            done = _merge(lake, batch, reduced, files, side)
            if done is not None:
                return done
            known = files  # another commit came in between
    except _Unfit as why:
        log.debug("%s: merged by Spark: %s", batch.shape.name, why)
    return None


def _merge(
    lake: Lake, batch: Batch, reduced: _Newest, files: TableFiles | None, side: TableFiles | None
) -> Direct | None:
    if files is None or not (files.writable and files.vectors):
        raise _Unfit("the table's rules")
    if set(files.columns) != {*batch.shape.columns.names, TOKEN_COLUMN}:
        raise _Unfit("the table's columns")
    if files.apps.get(batch.app_id, 0) >= batch.round:
        return Direct(files=files, side=side, changed=0, tombstones=False)
    hits = _look(lake, batch, reduced, files)
    wins, changed = _decide(hits, reduced, batch.shape)
    reach("merge.before_side")
    buried = _bury(lake, batch, reduced, side)
    reach("merge.after_side")
    actions = [
        *_head(batch, files.version),
        *_vectors(lake, batch, hits, wins),
        *_new_rows(lake, batch, reduced, wins),
    ]
    reach("merge.before_merge")
    if not commit_files(lake, batch.path, files.version + 1, actions):
        return None
    reach("merge.after_merge")
    after = replay(lake, batch.path, files) or files
    _keep_log_short(lake, batch.path, after)
    return Direct(files=after, side=buried or side, changed=changed, tombstones=buried is not None)


def _keep_log_short(lake: Lake, path: str, files: TableFiles) -> None:
    if files.version % CHECKPOINT_EVERY:
        return
    try:
        write_checkpoint(lake, path)
    except LakeError as error:
        # What was merged is committed. The next one is due some commits from now.
        log.warning("%s: no checkpoint was written: %s", path, error)


# --- the changes ----------------------------------------------------------------------------------


def _read(lake: Lake, paths: Sequence[str], shape: Shape) -> pa.Table:
    """The rows of change files, in the table's columns of now."""
    wanted = change_schema(shape.columns)
    tables = []
    for path in paths:
        with lake_errors("read a change file", path), lake.open_input(path) as stream:
            found = pq.read_table(stream)
        tables.append(
            pa.table(
                [_fitted(found[name], wanted.field(name).type) for name in wanted.names], wanted
            )
        )
    return pa.concat_tables(tables).combine_chunks()


def _fitted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """The column with the fields of that type: those that it lacks are null, others are dropped."""
    whole = column.combine_chunks()
    if whole.type == kind or not pa.types.is_struct(kind):
        return whole.cast(kind)
    have = {field.name for field in whole.type}
    fields = [
        pc.struct_field(whole, [field.name]).cast(field.type)
        if field.name in have
        else pa.nulls(len(whole), field.type)
        for field in kind
    ]
    missing = whole.is_null() if whole.null_count else None
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=missing)


def _reduced(changes: pa.Table, shape: Shape) -> _Newest:
    """The newest change per key, as merge.reduce.newest says it."""
    op = changes["op"].combine_chunks().to_numpy()
    before, after = (_keys(changes[name].combine_chunks(), shape) for name in ("before", "after"))
    moved = np.zeros(len(op), np.bool_)
    for old, new in zip(before, after, strict=True):
        moved |= pc.fill_null(pc.not_equal(old, new), True).to_numpy(zero_copy_only=False)
    written = np.flatnonzero((op == INSERT) | (op == UPDATE))
    left = np.flatnonzero((op == DELETE) | ((op == UPDATE) & moved))
    source = np.concatenate([written, left])
    keys = [
        pa.concat_arrays([new.take(pa.array(written)), old.take(pa.array(left))])
        for old, new in zip(before, after, strict=True)
    ]
    if any(column.null_count for column in keys):
        raise _Unfit("NULL in a key")
    token = changes["token"].combine_chunks().take(pa.array(source))
    names = [f"k{n}" for n in range(len(keys))]
    table = pa.table(
        [*keys, token.field("shard"), *(token.field(f) for f in ("generation", "seq", "idx"))],
        [*names, "shard", "generation", "seq", "idx"],
    )
    order = pc.sort_indices(
        table,
        [
            *((name, "ascending") for name in names),
            *((name, "descending") for name in ("generation", "seq", "idx")),
        ],
    )
    ordered = table.take(order)
    first = np.ones(len(source), np.bool_)
    first[1:] = _unequal_neighbours(ordered, names)
    if shape.many_shards:
        # The shards of one key, whatever the order of their ranks is: it means nothing.
        of_key = np.cumsum(first)
        shards = ordered["shard"].combine_chunks().dictionary_encode().indices.to_numpy()
        pairs = np.unique(np.stack([of_key, shards]), axis=1)
        if pairs.shape[1] != np.count_nonzero(first):
            raise _Unfit("two shards change a key")
    newest = np.flatnonzero(first)
    picked = ordered.take(pa.array(newest)).combine_chunks()
    number = order.to_numpy()[newest]
    return _Newest(
        keys=picked.select(names).rename_columns(list(shape.key)),
        shard=picked["shard"].combine_chunks(),
        rank=_rank(picked.columns[-3:]),
        dead=number >= len(written),
        source=source[number],
        changes=changes,
    )


def _keys(image: pa.StructArray, shape: Shape) -> list[pa.Array]:
    return [pc.struct_field(image, [name]) for name in shape.key]


def _unequal_neighbours(table: pa.Table, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    found = np.zeros(max(0, table.num_rows - 1), np.bool_)
    for name in names:
        column = table[name].combine_chunks()
        found |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return found


def _rank(columns: Sequence[Any]) -> Ints:
    return np.stack([np.asarray(column.to_numpy(), np.int64) for column in columns], axis=1)


# --- the rows of their keys -----------------------------------------------------------------------


def _look(lake: Lake, batch: Batch, reduced: _Newest, files: TableFiles) -> list[_Hits]:
    """Those rows of the table whose keys are in the batch."""
    if not len(reduced.source):
        return []
    span = _Span.of(reduced.keys)
    candidates = [file for file in files.files.values() if span.may_meet(file)]
    rows = [file.rows for file in candidates]
    if None in rows or sum(n for n in rows if n is not None) > MOST_ROWS:
        raise _Unfit("too many rows to look through")

    def look(file: DataFile) -> _Hits | None:
        path = f"{batch.path}/{file.path}"
        try:
            with sound(path):
                return _hits(lake, batch, reduced, file, span)
        except LakeError as error:
            # The table's log names it: nothing but a new dump brings its rows back.
            if isinstance(error.__cause__, FileNotFoundError):
                error.hint = LOST_FILE_HINT
            raise

    with ThreadPoolExecutor(_READERS, "merge-look") as pool:
        return [found for found in pool.map(look, candidates) if found is not None]


@dataclass(frozen=True, slots=True)
class _Span:
    """The lowest and the highest value of the key's columns, where they tell what to leave out."""

    ranges: Mapping[str, tuple[Any, Any]]

    @classmethod
    def of(cls, keys: pa.Table) -> _Span:
        ranges = {}
        for name in keys.column_names:
            kind = keys.schema.field(name).type
            told = pa.types.is_integer, pa.types.is_date, pa.types.is_string, pa.types.is_decimal
            if any(check(kind) for check in told):
                found = pc.min_max(keys[name]).as_py()
                ranges[name] = (found["min"], found["max"])
        return cls(ranges)

    def may_meet(self, file: DataFile) -> bool:
        """By the log's statistics: of integers, which they hold as they are."""
        stats = file.stats
        low, high = stats.get("minValues") or {}, stats.get("maxValues") or {}
        return all(
            first <= high[name] and low[name] <= last
            for name, (first, last) in self.ranges.items()
            if isinstance(first, int) and name in low and name in high
        )

    def may_meet_group(self, group: pq.RowGroupMetaData, places: Mapping[str, int]) -> bool:
        """By the file's own statistics, which pyarrow gives as values of the column's type."""
        for name, (first, last) in self.ranges.items():
            chunk = group.column(places[name])
            stats = chunk.statistics if chunk.is_stats_set else None
            if stats is None or not stats.has_min_max or not isinstance(stats.min, type(first)):
                continue
            if stats.max < first or last < stats.min:
                return False
        return True


def _hits(lake: Lake, batch: Batch, reduced: _Newest, file: DataFile, span: _Span) -> _Hits | None:
    path = f"{batch.path}/{file.path}"
    at, number, tokens = [], [], []
    with lake_errors("read a data file", path), lake.open_input(path) as stream:
        # Spark's timestamps have 96 bits, whose years end in 2262 if they are read in nanoseconds.
        parquet = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        schema = parquet.metadata.schema
        places = {schema.column(i).path: i for i in range(len(schema))}
        begin = 0
        for n in range(parquet.num_row_groups):
            group = parquet.metadata.row_group(n)
            if span.may_meet_group(group, places):
                columns = list(reduced.keys.column_names)
                keys = parquet.read_row_group(n, columns=columns, use_threads=False)
                where, which = _matches(keys.select(columns), reduced.keys)
                if where.size:
                    found = parquet.read_row_group(n, columns=_TOKEN, use_threads=False)
                    at.append(begin + where)
                    number.append(which)
                    tokens.append(found[TOKEN_COLUMN].combine_chunks().take(pa.array(where)))
            begin += group.num_rows
    if not at:
        return None
    token = pa.concat_arrays(tokens)
    vector = file.add.get("deletionVector")
    gone = np.empty(0, np.int64)
    if vector:
        gone = read_vector(lake, batch.path, vector).astype(np.int64)
    positions = np.concatenate(at)
    alive = ~np.isin(positions, gone)
    if not alive.any():
        return None
    token = token.filter(pa.array(alive))
    parts = [token.field(name) for name in ("shard", "generation", "seq", "idx")]
    if token.null_count or any(part.null_count for part in parts):
        raise _Unfit("a row has lost its token")
    return _Hits(
        file=file,
        gone=gone,
        at=positions[alive],
        number=np.concatenate(number)[alive],
        shard=parts[0],
        rank=_rank(parts[1:]),
    )


def _matches(rows: pa.Table, keys: pa.Table) -> tuple[Ints, Ints]:
    """The numbers of rows that have one of the keys, and of their keys."""
    rows = rows.cast(keys.schema)
    if keys.num_columns == 1:
        found = pc.index_in(rows.column(0), value_set=keys.column(0).combine_chunks())
        found = found.combine_chunks()
        where = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        return where, found.take(pa.array(where)).to_numpy().astype(np.int64)
    names = [f"k{n}" for n in range(keys.num_columns)]
    left = rows.rename_columns(names).append_column("at", pa.array(np.arange(rows.num_rows)))
    right = keys.rename_columns(names).append_column(_NUMBER, pa.array(np.arange(keys.num_rows)))
    both = left.join(right, names, join_type="inner", use_threads=False)
    where = both["at"].combine_chunks().to_numpy()
    return where, both[_NUMBER].combine_chunks().to_numpy()


# --- the rule -------------------------------------------------------------------------------------


def _decide(
    hits: Sequence[_Hits], reduced: _Newest, shape: Shape
) -> tuple[npt.NDArray[np.bool_], int]:
    """For each key whether its change applies, and how many rows that changes."""
    met = np.zeros(len(reduced.source), np.int64)
    wins = np.ones(len(reduced.source), np.bool_)
    for one in hits:
        if shape.many_shards:
            here = reduced.shard.take(pa.array(one.number))
            other = ~pc.equal(one.shard, here).to_numpy(zero_copy_only=False)
            if other.any():
                raise _Unfit("another shard's row has a key of the batch")
        met += np.bincount(one.number, minlength=len(met))
        wins[one.number] = _is_newer(reduced.rank[one.number], one.rank)
    if (met > 1).any():
        raise _Unfit("a key stands in the table twice")
    applies = wins & ((met == 1) | ~reduced.dead)
    return wins, int(np.count_nonzero(applies))


def _is_newer(change: Ints, row: Ints) -> npt.NDArray[np.bool_]:
    """By generation, then seq, then idx; see merge.sql.newer."""
    found = np.zeros(len(change), np.bool_)
    same = np.ones(len(change), np.bool_)
    for part in range(change.shape[1]):
        found |= same & (row[:, part] < change[:, part])
        same &= row[:, part] == change[:, part]
    return found


# --- what is written ------------------------------------------------------------------------------


def _vectors(
    lake: Lake, batch: Batch, hits: Sequence[_Hits], wins: npt.NDArray[np.bool_]
) -> Iterator[Action]:
    """The files whose rows make way."""
    touched, vectors = [], []
    for one in hits:
        goes = one.at[wins[one.number]]
        if goes.size:
            touched.append(one.file)
            vectors.append(np.union1d(one.gone, goes))
    if not touched:
        return
    whole = [vector.size == file.rows for vector, file in zip(vectors, touched, strict=True)]
    kept = [vector for vector, all_gone in zip(vectors, whole, strict=True) if not all_gone]
    descriptors = iter(write_vectors(lake, batch.path, kept) if kept else [])
    for file, all_gone in zip(touched, whole, strict=True):
        yield removed(file, now=batch.now)
        if not all_gone:
            yield marked(file, next(descriptors))


def _new_rows(
    lake: Lake, batch: Batch, reduced: _Newest, wins: npt.NDArray[np.bool_]
) -> Iterator[Action]:
    """The file of the rows that come, if any do."""
    come = reduced.source[wins & ~reduced.dead]
    if not come.size:
        return
    chosen = reduced.changes.take(pa.array(np.sort(come)))
    after = chosen["after"].combine_chunks()
    rows = pa.table([*after.flatten(), chosen["token"]], [*batch.shape.columns.names, TOKEN_COLUMN])
    by_key = [(name, "ascending") for name in batch.shape.key]
    yield _data_file(
        lake,
        batch.path,
        rows.sort_by(by_key),
        described=[name for name in batch.shape.key if stats_columns(batch.shape.columns, [name])],
        now=batch.now,
    )


def _bury(lake: Lake, batch: Batch, reduced: _Newest, side: TableFiles | None) -> TableFiles | None:
    """Record what the batch deletes; the side table afterwards, None if there was nothing."""
    dead = np.flatnonzero(reduced.dead)
    if not dead.size:
        return None
    shape = batch.shape
    if side is None:
        ensure_side(lake, batch.side_path, shape, now=batch.now)
    chosen = pa.array(dead)
    token = reduced.changes["token"].combine_chunks().take(pa.array(reduced.source[dead]))
    key = reduced.keys.take(chosen).combine_chunks()
    schema = shape.side_schema
    count = len(dead)
    rows = pa.table(
        [
            pa.StructArray.from_arrays(
                [column.combine_chunks() for column in key.columns],
                fields=list(schema.field("key").type),
            ),
            reduced.shard.take(chosen),
            pa.repeat(pa.scalar(TOMBSTONE, pa.int8()), count),
            token,
            pa.nulls(count, schema.field("row").type),
            pa.repeat(pa.scalar(batch.round, pa.int64()), count),
            pa.repeat(pa.scalar(batch.now, schema.field("written_at").type), count),
        ],
        schema=schema,
    )
    for _ in range(_TRIES):
        side = replay(lake, batch.side_path, side)
        if side is None or not side.writable or set(side.columns) != set(schema.names):
            raise _Unfit("the side table's rules")
        if side.apps.get(batch.app_id, 0) >= batch.round:
            return side
        actions = [
            *_head(batch, side.version),
            _data_file(lake, batch.side_path, rows, described=(), now=batch.now),
        ]
        if commit_files(lake, batch.side_path, side.version + 1, actions):
            after = replay(lake, batch.side_path, side) or side
            _keep_log_short(lake, batch.side_path, after)
            return after
    raise _Unfit("the side table is being written to")


def _data_file(
    lake: Lake, folder: str, rows: pa.Table, *, described: Sequence[str], now: int
) -> Action:
    name = f"merge-{uuid.uuid4().hex}.parquet"
    path = f"{folder}/{name}"
    footers: list[pq.FileMetaData] = []
    with (
        lake_errors("write a data file", path),
        lake.open_output(path) as sink,
        pq.ParquetWriter(
            sink, rows.schema, compression="zstd", store_schema=False, metadata_collector=footers
        ) as writer,
    ):
        writer.write_table(rows)
    return added(name, size=lake.size(path), stats=file_stats(footers[0], described), now=now)


def _head(batch: Batch, read: int) -> list[Action]:
    """What each commit of the batch says of itself: the first two actions of it."""
    info = {
        "timestamp": batch.now // 1000,
        "operation": "MERGE",
        "operationParameters": {},
        "readVersion": read,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "engineInfo": "Ratchet",
        "userMetadata": json.dumps(batch.metadata, sort_keys=True),
    }
    done = {"appId": batch.app_id, "version": batch.round, "lastUpdated": batch.now // 1000}
    return [{"commitInfo": info}, {"txn": done}]
