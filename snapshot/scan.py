"""Reading a whole table of the source into scratch files, beside the run.

Lives here: its ranges, side by side, each chunk after chunk. Does not live here: what is made of
the files (`source_df`: a comparison; `columnscan`: some columns), a single chunk (`reader`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ratchet.core.errors import RetryableError
from ratchet.core.position import Position
from ratchet.snapshot.chunks import first_ranges
from ratchet.snapshot.keys import ChunkRange
from ratchet.snapshot.patience import RetryBudget
from ratchet.snapshot.reader import ChunkRequest, ChunkResult, ReadLimits, RowHashSpec
from ratchet.snapshot.records import DumpSettings, ShardSource
from ratchet.snapshot.sessions import close_sessions, open_session
from ratchet.snapshot.source import SourceTable
from ratchet.snapshot.tasks import ReadChunk
from ratchet.store import layout
from ratchet.store.files import Lake

SCRATCH: Final = f"{layout.PRIVATE}/scratch"
_STALE: Final = 86_400_000_000  # microseconds after which a scratch file is nobody's


class TableScan:
    """One scan: ranges side by side, each chunk after chunk."""

    def __init__(
        self,
        lake: Lake,
        *,
        folder: str,
        shards: Mapping[str, ShardSource],
        tables: Mapping[str, SourceTable],
        columns: tuple[str, ...],
        read: ReadChunk,
        settings: DumpSettings,
        since: Mapping[str, Position],
        printing: Mapping[str, RowHashSpec] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Prepare.

        Args:
            lake: where the files go.
            folder: their folder in it.
            shards: ShardId as text -> its source.
            tables: ShardId as text -> the table there, with the columns that are read.
            columns: the lake's names of these, in the order of the files.
            read: reads a chunk (snapshot.tasks).
            settings: how to go about it.
            since: shard -> what its rows must contain, where they come by a vtgate, each chunk from
                any of its tablets.
            printing: shard -> how its rows are printed; None: their values are written.
            stop: when set, the scan ends with RetryableError.
        """
        self._lake = lake
        self._folder = folder
        self._shards = shards
        self._tables = tables
        self._columns = columns
        self._read = read
        self._settings = settings
        self._since = since
        self._printing = printing
        self._stop = stop or threading.Event()
        self._failed = threading.Event()  # then the other ranges' work would be lost
        self._patience = RetryBudget(settings.patience)
        self._lock = threading.Lock()
        self._number = 0

    def run(self) -> tuple[ChunkResult, ...]:
        """Read everything.

        Raises:
            TableStoppedError: the table is gone, or changes while it is read.
            RetryableError: a server stays away, or the scan was told to stop.
        """
        ranges = []
        for shard, table in self._tables.items():
            name = table.schema.name
            with open_session(self._shards[shard].primary, table=name) as session:
                found = first_ranges(session.query, table.plan, 2 * self._settings.parallel)
            ranges += [(shard, keys) for keys in found]
        with ThreadPoolExecutor(self._settings.parallel, "scan") as pool:
            parts = list(pool.map(lambda one: self._range(*one), ranges))
        return tuple(chunk for part in parts for chunk in part)

    def _range(self, shard: str, keys: ChunkRange) -> list[ChunkResult]:
        chunks: list[ChunkResult] = []
        rest: ChunkRange | None = keys
        try:
            while rest is not None:
                chunks.append(self._chunk(shard, rest))
                rest = chunks[-1].rest
        except BaseException:
            self._failed.set()
            raise
        finally:
            close_sessions()
        return chunks

    def _chunk(self, shard: str, keys: ChunkRange) -> ChunkResult:
        while not (self._stop.is_set() or self._failed.is_set()):
            try:
                self._settings.throttle.wait(self._shards[shard], self._stop)
                result = self._read(self._request(shard, keys))
            except RetryableError as error:
                self._stop.wait(self._patience.failed(shard, error))
                continue
            self._patience.succeeded(shard)
            self._settings.throttle.count(result.rows)
            return result
        raise RetryableError("the scan was told to stop", operation="read a table", source=shard)

    def _request(self, shard: str, keys: ChunkRange) -> ChunkRequest:
        table, settings = self._tables[shard], self._settings
        with self._lock:
            self._number += 1
            number = self._number
        return ChunkRequest(
            number=number,
            config=self._shards[shard].config,
            schema=table.schema,
            shape=table.shape,
            plan=table.plan,
            keys=keys,
            generation=self._shards[shard].generation,
            since=self._since.get(shard) if self._shards[shard].config.target else None,
            lake=self._lake,
            folder=self._folder,
            name="scan",
            policy=settings.policy,
            key=table.schema.key,
            limits=ReadLimits(
                seconds=settings.chunk_seconds if settings.chunk_rows is None else math.inf,
                rows=settings.throttle.most_rows(settings.chunk_rows or ReadLimits().rows),
                bytes=settings.chunk_bytes,
            ),
            columns=self._columns,
            compression="none",  # prints cannot be made smaller, and the files live for minutes
            printing=None if self._printing is None else self._printing[shard],
        )


def remove_stale(lake: Lake, now: int) -> None:
    """Remove scratch files that are a day old; `now`: microseconds UTC."""
    for file in lake.list(SCRATCH):
        if 0 < file.modified_at < now - _STALE:
            lake.delete(file.path)
