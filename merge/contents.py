"""Whether files of rows can be read: looked at where Spark or deltalake could not read one.

Both say that of a damaged file, and of a storage that fails, in words that change with each
version. So what they were to read is read once more, here.

Lives here: that look. Does not live here: when it is called for (`failures`, `lostparts`).
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.parquet as pq

from ratchet.core.errors import TableFileError
from ratchet.store.batches import row_batches
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake
from ratchet.store.segments import open_changes


def unreadable(lake: Lake, paths: Iterable[str]) -> str:
    """Why one of some Parquet files cannot be read, as a sentence; empty: all of them can.

    Args:
        lake: the lake.
        paths: files, and parts of segments. Each is read to its end, until one is damaged.

    Raises:
        LakeError: the storage fails.
    """
    for path in paths:
        try:
            with data_file_errors(lake, path), open_changes(lake, path) as stream:
                for batch in row_batches(pq.ParquetFile(stream)):
                    batch.validate(full=True)
        except TableFileError as error:
            return error.message
    return ""
