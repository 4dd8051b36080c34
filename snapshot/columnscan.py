"""Reading some columns of a table again, and nothing else of its rows but their keys.

Behind a statement that fills a column with what only its server knows, the mirror has all the rest
of each row.

Lives here: `read_columns`. Does not live here: which columns (`core.reshaping`), putting them to
the mirror's rows (`merge.askedvalues`), how a table is read (`scan`).

Invariant: every value that was read is of a time behind the statement, and the log up to `end` has
whatever changed it until it was read, and until the last value was.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ratchet.core.position import Position
from ratchet.core.reshaping import NotComputableError
from ratchet.snapshot.reader import ChunkRequest, ChunkResult, read_chunk
from ratchet.snapshot.records import DumpSettings, ShardSource
from ratchet.snapshot.scan import SCRATCH, TableScan, remove_stale
from ratchet.snapshot.source import SourceTable
from ratchet.snapshot.source_df import require_all_committed, seen_positions
from ratchet.snapshot.tasks import ReadChunk
from ratchet.store.files import Lake

MOST_BYTES: Final = 256 << 20  # as the server sends them: all of them are in memory when joined
_LEAST: Final = 8  # bytes of a row, by which a table is too large before it is read


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnScan:
    """Columns of a table that were read.

    Attributes:
        folder: where the files lie, relative to the lake's root; `remove` takes them away.
        files: the Parquet files, relative to the lake's root: the key and the columns.
        rows: how many were read.
        misfits: column -> values that became NULL because they did not fit.
        end: shard -> a position that contains everything that was shown.
    """

    folder: str
    files: tuple[str, ...]
    rows: int
    misfits: Counter[str]
    end: dict[str, Position]

    def remove(self, lake: Lake) -> None:
        """Delete the files."""
        lake.delete_folder(self.folder)


def read_columns(
    lake: Lake,
    tables: Mapping[str, SourceTable],
    shards: Mapping[str, ShardSource],
    *,
    columns: Collection[str],
    places: Mapping[str, Position],
    settings: DumpSettings,
    now: int,
    stop: threading.Event,
    most: int = MOST_BYTES,
) -> ColumnScan:
    """Read columns of all rows of a table, with their keys, in this process: they end up in it.

    Args:
        lake: where the files go.
        tables: ShardId as text -> the table there.
        shards: ShardId as text -> its source, which is no vtgate.
        columns: their names.
        places: shard -> what each read of it has to contain.
        settings: how to go about it: the throttle above all.
        now: microseconds UTC; scratch files that are a day old are removed.
        stop: when set, it ends with RetryableError.
        most: bytes that may be read.

    Raises:
        NotComputableError: there is more to read.
        TableStoppedError: the table is gone, or changes while it is read.
        RetryableError: the server stays away, or it was told to stop.
        LakeError: the lake cannot be written.
    """
    expected = sum(table.size.rows for table in tables.values())
    if expected * _LEAST > most:
        raise NotComputableError(_too_many(expected, columns))
    require_all_committed(shards, places)
    remove_stale(lake, now)
    folder = f"{SCRATCH}/columns-{uuid.uuid4().hex[:12]}"
    scan = TableScan(
        lake,
        folder=folder,
        shards=shards,
        tables={shard: _narrow(table, columns) for shard, table in tables.items()},
        columns=(*next(iter(tables.values())).schema.key, *columns),
        read=_bounded(most, columns),
        settings=settings,
        since={},
        stop=stop,
    )
    try:
        chunks = scan.run()
        end = seen_positions(shards, tables)
    except BaseException:
        lake.delete_folder(folder)
        raise
    misfits: Counter[str] = Counter()
    for one in chunks:
        misfits.update(one.misfits)
    return ColumnScan(
        folder=folder,
        files=tuple(f"{folder}/{one.file}" for one in chunks if one.file),
        rows=sum(one.rows for one in chunks),
        misfits=misfits,
        end=end,
    )


def _narrow(table: SourceTable, columns: Collection[str]) -> SourceTable:
    """A table as if it had its key and these columns alone."""
    schema, wanted = table.schema, {*table.schema.key, *columns}
    some = tuple(one for one in schema.columns if one.name in wanted)
    return replace(table, schema=replace(schema, columns=some))


def _bounded(most: int, columns: Collection[str]) -> ReadChunk:
    """Read until there are too many bytes."""
    lock, taken, rows = threading.Lock(), 0, 0

    def bounded(request: ChunkRequest) -> ChunkResult:
        nonlocal taken, rows
        result = read_chunk(request)
        with lock:
            taken, rows = taken + result.bytes, rows + result.rows
            if taken > most:
                raise NotComputableError(_too_many(rows, columns))
        return result

    return bounded


def _too_many(rows: int, columns: Collection[str]) -> str:
    names = ", ".join(sorted(columns))
    return f"{rows:,} rows and more have too much in {names} to be held in memory"
