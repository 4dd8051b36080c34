"""Reading the data files of Delta tables, whoever wrote them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.store.files import Lake


def parquet_file(lake: Lake, stream: pa.NativeFile) -> PlainFile:
    """A data file of a table, opened.

    Args:
        lake: where it lies: from an object store what is close together is read by one request, and
            what is not at the same time.
        stream: the file.
    """
    # Spark's timestamps have 96 bits, whose years end in 2262 if they are read in nanoseconds.
    return PlainFile(stream, coerce_int96_timestamp_unit="us", pre_buffer=not lake.is_local)


class PlainFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """A Parquet file whose rows never come as views.

    delta-rs notes in its files that their texts and bytes were views. pyarrow then reads them as
    views, of which it can pick no rows.
    """

    def read(self, *args: Any, **options: Any) -> pa.Table:
        """The whole file."""
        return _without_views(super().read(*args, **options))

    def read_row_group(self, *args: Any, **options: Any) -> pa.Table:
        """One row group."""
        return _without_views(super().read_row_group(*args, **options))

    def read_row_groups(self, *args: Any, **options: Any) -> pa.Table:
        """Some row groups."""
        return _without_views(super().read_row_groups(*args, **options))


def _without_views(rows: pa.Table) -> pa.Table:
    types = [_without_view(field.type) for field in rows.schema]
    if types == rows.schema.types:
        return rows
    fields = [field.with_type(kind) for field, kind in zip(rows.schema, types, strict=True)]
    return rows.cast(pa.schema(fields, rows.schema.metadata))


def _without_view(kind: pa.DataType) -> pa.DataType:
    if kind == pa.string_view():
        return pa.string()
    if kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_view(field.type)) for field in kind])
    return kind
