"""Two shards in one table: rows that move between them, and `shard+primary`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
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
    reading,
    wait_while_running,
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


@pytest.mark.long
def test_modified_one_after_the_other(
    two_shards: dict[str, Any],
    database: str,
    make_ratchet: Callable[..., Ratchet],
    tmp_path: Path,
) -> None:
    """No row tells of the first statement, so that its doubt meets shards that differ."""
    low, high = two_shards.values()
    for server, key in ((low, 1), (high, 501)):
        server.execute(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)")
        server.execute(f"INSERT INTO `{database}`.t VALUES ({key}, {key})")
    ratchet = make_ratchet(two_shards, database)
    ratchet.run("run", "--until-caught-up")
    said = tmp_path / "said"
    running = ratchet.start("run", log=said)
    low.execute(f"ALTER TABLE `{database}`.t MODIFY v TEXT")
    differ = "shop.t: the shards' columns differ"
    wait_while_running(running, lambda: differ in said.read_text(), within=60)
    high.execute(f"ALTER TABLE `{database}`.t MODIFY v TEXT")
    high.execute(f"INSERT INTO `{database}`.t VALUES (502, 'x')")
    rows = {1: "1", 501: "501", 502: "x"}

    def is_followed() -> bool:
        return {row["id"]: row["v"] for row in mirror_rows(ratchet.lake, "shop", "t")} == rows

    wait_while_running(running, is_followed, within=240)
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    assert running.returncode == 0, said.read_text()
    ratchet.run("verify")


@pytest.mark.long
def test_altered_one_after_the_other(
    two_shards: dict[str, Any],
    database: str,
    make_ratchet: Callable[..., Ratchet],
    tmp_path: Path,
) -> None:
    """Between the two statements readers see the table of before; behind them nobody types a word.

    With rows of both shards before, between and behind them.
    """
    low, high = two_shards.values()
    for server, first in ((low, 0), (high, 500)):
        server.execute(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)")
        values = ", ".join(f"({n}, {n})" for n in range(first, first + 200))
        server.execute(f"INSERT INTO `{database}`.t VALUES {values}")
    ratchet = make_ratchet(two_shards, database)
    ratchet.run("run", "--until-caught-up")
    said = tmp_path / "said"
    running = ratchet.start("run", log=said)
    alter = f"ALTER TABLE `{database}`.t ADD x INT NOT NULL DEFAULT 7, DROP COLUMN v"
    change = f"UPDATE `{database}`.t SET id = id + 200 WHERE id %% 500 < %d"
    with reading(ratchet, ["t"]) as seen:
        for number, server in enumerate((low, high)):
            for one in (low, high):
                one.execute(change % (10 * number + 10))
            server.execute(alter)
            wait_while_running(running, lambda: "shop.t: " in said.read_text(), within=60)
            time.sleep(20 * (1 - number))  # a dump is tried meanwhile
        for one in (low, high):
            one.execute(change % 30)
        wait_while_running(running, lambda: _has_x(ratchet), within=240)
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    assert running.returncode == 0, said.read_text()
    assert "columns differ" in said.read_text()
    assert {rows for rows, _ in seen["t"]} == {400}
    ratchet.run("run", "--until-caught-up")
    assert assert_identical(ratchet.lake, [low, high], database, [*TABLES, "t"]) >= 400
    ratchet.run("verify")


def _has_x(ratchet: Ratchet) -> bool:
    return "x" in mirror_rows(ratchet.lake, "shop", "t")[0]
