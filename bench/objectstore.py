"""What a lake in an object store costs: requests and seconds of small rounds and merges.

    python bench/objectstore.py [--delay SECONDS] [--rounds N] [--rows N] [--tables N]

The same three times: in a folder, in an S3 of our own (moto's server), and in one each of whose
requests takes SECONDS (0.03) longer, as a store in the same region does. N rounds (60) of 100
updates of any rows of a table of N rows (100,000) are written and committed, each is merged by
itself, a step that finds nothing is made behind it, and upkeep as a run does it. Told are medians
of seconds and requests of each part, and what the dearest 5 % of the merges and the commits took
(those that write a checkpoint). "in a row" is how many delays the median merge waited for: what of
its requests is made one behind the other. Then N tables (16) get 100 updates each, and one step
merges them all, four times. In the end the tables are compared.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench.lib.orders import NO_SPARK, Orders
from lab.objectstore import S3Server
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.run.merging import COMPACT_EVERY, LakeUpkeep
from ratchet.merge.rounds import Merger
from ratchet.merge.step import MergeOptions
from ratchet.store.formats import open_lake

UPDATES: Final = 100
MANY_ROWS: Final = 10_000
MANY_STEPS: Final = 4
PARTS: Final = ("commit", "merge", "idle", "upkeep", "many")


class Costs:
    """Seconds and requests of each part, round by round."""

    def __init__(self, requests: Callable[[], int]) -> None:
        self._requests = requests
        self.seconds: dict[str, list[float]] = {part: [] for part in PARTS}
        self.requests: dict[str, list[int]] = {part: [] for part in PARTS}

    def of(self, part: str, work: Callable[[], Any]) -> None:
        """Do it and note what it cost."""
        self._requests()
        begin = time.perf_counter()
        work()
        self.seconds[part].append(time.perf_counter() - begin)
        self.requests[part].append(self._requests())

    def told(self, part: str) -> str:
        """In a few words."""
        if not self.seconds[part]:
            return "-"  # too few rounds for an upkeep
        seconds = statistics.median(self.seconds[part])
        dearest = np.quantile(self.seconds[part], 0.95)
        requests = statistics.median(self.requests[part])
        return f"{seconds:6.3f} s {dearest:6.3f} s {requests:4.0f}"


def run(
    root: str, requests: Callable[[], int], rounds: int, rows: int, tables: int
) -> tuple[Costs, pa.Table]:
    """All rounds in one lake; their costs and the table in the end."""
    lake = open_lake(root, now=1)
    orders = Orders(lake, rows)
    policy = InvalidValuePolicy()
    random = np.random.default_rng(1)
    costs = Costs(requests)
    with Merger(NO_SPARK, lake, MergeOptions(policy=policy)) as merger:
        upkeep = LakeUpkeep(
            spark=NO_SPARK,
            lake=lake,
            policy=policy,
            forget=merger.forget,
            change_log=86_400,
            tombstones=86_400,
            history=86_400,
        )
        for number in range(rounds):
            chosen = random.permutation(rows)[:UPDATES]
            costs.of("commit", partial(orders.commit, updates=chosen))
            costs.of("merge", merger.step)
            costs.of("idle", merger.step)
            if number % COMPACT_EVERY == COMPACT_EVERY - 1:
                costs.of("upkeep", upkeep.compact)
        more = [Orders(lake, MANY_ROWS, number) for number in range(1, tables + 1)]
        for _ in range(MANY_STEPS):
            for one in more:
                one.commit(updates=random.permutation(MANY_ROWS)[:UPDATES])
            costs.of("many", merger.step)
    uri = lake.delta_uri(orders.state.path)
    table = DeltaTable(uri, storage_options=lake.storage_options)
    query = "SELECT id, name FROM t ORDER BY id"
    found: Any = QueryBuilder().register("t", table).execute(query).read_all()
    return costs, pa.table(found)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delay", type=float, default=0.03)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--tables", type=int, default=16)
    given = parser.parse_args()
    sizes = given.rounds, given.rows, given.tables
    home = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    try:
        costs, expected = run(str(home / "lake"), lambda: 0, *sizes)
        print(f"{given.rows:,} rows, {given.rounds} rounds of {UPDATES} updates")
        print("median, dearest 5 %, requests" + "".join(f"{part:>24}" for part in PARTS))
        _tell("folder", costs)
        base = 0.0
        for delay in (0.0, given.delay):
            with ExitStack() as stack:
                server = stack.enter_context(S3Server(home / f"s3-{delay}", delay=delay))
                os.environ.update(server.environment)
                root = server.new_root()
                costs, found = run(root, partial(_count, server), *sizes)
                assert found == expected
                _tell(f"S3, {delay * 1000:.0f} ms more", costs)
                merge = statistics.median(costs.seconds["merge"])
                if delay:
                    print(f"in a row: {(merge - base) / delay:.0f} requests of a merge's")
                base = merge
    finally:
        shutil.rmtree(home)
    return 0


def _count(server: S3Server) -> int:
    return len(server.requests())


def _tell(name: str, costs: Costs) -> None:
    print(f"{name:29}" + "".join(f"{costs.told(part):>24}" for part in PARTS), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
