"""The keyspace `shop` behind Vitess: its tables, a writer of them, and how a scenario ends."""

from __future__ import annotations

import random
import time
from typing import Any

import pymysql
import vitess_kit
from fix_e2e import Ratchet
from worker_kit import Worker

from lab.vitess import VitessCluster
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog

SCHEMA = """
CREATE TABLE customer (id BIGINT NOT NULL, name VARCHAR(40), tier ENUM('gold','silver'),
                       amount DECIMAL(12,4), n INT, PRIMARY KEY (id));
CREATE TABLE orders (id BIGINT NOT NULL, customer_id BIGINT NOT NULL, status CHAR(8),
                     PRIMARY KEY (id));
CREATE TABLE still (id BIGINT NOT NULL, v INT, PRIMARY KEY (id))
"""
TABLES = ("customer", "orders", "still")
# vtgate routes an INSERT by its list of columns.
CUSTOMER = "customer (id, name, tier, amount, n)"
ORDERS = "orders (id, customer_id, status)"
VSCHEMA: dict[str, Any] = {
    "sharded": True,
    "vindexes": {"hash": {"type": "hash"}},
    "tables": {
        "customer": {"column_vindexes": [{"column": "id", "name": "hash"}]},
        "orders": {"column_vindexes": [{"column": "customer_id", "name": "hash"}]},
        "still": {"column_vindexes": [{"column": "id", "name": "hash"}]},
    },
}


def fill(cluster: VitessCluster, shards: list[str]) -> None:
    """The keyspace `shop` with its tables and some rows."""
    cluster.add_keyspace("shop", shards)
    cluster.apply_schema("shop", SCHEMA)
    if shards != ["0"]:
        cluster.apply_vschema("shop", VSCHEMA)
    for table, columns in (
        (CUSTOMER, "({n}, 'name {n}', 'gold', {n} / 7, {n} % 7)"),
        (ORDERS, "({n}, {n} % 97, 'new')"),
        ("still (id, v)", "({n}, {n})"),
    ):
        values = ",".join(columns.replace("{n}", str(n)) for n in range(1, 1001))
        cluster.query(f"INSERT INTO {table} VALUES {values}", target="shop")


class Writer(Worker):
    """Changes rows through vtgate until it is told to stop; a refused statement is tried again.

    Attributes:
        moves: whether rows move between shards. While shards are merged (or may be, traffic being
            reversed) they must not: VReplication then meets a key that it has from the other shard.
    """

    def __init__(self, cluster: VitessCluster, seed: int = 1, *, moves: bool = True) -> None:
        super().__init__()
        self._cluster = cluster
        self._random = random.Random(seed)
        self.moves = moves
        self._next = 100_000

    def step(self) -> None:
        try:
            with self._cluster.connect("shop", autocommit=False) as connection:
                while not self.told.wait(0.01):
                    with connection.cursor() as cursor:
                        self._transaction(cursor)
                    connection.commit()
                    self.done += 1
        except pymysql.err.Error:
            time.sleep(0.1)  # traffic is being switched

    def _transaction(self, cursor: Any) -> None:
        key, choice = self._random.randrange(1, 1200), self._random.random()
        self._next += 1
        if choice < 0.3:
            cursor.execute("UPDATE customer SET amount = amount + 1 WHERE id = %s", (key,))
            cursor.execute("UPDATE orders SET status = %s WHERE id = %s", (self._next % 1000, key))
        elif choice < 0.5:
            cursor.execute(
                f"INSERT INTO {CUSTOMER} VALUES (%s, %s, 'silver', 1, 2)", (self._next, self._next)
            )
        elif choice < 0.65:
            cursor.execute("DELETE FROM customer WHERE id = %s", (key,))
        elif choice < 0.75:
            cursor.execute("DELETE FROM customer WHERE id = %s", (key,))
            cursor.execute(f"INSERT INTO {CUSTOMER} VALUES (%s, 'again', 'gold', 3, 4)", (key,))
        elif self.moves:
            # To another customer, and so perhaps to another shard.
            cursor.execute("SELECT status FROM orders WHERE id = %s", (key,))
            if (row := cursor.fetchone()) is not None:
                cursor.execute("DELETE FROM orders WHERE id = %s", (key,))
                cursor.execute(
                    f"INSERT INTO {ORDERS} VALUES (%s, %s, %s)", (key, self._next, row[0])
                )


class Mover(Worker):
    """Moves orders by UPDATEs of the vindex column, in place, on shard 0 as long as that serves.

    vtgate refuses such an UPDATE where the keyspace is sharded; on the shard itself it is one row
    event, of which VReplication makes a delete on one of the new shards and an insert on the other.
    Its orders are its own (from 700 on; `Writer` may take them away).
    """

    def __init__(self, cluster: VitessCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._random = random.Random(5)

    def step(self) -> None:
        try:
            with self._cluster.connect("shop:0") as connection, connection.cursor() as cursor:
                while not self.told.wait(0.02):
                    order, customer = (
                        self._random.randrange(700, 1000),
                        self._random.getrandbits(20),
                    )
                    self.done += cursor.execute(
                        f"UPDATE orders SET customer_id = {customer} WHERE id = {order}"
                    )
        except pymysql.err.Error:
            self.told.wait(0.5)  # it does not serve any more


def assert_same(cluster: VitessCluster, ratchet: Ratchet) -> int:
    """Every table of the mirror is what vtgate shows. Returns rows compared."""
    return vitess_kit.assert_same(cluster, ratchet, {"shop": TABLES})


def shards_of(ratchet: Ratchet) -> set[str]:
    """The shards whose streams the lake has."""
    return {name.partition("/")[2] for name in RoundLog(Lake.at(str(ratchet.lake))).streams()}


def finish(cluster: VitessCluster, ratchet: Ratchet, shards: set[str]) -> None:
    """The writer has stopped: catch up, and compare."""
    ratchet.run("run", "--until-caught-up", timeout=400)
    assert shards_of(ratchet) == shards
    assert_same(cluster, ratchet)
    assert "identical: 3 tables" in ratchet.run("verify").stdout
