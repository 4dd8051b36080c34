"""Rows of a change file in the columns that a table has now. Pure."""

from __future__ import annotations

import pyarrow as pa


def fitted_table(found: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The rows in those columns, and in those fields of structs, by name.

    Those that they lack are null, others are dropped.
    """
    # By place: a look for a name goes through all of them, and a table may have a thousand.
    places = {name: place for place, name in enumerate(found.column_names)}
    columns = [
        found[places[field.name]].combine_chunks().cast(field.type)
        if field.name in places
        else pa.nulls(found.num_rows, field.type)
        for field in wanted
    ]
    return pa.table(columns, wanted)
