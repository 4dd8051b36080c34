"""Peer: dlt's sql_database with connectorx below, into a Delta table, incrementally on `placed`.

As dlt's documentation has it for large tables: the connectorx backend as a stream of Arrow
batches, the types reflected with their precision, the table format delta of the filesystem
destination, upserts by the key. A row that is deleted in the source stays in the copy.
"""

from __future__ import annotations

import importlib.metadata
import os
import time
from typing import Final

from bench.peers.contract import Job, Result, serve

CHUNK: Final = 100_000


def race(job: Job) -> Result:
    """Run the pipeline: everything the first time, what is newer than the newest the next."""
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    os.environ["DLT_DATA_DIR"] = str(job.home / "data")
    import connectorx  # noqa: F401 - what is imported later would be counted
    import deltalake  # noqa: F401
    import dlt
    from dlt.destinations import filesystem
    from dlt.sources.sql_database import sql_table

    server = f"{job.user}:{job.password}@{job.host}:{job.port}/{job.database}"
    lake = job.home / "lake"
    pipeline = dlt.pipeline(
        "orders",
        pipelines_dir=str(job.home / "pipelines"),
        destination=filesystem(bucket_url=lake.as_uri()),
        dataset_name="bench",
    )
    began = time.perf_counter()
    pipeline.run(
        sql_table(
            f"mysql+pymysql://{server}",
            job.table,
            backend="connectorx",
            backend_kwargs={"conn": f"mysql://{server}", "return_type": "arrow_stream"},
            chunk_size=CHUNK,
            reflection_level="full_with_precision",
            incremental=dlt.sources.incremental("placed"),
            primary_key="id",
            write_disposition={"disposition": "merge", "strategy": "upsert"},
        ),
        table_format="delta",
    )
    seconds = time.perf_counter() - began
    names = ("dlt", "connectorx", "deltalake")
    return Result(
        seconds=seconds,
        rows=job.rows if job.what == "load" else job.changes,
        version=", ".join(f"{name} {importlib.metadata.version(name)}" for name in names),
        settings=f"connectorx backend, Arrow stream of {CHUNK:,} rows, incremental on placed, "
        "merge by upsert",
        target={"format": "delta", "path": str(lake / "bench" / job.table)},
    )


if __name__ == "__main__":
    raise SystemExit(serve({"load": race, "follow": race}))
