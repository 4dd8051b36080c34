"""Whether the mirror is the source, read by neither Ratchet nor Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench.lib.following import DATABASE
from bench.soak.fleet import BEAT, BLOBS, tables_of
from lab.servers import Server

_NAMES: Final = "id, name, code, amount, price, placed"
# What is asked of tables with other columns: of the source, and of the mirror.
_OTHERS: Final = {
    BEAT: ("id, at", "id, at"),
    BLOBS: ("id, SHA2(v, 256)", "id, encode(sha256(v), 'hex') AS v"),
}
_WHOLE: Final = "id, name, code, amount, price, CAST(UNIX_TIMESTAMP(placed) * 1000000 AS SIGNED)"


def differences(lake: Path | str, keyspace: str, server: Server) -> tuple[int, dict[str, str]]:
    """Rows that were compared, and what is wrong, by table.

    Args:
        lake: its folder, or its address.
        keyspace: of the server.
        server: nobody writes to it.
    """
    compared, wrong = 0, {}
    for table in tables_of(server):
        columns = _OTHERS.get(table, (_WHOLE,))[0]
        with server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(f"SELECT {columns} FROM {table}")
            expected = {tuple(row) for row in cursor.fetchall()}
        found = _rows(f"{lake}/{keyspace}/{table}", table)
        compared += len(expected)
        missing, extra = expected - set(found), set(found) - expected
        if missing or extra or len(found) != len(expected):
            wrong[table] = (
                f"{len(missing)} rows missing, {len(extra)} extra, {len(found)} instead of "
                f"{len(expected)}; such as {sorted(missing)[:2]} and {sorted(extra)[:2]}"
            )
    return compared, wrong


def _rows(folder: str, table: str) -> list[tuple[object, ...]]:
    options = {"AWS_ALLOW_HTTP": "true"} if "://" in folder else None
    query = QueryBuilder().register("t", DeltaTable(folder, storage_options=options))
    names = _OTHERS[table][1] if table in _OTHERS else _NAMES
    found = pa.table(query.execute(f"SELECT {names} FROM t").read_all())
    if table not in _OTHERS:
        moments = found["placed"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        found = found.set_column(5, "placed", moments)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))
