"""Rows of a Parquet file, some at a time.

Lives here: how many. Does not live here: whose file it is (`segments`, `failures`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

_ROWS: Final = 10_000
_BYTES: Final = 32 << 20  # by the footer; of equal values it may count one


def row_batches(
    file: pq.ParquetFile, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows, in batches that take little memory, or have one row if it takes more.

    Args:
        file: an open one.
        columns: leaves or fields that are read; None: all.
    """
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        fit = _BYTES * group.num_rows // max(1, group.total_byte_size)
        yield from file.iter_batches(
            batch_size=max(1, min(fit, _ROWS)), row_groups=[number], columns=columns
        )
