"""What the tables of a run that starts again cost before their first merges: their side tables.

    python bench/restart.py [--tables N] [--rounds R]

N tables (40) of 1,000 rows; R rounds (60), each of which deletes 5 rows of each table and is merged
by itself, so that each side table has R small files. Then all side tables are looked through as by
a run that has just started: as Ratchet does it, eight threads on the files of a table, and as Spark
does it, two tables at a time (what Ratchet did until 2026-11-26). Both must say the same. Printed:
seconds and CPU seconds of both (Java's too), and the ratio.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np

from bench.lib.orders import NO_SPARK, NONE, Orders
from bench.lib.processes import Processes
from bench.lib.session import bench_session
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.delta import plain_session, read_delta
from ratchet.merge.rounds import Merger
from ratchet.merge.side import SideStats, read_stats
from ratchet.merge.sidestats import read_side_stats
from ratchet.merge.step import MergeOptions
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake

ROWS = 1_000
DELETES = 5


def written(lake: Lake, tables: int, rounds: int) -> list[str]:
    """The side tables' folders, with a file for each round."""
    every = [Orders(lake, ROWS, number) for number in range(tables)]
    with Merger(NO_SPARK, lake, MergeOptions(policy=InvalidValuePolicy())) as merger:
        for number in range(rounds):
            gone = np.arange(number * DELETES, (number + 1) * DELETES)
            for orders in every:
                orders.commit(updates=NONE, deletes=gone)
            merger.step()
    return [orders.state.side_path for orders in every]


def timed(ask: Callable[[], list[SideStats]]) -> tuple[list[SideStats], float, float]:
    """What it gives, seconds, and CPU seconds of this process and its children."""
    processes = Processes(os.getpid())
    begin, used = time.perf_counter(), processes.cpu()
    found = ask()
    return found, time.perf_counter() - begin, processes.cpu() - used


def main() -> None:
    """Write the tables, look through them both ways, print."""
    parser = argparse.ArgumentParser(description="Side tables, looked through when a run starts.")
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    spark = bench_session()
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-") as home:
        lake = open_lake(Path(home) / "lake", now=1)
        paths = written(lake, given.tables, given.rounds)

        def by_spark(path: str) -> SideStats:
            session = plain_session(spark)
            return read_stats(session, read_delta(session, lake.hadoop_uri(path)))

        def all_by_spark() -> list[SideStats]:
            with ThreadPoolExecutor(2) as pool:
                return list(pool.map(by_spark, paths))

        by_spark(paths[0])  # its first query compiles what all others use
        mine, seconds, used = timed(lambda: [read_side_stats(lake, path) for path in paths])
        theirs, slow, burnt = timed(all_by_spark)
    spark.stop()
    if mine != theirs:
        sys.exit(f"they differ: {mine[:2]}, {theirs[:2]}")
    print(f"{given.tables} tables, {given.rounds} files each")
    print(f"  here   {seconds:8.2f} s {used:8.2f} CPU s")
    print(f"  Spark  {slow:8.2f} s {burnt:8.2f} CPU s")
    print(f"  ratio  {slow / seconds:8.1f}   {burnt / used:8.1f}")


if __name__ == "__main__":
    main()
