"""Comparing a mirrored table with a scan of its source, in Spark.

Lives here: the full outer join on the key and the exact comparison of all columns. Does not live
here: why a key differs (`verify`).

Invariant: rows are the same if and only if each column is NULL in both or has the same value in
both; strings compare by their bytes, and -0.0 is not 0.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from core.change import TOKEN_COLUMN
from snapshot.rows import Row, frozen_row

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_THERE = "ratchet_there"
_SHARD = "ratchet_shard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatches:
    """Keys for which mirror and scan differ.

    Attributes:
        count: how many there are.
        rows: at most `limit` of them: struct columns `mirror` and `source` with all compared
            columns and `ratchet_shard`; null where there is no such row.
    """

    count: int
    rows: pa.Table

    def keys(self, key: Sequence[str]) -> list[dict[str, Any]]:
        """Values of the key's columns, each key once."""
        found: dict[Row | None, dict[str, Any]] = {}
        for pair in self.pairs():
            values = {name: (pair[0] or pair[1] or {})[name] for name in key}
            found[frozen_row(values, key)] = values
        return list(found.values())

    def pairs(self) -> list[tuple[dict[str, Any] | None, dict[str, Any] | None]]:
        """(row of the mirror, row of the scan) of each key."""
        return [(row["mirror"], row["source"]) for row in self.rows.to_pylist()]


def shard_of(row: dict[str, Any]) -> str:
    """The shard of a row out of `Mismatches.pairs`."""
    return str(row[_SHARD])


def mismatches(
    mirror: DataFrame,
    source: DataFrame | None,
    *,
    key: Sequence[str],
    columns: Sequence[str],
    shard_in_key: bool,
    limit: int,
) -> Mismatches:
    """Compare two tables by key.

    Args:
        mirror: the mirrored table, with `_token`.
        source: the scan of the source, with `_token`; None if it has no rows.
        key: columns that identify a row.
        columns: columns to compare, the key's included.
        shard_in_key: whether two shards may hold the same key.
        limit: most rows to bring back.
    """
    from pyspark.sql import functions as fn

    left = _side(mirror, columns)
    right = _side(source if source is not None else mirror.limit(0), columns)
    joined_by = [*key, _SHARD] if shard_in_key else list(key)
    m, s = left.alias("m"), right.alias("s")

    def of(side: str, name: str) -> Column:
        return fn.col(f"{side}.{_quoted(name)}")

    on = [of("m", name) == of("s", name) for name in joined_by]
    kinds = {field.name: field.dataType.typeName() for field in left.schema.fields}
    same = of("m", _THERE).isNotNull() & of("s", _THERE).isNotNull()
    for name in columns:
        a, b = of("m", name), of("s", name)
        if kinds[name] in {"float", "double"}:  # whose == takes -0.0 for 0.0
            a, b = a.cast("string"), b.cast("string")
        same = same & a.eqNullSafe(b)
    odd = m.join(s, on, "full_outer").where(~same)
    shown = [*columns, _SHARD]
    sides = odd.select(
        *(
            fn.when(of(side, _THERE).isNotNull(), fn.struct(*(of(side, n) for n in shown))).alias(
                name
            )
            for side, name in (("m", "mirror"), ("s", "source"))
        )
    ).persist()
    try:
        return Mismatches(count=sides.count(), rows=sides.limit(limit).toArrow())
    finally:
        sides.unpersist()


def changes_of_keys(
    spark: SparkSession,
    changes: DataFrame | None,
    keys: Sequence[Mapping[str, Any]],
    key: Sequence[str],
) -> list[dict[str, Any]]:
    """The changes that have one of these keys before or after them; one may come twice.

    Args:
        spark: the session.
        changes: rows as core.change.change_schema has them; None if there are none.
        keys: values of the key's columns.
        key: their names.
    """
    from pyspark.sql import functions as fn

    if changes is None:
        return []
    found: list[dict[str, Any]] = []
    for image in ("before", "after"):
        columns = [fn.col(f"{image}.{_quoted(name)}") for name in key]
        kinds = changes.select(*columns).schema
        wanted = spark.createDataFrame([tuple(k[name] for name in key) for k in keys], kinds)
        names = [f"ratchet_key_{n}" for n in range(len(key))]
        on = [fn.col(name) == column for name, column in zip(names, columns, strict=True)]
        hits = changes.join(fn.broadcast(wanted.toDF(*names)), on, "left_semi")
        found += hits.toArrow().to_pylist()
    return found


def _side(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as fn

    return frame.select(
        *(fn.col(_quoted(name)) for name in columns),
        fn.col(f"{_quoted(TOKEN_COLUMN)}.shard").alias(_SHARD),
        fn.lit(True).alias(_THERE),
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
