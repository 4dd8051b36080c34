"""Whether a mirrored table still has its source's columns, types and key, whatever its rows are.

Does not live here: whether a change of shape has left values alone (`merge.ddl`), comparing rows
(`snapshot.verify`).
"""

from __future__ import annotations

from ratchet.core.types import arrow_schema
from ratchet.jobs.inspect.reading import ReadOptions
from ratchet.snapshot.records import TableDumpRequest
from ratchet.snapshot.source_df import source_tables
from ratchet.store.tables import TableState


def unlike(state: TableState, wanted: TableDumpRequest, reading: ReadOptions) -> str:
    """Why a table's columns are no longer the source's; empty if they are.

    Columns that the mirror lacks are left to the comparison: it knows whether they have values.

    Raises:
        TableStoppedError: the table is gone, or differs between shards.
        RetryableError: a server does not answer.
    """
    policy = reading.settings.policy
    tables, come = source_tables(wanted, reading.shards, policy)
    have = arrow_schema(state.whole, policy)
    gone = [name for name in have.names if name not in come.names]
    changed = [
        f"{name} from {have.field(name).type} to {come.field(name).type}"
        for name in have.names
        if name in come.names and have.field(name).type != come.field(name).type
    ]
    keys = {table.schema.key for table in tables.values()}
    if gone:
        return f"the source no longer has column {', '.join(gone)}"
    if changed:
        return f"its columns have other types at the source: {', '.join(changed)}"
    if any(set(key) != set(state.schema.key) for key in keys):
        now = "; ".join(sorted(", ".join(key) for key in keys))
        return f"its key was ({', '.join(state.schema.key)}) and is ({now}) at the source"
    return ""
