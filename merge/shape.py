"""A table as the merge sees it: names, types and keys, once per table and step. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from ratchet.core.change import TOKEN_TYPE, change_schema
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.merge import sql

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Shape:
    """A mirrored table's shape.

    Attributes:
        schema: the source's description.
        columns: the lake's columns without the token.
        key: the columns that identify a row, in the key's order.
        many_shards: whether rows of several shards meet in the table.
        shard_in_key: whether two shards may hold the same key for good.
    """

    schema: TableSchema
    columns: pa.Schema
    key: tuple[str, ...]
    many_shards: bool
    shard_in_key: bool

    @classmethod
    def of(
        cls,
        schema: TableSchema,
        policy: InvalidValuePolicy,
        *,
        key: tuple[str, ...],
        many_shards: bool,
        shard_in_key: bool,
    ) -> Shape:
        """The shape of a table under a policy for values that Delta cannot hold."""
        return cls(schema, arrow_schema(schema, policy), key, many_shards, shard_in_key)

    @property
    def name(self) -> str:
        """keyspace.table, for messages."""
        return self.schema.name

    @property
    def contested(self) -> bool:
        """Whether two shards may come to hold a key at the same time, and one must be shown."""
        return self.many_shards and not self.shard_in_key

    @cached_property
    def key_list(self) -> str:
        """The key's columns under the names they have inside our queries: k0, k1 ...

        Never under their own: a source's column may be called `shard` or `token`.
        """
        return ", ".join(self._aliases)

    @cached_property
    def key_struct(self) -> str:
        """k0, k1 ... as a struct under the columns' own names."""
        pairs = zip(self.key, self._aliases, strict=True)
        return "named_struct(" + ", ".join(f"{sql.text(n)}, {a}" for n, a in pairs) + ")"

    def key_from(self, *path: str) -> str:
        """The key's columns of a row (a table, or a struct in it) as k0, k1 ..."""
        pairs = zip(self.key, self._aliases, strict=True)
        return ", ".join(f"{sql.field(*path, name)} AS {alias}" for name, alias in pairs)

    def row_has_key(self, row: str, change: str) -> str:
        """The condition that a row of the mirrored table has the key of a change."""
        left = [f"{row}.{sql.quoted(name)}" for name in self.key]
        return self._equal(left, [f"{change}.{alias}" for alias in self._aliases])

    def same_key(self, left: str, right: str) -> str:
        """The condition that two of our own queries' rows have the same key."""
        return self._equal(
            [f"{left}.{alias}" for alias in self._aliases],
            [f"{right}.{alias}" for alias in self._aliases],
        )

    @property
    def _aliases(self) -> list[str]:
        return [f"k{at}" for at in range(len(self.key))]

    def _equal(self, left: list[str], right: list[str]) -> str:
        # Null-safe only where it must be: Delta skips no files for <=>.
        nullable = {column.name for column in self.schema.columns if column.nullable}
        return " AND ".join(
            f"{a} {'<=>' if name in nullable else '='} {b}"
            for name, a, b in zip(self.key, left, right, strict=True)
        )

    @cached_property
    def change_type(self) -> StructType:
        """How Spark reads change files of this shape."""
        return spark_schema(change_schema(self.columns))

    @cached_property
    def row_ddl(self) -> str:
        """The type of a whole row as Spark SQL text."""
        return struct_ddl(spark_schema(self.columns))

    @cached_property
    def key_ddl(self) -> str:
        """The type of a key as Spark SQL text."""
        return struct_ddl(spark_schema(pa.schema([self.columns.field(name) for name in self.key])))

    @cached_property
    def side_schema(self) -> pa.Schema:
        """The side table's columns (merge.side)."""
        return pa.schema(
            [
                pa.field("key", pa.struct([self.columns.field(name) for name in self.key])),
                pa.field("shard", pa.string()),
                pa.field("kind", pa.int8()),
                pa.field("token", TOKEN_TYPE),
                pa.field("row", pa.struct(list(self.columns))),
                pa.field("round", pa.int64()),
                pa.field("written_at", pa.timestamp("us", tz="UTC")),
            ]
        )


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def struct_ddl(kind: StructType) -> str:
    """A struct type as text for `CAST(x AS ...)`; names are quoted."""
    inner = ", ".join(f"{sql.quoted(f.name)}: {f.dataType.simpleString()}" for f in kind.fields)
    return f"struct<{inner}>"
