"""Peer: Spark's JDBC source into Delta, and then again for the rows whose `placed` has moved.

It is what most begin with. A row that is deleted in the source stays in the copy, for no query
finds it: the harness counts such rows as wrong.

MariaDB's driver, under the URL of MySQL's: under its own, Spark quotes columns with double quotes,
which MariaDB takes for texts (so each row would hold the columns' names). With a fetch size the
driver reads a result as it comes; MySQL's driver, with or without a cursor, was as fast.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.peers import sparkpeer
from bench.peers.contract import Job, Result, serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FETCH: Final = 10_000
PARTITIONS: Final = 8


def load(job: Job) -> Result:
    """The whole table, its key cut into ranges."""
    spark = sparkpeer.session()
    seconds = load_table(spark, job, target(job))
    spark.stop()
    return _result(job, seconds, job.rows, f"{PARTITIONS} ranges of the key, fetchsize {FETCH:,}")


def follow(job: Job) -> Result:
    """The rows that are newer than the newest in the copy, merged into it by their key."""
    from delta.tables import DeltaTable
    from pyspark.sql.functions import col, lit
    from pyspark.sql.functions import max as newest_of

    spark = sparkpeer.session()
    began = time.perf_counter()
    copy = DeltaTable.forPath(spark, str(target(job)))
    newest = copy.toDF().agg(newest_of("placed")).collect()[0][0]
    changed = _rows(spark, job, partitions=2).where(col("placed") > lit(newest))
    # The same rows in each of MERGE's scans, and the source is asked once.
    staged = str(job.home / "staged")
    changed.write.mode("overwrite").parquet(staged)
    (
        copy.alias("copy")
        .merge(spark.read.parquet(staged).alias("new"), "copy.id = new.id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )
    seconds = time.perf_counter() - began
    spark.stop()
    settings = f"WHERE placed > newest, fetchsize {FETCH:,}; MERGE: {sparkpeer.MERGE_SETTINGS}"
    return _result(job, seconds, job.changes, settings)


def load_table(spark: SparkSession, job: Job, folder: Path) -> float:
    """Read the table into a new Delta table; seconds."""
    began = time.perf_counter()
    _rows(spark, job, partitions=PARTITIONS).write.format("delta").save(str(folder))
    return time.perf_counter() - began


def target(job: Job) -> Path:
    """Where the copy is."""
    return job.home / job.table


def _rows(spark: SparkSession, job: Job, *, partitions: int) -> DataFrame:
    """The source's table. That the bounds are known is a gift: a quick query otherwise."""
    options: dict[str, Any] = {
        "url": f"jdbc:mysql://{job.host}:{job.port}/{job.database}?permitMysqlScheme",
        "driver": "org.mariadb.jdbc.Driver",
        "user": job.user,
        "password": job.password,
        "dbtable": job.table,
        "fetchsize": FETCH,
        "partitionColumn": "id",
        "lowerBound": 0,
        "upperBound": job.rows,
        "numPartitions": partitions,
    }
    return spark.read.format("jdbc").options(**options).load()


def _result(job: Job, seconds: float, rows: int, settings: str) -> Result:
    return Result(
        seconds=seconds,
        rows=rows,
        version=f"{sparkpeer.version()}, MariaDB Connector/J {sparkpeer.DRIVER.rpartition(':')[2]}",
        settings=settings,
        target={"format": "delta", "path": str(target(job))},
    )


if __name__ == "__main__":
    raise SystemExit(serve({"load": load, "follow": follow}))
