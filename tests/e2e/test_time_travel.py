"""Cuts: each one is a moment of the source over all tables, found by time, GTID or round."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet

from lab.servers import create_ratchet_user


def _sql(ratchet: Ratchet, query: str, *args: str) -> list[dict[str, Any]]:
    out = ratchet.run("sql", query, "--format", "json", *args).stdout
    found: list[dict[str, Any]] = json.loads(out)
    return found


@pytest.mark.long
def test_a_cut_holds_both_tables_of_a_transaction(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Money moved between two tables is never in both nor in neither, at any cut."""
    with server.connect(database=database, autocommit=True) as connection:
        cursor = connection.cursor()
        for table in ("left_side", "right_side"):
            cursor.execute(
                f"CREATE TABLE {table} (id INT NOT NULL PRIMARY KEY, amount INT NOT NULL)"
            )
            cursor.execute(f"INSERT INTO {table} VALUES (1, 500)")
    create_ratchet_user(server, PASSWORD, [database])
    ratchet = make_ratchet({"-": server}, database, capture={"round_seconds": 0.2})
    ratchet.run("run", "--until-caught-up")
    first = datetime.now(UTC)
    with server.connect(database=database, autocommit=False) as connection:
        for _ in range(300):
            cursor = connection.cursor()
            cursor.execute("UPDATE left_side SET amount = amount - 1 WHERE id = 1")
            cursor.execute("UPDATE right_side SET amount = amount + 1 WHERE id = 1")
            connection.commit()
    ratchet.run("run", "--until-caught-up")
    with server.connect(database=database, autocommit=True) as connection:
        connection.cursor().execute("UPDATE left_side SET amount = 0 WHERE id = 1")
    ratchet.run("run", "--until-caught-up")
    total = "SELECT (SELECT amount FROM shop.left_side) l, (SELECT amount FROM shop.right_side) r"
    assert _sql(ratchet, total) == [{"l": 0, "r": 800}]
    assert _sql(ratchet, total, "--as-of", first.isoformat()) == [{"l": 500, "r": 500}]
    cut = json.loads(ratchet.run("as-of", "--time", first.isoformat(), "--json").stdout)
    assert {table["table"] for table in cut["tables"]} == {"left_side", "right_side"}
    last = json.loads(ratchet.run("status", "--json").stdout)
    for number in range(cut["round"], max(t["round"] for t in last["tables"])):
        row = _sql(ratchet, total, "--as-of", f"round:{number}")[0]
        assert row["l"] + row["r"] == 1000
