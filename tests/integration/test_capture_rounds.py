"""Rounds as Spark jobs: one task per shard, one commit, streams kept by the workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from capture_kit import Capturer, server_rows, source_of
from pyspark.sql import SparkSession

from core.errors import RetryableError
from ingest.rounds import RoundTaker, spark_runner
from ingest.slices import SliceLimits
from lab.servers import Server


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
    class NoRequest:
        """Something that the task cannot work with: it ends with an error in the worker."""

        round_number = 1

    with pytest.raises(RetryableError, match="capture job failed"):
        spark_runner(spark)([NoRequest()])  # type: ignore[list-item]
