"""A slice's change files: one Parquet file for each table and schema, written as changes come.

Lives here: `ChangeFiles`, which gathers changes, writes row groups when they are worth it, and
keeps what it holds in memory bounded. Does not live here: decoding (`changes`), the round that
names the files (`rounds`).

Invariant: a file is named in a round only after it was closed; its name is never used again, so a
process that lives on after its run was killed cannot touch what a later run committed.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from core.rounds import ChangeFile
from core.shard import ShardId
from ingest.changes import TableChanges
from store import layout
from store.files import Lake, lake_errors
from store.schemas import put_schema

_GROUP_BYTES: Final = 32 << 20  # a table's changes become a row group when they are this many bytes
_HELD_BYTES: Final = 96 << 20  # of all tables together; then the largest becomes a row group
# Against lz4 and dictionaries everywhere (300,000 rows of six columns): the same 60 ms of CPU and
# 3.8 instead of 10.5 MB. What repeats is in the token; source columns seldom do.
_COMPRESSION: Final = "zstd"
_LEVEL: Final = 1
_DICTIONARIES: Final = [
    "op",
    *(f"token.{name}" for name in ("ts", "shard", "gtid", "generation", "seq")),
]


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


class ChangeFiles:
    """The files of one slice.

    Attributes:
        rows: row changes added so far.
    """

    def __init__(self, lake: Lake, *, shard: ShardId, round_number: int) -> None:
        self._lake = lake
        self._shard = shard
        self._round = round_number
        self._part = secrets.randbits(40)
        self._files: dict[tuple[str, str], _File] = {}
        self._held = 0
        self.rows = 0

    def add(self, changes: TableChanges) -> None:
        """Take changes of one table; they stand behind those added before.

        Raises:
            LakeError: they cannot be written.
        """
        file = self._file(changes)
        size = changes.rows.get_total_buffer_size()
        file.waiting.append(changes.rows)
        file.waiting_bytes += size
        file.rows += changes.rows.num_rows
        file.min_seq = min(file.min_seq, changes.min_seq)
        file.max_seq = max(file.max_seq, changes.max_seq)
        file.counts = [a + b for a, b in zip(file.counts, changes.counts, strict=True)]
        for column, count in changes.misfits.items():
            file.misfits[column] = file.misfits.get(column, 0) + count
        self.rows += changes.rows.num_rows
        self._held += size
        if file.waiting_bytes >= _GROUP_BYTES:
            self._write(file)
        while self._held >= _HELD_BYTES:
            self._write(max(self._files.values(), key=lambda one: one.waiting_bytes))

    def finish(self) -> tuple[ChangeFile, ...]:
        """Close all files and describe them.

        Raises:
            LakeError: they cannot be written.
        """
        return tuple(self._close(file) for file in self._files.values())

    def abandon(self) -> None:
        """Close and remove what was written: it will not be committed."""
        for file in self._files.values():
            with lake_errors("close a change file", file.path):
                if file.writer is not None:
                    file.writer.close()
                if file.sink is not None:
                    file.sink.close()
            self._lake.delete(file.path)
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

    def _write(self, file: _File) -> None:
        with lake_errors("write a change file", file.path):
            if file.writer is None:
                file.sink = self._lake.open_output(file.path)
                file.writer = pq.ParquetWriter(
                    file.sink,
                    file.first.rows.schema,
                    compression=_COMPRESSION,
                    compression_level=_LEVEL,
                    use_dictionary=_DICTIONARIES,
                )
            if file.waiting:
                table = pa.concat_tables(file.waiting)
                file.writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._held -= file.waiting_bytes
        file.waiting, file.waiting_bytes = [], 0

    def _close(self, file: _File) -> ChangeFile:
        self._write(file)
        with lake_errors("close a change file", file.path):
            if file.writer is not None:
                file.writer.close()
            if file.sink is not None:
                file.sink.close()
        schema = file.first.schema
        inserts, updates, deletes = file.counts
        return ChangeFile(
            keyspace=schema.keyspace,
            table=schema.table,
            shard=str(self._shard),
            schema=schema.fingerprint,
            path=file.path,
            rows=file.rows,
            bytes=self._lake.size(file.path),
            min_seq=file.min_seq,
            max_seq=file.max_seq,
            inserts=inserts,
            updates=updates,
            deletes=deletes,
            misfits=file.misfits,
        )
