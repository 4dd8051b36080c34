"""A Vitess keyspace from end to end: dump, stream, and reshards under a writer, as users run it.

Each scenario ends with the mirror compared, row by row, with `SELECT` through vtgate.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pymysql
import pytest
import vitess_kit
from fix_e2e import Ratchet
from vitess_kit import is_same, stop, until

from lab.vitess import VitessCluster

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


MADE: list[Ratchet] = []


@pytest.fixture
def cluster(vitess_of_its_own: VitessCluster) -> Iterator[VitessCluster]:
    yield vitess_of_its_own
    while MADE:
        MADE.pop().end_all()


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


def ratchet_on(cluster: VitessCluster, folder: Path, **more: Any) -> Ratchet:
    MADE.append(vitess_kit.ratchet_on(cluster, folder, **more))
    return MADE[-1]


class Writer(threading.Thread):
    """Changes rows through vtgate until it is told to stop; a refused statement is tried again.

    Attributes:
        moves: whether rows move between shards. While shards are merged (or may be, traffic being
            reversed) they must not: VReplication then meets a key that it has from the other shard.
    """

    def __init__(self, cluster: VitessCluster, seed: int = 1, *, moves: bool = True) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._random = random.Random(seed)
        self.moves = moves
        self._next = 100_000
        self._end = threading.Event()
        self.done = self.refused = 0
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        try:
            while not self._end.is_set():
                try:
                    with self._cluster.connect("shop", autocommit=False) as connection:
                        while not self._end.is_set():
                            with connection.cursor() as cursor:
                                self._transaction(cursor)
                            connection.commit()
                            self.done += 1
                            time.sleep(0.01)
                except pymysql.err.Error:
                    self.refused += 1  # traffic is being switched
                    time.sleep(0.1)
        except BaseException as error:  # noqa: BLE001 - shown by the test that waits for it
            self.failure = error

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


def assert_same(cluster: VitessCluster, ratchet: Ratchet) -> int:
    return vitess_kit.assert_same(cluster, ratchet, {"shop": TABLES})


def shards_of(ratchet: Ratchet) -> set[str]:
    from store.files import Lake
    from store.rounds import RoundLog

    return {name.partition("/")[2] for name in RoundLog(Lake.at(str(ratchet.lake))).streams()}


def test_two_shards_under_a_writer(cluster: VitessCluster, tmp_path: Path) -> None:
    """Dump and stream through vtgate alone, while rows change and move between the shards."""
    fill(cluster, ["-80", "80-"])
    ratchet = ratchet_on(cluster, tmp_path)
    assert "fit (" in ratchet.run("check").stdout
    with Writer(cluster) as writer:
        running = ratchet.start("run")
        until((ratchet.lake / "shop" / "still").exists, "it dumps")
        before = writer.done
        until(lambda: writer.done > before + 300, "it was written to for a while")
    until(lambda: is_same(cluster, ratchet, {"shop": TABLES}), "the mirror is what vtgate shows")
    stop(running)
    assert assert_same(cluster, ratchet) > 2000
    status = ratchet.run("status").stdout
    assert "shop/-80" in status
    assert "shop/80-" in status


def finish(cluster: VitessCluster, ratchet: Ratchet, shards: set[str]) -> None:
    """The writer has stopped: catch up, and compare."""
    ratchet.run("run", "--until-caught-up", timeout=400)
    assert shards_of(ratchet) == shards
    assert_same(cluster, ratchet)
    assert "identical: 3 tables" in ratchet.run("verify").stdout


@pytest.mark.long
def test_a_split_and_a_merge_while_streaming(cluster: VitessCluster, tmp_path: Path) -> None:
    fill(cluster, ["0"])
    cluster.apply_vschema("shop", VSCHEMA)
    ratchet = ratchet_on(cluster, tmp_path)
    ratchet.run("run", "--until-caught-up")
    running = ratchet.start("run")
    with Writer(cluster) as writer:
        for sources, targets in ((["0"], ["-80", "80-"]), (["-80", "80-"], ["-"])):
            writer.moves = len(targets) > 1
            flow = cluster.reshard("shop", sources, targets)
            flow.wait_until_running()
            flow.switch()
            until(lambda: shards_of(ratchet) == set(targets), f"{targets} are followed")  # noqa: B023
            flow.complete()
        assert writer.done > 100
    stop(running)
    finish(cluster, ratchet, {"-"})


@pytest.mark.long
def test_there_and_back_and_there_again(cluster: VitessCluster, tmp_path: Path) -> None:
    """Traffic is switched, reversed and switched again; then one shard of two into two."""
    fill(cluster, ["0"])
    cluster.apply_vschema("shop", VSCHEMA)
    ratchet = ratchet_on(cluster, tmp_path)
    ratchet.run("run", "--until-caught-up")
    running = ratchet.start("run")
    with Writer(cluster, moves=False):
        flow = cluster.reshard("shop", ["0"], ["-80", "80-"])
        flow.wait_until_running()
        for step, shards in (
            (flow.switch, {"-80", "80-"}),
            (flow.reverse, {"0"}),
            (flow.switch, {"-80", "80-"}),
        ):
            step()
            until(lambda: shards_of(ratchet) == shards, f"{shards} are followed")  # noqa: B023
            time.sleep(3)
        flow.complete()
        half = cluster.reshard("shop", ["-80"], ["-40", "40-80"])
        half.wait_until_running()
        half.switch()
        until(lambda: shards_of(ratchet) == {"-40", "40-80", "80-"}, "half of it is followed")
    stop(running)
    finish(cluster, ratchet, {"-40", "40-80", "80-"})


@pytest.mark.long
def test_a_split_into_four_while_dumping(cluster: VitessCluster, tmp_path: Path) -> None:
    """The dump begins anew on the new shards, by itself."""
    fill(cluster, ["0"])
    cluster.apply_vschema("shop", VSCHEMA)
    ratchet = ratchet_on(cluster, tmp_path, snapshot={"chunk_rows": 20, "max_rows_per_second": 40})
    running = ratchet.start("run")
    until(lambda: (ratchet.lake / "shop").exists() and shards_of(ratchet) == {"0"}, "it dumps")
    targets = ["-40", "40-80", "80-c0", "c0-"]
    with Writer(cluster):
        flow = cluster.reshard("shop", ["0"], targets)
        flow.wait_until_running()
        flow.switch()
        until(lambda: shards_of(ratchet) == set(targets), "the four are followed")
        flow.complete()
    log = stop(running)
    assert "a reshard ended one of its shards meanwhile" in log
    quick = ratchet_on(cluster, tmp_path)
    finish(cluster, quick, set(targets))


@pytest.mark.long
def test_a_reshard_while_nobody_follows(cluster: VitessCluster, tmp_path: Path) -> None:
    """Back before `Reshard complete`, nothing is lost; back after it, the tables are dumped."""
    fill(cluster, ["0"])
    cluster.apply_vschema("shop", VSCHEMA)
    ratchet = ratchet_on(cluster, tmp_path)
    ratchet.run("run", "--until-caught-up")
    with Writer(cluster):
        split = cluster.reshard("shop", ["0"], ["-80", "80-"])
        split.wait_until_running()
        split.switch()
        time.sleep(3)
    seen = ratchet.run("run", "--until-caught-up", timeout=400).stderr
    assert "shop/0: the stream goes on at shop/-80, shop/80-" in seen
    assert "to dump" not in seen
    split.complete()
    finish(cluster, ratchet, {"-80", "80-"})
    with Writer(cluster, seed=2, moves=False):
        merge = cluster.reshard("shop", ["-80", "80-"], ["-"])
        merge.wait_until_running()
        merge.switch()
        time.sleep(2)
        merge.complete()
    seen = ratchet.run("run", "--until-caught-up", timeout=400).stderr
    assert "-80, 80- were resharded away" in seen
    assert "to dump: 3 tables" in seen
    finish(cluster, ratchet, {"-"})
