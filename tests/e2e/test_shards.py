"""Two shards in one table: rows that move between them, and `shard+primary`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fix_e2e import (
    PASSWORD,
    TABLES,
    Ratchet,
    Writer,
    assert_identical,
    create_tables,
    end_of,
    mirror_rows,
)

from lab.servers import MariadbServer, create_ratchet_user


@pytest.fixture
def two_shards(mariadb: Any, database: str) -> Iterator[dict[str, Any]]:
    """The session's MariaDB and a second one, with the same empty database."""
    with MariadbServer() as other:
        other.execute(f"CREATE DATABASE `{database}`")
        shards = {"-80": mariadb, "80-": other}
        for server in shards.values():
            create_tables(server, database)
            create_ratchet_user(server, PASSWORD, [database])
        yield shards


def _move(source: Any, target: Any, database: str, key: int) -> None:
    """Move a row as a sharded application does: insert over there, delete here."""
    with source.connect(database=database, autocommit=True) as here:
        cursor = here.cursor()
        cursor.execute("SELECT * FROM orders WHERE id=%s", (key,))
        row = cursor.fetchone()
        with target.connect(database=database, autocommit=True) as there:
            there.cursor().execute("REPLACE INTO orders VALUES (%s,%s,%s,%s,%s,%s,%s)", row)
        cursor.execute("DELETE FROM orders WHERE id=%s", (key,))


@pytest.mark.long
def test_rows_moving_between_shards_stay_exactly_once(
    two_shards: dict[str, Any], database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Moved there, and moved there and back, during the dump and while streaming."""
    low, high = two_shards.values()
    low.execute(
        f"INSERT INTO `{database}`.orders (id, customer, status) VALUES "
        + ",".join(f"({n}, {n % 7}, 'new')" for n in range(1, 2001))
    )
    ratchet = make_ratchet(two_shards, database, snapshot={"chunk_rows": 200})
    running = ratchet.start("run", "--until-caught-up")
    for key in range(1, 400, 2):
        _move(low, high, database, key)
        if key % 3 == 0:
            _move(high, low, database, key)
    out, err = end_of(running, 240)
    assert running.returncode == 0, (out, err)
    for key in range(1000, 1300):
        _move(low, high, database, key)
        if key % 3 == 0:
            _move(high, low, database, key)
    ratchet.run("run", "--until-caught-up")
    assert assert_identical(ratchet.lake, [low, high], database, TABLES) == 2000
    ratchet.run("verify")


@pytest.mark.long
def test_both_shards_written_at_once_and_shard_in_the_key(
    two_shards: dict[str, Any], database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """With `shard+primary` both shards may hold the same key, and both rows are mirrored."""
    writers = [Writer(server, database, seed=n) for n, server in enumerate(two_shards.values())]
    for writer in writers:
        writer.start()
    ratchet = make_ratchet(two_shards, database, source={"key": "shard+primary"})
    ratchet.run("dump")
    ratchet.run("merge", "--until-caught-up")
    for writer in writers:
        writer.finish()
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, list(two_shards.values()), database, TABLES)
    keys = [row["id"] for row in mirror_rows(ratchet.lake, "shop", "orders")]
    assert len(keys) > len(set(keys)), "both shards hold some of the same keys"
    ratchet.run("verify")
