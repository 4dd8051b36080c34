"""Peer: Ratchet's design in the plain way, of parts that anybody has.

mysql-replication's BinLogStreamReader, the latest change of each key in a dict, every so many
changes a Parquet file and a MERGE of Delta's. The load is that of `jdbc`. It keeps no position in
the copy and no token in the rows: a program to live with would do more, not less.

The reader is told nothing of MariaDB: told so, it wants a GTID, and without one reads the whole log
from its beginning, whatever file and position it is given.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.peers import jdbc, sparkpeer
from bench.peers.contract import COLUMNS, Job, Result, serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH: Final = 50_000
_SERVER_ID: Final = 4_000_001

Change = tuple[str, dict[str, Any]]


def load(job: Job) -> Result:
    """The whole table, by JDBC."""
    spark = sparkpeer.session()
    seconds = jdbc.load_table(spark, job, jdbc.target(job))
    spark.stop()
    settings = f"by JDBC: {jdbc.PARTITIONS} ranges of the key, fetchsize {jdbc.FETCH:,}"
    return _result(job, seconds, job.rows, settings)


def follow(job: Job) -> Result:
    """All changes behind the start, a batch at a time."""
    spark = sparkpeer.session()
    began = time.perf_counter()
    count = 0
    for number, (changes, latest) in enumerate(_batches(job)):
        _merge(spark, job, latest, job.home / f"changes-{number}.parquet")
        count += changes
    seconds = time.perf_counter() - began
    spark.stop()
    if count != job.changes:
        raise SystemExit(f"the log has {count:,} changes, not {job.changes:,}")
    settings = f"batches of {BATCH:,} changes; MERGE: {sparkpeer.MERGE_SETTINGS}"
    return _result(job, seconds, count, settings)


def _batches(job: Job) -> Iterator[tuple[int, dict[int, Change]]]:
    """How many changes a batch has, and the latest of each key."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.event import XidEvent
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    stream = BinLogStreamReader(
        connection_settings={
            "host": job.host,
            "port": job.port,
            "user": job.user,
            "passwd": job.password,
        },
        server_id=_SERVER_ID,
        log_file=job.start["file"],
        log_pos=job.start["position"],
        resume_stream=True,
        blocking=True,
        only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent, XidEvent],
        only_schemas=[job.database],
        only_tables=[job.table],
    )
    latest: dict[int, Change] = {}
    count = 0
    for event in stream:
        if isinstance(event, XidEvent):  # a transaction's end
            if (stream.log_file, stream.log_pos) >= (job.end["file"], job.end["position"]):
                break
            if count >= BATCH:
                yield count, latest
                latest, count = {}, 0
            continue
        for row in event.rows:
            if isinstance(event, UpdateRowsEvent):
                old, new = row["before_values"]["id"], row["after_values"]
                if old != new["id"]:
                    latest[old] = ("D", row["before_values"])
                latest[new["id"]] = ("U", new)
            elif isinstance(event, WriteRowsEvent):
                latest[row["values"]["id"]] = ("I", row["values"])
            else:
                latest[row["values"]["id"]] = ("D", row["values"])
        count += len(event.rows)
    stream.close()
    if count:
        yield count, latest


def _merge(spark: SparkSession, job: Job, latest: dict[int, Change], file: Path) -> None:
    """Bring a batch into the copy."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from delta.tables import DeltaTable

    schema = pa.schema(
        [
            ("op", pa.string()),
            ("id", pa.int64()),
            ("name", pa.string()),
            ("code", pa.string()),
            ("amount", pa.int32()),
            ("placed", pa.timestamp("us", tz="UTC")),
            ("price", pa.decimal128(18, 2)),
        ]
    )
    columns: dict[str, list[Any]] = {"op": [op for op, _ in latest.values()]}
    columns |= {name: [row[name] for _, row in latest.values()] for name in COLUMNS}
    pq.write_table(pa.table(columns, schema=schema), file)
    values = {name: f"new.{name}" for name in COLUMNS}
    (
        DeltaTable.forPath(spark, str(jdbc.target(job)))
        .alias("copy")
        .merge(spark.read.parquet(str(file)).alias("new"), "copy.id = new.id")
        .whenMatchedDelete("new.op = 'D'")
        .whenMatchedUpdate(set=dict(values))
        .whenNotMatchedInsert("new.op <> 'D'", values=dict(values))
        .execute()
    )


def _result(job: Job, seconds: float, rows: int, settings: str) -> Result:
    own = importlib.metadata.version("mysql-replication")
    return Result(
        seconds=seconds,
        rows=rows,
        version=f"mysql-replication {own}, {sparkpeer.version()}",
        settings=settings,
        target={"format": "delta", "path": str(jdbc.target(job))},
    )


if __name__ == "__main__":
    raise SystemExit(serve({"load": load, "follow": follow}))
