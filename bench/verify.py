"""What a verification costs, beside the dump of the same table.

    python bench/verify.py [--rows N] [--flavor mariadb|mysql] [--rounds R]

The table of bench/dump.py is dumped, and verified as `ratchet verify` does it. Some rows of the
mirror are damaged for one more verification, which must find exactly these. Best of R each; the
first of each in the session does not count.

There is no limit: the ratios are printed. The source does the same for both: each of its rows is
read once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

from bench.dump import (
    KINDS,
    SHARD,
    bench_session,
    cpu_seconds,
    dump_once,
    fill_server,
    source_of,
)
from lab.servers import MariadbServer, MysqlServer, Server
from ratchet.core.position import Position
from ratchet.snapshot.keychanges import Changes
from ratchet.snapshot.mirror import MirrorAt
from ratchet.snapshot.records import DumpSettings, ShardSource, TableDumpRequest
from ratchet.snapshot.tasks import spark_reader
from ratchet.snapshot.verify import verify_table
from ratchet.store.delta.tables import newest_version
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARALLEL: Final = 2
WANTED: Final = TableDumpRequest(keyspace="shop", table="orders", shards=(SHARD,))
DAMAGED: Final = 100


def main() -> int:
    """Run the benchmark; 0 if the verifications found what there was to be found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--flavor", choices=["mariadb", "mysql"], default="mariadb")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    kind = {"mariadb": MariadbServer, "mysql": MysqlServer}[given.flavor]
    folder = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    spark = bench_session()
    try:
        with kind(buffer_pool="1G") as server:
            fill_server(server, given.rows, folder / "rows.tsv", KINDS["orders"], "orders")
            lake = open_lake(folder / "lake", now=0)
            _compare(spark, server, lake, rows=given.rows, rounds=given.rounds)
    finally:
        spark.stop()
        shutil.rmtree(folder)
    return 0


def _compare(spark: SparkSession, server: Server, lake: Lake, *, rows: int, rounds: int) -> None:
    def dump() -> None:
        dump_once(server, lake, PARALLEL, spark, ["orders"])

    def verify() -> None:
        _expect(_verify(spark, server, lake), 0)

    print(f"{server.flavor} {server.version}, {rows:,} rows of 6 columns, {PARALLEL} readers")
    base = _best(dump, rounds)
    for label, (seconds, cpu) in (
        ("dump", base),
        ("verify", _best(verify, rounds)),
    ):
        print(
            f"  {label:<8} {rows / seconds:>12,.0f} rows/s  CPU {cpu:6.2f} s  "
            f"RATIO of time {seconds / base[0]:5.2f}, of CPU {cpu / base[1]:5.2f}"
        )
    spark.sql(
        f"UPDATE delta.`{lake.hadoop_uri('shop/orders')}` SET amount = amount + 1 "
        f"WHERE id % {rows // DAMAGED} = 0"
    )

    def find() -> None:
        _expect(_verify(spark, server, lake), DAMAGED)

    seconds, cpu = _best(find, 1)
    print(
        f"  {DAMAGED} damaged rows found, and no others: {rows / seconds:,.0f} rows/s  "
        f"CPU {cpu:6.2f} s  RATIO of time {seconds / base[0]:5.2f}, of CPU {cpu / base[1]:5.2f}"
    )


def _best(work: Callable[[], None], rounds: int) -> tuple[float, float]:
    """Wall and CPU seconds of this process and its children, the best of some after a first."""
    found = []
    for _ in range(rounds + 1):
        begun, used = time.perf_counter(), cpu_seconds(os.getpid())
        work()
        found.append((time.perf_counter() - begun, cpu_seconds(os.getpid()) - used))
    return min(seconds for seconds, _ in found[1:]), min(cpu for _, cpu in found[1:])


def _verify(spark: SparkSession, server: Server, lake: Lake) -> int:
    """Rows that differ."""

    def nothing(ends: Mapping[str, Position]) -> Changes:
        return Changes(root=lake, reached=ends)  # nobody writes

    result = verify_table(
        spark,
        lake,
        WANTED,
        mirror=MirrorAt(path="shop/orders", version=newest_version(lake, "shop/orders", None)),
        key=("id",),
        round_number=0,
        positions={},
        shards={SHARD: ShardSource(config=source_of(server))},
        read=spark_reader(spark),
        changes=nothing,
        now=0,
        settings=DumpSettings(parallel=PARALLEL),
        homes={SHARD: {SHARD}},
    )
    return result.differences


def _expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise SystemExit(f"{found} rows differ, and not {wanted}")


if __name__ == "__main__":
    sys.exit(main())
