"""The rows of a table that have the keys of a small batch, looked for in its data files.

Lives here: which files and row groups may hold the keys, the positions of their rows, whether the
batch's changes are newer. Does not live here: the keys (`newest`), what is done with them
(`direct`).

Statistics are believed, as every reader of the table believes them: of the log for whole files, of
a file's footer for its row groups. Where a footer says that all rows of a group are older than the
changes that they meet, their tokens are not read.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratchet.core.change import TOKEN_COLUMN
from ratchet.merge.keymatch import match_keys
from ratchet.merge.newest import (
    RANK,
    SHARD_LEAF,
    Flags,
    Ints,
    NeedsSpark,
    NewestChanges,
    before_marks,
    rank_of,
    settled,
)
from ratchet.merge.reduce import Mark
from ratchet.store.delta.actions import DataFile
from ratchet.store.delta.log import TableFiles
from ratchet.store.delta.parquet import parquet_file
from ratchet.store.delta.vectors import Vector, gone_rows, positions_of
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake

# Of the files that may hold the keys: their keys are looked through, 30 million a second with two
# cores. Spark's MERGE looks through them three times, with a tenth of that speed a core.
MOST_ROWS: Final = 400_000_000
MOST_TOKENS: Final = 10_000_000  # of a table that is truncated: a second or two
_READERS: Final = min(8, max(2, os.cpu_count() or 2))
_FAR_READERS: Final = 16  # of an object store: they wait most of their time
_LEAST_ROWS: Final = 1 << 18  # whose keys are read at a time, by each reader: a call costs, too
_MOST_ROWS: Final = 1 << 20
_TOKEN: Final = [SHARD_LEAF, *(f"{TOKEN_COLUMN}.{name}" for name in RANK)]

C = TypeVar("C")
F = TypeVar("F")
_Bounds = Callable[[str], tuple[Any, Any] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """Rows of a data file whose keys are in the batch.

    Attributes:
        file: the file.
        gone: its vector.
        at: positions of the rows, none of which is gone.
        number: for each the number of its key in the batch.
        newer: for each whether the key's change is newer than the row.
    """

    file: DataFile
    gone: Vector
    at: Ints
    number: Ints
    newer: Flags


def look(lake: Lake, path: str, newest: NewestChanges, files: TableFiles) -> list[Hits]:
    """Those rows of the table whose keys are in the batch.

    Args:
        lake: the lake.
        path: the table's folder.
        newest: the newest change of each key of the batch.
        files: the table's files.

    Raises:
        LakeError: a file is gone, damaged or cannot be read.
        NeedsSpark: it would take too long, or the rows need more than the merge rule.
    """
    if not len(newest):
        return []
    span = _Span.of(newest)
    candidates = [
        (file, span.narrowed(_bounds_in_log(file), span.all_of)) for file in files.files.values()
    ]
    candidates = [(file, keys) for file, keys in candidates if keys]
    _check_few((file for file, _ in candidates), MOST_ROWS)

    def look_into(candidate: tuple[DataFile, range]) -> Hits | None:
        file, keys = candidate
        with data_file_errors(lake, f"{path}/{file.path}"):
            return _hits(_Look(lake, path, newest, span, file), keys)

    return _side_by_side(lake, look_into, candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedRows:
    """Rows of a data file that make way.

    Attributes:
        file: the file.
        gone: its vector.
        at: positions of the rows, none of which is gone.
    """

    file: DataFile
    gone: Vector
    at: Ints


def look_for_truncated(
    lake: Lake,
    path: str,
    files: TableFiles,
    *,
    marks: Mapping[str, Mark],
    floors: Mapping[str, Sequence[int | None]],
) -> list[ReplacedRows]:
    """The rows that stand before a mark: all tokens of the table are read.

    Args:
        lake: the lake.
        path: the table's folder.
        files: the table's files.
        marks: shard -> its newest TRUNCATE.
        floors: see NewestChanges.

    Raises:
        LakeError: a file is gone, damaged or cannot be read.
        NeedsSpark: it would take too long.
    """
    _check_few(files.files.values(), MOST_TOKENS)

    def look_into(file: DataFile) -> ReplacedRows | None:
        vector = gone_rows(lake, path, file)
        gone, found, begin = positions_of(vector), [np.empty(0, np.int64)], 0
        with (
            data_file_errors(lake, f"{path}/{file.path}"),
            lake.open_input(f"{path}/{file.path}", size=file.size) as stream,
        ):
            parquet = parquet_file(lake, stream)
            for group in range(parquet.num_row_groups):
                token = parquet.read_row_group(group, columns=_TOKEN)[TOKEN_COLUMN]
                shard, parts = _parts(token.combine_chunks())
                # A row that has lost its token has no shard, either.
                rank = rank_of([pc.fill_null(part, 0) for part in parts])
                at = np.flatnonzero(before_marks(shard, settled(shard, rank, floors), marks))
                found.append(at[_not_among(at + begin, gone)] + begin)
                begin += len(rank)
        at = np.concatenate(found)
        return ReplacedRows(file=file, gone=vector, at=at) if at.size else None

    return _side_by_side(lake, look_into, files.files.values())


def _check_few(files: Iterable[DataFile], most: int) -> None:
    rows = [file.rows for file in files]
    if None in rows or sum(n for n in rows if n is not None) > most:
        raise NeedsSpark("too many rows to look through")


def _side_by_side(
    lake: Lake, look_into: Callable[[C], F | None], candidates: Iterable[C]
) -> list[F]:
    """What was found in the files, by several readers at once."""
    readers = _READERS if lake.is_local else _FAR_READERS
    with ThreadPoolExecutor(readers, "merge-look") as pool:
        return [found for found in pool.map(look_into, candidates) if found is not None]


def _parts(token: pa.StructArray) -> tuple[pa.Array, list[pa.Array]]:
    """Shards, and the parts of ranks."""
    # Not `field`: of a token that is NULL its parts are, too.
    shard, *rank = (pc.struct_field(token, [name]) for name in ("shard", *RANK))
    return shard, rank


# --- what may be where ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Span:
    """The keys, and what statistics say of them.

    Attributes:
        first: the first column of the keys, ascending.
        ranges: lowest and highest value of the columns whose statistics tell what to leave out.
        leading: the name of the first column.
    """

    first: pa.Array
    ranges: Mapping[str, tuple[Any, Any]]
    leading: str

    @classmethod
    def of(cls, newest: NewestChanges) -> _Span:
        ranges = {}
        for leaf, column in zip(newest.leaves, newest.keys.columns, strict=True):
            told = pa.types.is_integer, pa.types.is_date, pa.types.is_string, pa.types.is_decimal
            if any(check(column.type) for check in told):
                found = pc.min_max(column).as_py()
                ranges[leaf] = (found["min"], found["max"])
        return cls(newest.keys.column(0).combine_chunks(), ranges, newest.leaves[0])

    @property
    def all_of(self) -> range:
        """The places of all keys."""
        return range(len(self.first))

    def narrowed(self, bounds: _Bounds, keys: range) -> range:
        """The places of the keys that may be there.

        Args:
            bounds: gives lowest and highest value of a column there, None if it is not known.
            keys: the places that are left.
        """
        for name, (first, last) in self.ranges.items():
            found = bounds(name)
            if found is None or not isinstance(found[0], type(first)):
                continue
            low, high = found
            if high < first or last < low:
                return range(0)
            if name == self.leading:
                start = bisect_left(self.first, low, keys.start, keys.stop, key=_value)
                keys = range(start, bisect_right(self.first, high, start, keys.stop, key=_value))
        return keys


def _value(scalar: pa.Scalar) -> Any:
    return scalar.as_py()


def _bounds_in_log(file: DataFile) -> _Bounds:
    """Of integers, which the log's JSON has as they are."""
    low, high = file.stats.get("minValues") or {}, file.stats.get("maxValues") or {}

    def bounds(name: str) -> tuple[Any, Any] | None:
        if name not in low or name not in high:
            return None
        return (low[name], high[name]) if isinstance(low[name], int) else None

    return bounds


def _bounds_in_footer(group: pq.RowGroupMetaData, places: Mapping[str, int]) -> _Bounds:
    """As values of the columns' types."""

    def bounds(name: str) -> tuple[Any, Any] | None:
        chunk = group.column(places[name])
        stats = chunk.statistics if chunk.is_stats_set else None
        return (stats.min, stats.max) if stats is not None and stats.has_min_max else None

    return bounds


# --- one data file --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    lake: Lake
    table: str
    newest: NewestChanges
    span: _Span
    file: DataFile


@dataclass(frozen=True, slots=True)
class _RowGroupRun:
    """Row groups behind each other that may hold keys.

    Attributes:
        groups: their numbers.
        begin: the position of their first row.
        keys: the places of the keys that they may hold.
    """

    groups: range
    begin: int
    keys: range


def _hits(look: _Look, keys: range) -> Hits | None:
    path = f"{look.table}/{look.file.path}"
    found: list[tuple[Ints, Ints, Flags]] = []
    gone: Vector | None = None
    gone_at: Ints = np.empty(0, np.int64)
    with look.lake.open_input(path, size=look.file.size) as stream:
        parquet = parquet_file(look.lake, stream)
        places = {parquet.metadata.schema.column(i).path: i for i in range(len(parquet.schema))}
        for run in _runs(look, parquet.metadata, places, keys):
            wanted = look.newest.keys.slice(run.keys.start, len(run.keys))
            where, number = match_keys(_key_columns(parquet, run, look.newest), wanted)
            if not where.size:
                continue
            if gone is None:
                gone = gone_rows(look.lake, look.table, look.file)
                gone_at = positions_of(gone)
            alive = _not_among(where + run.begin, gone_at)
            where, number = where[alive], number[alive] + run.keys.start
            if where.size:
                newer = _newer(parquet, run, places, look.newest, where, number)
                found.append((where + run.begin, number, newer))
    if gone is None or not found:
        return None
    at, numbers, newer = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Hits(file=look.file, gone=gone, at=at, number=numbers, newer=newer)


def _runs(
    look: _Look, footer: pq.FileMetaData, places: Mapping[str, int], keys: range
) -> Iterator[_RowGroupRun]:
    """As long as there are more keys than rows: for each run the keys' hash table is made anew."""
    begin, run, rows = 0, None, 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        here = look.span.narrowed(_bounds_in_footer(group, places), keys)
        if run and (not here or rows >= min(max(len(run.keys), _LEAST_ROWS), _MOST_ROWS)):
            yield run
            run = None
        if here:
            if run is None:
                run, rows = _RowGroupRun(range(number, number), begin, here), 0
            both = range(min(run.keys.start, here.start), max(run.keys.stop, here.stop))
            run = _RowGroupRun(range(run.groups.start, number + 1), run.begin, both)
            rows += group.num_rows
        begin += group.num_rows
    if run:
        yield run


def _key_columns(
    parquet: pq.ParquetFile, run: _RowGroupRun, newest: NewestChanges
) -> list[pa.Array]:
    found = parquet.read_row_groups(run.groups, columns=list(newest.leaves), use_threads=False)
    columns = []
    for leaf, kind in zip(newest.leaves, newest.keys.schema.types, strict=True):
        if leaf == SHARD_LEAF:
            column = pc.struct_field(found[TOKEN_COLUMN].combine_chunks(), ["shard"])
            if column.null_count:
                raise NeedsSpark("a row has lost its token")
        else:
            column = found[leaf].combine_chunks()
        columns.append(column.cast(kind))
    return columns


def _not_among(at: Ints, gone: Ints) -> Flags:
    """Which positions are not among those that are gone (ascending)."""
    if not gone.size:
        return np.ones(at.size, np.bool_)
    # np.isin looks through all of `gone` each time, and they may be many.
    near: Flags = gone[np.searchsorted(gone[:-1], at)] != at
    return near


def _newer(  # noqa: PLR0917 - one call
    parquet: pq.ParquetFile,
    run: _RowGroupRun,
    places: Mapping[str, int],
    newest: NewestChanges,
    where: Ints,
    number: Ints,
) -> Flags:
    """Whether the changes are newer than the rows that they meet."""
    highest = _highest(parquet.metadata, run, places)
    if highest is not None and newest.all_newer(number, *highest):
        return np.ones(len(where), np.bool_)
    found = parquet.read_row_groups(run.groups, columns=_TOKEN, use_threads=False)
    token = found[TOKEN_COLUMN].combine_chunks().take(pa.array(where))
    shard, rank = _parts(token)
    if any(part.null_count for part in rank):
        raise NeedsSpark("a row has lost its token")
    return newest.is_newer(number, shard, rank_of(rank))


def _highest(
    footer: pq.FileMetaData, run: _RowGroupRun, places: Mapping[str, int]
) -> tuple[str | None, int, int] | None:
    """The one shard of all rows' tokens (None: several), their highest generation and seq.

    None: the footer does not tell, or there are rows without a token.
    """
    shards, generation, seq = set(), 0, 0
    for number in run.groups:
        group = footer.row_group(number)
        found = [group.column(places[leaf]).statistics for leaf in _TOKEN[:3]]
        if any(s is None or not s.has_min_max or s.null_count != 0 for s in found):
            return None
        shards |= {found[0].min, found[0].max}
        generation, seq = max(generation, found[1].max), max(seq, found[2].max)
    return (shards.pop() if len(shards) == 1 else None), generation, seq
