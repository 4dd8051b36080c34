"""Values of some columns that the source was asked for, by the keys of their rows.

Lives here: holding them in memory, and finding those of the mirror's rows. Does not live here:
reading them (`snapshot.columnscan`), making the rows (`core.reshaping`, `remake`).

They are held in the order of the key's first column: a row group of a data file has, as a rule, a
part of its range, and only that part is looked through.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratchet.core.reshaping import NotComputableError
from ratchet.merge.keymatch import match_keys
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake

_DOING: Final = "read values of a column that was read again"


@dataclass(frozen=True, slots=True)
class AskedValues:
    """Values by key.

    Attributes:
        key: names of the key's columns.
        keys: k0, k1 ...: the keys, by their first column, none twice.
        values: for each the values.
    """

    key: tuple[str, ...]
    keys: pa.Table
    values: pa.Table

    @classmethod
    def load(
        cls, lake: Lake, files: Iterable[str], columns: pa.Schema, key: Sequence[str]
    ) -> AskedValues:
        """Take all of them into memory.

        Args:
            lake: the lake.
            files: Parquet files with the key and the columns.
            columns: the lake's types of all of them, the key's among them.
            key: names of the key's columns.

        Raises:
            NotComputableError: a key is there twice.
            LakeError: a file cannot be read.
        """
        parts = [columns.empty_table()]
        for path in files:
            with lake_errors(_DOING, path), lake.open_input(path) as stream:
                # With `a` it reads `a.b`, too, and sorts by `.a` as a part of something.
                rows = pq.ParquetFile(stream).read(columns=columns.names)
                parts.append(rows.select(columns.names).cast(columns))
        found = pa.concat_tables(parts).combine_chunks()
        names = [f"k{number}" for number in range(len(key))]
        keys = found.select(list(key)).rename_columns(names)
        if keys.group_by(names).aggregate([]).num_rows < keys.num_rows:
            raise NotComputableError("two rows of the source have the same key")
        order = pc.sort_indices(keys, sort_keys=[("k0", "ascending")])
        values = found.select([name for name in columns.names if name not in key])
        return cls(tuple(key), keys.take(order).combine_chunks(), values.take(order))

    def find(self, keys: pa.Table) -> pa.Table:
        """The values of rows, in their order; NULL where the source has no such key.

        Args:
            keys: the key's columns.
        """
        rows = [keys.column(name).combine_chunks() for name in self.key]
        near = self._near(rows[0])
        where, number = match_keys(rows, self.keys.slice(near.start, len(near)))
        places = np.full(keys.num_rows, -1, np.int64)
        places[where] = number + near.start
        return self.values.take(pa.array(places, mask=places < 0))

    def _near(self, rows: pa.Array) -> range:
        """The places of the keys that these rows may have."""
        first = self.keys.column(0).combine_chunks()
        ends = pc.min_max(rows).as_py()
        if ends["min"] is None:
            return range(0)
        begin = bisect_left(first, ends["min"], key=_value)
        return range(begin, bisect_right(first, ends["max"], begin, key=_value))


def _value(scalar: pa.Scalar) -> Any:
    return scalar.as_py()
