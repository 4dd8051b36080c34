"""Reading the data files of Delta tables, whoever wrote them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from store.files import Lake


def parquet_file(lake: Lake, stream: pa.NativeFile) -> pq.ParquetFile:
    """A data file of a table, opened.

    Args:
        lake: where it lies: from an object store what is close together is read by one request, and
            what is not at the same time.
        stream: the file.
    """
    # Spark's timestamps have 96 bits, whose years end in 2262 if they are read in nanoseconds.
    return pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", pre_buffer=not lake.is_local)
