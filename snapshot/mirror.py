"""Reading a mirrored table for a verification: its fingerprint, and the rows of some buckets.

Lives here: the mirror's side. It is read by deltalake's engine, in this process: 2,000,000 rows of
six columns take it 0.3 s of processor time; handing them from Spark to Python takes 4 s (decision
0052). Does not live here: prints (`prints`), the comparison (`compare`).

Invariant: what is read is one version of the table, with its deletion vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.core.change import TOKEN_COLUMN
from ratchet.core.errors import LakeError
from ratchet.snapshot.prints import (
    PRINT,
    SHARD,
    Fingerprint,
    Flags,
    RowHasher,
    ShardOrigins,
    Tally,
    Words,
)
from ratchet.snapshot.prints import shard_print as print_of
from ratchet.store.delta.tables import BATCH_ROWS, open_delta, query, quoted, row_bytes
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_GROUP_BYTES: Final = 16 << 20
_BATCH_BYTES: Final = 4 << 20  # of a batch that is read, as the files hold it
_BATCH_ROWS: Final = 1 << 17  # the most in it: read so, narrow rows cost a third less to print
_MOST_HELD: Final = 64 << 20  # bytes of odd rows that are held in memory
_IN_PROCESS: Final = 2_000_000  # odd rows that are written here; more are left to Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAt:
    """A mirrored Delta table at one version.

    Attributes:
        path: its folder in the lake.
        version: the version.
    """

    path: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBounds:
    """The lowest and the highest value of a column, as the lake orders them; both are inside.

    Attributes:
        column: its name.
        low: of the column's type in the mirror; not NULL.
        high: likewise.
    """

    column: str
    low: pa.Scalar
    high: pa.Scalar

    @property
    def condition(self) -> str:
        """As deltalake's SQL has it."""
        name = f"t.{_identifier(self.column)}"
        return f"{name} >= {_literal(self.low)} AND {name} <= {_literal(self.high)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFingerprint:
    """A mirror's fingerprint.

    Attributes:
        fingerprint: see there.
        shards: the names that its rows stand under; "" for rows that have lost their token.
    """

    fingerprint: Fingerprint
    shards: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorter:
    """Prints rows of a mirror, and picks those of some buckets.

    Attributes:
        printer: prints a row.
        homes: what the shards' names add.
        shard_in_key: whether two shards may hold the same key.
    """

    printer: RowHasher
    homes: ShardOrigins
    shard_in_key: bool

    def printed(self, batches: Iterable[pa.RecordBatch]) -> MirrorFingerprint:
        """The fingerprint of these rows, which have the printer's columns and `SHARD`."""
        tally, seen = Tally(), set[str]()
        for batch in batches:
            names, number = _shards(batch)
            seen.update(names)
            homes = self.homes.of_rows(names)
            tally.rows(
                self.printer.prints(batch),
                self._buckets(batch, names, number),
                np.array([homes[name] for name in names], np.uint64)[number],
            )
        return MirrorFingerprint(fingerprint=tally.fingerprint, shards=frozenset(seen))

    def picked(self, batches: Iterable[pa.RecordBatch], odd: Flags) -> Iterator[pa.RecordBatch]:
        """The rows of these buckets, with `PRINT` behind their columns."""
        for batch in batches:
            few = batch.filter(pa.array(odd[self._buckets(batch, *_shards(batch))]))
            if few.num_rows:
                prints = pa.array(self.printer.prints(few).view(np.int64))
                yield pa.record_batch([*few.columns, prints], names=[*few.schema.names, PRINT])

    def _buckets(self, batch: pa.RecordBatch, names: Sequence[str], number: Words) -> Words:
        if not self.shard_in_key:
            return self.printer.buckets(batch)
        shards = np.array([print_of(name) for name in names], np.uint64)
        return self.printer.buckets(batch, shards[number])


def _shards(batch: pa.RecordBatch) -> tuple[list[str], Words]:
    """The names of shards in a batch, and for each row the number of its own."""
    coded = batch.column(SHARD).cast(pa.string()).fill_null("").dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy()


class MirrorReader:
    """One version of a mirrored table.

    Raises:
        LakeError: there is no such table, or it cannot be read.
    """

    def __init__(self, lake: Lake, at: MirrorAt) -> None:
        self._lake, self._at = lake, at
        table = open_delta(lake, at.path, at.version)
        if table is None:
            raise LakeError(
                f"the Delta table {at.path} is gone",
                operation="verify",
                hint="dump it again (`ratchet table CONFIG redump TABLE`)",
            )
        self._table: DeltaTable = table
        self.columns: pa.Schema = pa.schema(table.schema().to_arrow())

    def batches(
        self, names: Sequence[str], bounds: Sequence[ColumnBounds] = ()
    ) -> Iterator[pa.RecordBatch]:
        """All rows, or those within all of some bounds: these columns and `SHARD`."""
        wanted = ", ".join(f"t.{_identifier(name)}" for name in names)
        sql = f"SELECT {wanted}, t.{_identifier(TOKEN_COLUMN)}['shard'] FROM t"
        if bounds:
            sql += " WHERE " + " AND ".join(one.condition for one in bounds)
        schema = self._schema(names)
        for batch in query(self._table, self._at.path, sql, batch_rows=self._batch_rows()):
            columns = zip(batch.columns, schema.types, strict=True)  # some are of view types
            yield pa.record_batch([c.cast(kind) for c, kind in columns], schema=schema)

    def _batch_rows(self) -> int:
        size = row_bytes(self._table)
        if size is None:
            return BATCH_ROWS
        return int(max(1, min(_BATCH_BYTES / max(size, 1), _BATCH_ROWS)))

    def _schema(self, names: Sequence[str]) -> pa.Schema:
        fields = [self.columns.field(name) for name in names]
        return pa.schema([*fields, pa.field(SHARD, pa.string())])

    def few_odd_rows(self, sorter: Sorter, names: Sequence[str], odd: Flags) -> pa.Table | None:
        """What `odd_rows` gives, in memory; None: it is too much for that."""
        found, size = [], 0
        for batch in sorter.picked(self.batches(names), odd) if odd.any() else ():
            found.append(batch)
            size += batch.nbytes
            if size > _MOST_HELD:
                return None
        schema = self._schema(names).append(pa.field(PRINT, pa.int64()))
        return pa.Table.from_batches(found, schema).combine_chunks()

    def odd_rows(
        self,
        spark: SparkSession,
        sorter: Sorter,
        names: Sequence[str],
        *,
        odd: Flags,
        count: int,
        folder: str,
    ) -> DataFrame:
        """The rows of some buckets: these columns, `SHARD` and `PRINT`.

        Args:
            spark: the session.
            sorter: tells the buckets.
            names: the columns.
            odd: a flag for each bucket.
            count: how many rows there are in them.
            folder: where they may be written to.
        """
        if count > _IN_PROCESS:
            return self._picked_by_spark(spark, sorter, names, odd)
        path = f"{folder}/mirror.parquet"
        schema = self._schema(names).append(pa.field(PRINT, pa.int64()))
        with (
            lake_errors("write a file", path),
            self._lake.open_output(path) as sink,
            pq.ParquetWriter(sink, schema, store_schema=False) as writer,
        ):
            for group in _groups(sorter.picked(self.batches(names), odd)):
                writer.write_table(group)
        return spark.read.parquet(self._lake.hadoop_uri(path))

    def _picked_by_spark(
        self, spark: SparkSession, sorter: Sorter, names: Sequence[str], odd: Flags
    ) -> DataFrame:
        from pyspark.sql import functions as fn
        from pyspark.sql.types import LongType, StructField, StructType

        reader = spark.read.format("delta").option("versionAsOf", self._at.version)
        rows = reader.load(self._lake.hadoop_uri(self._at.path)).select(
            *(fn.col(quoted(name)) for name in names),
            fn.col(f"{quoted(TOKEN_COLUMN)}.shard").alias(SHARD),
        )
        schema = StructType([*rows.schema.fields, StructField(PRINT, LongType())])
        return rows.mapInArrow(partial(sorter.picked, odd=odd), schema)


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in row groups of a bounded size."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting.clear()
            size = 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _identifier(name: str) -> str:
    """An identifier as deltalake's SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def _literal(value: pa.Scalar) -> str:
    """A value as deltalake's SQL has it, of exactly its type."""
    kind, plain = value.type, value.as_py()
    if isinstance(plain, str):
        return "'" + plain.replace("'", "''") + "'"
    if isinstance(plain, bytes):
        return f"X'{plain.hex()}'"
    if pa.types.is_timestamp(kind):
        zone = 'Some("UTC")' if kind.tz else "None"
        text = plain.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        return f"arrow_cast('{text}', 'Timestamp(Microsecond, {zone})')"
    if pa.types.is_decimal(kind):
        return f"arrow_cast('{plain:f}', 'Decimal128({kind.precision}, {kind.scale})')"
    name = "Date32" if pa.types.is_date(kind) else str(kind).capitalize()
    return f"arrow_cast('{plain}', '{name}')"
