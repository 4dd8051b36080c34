"""Tables of a Vitess keyspace are altered under a writer, directly and by Online DDL.

No command is typed, and the mirror is what vtgate shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vitess_kit
from fix_e2e import Ratchet
from shop_kit import TABLES, Writer, assert_same, fill
from vitess_kit import is_same, stop, until

from lab.vitess import VitessCluster

pytestmark = pytest.mark.long

MADE: list[Ratchet] = []
DIRECT = (
    ("still", "ALTER TABLE still ADD COLUMN x INT NOT NULL DEFAULT 7"),
    ("orders", "ALTER TABLE orders ADD COLUMN note VARCHAR(20) DEFAULT 'none'"),
    ("orders", "ALTER TABLE orders MODIFY status CHAR(8) NOT NULL"),
    ("still", "ALTER TABLE still DROP COLUMN v"),
    ("still", "ALTER TABLE still MODIFY x BIGINT NOT NULL"),
)
ONLINE = "ALTER TABLE customer ADD COLUMN more INT NOT NULL DEFAULT 5, MODIFY n BIGINT"


@pytest.fixture
def cluster(vitess_of_its_own: VitessCluster) -> Iterator[VitessCluster]:
    yield vitess_of_its_own
    while MADE:
        MADE.pop().end_all()


@pytest.mark.parametrize("shards", [["0"], ["-80", "80-"]], ids=["one shard", "two shards"])
def test_altered(cluster: VitessCluster, tmp_path: Path, shards: list[str]) -> None:
    fill(cluster, shards)
    MADE.append(vitess_kit.ratchet_on(cluster, tmp_path))
    (ratchet,) = MADE
    ratchet.run("run", "--until-caught-up")
    said = tmp_path / "said"
    running = ratchet.start("run", log=said)
    for number, (table, statement) in enumerate(DIRECT):
        cluster.query(f"DELETE FROM {table} WHERE id = {number + 1}", target="shop")
        # A tablet cannot read rows from before such a statement (docs/vitess.md).
        until(lambda: is_same(cluster, ratchet, {"shop": TABLES}), said.read_text()[-3000:])
        cluster.query(statement, target="shop")
        cluster.query(f"DELETE FROM {table} WHERE id = {number + 100}", target="shop")
        until(lambda: is_same(cluster, ratchet, {"shop": TABLES}), said.read_text()[-3000:])
    with Writer(cluster, moves=False) as writer:
        with cluster.connect("shop") as connection, connection.cursor() as cursor:
            cursor.execute("SET @@ddl_strategy = 'vitess'")
            cursor.execute(ONLINE)
            ((name,),) = cursor.fetchall()
            cluster.wait(lambda: _is_complete(cursor, name), "the ALTER TABLE is done")
        writer.more(50)
    until(lambda: is_same(cluster, ratchet, {"shop": TABLES}), said.read_text()[-3000:])
    stop(running)
    assert assert_same(cluster, ratchet) > 2000
    ratchet.run("run", "--until-caught-up")
    assert "identical: 3 tables" in ratchet.run("verify").stdout


def _is_complete(cursor: Any, migration: str) -> bool:
    """Whether an Online DDL has ended, on all shards."""
    cursor.execute(f"SHOW VITESS_MIGRATIONS LIKE '{migration}'")
    names = [column[0] for column in cursor.description]
    found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    assert all(one["migration_status"] != "failed" for one in found), found
    return bool(found) and all(one["migration_status"] == "complete" for one in found)
