"""Table schemas by fingerprint, stored once and never changed.

Invariant: a change file's schema is in the store before the round that names the file is committed.
"""

from __future__ import annotations

from ratchet.core.errors import LakeError
from ratchet.core.schema import TableSchema, fingerprint_of
from ratchet.core.shell import redump
from ratchet.store import layout
from ratchet.store.failures import sound
from ratchet.store.files import Lake


def put_schema(lake: Lake, schema: TableSchema) -> str:
    """Store a schema unless it is there; gives its fingerprint."""
    fingerprint = schema.fingerprint
    lake.create_json(
        layout.schema_path(schema.keyspace, schema.table, fingerprint), schema.to_json()
    )
    return fingerprint


def get_schema(lake: Lake, keyspace: str, table: str, fingerprint: str) -> TableSchema:
    """Read a schema back.

    Raises:
        LakeError: it is missing or damaged.
    """
    path = layout.schema_path(keyspace, table, fingerprint)
    found = lake.read_json(path)
    if found is None:
        raise LakeError(
            f"schema {fingerprint} is missing",
            operation="read a table's schema",
            table=f"{keyspace}.{table}",
            hint="restore _ratchet/schemas, or dump the table again "
            f"({redump(f'{keyspace}.{table}')})",
        )
    with sound(path):
        if fingerprint_of(found) != fingerprint:
            raise ValueError("it is another schema")  # as of a file that was put in its place
        return TableSchema.from_json(found)
