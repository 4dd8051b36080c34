"""Rows of a change file in the columns that a table has now. Pure."""

from __future__ import annotations

import pyarrow as pa


def fitted_table(found: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The rows in those columns, and in those fields of structs, by name.

    Those that they lack are null, others are dropped.
    """
    columns = [
        found[name].combine_chunks().cast(wanted.field(name).type)
        if name in found.column_names
        else pa.nulls(found.num_rows, wanted.field(name).type)
        for name in wanted.names
    ]
    return pa.table(columns, wanted)
