"""Rows that have one of some keys. Pure.

Lives here: finding them among Arrow's columns. Does not live here: which rows (`lookup`,
`askedvalues`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratchet.merge.newest import Ints

_PLACES: Final = ("row", "key")


def match_keys(rows: Sequence[pa.Array], wanted: pa.Table) -> tuple[Ints, Ints]:
    """The places of rows that have one of the keys, and of their keys; the rows in no order.

    Args:
        rows: the columns of the key, of the types of `wanted`.
        wanted: the keys, none twice.
    """
    if len(rows) == 1:
        found = pc.index_in(rows[0], value_set=wanted.column(0).combine_chunks())
        where = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        return where, found.take(pa.array(where)).to_numpy().astype(np.int64)
    names = list(map(str, range(len(rows))))  # the table's may be any
    left, right = (
        pa.table([*columns, pa.array(np.arange(len(columns[0])))], [*names, place])
        for columns, place in zip((rows, wanted.columns), _PLACES, strict=True)
    )
    both = left.join(right, names, join_type="inner", use_threads=False)
    where, number = (both[place].combine_chunks().to_numpy() for place in _PLACES)
    return where, number
