"""Data files of a Delta table, written whole.

Lives here: rows into one Parquet file. Does not live here: which rows, and the commit (`commits`).
The dump has a writer of its own, which holds its file open for long (`snapshot.chunkfile`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.store.delta.actions import DataFile
from ratchet.store.delta.stats import file_stats
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake

GROUP_ROWS: Final = 1 << 16  # of a row group: few, since what a later merge skips is row groups


def write_data_file(
    lake: Lake,
    folder: str,
    parts: Iterable[pa.Table],
    schema: pa.Schema,
    *,
    kind: str,
    described: Sequence[str],
    now: int,
) -> DataFile:
    """Write a new file, which a commit is to add.

    Args:
        lake: the lake.
        folder: the table's.
        parts: its rows.
        schema: of all of them.
        kind: what its name begins with.
        described: columns that its statistics tell of.
        now: microseconds UTC.

    Raises:
        LakeError: it cannot be written. What there is of it belongs to no version.
    """
    name = f"{kind}-{uuid.uuid4().hex}.parquet"
    path = f"{folder}/{name}"
    footers: list[pq.FileMetaData] = []
    options: dict[str, Any] = {"compression": "zstd", "store_schema": False}
    with lake_errors("write a data file", path), lake.open_output(path) as sink:
        writer = pq.ParquetWriter(sink, schema, metadata_collector=footers, **options)
        try:
            for part in parts:
                writer.write_table(part, row_group_size=GROUP_ROWS)
            writer.close()
        finally:
            # One whose sink failed (a full disk) would raise something else when it is closed.
            writer.is_open = False
        size = sink.tell()
    return DataFile.new(name, size=size, stats=file_stats(footers[0], described), now=now)
