"""Peer: connectorx into one Parquet file: how fast a table can be had, and no more than that.

It reads the whole table into memory and keeps nothing but the rows: no log position, no table
format, no second run that would cost less than the first.
"""

from __future__ import annotations

import importlib.metadata
import time
from typing import Final

from bench.peers.contract import COLUMNS, Job, Result, serve

# Of 1, 2, 4 and 8 ranges, whole or streamed, by its binary or its text protocol: at 100,000 rows
# none was faster than this by more than the noise.
PARTITIONS: Final = 4


def load(job: Job) -> Result:
    """The whole table, its key cut into ranges."""
    import connectorx as cx
    import pyarrow as pa
    import pyarrow.parquet as pq

    url = f"mysql://{job.user}:{job.password}@{job.host}:{job.port}/{job.database}"
    file = job.home / f"{job.table}.parquet"
    began = time.perf_counter()
    table: pa.Table = cx.read_sql(
        url,
        f"SELECT {', '.join(COLUMNS)} FROM {job.table}",
        return_type="arrow",
        partition_on="id",
        partition_num=PARTITIONS,
    )
    pq.write_table(table, file)
    seconds = time.perf_counter() - began
    return Result(
        seconds=seconds,
        rows=table.num_rows,
        version=f"connectorx {importlib.metadata.version('connectorx')}",
        settings=f"{PARTITIONS} ranges of the key, Arrow, Parquet by pyarrow",
        target={"format": "parquet", "path": str(file)},
    )


if __name__ == "__main__":
    raise SystemExit(serve({"load": load}))
