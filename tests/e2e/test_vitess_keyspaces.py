"""Two keyspaces of one Vitess cluster in one pipeline: one of one shard, one of two."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fix_e2e import Ratchet
from vitess_kit import assert_same, is_same, ratchet_on, stop, until
from worker_kit import Worker

from lab.vitess import VitessCluster
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog

# `note` is in both, with other columns: a row that came to the wrong keyspace would be seen.
TABLES = {"office": ("product", "note"), "shop": ("orders", "note")}
OFFICE = """
CREATE TABLE product (id BIGINT NOT NULL, name VARCHAR(40), price DECIMAL(10,2), PRIMARY KEY (id));
CREATE TABLE note (id BIGINT NOT NULL, text VARCHAR(40), PRIMARY KEY (id))
"""
SHOP = """
CREATE TABLE orders (id BIGINT NOT NULL, customer_id BIGINT NOT NULL, product_id BIGINT,
                     PRIMARY KEY (id));
CREATE TABLE note (id BIGINT NOT NULL, n INT, at DATETIME(3), PRIMARY KEY (id))
"""
VSCHEMA: dict[str, Any] = {
    "sharded": True,
    "vindexes": {"hash": {"type": "hash"}},
    "tables": {
        "orders": {"column_vindexes": [{"column": "customer_id", "name": "hash"}]},
        "note": {"column_vindexes": [{"column": "id", "name": "hash"}]},
    },
}
ROWS = 500
SHARDS = {"office/0", "shop/-80", "shop/80-"}


@pytest.fixture
def cluster(vitess_of_its_own: VitessCluster) -> VitessCluster:
    cluster = vitess_of_its_own
    cluster.add_keyspace("office", ["0"])
    cluster.apply_schema("office", OFFICE)
    cluster.add_keyspace("shop", ["-80", "80-"], vschema=VSCHEMA)
    cluster.apply_schema("shop", SHOP)
    for keyspace, table, row in (
        ("office", "product (id, name, price)", "({n}, 'product {n}', {n} / 10)"),
        ("office", "note (id, text)", "({n}, 'text {n}')"),
        ("shop", "orders (id, customer_id, product_id)", "({n}, {n} % 97, {n})"),
        ("shop", "note (id, n, at)", "({n}, {n}, '2026-01-02 03:04:05.678')"),
    ):
        values = ",".join(row.replace("{n}", str(n)) for n in range(1, ROWS + 1))
        cluster.query(f"INSERT INTO {table} VALUES {values}", target=keyspace)
    return cluster


@pytest.fixture
def ratchet(cluster: VitessCluster, tmp_path: Path) -> Iterator[Ratchet]:
    made = ratchet_on(cluster, tmp_path, keyspaces=tuple(TABLES))
    yield made
    made.end_all()


class Writer(Worker):
    """Transactions over both keyspaces through one connection, until told to stop.

    Attributes:
        done: transactions that were committed.
    """

    def __init__(self, cluster: VitessCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._random = random.Random(5)
        self._next = 10_000

    def step(self) -> None:
        with self._cluster.connect("office", autocommit=False) as connection:
            while not self.told.wait(0.01):
                with connection.cursor() as cursor:
                    self._transaction(cursor)
                connection.commit()
                self.done += 1

    def _transaction(self, cursor: Any) -> None:
        key, other = (self._random.randrange(1, ROWS + 100) for _ in range(2))
        self._next += 1
        for statement, *arguments in self._random.choice([
            self._order, self._reprice, self._move, self._drop,
        ])(key, other):  # fmt: skip
            cursor.execute(statement, arguments)

    def _order(self, key: int, other: int) -> list[tuple[Any, ...]]:
        insert = "INSERT INTO {} VALUES (%s, %s, %s)"
        return [
            (insert.format("office.product (id, name, price)"), self._next, "new", key),
            (insert.format("shop.orders (id, customer_id, product_id)"), self._next, other, key),
            (insert.format("shop.note (id, n, at)"), self._next, key, "2026-05-06 07:08:09.1"),
        ]

    def _reprice(self, key: int, other: int) -> list[tuple[Any, ...]]:
        return [
            ("UPDATE office.product SET price = price + 1 WHERE id = %s", key),
            ("UPDATE office.note SET text = %s WHERE id = %s", f"text {self._next}", other),
            ("UPDATE shop.note SET n = n + 1 WHERE id = %s", key),
            ("UPDATE shop.orders SET product_id = %s WHERE customer_id = %s", other, key % 97),
        ]

    def _move(self, key: int, other: int) -> list[tuple[Any, ...]]:
        """An order goes to another customer: in half of the cases to the other shard."""
        return [
            ("DELETE FROM shop.orders WHERE id = %s", key),
            (
                "INSERT INTO shop.orders (id, customer_id, product_id) VALUES (%s, %s, %s)",
                key, other, self._next,
            ),
        ]  # fmt: skip

    def _drop(self, key: int, other: int) -> list[tuple[Any, ...]]:
        return [
            ("DELETE FROM office.product WHERE id = %s", key),
            ("DELETE FROM office.note WHERE id = %s", other),
            ("DELETE FROM shop.note WHERE id = %s", key),
        ]


def homes(cluster: VitessCluster) -> dict[int, str]:
    """Order -> the shard that it is on."""
    return {
        number: shard
        for shard in ("-80", "80-")
        for (number,) in cluster.query("SELECT id FROM orders", target=f"shop:{shard}@primary")
    }


@pytest.mark.long
def test_a_sharded_and_an_unsharded_keyspace(cluster: VitessCluster, ratchet: Ratchet) -> None:
    """Dumped and followed by one run, under a writer whose transactions are over both."""
    before = homes(cluster)
    with Writer(cluster) as writer:
        running = ratchet.start("run")
        for keyspace, names in TABLES.items():
            for name in names:
                until((ratchet.lake / keyspace / name).exists, f"{keyspace}.{name} is dumped")
        seen = writer.done

        def written() -> bool:
            writer.check()
            return writer.done > seen + 500

        until(written, "it was written to for a while")
    until(lambda: is_same(cluster, ratchet, TABLES), "the mirror is what vtgate shows")
    stop(running)
    assert assert_same(cluster, ratchet, TABLES) > 3 * ROWS
    after = homes(cluster)
    moved = {after[key] for key in before.keys() & after.keys() if after[key] != before[key]}
    assert moved == {"-80", "80-"}
    log = RoundLog(Lake.at(str(ratchet.lake)))
    assert set(log.streams()) == SHARDS
    # All of them brought changes through the log, not by the dump alone.
    assert {file.shard for one in log.since(1) for file in one.files} == SHARDS
    assert "identical: 4 tables" in ratchet.run("verify").stdout
