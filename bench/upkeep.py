"""What a small merge costs after thousands of others: the upkeep's curve.

    python bench/upkeep.py [--rows N] [--rounds R] [--every E]

A table of N rows (1,000,000), six columns; R rounds (10,000) of 100 updates of any keys, 10 rows
that are new and 5 that go, each merged by itself, with upkeep as a run does it: small files put
together, the change log and the cuts pruned (here a round is a minute, and a day is kept). Printed
for each E rounds (500): seconds of a merge (median, highest, median of the processor's) and of the
upkeep per merge, files that the newest version of the table and of its side table have, and their
bytes, rows that are gone in them, and the files of `_ratchet` that are left. The last line is the
ratio of the last merges to the first. Nothing of it is Spark's. In the end the table is compared
with what was written.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench.lib.orders import NO_SPARK, Orders
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.run.merging import COMPACT_EVERY, LakeUpkeep
from ratchet.merge.maintain import prune_change_log, prune_cuts
from ratchet.merge.rounds import Merger
from ratchet.merge.step import MergeOptions
from ratchet.store.cuts import Cuts
from ratchet.store.delta.log import replay
from ratchet.store.formats import open_lake
from ratchet.store.tables import Tables

UPDATES, INSERTS, DELETES = 100, 10, 5
MINUTE: Final = 60.0
DAY: Final = 86_400.0


class Curve:
    """A table that is merged into, and its upkeep."""

    def __init__(self, home: Path, rows: int) -> None:
        self.lake = open_lake(home / "lake", now=1)
        self.now = 1_700_000_000.0
        self._random = np.random.default_rng(1)
        self._orders = Orders(self.lake, rows)
        self._keys = np.arange(rows)
        self._next = rows
        self._merger = Merger(
            NO_SPARK,
            self.lake,
            MergeOptions(policy=InvalidValuePolicy()),
            clock=lambda: int(self.now * 1e6),
        )
        self._upkeep = LakeUpkeep(
            spark=NO_SPARK,
            lake=self.lake,
            policy=InvalidValuePolicy(),
            forget=self._merger.forget,
            change_log=DAY,
            tombstones=DAY,
            history=DAY,
            wall=lambda: self.now,
        )

    def round(self) -> tuple[float, float]:
        """Commit one and merge it; seconds of the merge, and of the processor."""
        self.now += MINUTE
        chosen = self._random.permutation(len(self._keys))[: UPDATES + DELETES]
        touched = self._keys[chosen]
        new = np.arange(self._next, self._next + INSERTS)
        self._next += INSERTS
        self._orders.commit(
            updates=touched[:UPDATES],
            inserts=new,
            deletes=touched[UPDATES:],
            at=int(self.now * 1e6),
        )
        self._keys = np.concatenate([np.delete(self._keys, chosen[UPDATES:]), new])
        begin, used = time.perf_counter(), time.process_time()
        result = self._merger.step()
        took = time.perf_counter() - begin, time.process_time() - used
        assert sum(result.changed.values()) == UPDATES + INSERTS + DELETES
        return took

    def upkeep(self, *, hourly: bool) -> float:
        """Seconds of what a run does between two merges."""
        begin = time.perf_counter()
        self._upkeep.compact()
        if hourly:
            states, now = Tables(self.lake).list(), int(self.now * 1e6)
            prune_change_log(self.lake, self._orders.log, states, now=now, keep=DAY)
            prune_cuts(Cuts(self.lake), now=now, history=DAY)
        return time.perf_counter() - begin

    def told(self) -> str:
        """Files, their size, rows gone in them; of the side table, too; files of the pipeline."""
        parts = []
        for path in (self._orders.state.path, self._orders.state.side_path):
            table = replay(self.lake, path)
            files = list(table.files.values()) if table else []
            size = sum(one.size for one in files) / 1e6
            parts.append(f"{len(files):5} {size:8.1f} {sum(one.gone for one in files):9,}")
        return " | ".join([*parts, f"{len(self.lake.list('_ratchet')):7,}"])

    def check(self) -> None:
        """The table has the rows that were written, each once."""
        table = DeltaTable(self.lake.delta_uri(self._orders.state.path))
        found: Any = QueryBuilder().register("t", table).execute("SELECT id FROM t").read_all()
        ids = np.sort(pa.table(found)["id"].to_numpy())
        assert np.array_equal(ids, np.sort(self._keys))


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=500)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    try:
        curve = Curve(home, given.rows)
        print(
            f"{given.rows:,} rows; a round: {UPDATES} updates, {INSERTS} inserts, "
            f"{DELETES} deletes\n"
            "        merge, s               upkeep    table: rows gone       "
            " | side table: rows gone  |  left in\n"
            "rounds  median highest cpu    a merge   files    MB           "
            " | files    MB            | _ratchet"
        )
        medians = []
        for start in range(0, given.rounds, given.every):
            merges, upkeep = [], 0.0
            for number in range(start, start + given.every):
                merges.append(curve.round())
                if number % COMPACT_EVERY == COMPACT_EVERY - 1:
                    upkeep += curve.upkeep(hourly=number % 60 >= 60 - COMPACT_EVERY)
            walls, cpus = zip(*merges, strict=True)
            medians.append((statistics.median(walls), statistics.median(cpus)))
            print(
                f"{start + given.every:6,} {medians[-1][0]:7.3f} {max(walls):7.3f} "
                f"{medians[-1][1]:7.3f} "
                f"{upkeep / given.every:8.3f}  {curve.told()}",
                flush=True,
            )
        curve.check()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        wall, cpu = (last / first for last, first in zip(medians[-1], medians[0], strict=True))
        print(f"last by first: {wall:.2f} (cpu {cpu:.2f}); peak memory {memory:,.0f} MiB")
    finally:
        shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
