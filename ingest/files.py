"""A slice's change files: one Parquet file for each table and schema, written as changes come.

Lives here: `ChangeFileWriter`, which gathers changes, writes row groups when they are worth it, and
keeps what it holds in memory bounded. Does not live here: decoding (`changes`), the round that
names the files (`rounds`), the object that small ones share (`segment`).

A row group is written by a thread while its stream is read on: encoding and compressing take as
long as decoding does. There is one at a time, so no more is held than before and that group.

What waits to the end is small, mostly: each such file is encoded in memory, one after the other,
and put behind those before it into one segment (docs/decisions/0096-segments.md).

Invariant: a file is named in a round only after it was closed; its name is never used again, so a
process that lives on after its run was killed cannot touch what a later run committed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.core.change import TOKEN_TYPE
from ratchet.core.errors import LakeError
from ratchet.core.rounds import ChangeFile
from ratchet.core.shard import ShardId
from ratchet.ingest.changes import TableChanges
from ratchet.ingest.segment import Place, SegmentWriter
from ratchet.store import layout
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake
from ratchet.store.schemas import put_schema

_GROUP_BYTES: Final = 32 << 20  # a table's changes become a row group when they are this many bytes
_HELD_BYTES: Final = 96 << 20  # of all tables together; then the largest becomes a row group
# Against lz4 and dictionaries everywhere (300,000 rows of six columns): the same 60 ms of CPU and
# 3.8 instead of 10.5 MB. What repeats is in the token; source columns seldom do.
_COMPRESSION: Final = "zstd"
_LEVEL: Final = 1
_DICTIONARIES: Final = ["op", *(f"token.{name}" for name in ("ts", "shard", "gtid", "generation"))]


@dataclass(slots=True)
class _File:
    """A table's file under way."""

    path: str
    first: TableChanges
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0
    sink: pa.NativeFile | None = None
    writer: pq.ParquetWriter | None = None
    rows: int = 0
    min_seq: int = 1 << 62
    max_seq: int = 0
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])
    misfits: dict[str, int] = field(default_factory=dict)
    silent: int | None = None
    began: int = 0
    unchecked: int = 0


class ChangeFileWriter:
    """The files of one slice.

    Attributes:
        rows: row changes added so far.
    """

    def __init__(self, lake: Lake, *, shard: ShardId, round_number: int) -> None:
        self._lake = lake
        self._shard = shard
        self._round = round_number
        self._part = secrets.randbits(40)
        self._segment = SegmentWriter(
            lake,
            layout.segment_path(
                shard.keyspace, round_number=round_number, shard=str(shard), part=self._part
            ),
        )
        self._files: dict[tuple[str, str], _File] = {}
        self._held = 0
        self._writer: ThreadPoolExecutor | None = None  # made when there is a row group for it
        self._written: Future[None] | None = None
        self.rows = 0

    def add(self, changes: TableChanges) -> None:
        """Take changes of one table; they stand behind those added before.

        Raises:
            LakeError: they cannot be written, or those added before could not.
        """
        file = self._file(changes)
        size = changes.rows.get_total_buffer_size()
        file.waiting.append(changes.rows)
        file.waiting_bytes += size
        file.rows += changes.rows.num_rows
        file.min_seq = min(file.min_seq, changes.min_seq)
        file.max_seq = max(file.max_seq, changes.max_seq)
        file.counts = [a + b for a, b in zip(file.counts, changes.counts, strict=True)]
        if changes.silent is not None:
            file.silent = changes.silent + (file.silent or 0)
        if changes.began:
            file.began = min(changes.began, file.began or changes.began)
        file.unchecked += changes.unchecked
        for column, count in changes.misfits.items():
            file.misfits[column] = file.misfits.get(column, 0) + count
        self.rows += changes.rows.num_rows
        self._held += size
        if file.waiting_bytes >= _GROUP_BYTES:
            self._write_behind(file)
        while self._held >= _HELD_BYTES:
            self._write_behind(max(self._files.values(), key=lambda one: one.waiting_bytes))

    def finish(self) -> tuple[ChangeFile, ...]:
        """Close all files and describe them.

        Raises:
            LakeError: they cannot be written.
        """
        self._wait()
        if self._writer is not None:
            self._writer.shutdown()
        for file in self._files.values():
            if file.writer is None:
                self._segment.add(_encoded(file.first, self._taken(file), file.path), file.path)
            else:
                self._close(file)
        places = self._segment.finish()
        return tuple(self._described(file, places) for file in self._files.values())

    def abandon(self) -> None:
        """Close and remove what was written: it will not be committed."""
        with suppress(LakeError):  # what could not be written goes with the rest
            self._wait()
        if self._writer is not None:
            self._writer.shutdown()
        for file in self._files.values():
            with lake_errors("close a change file", file.path):
                if file.writer is not None:
                    file.writer.close()
                if file.sink is not None:
                    file.sink.close()
            if file.writer is not None:
                self._lake.delete(file.path)
        self._segment.abandon()
        self._files.clear()

    def _file(self, changes: TableChanges) -> _File:
        fingerprint = changes.schema.fingerprint
        key = changes.schema.table, fingerprint
        if key not in self._files:
            path = layout.change_file_path(
                changes.schema.keyspace,
                changes.schema.table,
                round_number=self._round,
                shard=str(self._shard),
                schema=fingerprint,
                part=self._part,
            )
            put_schema(self._lake, changes.schema)
            self._files[key] = _File(path, changes)
        return self._files[key]

    def _write_behind(self, file: _File) -> None:
        """Have what waits written as a row group, once the group before is."""
        self._wait()
        writer, rows = self._open(file), self._taken(file)
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, thread_name_prefix="change files")
        self._written = self._writer.submit(_write, writer, rows, file.path)

    def _wait(self) -> None:
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def _open(self, file: _File) -> pq.ParquetWriter:
        if file.writer is None:
            with lake_errors("write a change file", file.path):
                file.sink = self._lake.open_output(file.path)
                file.writer = _writer(file.sink, file.first)
        return file.writer

    def _taken(self, file: _File) -> list[pa.Table]:
        """What waits, which does not any longer."""
        rows = file.waiting
        self._held -= file.waiting_bytes
        file.waiting, file.waiting_bytes = [], 0
        return rows

    def _close(self, file: _File) -> None:
        _write(self._open(file), self._taken(file), file.path)
        with lake_errors("close a change file", file.path):
            if file.writer is not None:
                file.writer.close()
            if file.sink is not None:
                file.sink.close()

    def _described(self, file: _File, places: Mapping[str, Place]) -> ChangeFile:
        place = places.get(file.path)
        if place is None:
            place = Place(file.path, self._lake.size(file.path))
        schema = file.first.schema
        inserts, updates, deletes = file.counts
        return ChangeFile(
            keyspace=schema.keyspace,
            table=schema.table,
            shard=str(self._shard),
            schema=schema.fingerprint,
            path=place.path,
            rows=file.rows,
            bytes=place.size,
            min_seq=file.min_seq,
            max_seq=file.max_seq,
            inserts=inserts,
            updates=updates,
            deletes=deletes,
            misfits=file.misfits,
            silent=file.silent,
            began=file.began,
            unchecked=file.unchecked,
        )


def _writer(sink: pa.NativeFile, first: TableChanges) -> pq.ParquetWriter:
    schema = first.rows.schema
    images = [
        (f"{image}.{field.name}", field)
        for image in ("before", "after")
        for field in schema.field(image).type
    ]
    whole = [path for path, field in images if _is_whole(field)]
    keys = [path for path, field in images if field.name in first.schema.key]
    return pq.ParquetWriter(
        sink,
        schema,
        compression=_COMPRESSION,
        compression_level=_LEVEL,
        use_dictionary=_DICTIONARIES,
        # Statistics of other columns are read by nobody, and took a seventh of the time.
        write_statistics=["op", *(f"token.{field.name}" for field in TOKEN_TYPE), *keys],
        # Less for zstd to do; ordered numbers take a tenth of the room, any others as much.
        column_encoding=dict.fromkeys(["token.seq", "token.idx", *whole], "DELTA_BINARY_PACKED"),
    )


def _encoded(first: TableChanges, rows: list[pa.Table], path: str) -> pa.Buffer:
    """A whole change file, in memory."""
    sink = pa.BufferOutputStream()
    with _writer(sink, first) as writer:
        _write(writer, rows, path)
    return sink.getvalue()


def _is_whole(field: pa.Field) -> bool:
    """Whether Parquet has the column as a whole number of 32 or 64 bits."""
    kind = field.type
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
    )


def _write(writer: pq.ParquetWriter, rows: list[pa.Table], path: str) -> None:
    """Append a row group, if there is anything for one."""
    if rows:
        table = pa.concat_tables(rows)
        with lake_errors("write a change file", path):
            writer.write_table(table, row_group_size=max(1, table.num_rows))
