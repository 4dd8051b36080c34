"""Debezium's embedded engine: how fast its MariaDB connector hands out rows and changes.

Its handler counts what it gets and throws it away. That is the best case of all that is built on
Debezium (Kafka Connect, Debezium Server): each has a target to write to on top.

Lives here: versions and settings. Does not live here: the program (`java_peers/DebeziumPeer.java`).

The records come as the connector makes them (format `connect`), the cheapest way; the environment's
DEBEZIUM_FORMAT=json asks for JSON without schemas instead, which most people have.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from bench.peers.contract import Job, Result, serve
from bench.peers.java_peers.build import Program

# The newest whose connector for MariaDB could be had when this was written.
VERSION: Final = "3.5.0.Final"
PROGRAM: Final = Program(
    name="DebeziumPeer",
    jars=(
        f"io.debezium:debezium-api:{VERSION}",
        f"io.debezium:debezium-embedded:{VERSION}",
        f"io.debezium:debezium-connector-mariadb:{VERSION}",
        f"io.debezium:debezium-storage-file:{VERSION}",
        "org.slf4j:slf4j-simple:2.0.17",
    ),
    options=("-Xmx2g",),
)
# Larger batches, their queue and the wait at its end as guides to Debezium's throughput have them;
# two threads for the chunks of one table, which 3.5 is the first to offer. The engine's own threads
# (record.processing.threads) are as many as cores unless set. Measured: the defaults take a tenth
# longer for a load, half as long again for a follow; batches of 20,480 gain nothing.
TUNED: Final = {
    "snapshot.max.threads": 2,
    "snapshot.fetch.size": 10_240,
    "max.batch.size": 8_192,
    "max.queue.size": 32_768,
    "poll.interval.ms": 10,
}


def race(job: Job) -> Result:
    """Take the snapshot, or follow from where the last race ended."""
    form = os.environ.get("DEBEZIUM_FORMAT", "connect")
    offsets = job.home / "offsets.dat"
    if job.what == "load":
        offsets.unlink(missing_ok=True)
    elif not offsets.exists():
        sys.exit("it follows from the offset of its own load, and there is none")
    table = f"{job.database}.{job.table}"
    engine = {
        "name": "bench",
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "topic.prefix": "bench",
        "database.hostname": job.host,
        "database.port": job.port,
        "database.user": job.user,
        "database.password": job.password,
        "database.server.id": 184054,
        "database.include.list": job.database,
        "table.include.list": table,
        "snapshot.mode": "initial",
        "tombstones.on.delete": "false",  # a second record for each deleted row, for Kafka alone
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": offsets,
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": job.home / "schema.dat",
        "converter.schemas.enable": "false",
        **TUNED,
    }
    found = PROGRAM.run(
        {
            "what": job.what,
            "format": form,
            "expected": job.rows if job.what == "load" else job.changes,
            **{f"engine.{name}": value for name, value in engine.items()},
        },
        job.home,
    )
    settings = ", ".join(f"{name}={value}" for name, value in TUNED.items())
    return Result(
        seconds=float(found["seconds"]),
        rows=int(found["rows"]),
        version=f"Debezium {VERSION}",
        settings=f"format={form}, {settings}",
        target={"format": "none", "path": ""},
    )


if __name__ == "__main__":
    sys.exit(serve({"load": race, "follow": race}))
