"""The form of a change in the change log, and of the token column in a mirrored table.

A change file is Parquet; each row is one row change with its token and its images. The files of
one table and schema share one Arrow schema (`change_schema`).
"""

from __future__ import annotations

import pyarrow as pa

INSERT, UPDATE, DELETE = 1, 2, 3

# A column of captured changes: whether the server's storage engine looked at the foreign keys that
# refer to the row, so that it may have changed rows of other tables without a word in the log.
# Change files of earlier versions lack it.
SILENT_COLUMN = "silent"

TOKEN_COLUMN = "_token"  # noqa: S105 - a column's name

# A dumped row's token stands behind every row change of the last transaction inside its chunk's
# floor: its idx is FLOOR_IDX + the chunk's number. No transaction has that many row changes.
FLOOR_IDX = 1 << 40

# A repaired row's token stands at the end of the cut that it was repaired at, behind every dumped
# row of that `seq`: its idx is REPAIR_IDX + the repair's number. No dump has that many chunks, and
# in merge.sql.floor_seq the difference to FLOOR_IDX still is an int.
REPAIR_IDX = FLOOR_IDX + (1 << 30)

TOKEN_TYPE = pa.struct(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("shard", pa.string()),
        pa.field("gtid", pa.string()),
        pa.field("generation", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("idx", pa.int64()),
    ]
)


def change_schema(columns: pa.Schema) -> pa.Schema:
    """The Arrow schema of a change file over a table's own columns.

    Columns: op (INSERT, UPDATE, DELETE), token (as in the table, see TOKEN_TYPE), before (the row's
    image before the change, null for inserts), after (the image after it, null for deletes).
    """
    image = pa.struct([field.with_nullable(True) for field in columns])
    return pa.schema(
        [
            pa.field("op", pa.int8(), nullable=False),
            pa.field("token", TOKEN_TYPE, nullable=False),
            pa.field("before", image),
            pa.field("after", image),
        ]
    )


def captured_schema(columns: pa.Schema) -> pa.Schema:
    """The same, and what capture says besides of each change (SILENT_COLUMN)."""
    return change_schema(columns).append(pa.field(SILENT_COLUMN, pa.bool_(), nullable=False))
