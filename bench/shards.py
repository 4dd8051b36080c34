"""What more shards cost: capture's throughput, and the driver's work for a round.

    python bench/shards.py [--shards N ...] [--rows R] [--cluster [KIND]] [--s3]

N private MariaDB servers, a shard each, of which each has logged R rows (transactions of 1,000).
Rounds are taken as `ratchet run` takes them, by Spark's tasks into a lake, until all is captured;
then 20 rounds, before each of which each shard has got ten rows. Told are

    total      rows a second of all shards together, best of 2, each into a new lake; on a cluster,
               where each executor starts a worker for each of its tasks, best of 5
    shard      the same divided by the shards, beside what one shard alone has reached in this run
    driver     processor time of this process and, without --cluster, of Spark's Java and its
               workers' start, for each of the small rounds; "here" is this process alone
    round      how long a small round took, and what it adds to the log of rounds

With --cluster Spark is a standalone master with two workers, each a process; with
`--cluster local-cluster` it is Spark's own cluster for tests, whose two executors are processes.
With --s3 the lake is in an object store, moto's server, which is a program for tests on the same
cores: told is its processor time, too. On a machine with few cores the total is the machine's: what
counts is that it does not fall.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

from bench.lib.processes import Processes
from bench.lib.session import bench_session
from lab.cluster import SparkCluster, local_cluster
from lab.objectstore import S3Server
from lab.servers import RATCHET_PASSWORD, RATCHET_USER, MariadbServer, create_ratchet_user
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.ingest.rounds import RoundTaker, spark_runner
from ratchet.ingest.slices import CaptureRequest, SliceLimits
from ratchet.store import layout
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig
from ratchet.wire.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE: Final = "bench"
SMALL_ROUNDS: Final = 20
_BATCH: Final = 1000
_COLUMNS: Final = (
    "(id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40), code CHAR(8), amount INT, "
    "placed TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6), price DECIMAL(18,2))"
)
_DIGITS: Final = " UNION ALL ".join(f"SELECT {n} AS d" for n in range(10))
_NUMBERS: Final = (
    f"SELECT a.d + 10 * b.d + 100 * c.d AS n FROM ({_DIGITS}) a, ({_DIGITS}) b, ({_DIGITS}) c"
)
_INSERT: Final = (
    "INSERT INTO t (name, code, amount, price) SELECT CONCAT('name ', n), CONCAT('c', n), n, n / 7 "
    f"FROM ({_NUMBERS}) numbers WHERE n < %d"
)


class Shards:
    """Servers with rows in their logs."""

    def __init__(self, count: int, rows: int, stack: ExitStack) -> None:
        self._servers: list[MariadbServer] = []
        self.sources: list[SourceConfig] = []
        for number in range(count):
            server = stack.enter_context(MariadbServer(buffer_pool="32M"))
            server.execute(f"CREATE DATABASE {DATABASE}")
            create_ratchet_user(server, databases=[DATABASE])
            server.execute(f"CREATE TABLE t {_COLUMNS}", database=DATABASE)
            self._servers.append(server)
            self.sources.append(
                SourceConfig(
                    shard=ShardId("shop", f"s{number:02d}"),
                    host=server.host,
                    port=server.port,
                    user=RATCHET_USER,
                    password=RATCHET_PASSWORD,
                    database=DATABASE,
                )
            )
        self.start = self.positions(count)
        for number in range(count):
            for _ in range(rows // _BATCH):
                self.write(number, _BATCH)

    def positions(self, count: int) -> list[Position]:
        """Where the first so many are now."""
        found = []
        for source in self.sources[:count]:
            with Session.connect(source) as session:
                found.append(session.executed())
        return found

    def write(self, number: int, rows: int) -> None:
        """A transaction on a shard."""
        self._servers[number].execute(_INSERT % rows, database=DATABASE)


class Capture:
    """Rounds of some shards, of those that a position is given for, into a new lake."""

    def __init__(
        self, spark: SparkSession, shards: Shards, start: Sequence[Position], lake: str
    ) -> None:
        self._lake = lake
        self._sources = shards.sources[: len(start)]
        self._start = {str(s.shard): at for s, at in zip(self._sources, start, strict=True)}
        self._taker = RoundTaker(RoundLog(open_lake(lake, now=1)), spark_runner(spark))

    def take(self) -> int:
        """One; rows in it."""
        outcome = self._taker.take([self._request(source) for source in self._sources])
        for error in outcome.errors.values():
            raise error
        return sum(one.rows for one in outcome.slices)

    def _request(self, source: SourceConfig) -> CaptureRequest:
        shard = str(source.shard)
        return CaptureRequest(
            source=source,
            start=self._taker.position(shard) or self._start[shard],
            generation=1,
            round_number=self._taker.next_number,
            lake=self._lake,
            patterns=TablePatterns(),
            limits=SliceLimits(),
            dump=DumpOptions(server_id=2000 + int(shard[-2:])),
        )


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, action="append", help="1, 8 and 32 by default")
    parser.add_argument("--rows", type=int, default=200_000, help="of each shard")
    parser.add_argument(
        "--cluster", nargs="?", const="standalone", choices=["standalone", "local-cluster"]
    )
    parser.add_argument("--s3", action="store_true")
    given = parser.parse_args()
    counts: Sequence[int] = given.shards or [1, 8, 32]
    home = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    try:
        with ExitStack() as stack:
            shards = Shards(max(counts), given.rows, stack)
            root, store = str(home), None
            if given.s3:
                server = stack.enter_context(S3Server(home / "s3"))
                os.environ.update(server.environment)  # before there are workers
                root, store = server.new_root(), Processes(server.pid)
            spark, processes = stack.enter_context(_spark(home, cluster=given.cluster))
            where = given.cluster or "one process"
            print(f"{given.rows:,} rows a shard, {where}, lake in {'S3' if store else 'a folder'}")
            alone = 0.0
            for count in counts:
                used = store.cpu() if store else 0.0
                runs = 5 if given.cluster else 2
                total = _throughput(spark, shards, count, root, given.rows, runs)
                used = (store.cpu() - used) / runs if store else 0.0
                alone = alone or total
                print(
                    f"{count:3} shards: total {total:>9,.0f} rows/s ({total / alone:.2f} of the "
                    f"first), a shard {total / count:>9,.0f}"
                    + (f"; store {used:.1f} s of CPU" if store else "")
                )
                print(f"     {_small(spark, shards, count, root, processes)}", flush=True)
    finally:
        shutil.rmtree(home)
    return 0


def _throughput(  # noqa: PLR0917 - one call
    spark: SparkSession, shards: Shards, count: int, root: str, rows: int, runs: int
) -> float:
    best = 0.0
    for number in range(runs):
        capture = Capture(spark, shards, shards.start[:count], f"{root}/all-{count}-{number}")
        begin, taken = time.perf_counter(), 0
        while taken < count * rows:
            taken += capture.take()
        best = max(best, taken / (time.perf_counter() - begin))
    return best


def _small(spark: SparkSession, shards: Shards, count: int, root: str, processes: Processes) -> str:
    """What a round costs in which each shard has a few rows."""
    lake = f"{root}/small-{count}"
    capture = Capture(spark, shards, shards.positions(count), lake)
    times, here, whole = [], [], []
    for _ in range(SMALL_ROUNDS + 3):
        for number in range(count):
            shards.write(number, 10)
        cpu = processes.cpu()  # first: looking at so many processes is itself this one's work
        begin, own = time.perf_counter(), time.process_time()
        capture.take()
        times.append(time.perf_counter() - begin)
        here.append(time.process_time() - own)
        whole.append(processes.cpu() - cpu)
    chosen = slice(3, None)  # behind those that open the streams
    log = sum(file.size for file in open_lake(lake, now=1).list(layout.ROUNDS))
    return (
        f"a round {statistics.median(times[chosen]):.2f} s, driver "
        f"{statistics.mean(here[chosen]) * 1000:.0f} ms here, "
        f"{statistics.mean(whole[chosen]) * 1000:.0f} ms with all of Spark's processes; "
        f"log {log / len(times) / 1024:.1f} KB a round"
    )


@contextmanager
def _spark(home: Path, *, cluster: str | None) -> Iterator[tuple[SparkSession, Processes]]:
    with ExitStack() as stack:
        master = "local[4]"
        pids = [os.getpid()]
        if cluster == "local-cluster":
            master = stack.enter_context(local_cluster())
        elif cluster:
            started = stack.enter_context(SparkCluster(home / "cluster"))
            master = started.url
            pids += started.pids
        spark = bench_session(master)
        try:
            yield spark, Processes(*pids)
        finally:
            spark.stop()


if __name__ == "__main__":
    raise SystemExit(main())
