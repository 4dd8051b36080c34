"""Flink CDC's connector for MySQL into a Paimon table, as Flink SQL.

Flink CDC's documentation lists MariaDB 10 among what this connector reads. The cluster is Flink's
own mini cluster in one JVM; the table has the source's primary key.

Lives here: versions, settings and statements. Does not live here: the program that runs them and
finds out when the table has all (`java_peers/FlinkPeer.java`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from typing import Final

from bench.peers.contract import Job, Result, serve
from bench.peers.java_peers.build import Program

FLINK: Final = "1.20.3"  # the newest that Flink CDC 3.5 is made for
CDC: Final = "3.5.0"
PAIMON: Final = "1.3.1"
_OPENED: Final = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.text", "java.time", "java.util", "java.util.concurrent"),
    *("java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch"),
)
PROGRAM: Final = Program(
    name="FlinkPeer",
    jars=(
        f"org.apache.flink:flink-clients:{FLINK}",
        f"org.apache.flink:flink-table-api-java-bridge:{FLINK}",
        f"org.apache.flink:flink-table-runtime:{FLINK}",
        f"org.apache.flink:flink-connector-base:{FLINK}",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
    alone=(
        f"org.apache.flink:flink-table-planner-loader:{FLINK}",
        f"org.apache.flink:flink-sql-connector-mysql-cdc:{CDC}",
        "mysql:mysql-connector-java:8.0.27",  # the one that Flink CDC's documentation names
        f"org.apache.paimon:paimon-flink-1.20:{PAIMON}",
        # flink-shaded-hadoop-2-uber's description in Maven Central names another version: Ivy
        # refuses it.
        "org.apache.hadoop:hadoop-client-api:3.3.6",
        "org.apache.hadoop:hadoop-client-runtime:3.3.6",
        "commons-logging:commons-logging:1.2",
    ),
    # What Flink's own start scripts open to it under Java 17.
    options=("-Xmx4g", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED)),
)
PARALLELISM: Final = 2
FLINK_SETTINGS: Final = {
    "parallelism.default": PARALLELISM,
    # As in Flink CDC's own example. A copy has the changes only when a checkpoint commits them, so
    # Paimon's advice (longer, up to minutes) would add seconds here: 10 s was no faster to
    # load, and slower to follow.
    "execution.checkpointing.interval": "3 s",
    "execution.checkpointing.max-concurrent-checkpoints": 3,  # Paimon's advice
    "pipeline.object-reuse": "true",  # some per cent less work
    "table.exec.sink.upsert-materialize": "NONE",  # the keys of both sides are the same
}
# Larger chunks than the default (8096) and no reading of the log for each of them: what happens
# meanwhile comes with the log afterwards, which a table with a primary key takes well.
SOURCE_SETTINGS: Final = {
    "scan.incremental.snapshot.chunk.size": 50_000,
    "scan.snapshot.fetch.size": 10_240,
    "scan.incremental.snapshot.backfill.skip": "true",
}
# As many as the job is parallel, Paimon's advice; dynamic buckets (-1) took a fifth more work.
TABLE_SETTINGS: Final = {"bucket": PARALLELISM}
_HOSTS: Final = (
    *("rest.bind-address", "rest.address", "jobmanager.bind-host", "taskmanager.bind-host"),
    "taskmanager.host",
)
_COLUMNS: Final = (
    "id BIGINT, name STRING, code STRING, amount INT, placed TIMESTAMP_LTZ(6),"
    " price DECIMAL(18, 2), PRIMARY KEY (id) NOT ENFORCED"
)


def race(job: Job) -> Result:
    """Copy the table and go over to its log, or go on from there."""
    kept, warehouse = job.home / "savepoint", job.home / "warehouse"
    flink: dict[str, object] = {
        **FLINK_SETTINGS,
        "execution.checkpointing.dir": (job.home / "checkpoints").as_uri(),
        **dict.fromkeys(_HOSTS, "127.0.0.1"),  # nobody else's business
        "rest.bind-port": "0",
    }
    if job.what == "load":
        shutil.rmtree(warehouse, ignore_errors=True)
    elif kept.exists():
        flink["execution.state-recovery.path"] = kept.read_text()
    else:
        sys.exit("it follows from the savepoint of its own load, and there is none")
    found = PROGRAM.run(
        {
            "what": job.what,
            "rows": job.rows,
            "table": job.table,
            "user": job.user,
            "password": job.password,
            "url": f"jdbc:mysql://{job.host}:{job.port}/{job.database}?useSSL=false",
            "warehouse": warehouse.as_uri(),
            "savepoints": (job.home / "savepoints").as_uri(),
            **{f"flink.{name}": value for name, value in flink.items()},
            **{f"sql.{number}": text for number, text in enumerate(_statements(job))},
        },
        job.home,
    )
    kept.write_text(found["savepoint"])
    every = {**FLINK_SETTINGS, **SOURCE_SETTINGS, **TABLE_SETTINGS}
    return Result(
        seconds=float(found["seconds"]),
        rows=job.rows if job.what == "load" else job.changes,
        version=f"Flink CDC {CDC}, Flink {FLINK}, Paimon {PAIMON}",
        settings=", ".join(f"{name}={value}" for name, value in every.items()),
        target={"format": "paimon", "path": str(warehouse / "default.db" / job.table)},
        check={name: int(found[name]) for name in ("count", "ids", "amounts")},
    )


def _statements(job: Job) -> list[str]:
    source = {
        "connector": "mysql-cdc",
        "hostname": job.host,
        "port": job.port,
        "username": job.user,
        "password": job.password,
        "database-name": job.database,
        "table-name": job.table,
        "server-id": "5401-5408",
        "server-time-zone": "UTC",
        **SOURCE_SETTINGS,
    }
    lake = {"type": "paimon", "warehouse": (job.home / "warehouse").as_uri()}
    table = f"lake.`default`.{job.table}"
    return [
        f"CREATE TABLE source_rows ({_COLUMNS}) WITH ({_options(source)})",
        f"CREATE CATALOG lake WITH ({_options(lake)})",
        f"CREATE TABLE IF NOT EXISTS {table} ({_COLUMNS}) WITH ({_options(TABLE_SETTINGS)})",
        f"INSERT INTO {table} SELECT * FROM source_rows",
    ]


def _options(values: Mapping[str, object]) -> str:
    quoted = ((name, str(value).replace("'", "''")) for name, value in values.items())
    return ", ".join(f"'{name}' = '{value}'" for name, value in quoted)


if __name__ == "__main__":
    sys.exit(serve({"load": race, "follow": race}))
