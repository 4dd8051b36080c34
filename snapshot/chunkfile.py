"""The Parquet file of a chunk: rows with one token, in row groups of bounded size.

Lives here: the token column, the writer's settings, and the clean-up of a file that was begun in
vain. Invariant: a file is either finished, with its statistics, or removed; a file that a killed
process leaves behind has a name by which it is found (`folder`/`name`-...) and is in no commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.core.change import TOKEN_COLUMN, TOKEN_TYPE
from ratchet.snapshot.prints import SHARD
from ratchet.store.delta.stats import file_stats
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake

_GROUP_BYTES: Final = 16 << 20  # of Arrow data in a row group; 32 MB cost each task 40 MB more
_TOKEN_LEAVES: Final = [f"{TOKEN_COLUMN}.{field.name}" for field in TOKEN_TYPE]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkToken:
    """The token that all rows of a chunk carry; see core.change.TOKEN_TYPE. Its gtid is null."""

    ts: int
    shard: str
    generation: int
    seq: int
    idx: int


class ChunkFile:
    """A file being written; made when the first rows come, so an empty chunk leaves none."""

    def __init__(
        self,
        lake: Lake,
        *,
        folder: str,
        name: str,
        columns: Sequence[str],
        token: ChunkToken | None,
        described: Sequence[str],
        compression: str,
    ) -> None:
        """Nothing is opened yet.

        Args:
            lake: where it goes.
            folder: its folder there.
            name: what its name begins with.
            columns: the columns to write, in this order; others are dropped.
            token: the token of every row; None: the file has no tokens.
            described: columns that the statistics tell of.
            compression: Parquet codec.
        """
        self._lake = lake
        self._folder = folder
        self._name = f"{name}-{uuid.uuid4().hex[:12]}.parquet"
        self._columns = list(columns)
        self._token = token
        self._described = described
        self._compression = compression
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._tokens: pa.StructArray | None = None
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._footers: list[pq.FileMetaData] = []

    @property
    def path(self) -> str:
        """The file's path in the lake."""
        return f"{self._folder}/{self._name}"

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; they are written once there are enough of them."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def finish(self) -> tuple[str, int, str]:
        """Write what is left and close: (name, bytes, statistics); no name if there are no rows."""
        self._flush()
        if self._writer is None or self._sink is None:
            return "", 0, ""
        with lake_errors("write a file", self.path):
            self._writer.close()
            self._sink.close()
        return (
            self._name,
            self._lake.size(self.path),
            file_stats(self._footers[0], self._described),
        )

    def discard(self) -> None:
        """Remove what was written."""
        if self._sink is not None:
            with lake_errors("close a file", self.path):
                self._sink.close()
            self._lake.delete(self.path)

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.Table.from_batches(self._waiting).select(self._columns)
        if self._token is not None:
            rows = rows.append_column(TOKEN_COLUMN, self._token_column(self._token, rows.num_rows))
        self._waiting.clear()
        self._waiting_bytes = 0
        writer = self._writer or self._open(rows.schema)
        with lake_errors("write a file", self.path):
            writer.write_table(rows, row_group_size=rows.num_rows)

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        self._sink = self._lake.open_output(self.path)
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=self._compression,
            use_dictionary=[*_TOKEN_LEAVES, SHARD],
            write_statistics=True,
            store_schema=False,
            metadata_collector=self._footers,
        )
        return self._writer

    def _token_column(self, token: ChunkToken, rows: int) -> pa.StructArray:
        if self._tokens is None or len(self._tokens) < rows:
            values = [
                pa.scalar(token.ts, TOKEN_TYPE.field("ts").type),
                pa.scalar(token.shard, pa.string()),
                pa.scalar(None, pa.string()),
                pa.scalar(token.generation, pa.int64()),
                pa.scalar(token.seq, pa.int64()),
                pa.scalar(token.idx, pa.int64()),
            ]
            self._tokens = pa.StructArray.from_arrays(
                [pa.repeat(value, rows) for value in values], fields=list(TOKEN_TYPE)
            )
        return self._tokens.slice(0, rows)
