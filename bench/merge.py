"""How fast changes are merged: a merge step as `ratchet` makes it, beside a plain MERGE.

    python bench/merge.py [--rows N] [--updates U] [--rounds R]

Of each number of changes: updates of any rows, updates of rows whose keys follow each other, and
inserts past the last key. Two equal Delta tables of N rows and six columns (BIGINT key,
VARCHAR(40), CHAR(8), INT, TIMESTAMP(6), DECIMAL(18,2)), deletion vectors on. In turn, in one warmed
session, the same changes go into the one by `merge.rounds.Merger` (newest change per key, merge
rule, user metadata, a cut) and into the other by a MERGE as anybody would write it, with Spark's
and Delta's default settings, from the same change files. Both tables must hold the same in the end.
Wall time depends on what else the machine does; processor time of the JVM less so: both are shown,
each the best of R rounds. Memory is the highest of the JVM (its heap is 4 GiB) and of this process.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np

from bench.lib.orders import FILES, NONE, Orders, create
from bench.lib.session import bench_session
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.rounds import Merger
from ratchet.merge.step import MergeOptions
from ratchet.store.formats import open_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


KINDS: Final = ("any", "near", "past")


@dataclass(frozen=True)
class Cost:
    """What one merge took: seconds on the clock, of processor time of the JVM and this process."""

    wall: float
    cpu: float


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--updates", type=int, action="append", help="1000000 and 10000 by default")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    spark = bench_session()
    home = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    try:
        bench = Bench(spark, home, given.rows)
        bench.run(10_000, rounds=2)  # JIT, class loading
        print(f"{given.rows:,} rows in {FILES} files; best of {given.rounds}")
        print("updates, keys  | ratchet: rows/s, wall s, cpu s | plain: the same        | ratio")
        asked = given.updates or [1_000_000, 10_000]
        for updates, keys in [(u, k) for u in asked for k in KINDS]:
            ours, plain = bench.run(min(updates, given.rows), rounds=given.rounds, keys=keys)
            print(
                f"{updates:9,} {keys:4} "
                f"| {updates / ours.wall:10,.0f} {ours.wall:7.2f} {ours.cpu:7.2f} "
                f"| {updates / plain.wall:8,.0f} {plain.wall:7.2f} {plain.cpu:7.2f} "
                f"| {plain.wall / ours.wall:6.2f} (cpu {plain.cpu / ours.cpu:.2f})"
            )
        bench.check()
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"peak memory: JVM {_high_water(bench.jvm):,.0f} MiB, this process {own:,.0f} MiB")
    finally:
        spark.stop()
        shutil.rmtree(home)
    return 0


class Bench:
    """Two lakes with equal tables."""

    def __init__(self, spark: SparkSession, home: Path, rows: int) -> None:
        self._spark = spark
        self._rows = self._next = rows
        self._random = np.random.default_rng(1)
        gateway: Any = spark.sparkContext._jvm  # noqa: SLF001 - no other way to its pid
        self.jvm = int(gateway.java.lang.ProcessHandle.current().pid())
        self.ours = open_lake(home / "ours", now=1)
        self._plain = open_lake(home / "plain", now=1)
        self._orders = Orders(self.ours, rows)
        create(self._plain, rows)
        self._state = self._orders.state
        options = MergeOptions(policy=InvalidValuePolicy(), max_bytes=1 << 40)
        self._merger = Merger(spark, self.ours, options)

    def run(self, updates: int, *, rounds: int, keys: str = "any") -> tuple[Cost, Cost]:
        """The best cost of merging that many updates: ours, and the plain way's."""
        ours, plain = [], []
        for _ in range(rounds):
            path = self.commit_round(updates, keys)
            ours.append(self._cost(self.step))
            plain.append(self._cost(partial(self._plain_merge, path)))
        return _best(ours), _best(plain)

    def check(self) -> None:
        """Both tables hold the same."""
        sums = [
            self._spark.sql(
                f"SELECT count(*), sum(hash(*)) FROM delta.`{lake.hadoop_uri(self._state.path)}`"
            ).collect()
            for lake in (self.ours, self._plain)
        ]
        assert sums[0] == sums[1], sums

    def step(self) -> None:
        """Merge what was committed."""
        result = self._merger.step()
        assert result.changed

    def _plain_merge(self, path: str) -> None:
        """Default settings; the newest change per key, as every guide to MERGE says."""
        session = self._spark.newSession()
        session.read.parquet(path).createOrReplaceTempView("changes")
        session.sql(
            f"MERGE INTO delta.`{self._plain.hadoop_uri(self._state.path)}` t USING ("
            "SELECT after.*, token AS _token FROM (SELECT *, row_number() OVER (PARTITION BY "
            "after.id ORDER BY token.seq DESC, token.idx DESC) AS n FROM changes) WHERE n = 1) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def _cost(self, work: Callable[[], None]) -> Cost:
        wall, cpu = time.perf_counter(), _cpu(self.jvm) + time.process_time()
        work()
        used = _cpu(self.jvm) + time.process_time() - cpu
        return Cost(time.perf_counter() - wall, used)

    def commit_round(self, count: int, keys: str) -> str:
        """Commit a round; the path of its change file for Spark.

        Args:
            count: how many changes.
            keys: of KINDS.
        """
        if keys == "past":
            self._next += count
            return self._orders.commit(
                updates=NONE, inserts=np.arange(self._next - count, self._next)
            )
        ids = self._random.permutation(self._rows)[:count].astype("int64")
        if keys == "near":
            ids = np.arange(count, dtype="int64") + self._rows // 2
        return self._orders.commit(updates=ids)


def _best(costs: list[Cost]) -> Cost:
    return Cost(min(c.wall for c in costs), min(c.cpu for c in costs))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _high_water(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    raise SystemExit(main())
