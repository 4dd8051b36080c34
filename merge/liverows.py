"""The rows of a data file that are there: those that its deletion vector does not take away.

Lives here: reading them, a row group at a time. Does not live here: what they are read for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.core.arrowwidth import least_width
from ratchet.merge.fitted import fitted_table
from ratchet.store.delta.actions import DataFile
from ratchet.store.delta.parquet import parquet_file
from ratchet.store.delta.vectors import gone_rows, positions_of
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake


class LiveRows:
    """The rows of one file.

    Attributes:
        bytes: as Parquet has them before compression.
    """

    def __init__(self, lake: Lake, table: str, file: DataFile, schema: pa.Schema) -> None:
        """Look at the file's footer.

        Args:
            lake: the lake.
            table: the table's folder.
            file: one of its files.
            schema: the table's columns of now.

        Raises:
            TableFileError: the file is gone or damaged.
            LakeError: it cannot be read.
        """
        self._lake = lake
        self._table = table
        self._file = file
        self._schema = schema
        self._path = f"{table}/{file.path}"
        with data_file_errors(self._lake, self._path), self._open() as stream:
            footer = pq.read_metadata(stream)
            size = sum(footer.row_group(n).total_byte_size for n in range(footer.num_row_groups))
            # In the file a NULL takes nothing.
            self.bytes = max(size, footer.num_rows * least_width(schema))

    def _open(self) -> pa.NativeFile:
        return self._lake.open_input(self._path, size=self._file.size)

    def groups(self) -> Iterator[pa.Table]:
        """By row groups, in the table's columns of now."""
        gone = positions_of(gone_rows(self._lake, self._table, self._file))
        with data_file_errors(self._lake, self._path), self._open() as stream:
            parquet = parquet_file(self._lake, stream)
            begin = 0
            for number in range(parquet.num_row_groups):
                count = parquet.metadata.row_group(number).num_rows
                first, last = np.searchsorted(gone, [begin, begin + count])
                alive = np.ones(count, np.bool_)
                alive[gone[first:last] - begin] = False
                begin += count
                if alive.any():
                    rows = parquet.read_row_group(number)
                    yield fitted_table(rows.filter(pa.array(alive)), self._schema)
