"""`verify` reads the source no faster than the config allows: by each of the three limits.

Two MariaDB servers, the second one a replica of the first. Each limit is broken while `verify`
runs, which must wait for as long, and then find the table identical.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from mirror_kit import Mirror

from lab.servers import MariadbServer, Server, replicate_from, wait_for_replica
from ratchet.snapshot import waits
from ratchet.snapshot.throttle import replica_lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 900
_LONGEST = 200  # seconds


class Sight:
    """Enough of a session to ask a replica for its lag."""

    is_mariadb = True
    source = "shop/-"

    def __init__(self, server: Server) -> None:
        self._server = server

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self._server.execute(sql))


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    with MariadbServer() as primary, MariadbServer() as replica:
        primary.execute("CREATE DATABASE shop")
        primary.execute("CREATE TABLE shop.t (id INT NOT NULL PRIMARY KEY, v INT)")
        values = ",".join(f"({n}, {n})" for n in range(ROWS))
        primary.execute(f"INSERT INTO shop.t VALUES {values}")
        replicate_from(replica, primary)
        wait_for_replica(replica, primary)
        yield primary, replica


@pytest.fixture(scope="module")
def mirror(
    pair: tuple[Server, Server], spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Mirror:
    made = Mirror(tmp_path_factory.mktemp("slow"), pair[0], spark, {"shop": {"-": "shop"}}, {})
    made.follow()
    return made


def limit(mirror: Mirror, replica: Server | None = None, **limits: object) -> None:
    """Write limits into the config."""
    config = yaml.safe_load(mirror.config.read_text())
    config["snapshot"] = limits
    if replica is not None:
        shard = config["sources"]["shop"]["shards"]["-"]
        shard["replicas"] = [f"{replica.host}:{replica.port}"]
    mirror.config.write_text(yaml.safe_dump(config))


def verified_after(
    mirror: Mirror, release: Callable[[], None], *, held: float, told: str = ""
) -> float:
    """Seconds that verify took; what holds it back is released after `held` seconds.

    The log has `told` as the reason, and when it went on. (On a busy machine it may take longer
    until it begins to read, and to wait.)
    """
    waits_for_us = threading.Event()

    class Hears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "has waited for" in record.getMessage():
                waits_for_us.set()

    def hold() -> None:
        time.sleep(held)
        if told:
            waits_for_us.wait(_LONGEST)
        release()

    hears, holding = Hears(), threading.Thread(target=hold)
    waits.log.addHandler(hears)
    began = time.monotonic()
    holding.start()
    try:
        said = mirror.ratchet("verify")
    finally:
        waits.log.removeHandler(hears)
        holding.join()
    assert f"{ROWS} rows" in said.out
    if told:
        assert re.search(f"reading of shop/- has waited for [0-9]+ s: {told}", said.err), said.err
        assert "reading of shop/- continues, after" in said.err
    return time.monotonic() - began


@contextmanager
def busy(server: Server, threads: int) -> Iterator[Callable[[], None]]:
    """Threads that run on a server, until they are released."""
    connections = [server.connect() for _ in range(threads)]
    numbers = [one.thread_id() for one in connections]

    def sleep(connection: Any) -> None:
        with connection.cursor() as cursor:
            try:
                cursor.execute(f"SELECT SLEEP({2 * _LONGEST})")
            except Exception:  # noqa: BLE001 - killed, as it should be
                return

    sleepers = [threading.Thread(target=sleep, args=(one,)) for one in connections]
    for one in sleepers:
        one.start()

    def release() -> None:
        for number in numbers:
            server.execute(f"KILL QUERY {number}")

    yield release
    for one in sleepers:
        one.join(60)


def test_rows_per_second(mirror: Mirror) -> None:
    limit(mirror, max_rows_per_second=150, chunk_rows=100)
    took = verified_after(mirror, lambda: None, held=0.0)
    assert took > (ROWS - 100) / 150 - 2.5, "two seconds' worth may be ahead of the rate"


def test_threads_running(
    mirror: Mirror, pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "AFTER", 1.0)
    limit(mirror, max_threads_running=6)
    # The stream to the replica is the thirteenth.
    told = r"13 threads of others running on shop/-, above snapshot.max_threads_running \(6\)"
    with busy(pair[0], 12) as release:
        assert verified_after(mirror, release, held=6.0, told=told) > 6.0


def test_a_run_does_not_hold_itself_up(mirror: Mirror, pair: tuple[Server, Server]) -> None:
    """Capture's stream, readers and a comparison, where the stream to the replica is all else."""
    pair[0].execute("CREATE TABLE shop.u (id INT NOT NULL PRIMARY KEY, v INT)")
    pair[0].execute("INSERT INTO shop.u SELECT id, v FROM shop.t")
    limit(mirror, max_threads_running=1)
    said = mirror.ratchet("run", "--until-caught-up")
    assert "reading of shop/- has waited" not in said.err
    assert f"shop.u: {ROWS} rows" in said.err
    mirror.ratchet("verify")


def test_replica_lag(
    mirror: Mirror, pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, replica = pair
    monkeypatch.setattr(waits, "AFTER", 1.0)
    limit(mirror, replica, max_replica_lag="1s")
    lock = replica.connect(database="shop")
    with lock.cursor() as cursor:
        cursor.execute("LOCK TABLES t READ")
    primary.execute("UPDATE shop.t SET v = v + 1 WHERE id = 1")
    deadline = time.monotonic() + 60
    while replica_lag(Sight(replica)) <= 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    mirror_limit = time.monotonic()

    def release() -> None:
        with lock.cursor() as cursor:
            cursor.execute("UNLOCK TABLES")

    told = r"a replica of shop/- is [0-9]+ s behind, above snapshot.max_replica_lag \(1 s\)"
    verified_after(mirror, release, held=4.0, told=told)
    assert time.monotonic() - mirror_limit > 4.0
