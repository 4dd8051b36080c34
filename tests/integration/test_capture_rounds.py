"""Rounds as Spark jobs: shards side by side, one commit, streams kept by the workers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from capture_kit import Capturer, server_rows, source_of
from pyspark.sql import SparkSession

from lab.servers import Server
from ratchet.core.errors import RetryableError
from ratchet.core.shard import ShardId
from ratchet.ingest.rounds import RoundTaker, spark_runner
from ratchet.ingest.slices import SliceLimits
from ratchet.wire.connect import SourceConfig


def run(server: Server, database: str, *statements: str) -> None:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_two_shards_in_one_round(
    spark: SparkSession, mariadb: Server, mysql: Server, database: str, tmp_path: Path
) -> None:
    shards = {"-80": mariadb, "80-": mysql}
    for server in shards.values():
        run(server, database, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    captures = {
        name: Capturer(source_of(server, database, name), tmp_path)
        for name, server in shards.items()
    }
    log = captures["-80"].log
    taker = RoundTaker(log, spark_runner(spark, pool="capture"), heartbeat_commit_seconds=0.0)

    def take(**changes: Any) -> Any:
        requests = []
        for name, capture in captures.items():
            capture.taker = taker
            requests.append(capture.request(**changes.get(name, {})))
        return taker.take(requests)

    for n in range(4):
        for server in shards.values():
            run(server, database, f"INSERT INTO t VALUES ({n}, 'value {n}')")
        outcome = take()
        assert not outcome.errors
        assert outcome.committed is not None
        assert {s.shard for s in outcome.committed.slices} == {"shop/-80", "shop/80-"}
    mine = {name: capture.changes("t") for name, capture in captures.items()}["-80"]
    for name, server in shards.items():
        rows = {c["after"]["id"]: c["after"] for c in mine if c["token"]["shard"] == f"shop/{name}"}
        assert rows == server_rows(server, database, "t")

    # One shard that cannot be reached does not hold up the other.
    run(mariadb, database, "INSERT INTO t VALUES (50, 'more')")
    source = source_of(mysql, database, "80-", port=1)
    limits = SliceLimits(max_seconds=0.5, min_seconds=0)
    outcome = take(**{"80-": {"source": source, "limits": limits}})
    assert isinstance(outcome.errors["shop/80-"], RetryableError)
    assert outcome.committed is not None
    assert [s.shard for s in outcome.committed.slices] == ["shop/-80"]


def test_a_job_that_dies_is_retryable(spark: SparkSession) -> None:
    class Deadly:
        """Something that the worker does not survive to unpack."""

        round_number = 1
        source = SourceConfig(shard=ShardId("shop", "-"), host="", port=1, user="", database="d")

        def __reduce__(self) -> tuple[Any, ...]:
            return os._exit, (1,)

    with pytest.raises(RetryableError, match="capture job failed"):
        spark_runner(spark)([Deadly()])  # type: ignore[list-item]


@pytest.mark.quick_on("mysql")
@pytest.mark.parametrize("shards", [1, 5])
def test_a_stream_stays_open(
    spark: SparkSession, server: Server, database: str, tmp_path: Path, shards: int
) -> None:
    """Round after round the server sees the same connections, whatever else uses Python workers."""
    run(server, database, "CREATE TABLE t (id INT PRIMARY KEY)")
    captures = [Capturer(source_of(server, database, f"s{n}"), tmp_path) for n in range(shards)]
    taker = RoundTaker(captures[0].log, spark_runner(spark), heartbeat_commit_seconds=0.0)
    for capture in captures:
        capture.taker = taker
    seen = []
    for turn in range(6):
        # As a dump does: several workers at once, which rest when it is over.
        spark.sparkContext.parallelize(range(6), 6).map(lambda _: time.sleep(0.2)).collect()
        run(server, database, f"INSERT INTO t VALUES ({turn})")
        outcome = taker.take([capture.request() for capture in captures])
        assert not outcome.errors
        assert outcome.committed is not None
        assert len(outcome.committed.slices) == shards
        seen.append(dumps(server, database))
    assert len(seen[0]) == shards
    assert all(one == seen[0] for one in seen)


def dumps(server: Server, database: str) -> set[int]:
    """The connections that the server sends its log to."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%%' "
            "AND DB = %s",
            (database,),
        )
        return {int(row[0]) for row in cursor.fetchall()}
