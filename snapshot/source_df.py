"""Reading a source's table for a verification: its fingerprint, and its keys with their prints.

Lives here: what a scan of it (`scan`) keeps, in scratch Parquet files. Does not live here: prints
(`prints`), reading single rows again (`reread`), comparing (`compare`), judging (`judge`).

Invariant: each chunk of a scan comes with its floor, a position that its rows are sure to contain;
the scan's end is a position that contains all that any chunk may have shown.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.core.position import Position
from ratchet.core.shell import redump
from ratchet.core.types import InvalidValuePolicy
from ratchet.snapshot.errors import ShapeChangedError
from ratchet.snapshot.positions import require_committed, seen_position
from ratchet.snapshot.prints import (
    BUCKET,
    PRINT,
    SHARD,
    Fingerprint,
    Flags,
    RowHasher,
    ShardOrigins,
    combined,
    shard_print,
)
from ratchet.snapshot.reader import ChunkResult, RowHashSpec
from ratchet.snapshot.records import DumpSettings, ShardSource, TableDumpRequest
from ratchet.snapshot.scan import SCRATCH, TableScan, remove_stale
from ratchet.snapshot.sessions import open_session
from ratchet.snapshot.source import SourceCatalog, SourceTable, common_columns
from ratchet.snapshot.tasks import ReadChunk
from ratchet.store.delta.tables import quoted
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceScan:
    """A table of the source, read once.

    Attributes:
        folder: where its files lie, relative to the lake's root; `remove` takes them away.
        chunks: what was read, with floors; those without rows have no file.
        fingerprint: of all rows.
        end: shard -> position that contains everything the scan may have shown.
    """

    folder: str
    chunks: tuple[ChunkResult, ...]
    fingerprint: Fingerprint
    end: Mapping[str, Position]

    def frame(self, spark: SparkSession, lake: Lake) -> DataFrame | None:
        """The columns that were kept, `PRINT`, `BUCKET` and `SHARD`; None if there are no rows."""
        files = [lake.hadoop_uri(f"{self.folder}/{c.file}") for c in self.chunks if c.file]
        return spark.read.parquet(*files) if files else None

    def filled(self, lake: Lake, names: Sequence[str]) -> tuple[str, ...]:
        """Those of some columns that were kept that are not NULL in every row."""
        found: set[str] = set()
        for parquet in self._opened(lake) if names else ():
            for group in range(parquet.num_row_groups):
                left = [name for name in names if name not in found]
                if not left:
                    return tuple(names)
                rows = parquet.read_row_group(group, columns=left)
                found |= {name for name in left if rows.column(name).null_count < rows.num_rows}
        return tuple(name for name in names if name in found)

    def few_odd_rows(
        self, lake: Lake, schema: pa.Schema, key: Sequence[str], odd: Flags
    ) -> pa.Table:
        """What `odd_rows` gives, in memory.

        Args:
            lake: where the scan lies.
            schema: the columns' types, and others.
            key: names of the key's columns.
            odd: a flag for each bucket.
        """
        names = [*key, SHARD, PRINT]
        empty = pa.schema([schema.field(name) for name in names]).empty_table()
        found = [empty]
        for parquet in self._opened(lake):
            for group in range(parquet.num_row_groups):
                rows = parquet.read_row_group(group, columns=[*names, BUCKET])
                chosen = odd[rows.column(BUCKET).to_numpy()]
                if chosen.any():
                    few = rows.filter(pa.array(chosen)).select(names)
                    found.append(few.cast(empty.schema))
        return pa.concat_tables(found).combine_chunks()

    def _opened(self, lake: Lake) -> Iterator[pq.ParquetFile]:
        for path in (f"{self.folder}/{one.file}" for one in self.chunks if one.file):
            with lake_errors("read a file", path), lake.open_input(path) as stream:
                yield pq.ParquetFile(stream)

    def odd_rows(
        self, spark: SparkSession, lake: Lake, key: Sequence[str], odd: Flags
    ) -> DataFrame | None:
        """The rows of some buckets: the key's columns, `SHARD` and `PRINT`; None if there are none.

        Args:
            spark: the session.
            lake: where the scan lies.
            key: names of the key's columns.
            odd: a flag for each bucket.
        """
        from pyspark.sql import functions as fn

        rows = self.frame(spark, lake)
        if rows is None:
            return None
        if not odd.all():
            wanted = pa.table({BUCKET: np.flatnonzero(odd).astype(np.int32)})
            rows = rows.join(fn.broadcast(spark.createDataFrame(wanted)), BUCKET, "left_semi")
        return rows.select(
            *(fn.col(quoted(name)) for name in key),
            fn.col(quoted(SHARD)),
            fn.col(quoted(PRINT)),
        )

    def remove(self, lake: Lake) -> None:
        """Delete the scratch files."""
        lake.delete_folder(self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanColumns:
    """What a scan makes of a row.

    Attributes:
        printer: prints it.
        columns: the columns that are written, the key's among them.
        homes: what the shards add to their rows' prints.
        shard_in_key: whether two shards may hold the same key.
    """

    printer: RowHasher
    columns: tuple[str, ...]
    homes: ShardOrigins
    shard_in_key: bool

    def of_shard(self, shard: str) -> RowHashSpec:
        """The same for the rows of one shard."""
        return RowHashSpec(
            printer=self.printer,
            columns=self.columns,
            shard=shard,
            home=self.homes.of_shard(shard),
            key_shard=shard_print(shard) if self.shard_in_key else None,
        )


def source_tables(
    wanted: TableDumpRequest,
    shards: Mapping[str, ShardSource],
    policy: InvalidValuePolicy,
    *,
    key: Sequence[str] = (),
) -> tuple[dict[str, SourceTable], pa.Schema]:
    """The table on each of its shards, and the lake's columns for it.

    Args:
        wanted: the table and its shards.
        shards: ShardId as text -> its source.
        policy: decides about the lake's types.
        key: columns without which there is nothing to compare.

    Raises:
        TableStoppedError: the table is gone, or differs between shards.
        ShapeChangedError: it has no such columns any more.
        RetryableError: a server does not answer.
    """
    catalog = SourceCatalog({shard: shards[shard].primary for shard in wanted.shards})
    tables = {shard: catalog.table(shard, wanted.table) for shard in wanted.shards}
    columns = common_columns(list(tables.values()), policy)
    if gone := [name for name in key if name not in columns.names]:
        raise ShapeChangedError(
            f"the source no longer has column {', '.join(gone)}",
            operation="compare with the source",
            table=wanted.name,
            hint=redump(wanted.name),
        )
    return tables, columns


def scan_source(
    lake: Lake,
    tables: Mapping[str, SourceTable],
    shards: Mapping[str, ShardSource],
    read: ReadChunk,
    *,
    columns: pa.Schema,
    kept: ScanColumns,
    settings: DumpSettings,
    now: int,
    since: Mapping[str, Position] | None = None,
    stop: threading.Event | None = None,
) -> SourceScan:
    """Read a whole table, keeping of each row its key and its print.

    Args:
        lake: where the scratch files go.
        tables: ShardId as text -> the table there.
        shards: ShardId as text -> its source.
        read: reads a chunk (snapshot.tasks).
        columns: the lake's columns (`source_tables`).
        kept: what is made of each row.
        settings: how to go about it.
        now: microseconds UTC; scratch files that are a day old are removed.
        since: shard -> what its rows must contain, where they come by a vtgate, each chunk from any
            of its tablets.
        stop: when set, the scan ends with RetryableError.

    Raises:
        TableStoppedError: the table is gone, or changes while it is read.
        RetryableError: a server stays away, or the scan was told to stop.
    """
    remove_stale(lake, now)
    folder = f"{SCRATCH}/verify-{uuid.uuid4().hex[:12]}"
    scan = TableScan(
        lake,
        folder=folder,
        shards=shards,
        tables=tables,
        columns=tuple(columns.names),
        read=read,
        settings=settings,
        since=since or {},
        printing={shard: kept.of_shard(shard) for shard in tables},
        stop=stop,
    )
    try:
        chunks = scan.run()
    except BaseException:
        lake.delete_folder(folder)
        raise
    return SourceScan(
        folder=folder,
        chunks=chunks,
        fingerprint=combined(c.fingerprint for c in chunks if c.fingerprint is not None),
        end=seen_positions(shards, tables),
    )


def seen_positions(shards: Mapping[str, ShardSource], wanted: Iterable[str]) -> dict[str, Position]:
    """For each shard a position that contains everything that reads have shown until now."""
    found = {}
    for shard in wanted:
        with open_session(shards[shard].primary) as session:
            found[shard] = seen_position(session)
    return found


def require_all_committed(
    shards: Mapping[str, ShardSource], positions: Mapping[str, Position]
) -> None:
    """Wait until reads of each shard contain what the mirror has of it.

    Raises:
        LockedError: they do not, for some seconds.
        RetryableError: a server stays away.
    """
    for shard, position in positions.items():
        with open_session(shards[shard].config) as session:
            require_committed(session, position)
