"""Columns that came in the source, brought into the mirrored table and its side table.

Lives here: the two Delta commits. Does not live here: which columns may come without a new dump
(`alter`, `plan`).

Invariant: done again, it changes nothing; a table with a column too many is harmless, as long as
nothing is merged into it that does not know the column: until then it is NULL in every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from merge.delta import plain_session, read_delta
from merge.shape import Shape, spark_schema
from merge.sql import quoted
from store.delta_tables import table_version
from store.files import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

_NTZ = "timestamp_ntz"


def add_columns(spark: SparkSession, lake: Lake, shape: Shape, *, path: str, side: str) -> None:
    """Bring the columns of a shape that the tables lack into them.

    Args:
        spark: any session of the application.
        lake: the lake.
        shape: the table's shape as it is to be.
        path: the mirrored table, relative to the lake.
        side: its side table, which may not be there.
    """
    wanted = spark_schema(shape.columns)
    session = plain_session(spark)
    for where, prefix in ((path, ""), (side, "row.")):
        if not table_version(lake, where):
            continue
        uri = lake.hadoop_uri(where)
        have = read_delta(session, uri).schema
        missing = _missing(wanted, _row_of(have) if prefix else have)
        if not missing:
            continue
        table = f"delta.{quoted(uri)}"
        if any(field.dataType.simpleString() == _NTZ for field in missing):
            session.sql(
                f"ALTER TABLE {table} "
                "SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')"
            )
        columns = ", ".join(
            f"{prefix}{quoted(field.name)} {field.dataType.simpleString()}" for field in missing
        )
        session.sql(f"ALTER TABLE {table} ADD COLUMNS ({columns})")


def _row_of(side: StructType) -> StructType:
    found = side["row"].dataType
    assert hasattr(found, "fields")  # noqa: S101 - Shape.side_schema makes it a struct
    return found  # type: ignore[return-value] # as asserted


def _missing(wanted: StructType, have: StructType) -> list[StructField]:
    names = {field.name for field in have.fields}
    return [field for field in wanted.fields if field.name not in names]
