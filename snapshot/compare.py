"""Comparing a mirrored table with a scan of its source: by fingerprints, then key by key.

Lives here: which columns are compared; which buckets differ; and of those, where they have many
rows, the full outer join on the key, in Spark. Does not live here: the same of few rows
(`localjoin`), why a key differs (`judge`).

Invariant: a key is the same if and only if mirror and source have one row of it each, with the same
print, under a name that is right for its shard.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import pyarrow as pa

from ratchet.core.change import TOKEN_COLUMN
from ratchet.snapshot.localjoin import few_mismatches, no_mismatches
from ratchet.snapshot.mirror import MirrorFingerprint, MirrorReader, Sorter
from ratchet.snapshot.pairs import NO_SHARD, Pair
from ratchet.snapshot.prints import PRINT, SHARD, RowHasher, ShardOrigins, every_bucket, odd_buckets
from ratchet.snapshot.source_df import ScanColumns, SourceScan
from ratchet.store.delta.tables import quoted
from ratchet.store.files import Lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_THERE: Final = "ratchet there "
_COPIES: Final = "ratchet copies "
GROUP: Final = 20_000  # keys that are looked at together
FEW_ROWS: Final = 100_000  # on either side, that are joined in this process


class Mismatches(Protocol):
    """Keys for which mirror and scan differ, in groups that fit into memory. To be closed."""

    count: int

    def groups(self, limit: int) -> Iterator[list[Pair]]:
        """At most so many of them, all rows of a key in one group."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class ManyMismatches:
    """Such that Spark holds.

    Args:
        odd: a row for each, as `many_mismatches` makes it.
        key: columns that identify a row.
        columns: the mirror's columns in it.
    """

    def __init__(self, odd: DataFrame, *, key: Sequence[str], columns: Sequence[str]) -> None:
        self._odd = odd.persist()
        self._key, self._columns = key, columns
        self.count: int = self._odd.count()

    def groups(self, limit: int) -> Iterator[list[Pair]]:
        """See Mismatches."""
        from pyspark.sql import functions as fn

        number = -(-self.count // GROUP)
        left = limit
        for n in range(number):
            if left <= 0:
                return
            keys = [f"k{i}" for i, _ in enumerate(self._key)]
            group = self._odd.where(fn.pmod(fn.hash(*keys), fn.lit(number)) == n).limit(left)
            rows = group.toArrow().to_pylist()
            left -= len(rows)
            if rows:
                yield [_pair(row, key=self._key, columns=self._columns) for row in rows]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._odd.unpersist()


class TableComparison:
    """Mirror and source of one table, and what of them is compared."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        mirror: MirrorReader,
        columns: pa.Schema,
        *,
        key: Sequence[str],
        homes: ShardOrigins,
        shard_in_key: bool,
    ) -> None:
        self._spark, self._lake, self._mirror = spark, lake, mirror
        self._key, self._homes, self._shard_in_key = tuple(key), homes, shard_in_key
        there = set(mirror.columns.names)
        self.names = tuple(name for name in columns.names if name in there)
        self.lacking = tuple(name for name in columns.names if name not in there)
        self.extra = tuple(
            name for name in mirror.columns.names if name not in {*self.names, TOKEN_COLUMN}
        )
        self._printer = RowHasher(
            types=pa.schema([columns.field(name) for name in self.names]), key=self._key
        )
        self._sorter = Sorter(printer=self._printer, homes=homes, shard_in_key=shard_in_key)

    @property
    def kept(self) -> ScanColumns:
        """What the scan makes of a row."""
        return ScanColumns(
            printer=self._printer,
            columns=(*self._key, *self.lacking),
            homes=self._homes,
            shard_in_key=self._shard_in_key,
        )

    def filled(self, scan: SourceScan) -> tuple[str, ...]:
        """Those of the columns that the mirror lacks that are not NULL in every row."""
        return scan.filled(self._lake, self.lacking)

    def printed(self, halt: threading.Event) -> MirrorFingerprint:
        """The mirror's fingerprint; when told to halt, that of some rows."""
        batches = self._mirror.batches(self.names)
        return self._sorter.printed(takewhile(lambda _: not halt.is_set(), batches))

    def compared(self, printed: MirrorFingerprint, scan: SourceScan) -> Mismatches:
        """The keys that differ; to be closed."""
        odd = odd_buckets(printed.fingerprint, scan.fingerprint)
        if self._homes.are_shared(printed.shards):
            odd = every_bucket()  # of a row under such a name no print tells whose it should be
        if not odd.any():
            return no_mismatches()
        sides = (printed.fingerprint, scan.fingerprint)
        if max(side.rows_in(odd) for side in sides) <= FEW_ROWS:
            few = self._mirror.few_odd_rows(self._sorter, self.names, odd)
            if few is not None:
                return few_mismatches(
                    few,
                    scan.few_odd_rows(self._lake, few.schema, self._key, odd),
                    key=self._key,
                    columns=self.names,
                    shard_in_key=self._shard_in_key,
                    homes=self._homes,
                )
        return many_mismatches(
            self._mirror.odd_rows(
                self._spark,
                self._sorter,
                self.names,
                odd=odd,
                count=printed.fingerprint.rows_in(odd),
                folder=scan.folder,
            ),
            scan.odd_rows(self._spark, self._lake, self._key, odd),
            key=self._key,
            columns=self.names,
            shard_in_key=self._shard_in_key,
            homes=self._homes,
        )


def many_mismatches(
    mirror: DataFrame,
    source: DataFrame | None,
    *,
    key: Sequence[str],
    columns: Sequence[str],
    shard_in_key: bool,
    homes: ShardOrigins,
) -> ManyMismatches:
    """Compare rows by key, in Spark; what it gives is to be closed.

    Args:
        mirror: rows of the mirror, with `SHARD` and `PRINT`; of a key all rows or none.
        source: rows of the scan, with the key's columns, `SHARD` and `PRINT`; likewise. None if
            there are none.
        key: columns that identify a row.
        columns: the mirror's columns to bring back, the key's included.
        shard_in_key: whether two shards may hold the same key.
        homes: under which names a shard's rows may stand.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    joined_by = [*key, SHARD] if shard_in_key else list(key)
    per_key = Window.partitionBy(*(fn.col(quoted(name)) for name in joined_by))
    left = mirror.withColumn(_COPIES, fn.count(fn.lit(1)).over(per_key))
    m = left.withColumn(_THERE, fn.lit(True)).alias("m")
    if source is None:
        source = mirror.limit(0)
    s = source.withColumn(_THERE, fn.lit(True)).alias("s")

    def of(side: str, name: str) -> Column:
        return fn.col(f"{side}.{quoted(name)}")

    on = [of("m", name) == of("s", name) for name in joined_by]
    both = of("m", _THERE).isNotNull() & of("s", _THERE).isNotNull()
    alike = both & (of("m", PRINT) == of("s", PRINT))
    same = alike & (of("m", _COPIES) == 1)
    for shard, names in (homes.names or {}).items():
        at_home = fn.coalesce(of("m", SHARD).isin(*names), fn.expr("false"))
        same = same & ((of("s", SHARD) != shard) | at_home)
    odd = (
        m.join(s, on, "full_outer")
        .where(~same)
        .select(
            *(of("m", name).alias(f"m{n}") for n, name in enumerate(columns)),
            *(fn.coalesce(of("m", k), of("s", k)).alias(f"k{n}") for n, k in enumerate(key)),
            of("m", _THERE).isNotNull().alias("mirrored"),
            of("s", _THERE).isNotNull().alias("scanned"),
            alike.alias("alike"),
            of("m", _COPIES).alias("copies"),
            of("m", SHARD).alias("m_shard"),
            of("s", SHARD).alias("s_shard"),
        )
    )
    return ManyMismatches(odd, key=key, columns=columns)


def _pair(row: Mapping[str, Any], *, key: Sequence[str], columns: Sequence[str]) -> Pair:
    mirror = {name: row[f"m{n}"] for n, name in enumerate(columns)} if row["mirrored"] else None
    return Pair(
        mirror=mirror,
        key={name: row[f"k{n}"] for n, name in enumerate(key)},
        shard=(row["s_shard"] if mirror is None else row["m_shard"]) or NO_SHARD,
        copies=row["copies"] or 0,
        scanned=row["scanned"],
        alike=bool(row["alike"]),
    )
