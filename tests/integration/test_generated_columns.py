"""The dump knows whether a table has generated columns, and whether its key is the primary key."""

from __future__ import annotations

from typing import Any

from capture_kit import source_of

from lab.servers import Server
from ratchet.snapshot.source import SourceCatalog


def test_a_table_tells_whether_it_has_generated_columns(server: Server, database: str) -> None:
    tables = {
        "plain": "id INT PRIMARY KEY, a INT DEFAULT 5, b TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP",
        "virtual": "id INT PRIMARY KEY, a INT AS (id + 1) VIRTUAL",
        "stored": "id INT NOT NULL, a INT AS (id + 1) STORED, UNIQUE KEY u (id)",
    }
    for name, columns in tables.items():
        server.execute(f"CREATE TABLE `{database}`.`{name}` ({columns})")
    catalog = SourceCatalog({"shop/-": source_of(server, database)})
    found: dict[str, Any] = {name: catalog.table("shop/-", name) for name in tables}
    assert {name: one.generated for name, one in found.items()} == {
        "plain": False,
        "virtual": True,
        "stored": True,
    }
    assert [name for name, one in found.items() if one.recomputed] == ["stored"]
    assert [found[name].plan.index for name in tables] == ["PRIMARY", "PRIMARY", "u"]
