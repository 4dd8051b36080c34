"""Is the mirror what the source is? A piece at a time, beside a mirror that goes on.

Lives here: reading a piece of the source, and finding its rows in the mirror: the keys for which
they differ are *suspects*. Does not live here: whether a suspect is a difference (`confirm`), when
and how fast (`jobs.watch.background`), a whole table at one cut (`verify`).

1. A piece of the source is read along its key, and kept as two prints a row: of the key, and of the
   row. The position that it may have shown is asked for afterwards.
2. When the mirror has a cut that holds this position, its rows with those keys are printed. The
   lake does not order keys as the server does; so they are found by the lowest and the highest
   value of each of the key's columns, which Delta skips files by, and by the print of the key.
3. The prints of all keys seen are kept. Once all pieces are read, a key of the mirror that is not
   among them is a suspect as well: the mirror may have a row too many.

Invariant: a row that differs in a table at rest is a suspect, but for one chance in 2^64 for each
pair of rows. In one that changes, a suspect says nothing yet.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratchet.core.position import Position
from ratchet.snapshot.keys import ChunkRange
from ratchet.snapshot.mirror import ColumnBounds, MirrorReader
from ratchet.snapshot.prints import PRINT, SHARD, Flags, RowHasher, ShardOrigins, Words, shard_print
from ratchet.snapshot.reader import ChunkRequest, ReadLimits, RowHashSpec, read_chunk
from ratchet.snapshot.records import DumpSettings, ShardSource
from ratchet.snapshot.source import SourceTable
from ratchet.snapshot.source_df import seen_positions
from ratchet.store.files import Lake

_BYTES: Final = 64 << 20
_FIRST_ROWS: Final = 10_000
_EXACT: Final = 2**53  # up to here a floating point number is every integer
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSpec:
    """What of a table is compared, and how its rows are printed.

    Attributes:
        printer: prints rows and keys.
        lacking: columns of the source that the mirror lacks.
        homes: shard -> the names under which its rows may stand in the mirror.
        shard_in_key: whether two shards may hold the same key.
    """

    printer: RowHasher
    lacking: tuple[str, ...]
    homes: Mapping[str, Collection[str]]
    shard_in_key: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are compared."""
        return tuple(self.printer.types.names)

    @property
    def key(self) -> tuple[str, ...]:
        """Those that identify a row."""
        return self.printer.key

    def keys_of(self, batch: pa.RecordBatch, shards: Sequence[str]) -> Words:
        """The prints of a batch's keys.

        Args:
            batch: has the columns of the key.
            shards: the shard of each row, or of all of them if there is one.
        """
        if not self.shard_in_key:
            return self.printer.keys(batch)
        prints = {name: shard_print(name) for name in set(shards)}
        rows = [prints[name] for name in shards] * (batch.num_rows if len(shards) == 1 else 1)
        return self.printer.keys(batch, np.array(rows, np.uint64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some rows of the source, as one consistent read showed them.

    Attributes:
        shard: where they were read.
        rest: what is left of the range; None if nothing is.
        keys: the columns of the key, a row each.
        marks: the print of each row's key.
        prints: the print of each row.
        filled: columns that the mirror lacks, and that are not NULL in all of these rows.
        seen: what the read may have shown is inside this position.
        seconds: how long the server was read.
    """

    shard: str
    rest: ChunkRange | None
    keys: pa.Table
    marks: Words
    prints: Words
    filled: tuple[str, ...]
    seen: Position
    seconds: float

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.marks)


def read_piece(
    source: SourceTable,
    shards: Mapping[str, ShardSource],
    shard: str,
    keys: ChunkRange,
    *,
    compared: ComparisonSpec,
    columns: Sequence[str],
    settings: DumpSettings,
    seconds: float,
    scratch: Lake,
) -> Piece:
    """Read the beginning of a range.

    Args:
        source: the table on the shard.
        shards: ShardId as text -> its source.
        shard: which of them is read.
        keys: the range.
        compared: what is compared.
        columns: the source's columns, as the lake has them.
        settings: how the source is read.
        seconds: how long the read is aimed to take.
        scratch: a folder for a file that is gone afterwards.

    Raises:
        RetryableError: a server does not answer.
        TableStoppedError: the table is gone, or has changed its columns.
    """
    fixed, throttle = settings.chunk_rows, settings.throttle
    place = shards[shard]
    result = read_chunk(
        ChunkRequest(
            number=1,
            config=place.config,
            schema=source.schema,
            shape=source.shape,
            plan=source.plan,
            keys=keys,
            generation=place.generation,
            lake=scratch,
            folder="piece",
            name="piece",
            policy=settings.policy,
            key=source.schema.key,
            limits=ReadLimits(
                seconds=seconds if fixed is None else math.inf,
                rows=throttle.most_rows(fixed or ReadLimits().rows),
                bytes=_BYTES,
                first_rows=_FIRST_ROWS,
            ),
            columns=tuple(columns),
            compression="none",
            printing=RowHashSpec(
                printer=compared.printer,
                columns=(*compared.key, *compared.lacking),
                shard=shard,
                home=ShardOrigins(None).of_shard(shard),
                key_shard=None,
            ),
        )
    )
    throttle.count(result.rows)
    seen = seen_positions(shards, [shard])[shard]
    if not result.file:
        empty = pa.table({name: [] for name in compared.key})
        none = np.empty(0, np.uint64)
        return Piece(
            shard=shard, rest=result.rest, keys=empty, marks=none, prints=none, filled=(),
            seen=seen, seconds=result.seconds,
        )  # fmt: skip
    path = f"piece/{result.file}"
    with scratch.open_input(path) as stream:
        rows = pq.read_table(stream).combine_chunks()
    scratch.delete(path)
    (batch,) = rows.to_batches()
    return Piece(
        shard=shard,
        rest=result.rest,
        keys=rows.select(compared.key),
        marks=compared.keys_of(batch, [shard]),
        prints=rows.column(PRINT).to_numpy().view(np.uint64),
        filled=tuple(n for n in compared.lacking if rows.column(n).null_count < rows.num_rows),
        seen=seen,
        seconds=result.seconds,
    )


def suspects(piece: Piece, mirror: MirrorReader, compared: ComparisonSpec) -> pa.Table:
    """The keys of a piece's rows that the mirror does not have just so: the key's columns."""
    if not piece.rows:
        return piece.keys
    order = np.argsort(piece.marks, kind="stable")
    wanted = piece.marks[order]
    copies = np.zeros(len(wanted), np.int64)
    alike = np.zeros(len(wanted), np.bool_)
    homes = compared.homes[piece.shard]
    for marks, batch in _marked(mirror, compared, bounds_of(piece.keys, mirror)):
        at = np.minimum(np.searchsorted(wanted, marks), len(wanted) - 1)
        hit: Flags = wanted[at] == marks
        if not hit.any():
            continue
        few = batch.filter(pa.array(hit))
        home = pc.is_in(few.column(SHARD), pa.array(sorted(homes))).to_numpy(zero_copy_only=False)
        same = (compared.printer.prints(few) == piece.prints[order][at[hit]]) & home
        np.add.at(copies, at[hit], 1)
        alike[at[hit]] |= same
    odd = np.sort(order[~(alike & (copies == 1))])
    return piece.keys.take(pa.array(odd))


def strangers(
    mirror: MirrorReader, compared: ComparisonSpec, seen: Iterable[Words], *, parts: int
) -> Iterator[pa.Table]:
    """The mirror's rows whose keys no piece had: the key's columns; a table a batch, mostly empty.

    Args:
        mirror: the mirror.
        compared: what is compared.
        seen: gives the marks of all pieces; iterated once for each part.
        parts: in how many parts the marks are looked at, so that each fits into memory.
    """
    for part in range(parts):
        picked = [marks[marks % np.uint64(parts) == part] for marks in seen]
        known = np.sort(np.concatenate(picked)) if picked else np.empty(0, np.uint64)
        for marks, batch in _marked(mirror, compared, (), names=compared.key):
            mine = marks % np.uint64(parts) == part
            at = np.minimum(np.searchsorted(known, marks), max(0, len(known) - 1))
            there = known[at] == marks if len(known) else np.zeros(len(marks), np.bool_)
            odd = pa.array(mine & ~there)
            yield pa.Table.from_batches([batch.filter(odd)]).select(compared.key)


def rows_of(
    mirror: MirrorReader, compared: ComparisonSpec, keys: pa.Table, shards: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The mirror's rows of some keys: all compared columns and `SHARD`.

    Args:
        mirror: the mirror.
        compared: what is compared.
        keys: the key's columns, a row each.
        shards: those on which the keys may be.
    """
    if not keys.num_rows:
        return
    (batch,) = keys.combine_chunks().to_batches()
    some = shards if compared.shard_in_key else shards[:1]
    wanted = np.unique(np.concatenate([compared.keys_of(batch, [shard]) for shard in some]))
    for marks, rows in _marked(mirror, compared, bounds_of(keys, mirror)):
        hit = np.isin(marks, wanted)
        if hit.any():
            yield rows.filter(pa.array(hit))


def bounds_of(keys: pa.Table, mirror: MirrorReader) -> list[ColumnBounds]:
    """Between which values the columns of some keys lie, as the lake orders them.

    A bit wider than that, where the statistics by which files are skipped are not exact: readers
    and writers of Delta have large decimals as floating point numbers, and times in milliseconds.
    """
    found = []
    for name in keys.column_names:
        kind = mirror.columns.field(name).type
        column = keys.column(name)
        if column.null_count or not (column.type == kind or pa.types.is_integer(kind)):
            continue
        ends = pc.min_max(column.cast(kind))
        low, high = _widened(ends["min"].as_py(), ends["max"].as_py(), kind)
        found.append(
            ColumnBounds(column=name, low=pa.scalar(low, kind), high=pa.scalar(high, kind))
        )
    return found


def _widened(low: Any, high: Any, kind: pa.DataType) -> tuple[Any, Any]:
    if isinstance(low, Decimal):
        with localcontext(prec=80):
            unit = Decimal(1).scaleb(-kind.scale)
            most, sure = (Decimal(10) ** kind.precision - 1) * unit, _EXACT * unit
            return (
                -most if low < -sure else min(low, sure),
                most if high > sure else max(high, -sure),
            )
    if isinstance(low, datetime):
        first, last = (datetime(year, 1, 2, tzinfo=low.tzinfo) for year in (1, 9999))
        return (
            low - _MILLISECOND if low > first else low,
            high + _MILLISECOND if high < last else high,
        )
    return low, high


def _marked(
    mirror: MirrorReader,
    compared: ComparisonSpec,
    bounds: Sequence[ColumnBounds],
    names: Sequence[str] | None = None,
) -> Iterator[tuple[Words, pa.RecordBatch]]:
    """Rows of the mirror with the prints of their keys."""
    for batch in mirror.batches(compared.names if names is None else names, bounds):
        shards = batch.column(SHARD).cast(pa.string()).fill_null("").to_pylist()
        yield compared.keys_of(batch, shards if compared.shard_in_key else ()), batch
