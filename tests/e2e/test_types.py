"""A database with every type, dumped and then streamed, under kills: the mirror is the source."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical
from fix_faker import SQL_MODE, FakeTable, every_type_tables

from lab.servers import create_ratchet_user

EXTRA_ROWS = 40


def _connect(server: Any, database: str) -> Any:
    return server.connect(database=database, charset="utf8mb4", sql_mode=SQL_MODE)


def _fill(server: Any, database: str, tables: list[FakeTable], rng: random.Random) -> None:
    with _connect(server, database) as connection:
        cursor = connection.cursor()
        for table in tables:
            cursor.execute(table.create_sql)
            cursor.execute(table.insert_sql(1, table.rows(rng, EXTRA_ROWS)))


def _change(server: Any, database: str, tables: list[FakeTable], rng: random.Random) -> None:
    """Insert everything again under new ids, and update and delete among the old ones."""
    with _connect(server, database) as connection:
        cursor = connection.cursor()
        for table in tables:
            rows = table.rows(rng, EXTRA_ROWS)
            cursor.execute(table.insert_sql(100_000, rows))
            for number in range(1, len(rows) + 1, 3):
                cursor.execute(table.update_sql(number, rng.choice(rows)))
            cursor.execute(f"DELETE FROM `{table.name}` WHERE id % 7 = 3")


@pytest.mark.long
def test_every_type_ends_identical(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Snapshot and log give the server's own values, through a kill in each."""
    tables = every_type_tables(server.flavor)
    rng = random.Random(20)
    _fill(server, database, tables, rng)
    create_ratchet_user(server, PASSWORD, [database], triggers=True)
    ratchet = make_ratchet({"-": server}, database)
    killed = ratchet.run("dump", crash_at="dump.after_commit", expect=None)
    assert killed.returncode == -signal.SIGKILL
    ratchet.run("run", "--until-caught-up")
    names = [table.name for table in tables]
    assert_identical(ratchet.lake, [server], database, names)
    with ThreadPoolExecutor(1) as writer:
        changing = writer.submit(_change, server, database, tables, rng)
        killed = ratchet.run("run", crash_at="merge.after_merge:3", expect=None)
        assert killed.returncode == -signal.SIGKILL
        changing.result()
    said = killed.stderr + ratchet.run("run", "--until-caught-up").stderr
    assert "no statement changed them" not in said  # the log's shapes are the dump's
    assert assert_identical(ratchet.lake, [server], database, names) > len(tables) * EXTRA_ROWS
    ratchet.run("verify")
