"""What is in a peer's target, beside what is in the source: the number of rows that differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from bench.peers.contract import COLUMNS

_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")


def read(target: Mapping[str, str]) -> pa.Table | None:
    """The rows of a target; None if it is of a format that cannot be read here."""
    if target["format"] == "delta":
        from deltalake import DeltaTable, QueryBuilder

        # The query engine, because deltalake's datasets refuse deletion vectors.
        query = QueryBuilder().register("target", DeltaTable(target["path"]))
        reader = query.execute(f"SELECT {', '.join(COLUMNS)} FROM target")
        return normal(pa.table(reader.read_all()))
    if target["format"] == "parquet":
        found = pyarrow.dataset.dataset(Path(target["path"]), format="parquet")
        return normal(found.to_table(columns=list(COLUMNS)))
    return None


def normal(table: pa.Table) -> pa.Table:
    """The columns in the types of `source.contents`, whichever a peer chose for them.

    A moment becomes its microseconds; a price that a peer holds as a floating-point number is
    rounded to its two digits, so that only a wrong amount counts as wrong.
    """
    placed = table["placed"].cast(_MICROSECONDS, safe=False).cast(pa.int64())
    price = table["price"]
    if pa.types.is_floating(price.type):
        price = pc.round(price, 2)
    return pa.table(
        {
            "id": table["id"].cast(pa.int64()),
            "name": table["name"].cast(pa.string()),
            "code": table["code"].cast(pa.string()),
            "amount": table["amount"].cast(pa.int64()),
            "placed": placed,
            "price": price.cast(pa.decimal128(18, 2), safe=False),
        }
    )


def wrong_rows(source: pa.Table, target: pa.Table) -> dict[str, int]:
    """How many rows differ: missing, that should not be there (or are twice), with other values."""
    source, target = source.sort_by("id"), target.sort_by("id")
    expected, found = source["id"].to_numpy(), target["id"].to_numpy()
    keys, first = np.unique(found, return_index=True)
    _, mine, theirs = np.intersect1d(expected, keys, assume_unique=True, return_indices=True)
    left, right = source.take(mine), target.take(first[theirs])
    differs = np.zeros(len(mine), dtype=bool)
    for name in COLUMNS[1:]:
        differs |= _differs(left[name], right[name])
    return {
        "missing": len(expected) - len(mine),
        "extra": len(found) - len(mine),
        "different": int(differs.sum()),
    }


def _differs(
    left: pa.ChunkedArray, right: pa.ChunkedArray
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Where two columns differ; a NULL is like another NULL only."""
    unequal = pc.fill_null(pc.not_equal(left, right), False)
    one_null = pc.xor(pc.is_null(left), pc.is_null(right))
    return np.asarray(pc.or_(unequal, one_null).to_numpy(), dtype=bool)


def sums_of(table: pa.Table) -> dict[str, int]:
    """Count, sum of the keys and sum of the amounts."""
    return {
        "count": len(table),
        "ids": pc.sum(table["id"]).as_py() or 0,
        "amounts": pc.sum(table["amount"]).as_py() or 0,
    }
