"""How soon a change can be read: fresh reads, beside merging first, beside the merged table alone.

    python bench/fresh.py [--rows N ...] [--changes C] [--rounds R]

The table of bench/merge.py, with C updates captured and not merged, of keys all over it or close
together. A query for one row and one over all rows are asked of

    fresh    `merge.fresh.read_fresh`, made anew for each query
    merged   a merge step first, then the table (once: then it is merged)
    table    the table alone, without those updates: what the query costs by itself

Best of R each, in one warmed session. The answers must be the same, fresh and merged.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

from bench.lib.session import bench_session
from bench.merge import Bench
from ratchet.merge.fresh import read_fresh

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Query = Callable[["DataFrame"], Any]


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, action="append", help="1 and 10 million by default")
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    spark = bench_session()
    home = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    try:
        for rows in given.rows or [1_000_000, 10_000_000]:
            bench = Bench(spark, home / str(rows), rows)
            for _ in range(2):  # JIT, class loading
                bench.commit_round(given.changes, "any")
                bench.step()
            for close in (False, True):
                _compare(spark, bench, rows, given.changes, close=close, rounds=given.rounds)
            shutil.rmtree(home / str(rows))
    finally:
        spark.stop()
        shutil.rmtree(home)
    return 0


def _compare(
    spark: SparkSession, bench: Bench, rows: int, changes: int, *, close: bool, rounds: int
) -> None:
    where = "close together" if close else "all over it"
    print(f"{rows:,} rows, {changes:,} updates {where} captured and not merged")
    bench.commit_round(changes, "near" if close else "any")
    queries: dict[str, Query] = {
        "one row": lambda frame: frame.where(f"id = {rows // 2}").collect(),
        "sum over all rows": lambda frame: frame.selectExpr("sum(amount)").collect(),
    }

    def table() -> DataFrame:
        return spark.read.format("delta").load(bench.ours.hadoop_uri("bench/orders"))

    def fresh() -> DataFrame:
        found = read_fresh(spark, bench.ours)
        assert found is not None
        assert found.round > found.cut.round
        return found.frames["bench.orders"]

    times, answers = {}, {}
    for name, query in queries.items():
        times[name, "table"], _ = _best(lambda q=query: q(table()), rounds)  # type: ignore[misc]
        times[name, "fresh"], answers[name] = _best(lambda q=query: q(fresh()), rounds)  # type: ignore[misc]
    merging, _ = _best(bench.step, 1)
    for name, query in queries.items():
        times[name, "merged"], merged = _best(lambda q=query: q(table()), rounds)  # type: ignore[misc]
        assert sorted(merged) == sorted(answers[name]), (merged, answers[name])
        alone, laid, waited = (times[name, how] for how in ("table", "fresh", "merged"))
        print(
            f"  {name:<18} fresh {laid:6.2f} s  merged {merging + waited:6.2f} s  table alone "
            f"{alone:6.2f} s  RATIO of merging first {laid / (merging + waited):.2f}"
        )


def _best(work: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """The shortest time of some, and what the last gave."""
    found, shortest = None, float("inf")
    for _ in range(rounds):
        begun = time.perf_counter()
        found = work()
        shortest = min(shortest, time.perf_counter() - begun)
    return shortest, found


if __name__ == "__main__":
    raise SystemExit(main())
