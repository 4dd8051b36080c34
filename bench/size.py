"""What a small merge costs in a small table and in a large one: it should be the change's cost.

    python bench/size.py [--rows N ...] [--changes C] [--rounds R]

Tables of 10,000,000 and of 100,000,000 rows, six columns, in files of 625,000 rows by ranges of the
key, as a dump leaves them. In turn into each table C updates (10,000) are merged: of rows whose
keys follow each other, then of any rows. Median and best of R rounds each, wall time and processor
time of this process, which does it all (docs/decisions/0025-small-merges.md). In the end the rows
that were changed are read back.

Exit code 1 if the local ones take more than 1.5 times as long in the large table as in the small.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench.lib.orders import Ints, Orders
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.rounds import Merger
from ratchet.merge.step import MergeOptions
from ratchet.store.delta.log import replay
from ratchet.store.formats import open_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AIM: Final = 1.5
KINDS: Final = ("near", "any")


@dataclass
class Table:
    """A table, and what merges into it took.

    Attributes:
        rows: how many it has.
        orders: its log.
        merger: what merges.
        wall: kind of changes -> seconds on the clock, of each merge.
        cpu: the same, of the processor.
        changed: the keys of the last changes.
    """

    rows: int
    orders: Orders
    merger: Merger
    wall: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    cpu: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    changed: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, folder: Path, rows: int) -> Table:
        """A new one."""
        orders = Orders(open_lake(folder, now=1), rows)
        options = MergeOptions(policy=InvalidValuePolicy(), max_bytes=1 << 40)
        # Batches that are this small and this plain are nothing for Spark.
        merger = Merger(cast("SparkSession", None), orders.lake, options)
        return cls(rows, orders, merger)

    def merge(self, kind: str, changes: int, rng: np.random.Generator) -> None:
        """Commit a round and merge it."""
        first = int(rng.integers(self.rows - changes))
        near = np.arange(first, first + changes, dtype=np.int64)
        self.changed = near if kind == "near" else np.unique(rng.integers(self.rows, size=changes))
        self.orders.commit(updates=self.changed)
        wall, cpu = time.perf_counter(), time.process_time()
        assert self.merger.step().changed
        self.wall[kind].append(time.perf_counter() - wall)
        self.cpu[kind].append(time.process_time() - cpu)

    def check(self) -> None:
        """The rows that were changed last are as they must be, and no row is there twice."""
        lake, path = self.orders.lake, self.orders.state.path
        files = replay(lake, path)
        assert files is not None
        assert sum((one.rows or 0) - one.gone for one in files.files.values()) == self.rows
        low, high = int(self.changed[0]), int(self.changed[-1])
        name = f"% of version {self.orders.log.last_number()}"
        query = f"SELECT id FROM t WHERE id BETWEEN {low} AND {high} AND name LIKE '{name}'"
        table = DeltaTable(lake.delta_uri(path))
        found = pa.table(QueryBuilder().register("t", table).execute(query).read_all())
        assert np.array_equal(np.sort(found["id"].to_numpy()), self.changed)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, action="append")
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    sizes = given.rows or [10_000_000, 100_000_000]
    home = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    try:
        tables = [Table.of(home / str(rows), rows) for rows in sizes]
        rng = np.random.default_rng(1)
        for kind in KINDS:
            for number in range(given.rounds + 1):
                for table in tables:
                    table.merge(kind, given.changes, rng)
                    if not number:  # imports, and the first look at the table's log
                        table.wall[kind].clear()
                        table.cpu[kind].clear()
        for table in tables:
            table.check()
    finally:
        shutil.rmtree(home)
    return _report(tables, given.changes)


def _report(tables: Sequence[Table], changes: int) -> int:
    print(f"{changes:,} updates   rows of the table   median s    best s   median CPU s")
    for kind in KINDS:
        for table in tables:
            wall, cpu = table.wall[kind], table.cpu[kind]
            print(
                f"{kind:<16} {table.rows:>19,} {statistics.median(wall):>10.3f} {min(wall):>9.3f} "
                f"{statistics.median(cpu):>14.3f}"
            )
    small, large = tables[0], tables[-1]
    ratios = {
        kind: statistics.median(large.wall[kind]) / statistics.median(small.wall[kind])
        for kind in KINDS
    }
    print(
        f"RATIO of the largest to the smallest: near {ratios['near']:.2f}, any {ratios['any']:.2f}"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process {peak:,.0f} MiB, the making of the tables included")
    return 0 if ratios["near"] <= AIM else 1


if __name__ == "__main__":
    raise SystemExit(main())
