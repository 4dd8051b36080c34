"""Bytes of the servers to Arrow columns: kernels over arrays, each with a plain twin.

What callers use: `rows.RowImageDecoder` over `tablemap.parse_table_map` for the log,
`text.TextRowDecoder` for result sets, `catalog` for information_schema, `warm.warm` at start.

Inside, a walk notes where each value lies (`plan`, `kernels.walk`), and a reader for each family
of types turns a column's places into an Arrow array (`logcolumns`, `textcolumns`, `columns`) with
the kernels of `kernels`, `charsets` and `jsonb`. `engine` chooses between kernels and twins. Why it
is done so: docs/decisions/0030-row-decoding.md. Does not live here: connections, events,
transactions.

Invariant: any bytes whatever decode, or raise one of core.errors; the log and the text protocol
give the same Arrow values for the same row.
"""
