"""How fast capture is, socket to closed change files, beside what the stream allows at all.

    python bench/capture.py [--rows N] [--transactions N] [--flavor mariadb|mysql] [--repeat N]

A private server logs three workloads, and each is read these ways in turn, N times:

- framing: receive, find events, check their CRC32; nothing else.
- decode and drop: the same kernels as capture up to Arrow columns, which are thrown away.
- capture: a slice as a Spark task takes it, in this process: decoded, with tokens, into Parquet.
- of a tablet: the same with `vitess: true`, which looks for journals (MySQL only).

The best of each counts. Workloads: `bulk` (inserts of six columns, 50,000 rows in a transaction),
`single` (transactions of one row), `mixed` (inserts, updates, deletes over ten tables, 20 rows in a
transaction). Peak memory is this process's, kernels and libraries included.

Exit code 1 if capture is below a third of decode and drop, by the clock and by CPU time alike (the
clock is worth little where other work goes on beside it).
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

from lab.servers import (
    RATCHET_PASSWORD,
    RATCHET_USER,
    MariadbServer,
    MysqlServer,
    Server,
    create_ratchet_user,
)
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.binlog.changes import Decoders
from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.ingest.binlog.reader import Reader
from ratchet.ingest.capture import capture_slice, close_streams
from ratchet.ingest.slices import CaptureRequest, SliceLimits
from ratchet.store.formats import open_lake
from ratchet.wire.binlog import BinlogStream, DumpOptions
from ratchet.wire.connect import SourceConfig
from ratchet.wire.hints import ServerCatalog
from ratchet.wire.session import Session

DATABASE: Final = "bench"
TABLES: Final = 10
_COLUMNS: Final = (
    "(id BIGINT PRIMARY KEY, name VARCHAR(40), code CHAR(8), amount INT, "
    "placed TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6), price DECIMAL(18,2))"
)
_VALUES: Final = "CONCAT('name ', {n}), CONCAT('c', {n} % 1000000), {n} % 1000003, {n} / 100"
_NAMES: Final = "(id, name, code, amount, price)"
_DIGITS: Final = " UNION ALL ".join(f"SELECT {n} AS d" for n in range(10))
_SINGLE: Final = f"""
CREATE PROCEDURE single(count INT) BEGIN
    DECLARE n INT DEFAULT 0;
    WHILE n < count DO
        INSERT INTO single {_NAMES} VALUES (n, {_VALUES.format(n="n")});
        SET n = n + 1;
    END WHILE;
END"""


@dataclass(frozen=True)
class Workload:
    """A stretch of the log: where it begins and ends, and what is in it."""

    name: str
    start: Position
    end: Position
    rows: int


@dataclass
class Reading:
    """One way of reading a workload: the best time and what it took."""

    name: str
    wall: float = float("inf")
    cpu: float = float("inf")

    def run(self, work: Callable[[], int], rows: int) -> None:
        """Time it once; it must come to so many rows, if it counts them."""
        wall, cpu = time.perf_counter(), time.process_time()
        found = work()
        self.wall = min(self.wall, time.perf_counter() - wall)
        self.cpu = min(self.cpu, time.process_time() - cpu)
        assert found in {rows, -1}, f"{self.name}: {found} rows instead of {rows}"


def main() -> int:
    """Run the benchmark; 0 if the limit holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--transactions", type=int, default=200_000)
    parser.add_argument("--flavor", choices=["mariadb", "mysql"], action="append")
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    good = True
    for flavor in given.flavor or ["mariadb", "mysql"]:
        kind = {"mariadb": MariadbServer, "mysql": MysqlServer}[flavor]
        with kind(buffer_pool="512M") as server:
            for workload in workloads(server, given.rows, given.transactions):
                good &= measure(server, workload, given.repeat)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:,.0f} MB")
    return 0 if good else 1


def measure(server: Server, workload: Workload, repeat: int) -> bool:
    """Read one workload all ways; whether capture is fast enough against decode and drop."""
    source = config(server)
    framing, dropped, captured, tablet = map(
        Reading, ("framing", "decode and drop", "capture", "of a tablet")
    )
    readings = [framing, dropped, captured, *([tablet] if server.flavor == "mysql" else [])]
    folder = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    try:
        for _ in range(repeat):
            framing.run(lambda: frame_only(source, workload), workload.rows)
            dropped.run(lambda: decode_and_drop(source, workload), workload.rows)
            captured.run(lambda: capture(source, workload, folder), workload.rows)
            if tablet in readings:
                tablet.run(lambda: capture(source, workload, folder, vitess=True), workload.rows)
    finally:
        shutil.rmtree(folder)
    transactions = workload.end.seq - workload.start.seq
    print(f"{server.flavor} {workload.name}: {workload.rows:,} rows, {transactions:,} transactions")
    for one in readings:
        print(
            f"  {one.name:16} {workload.rows / one.wall:>12,.0f} rows/s"
            f" {transactions / one.wall:>10,.0f} tx/s {one.wall:7.2f} s, CPU {one.cpu:5.2f} s"
        )
    ratio, by_cpu = dropped.wall / captured.wall, dropped.cpu / captured.cpu
    print(f"  capture / decode and drop: {ratio:.2f} by the clock, {by_cpu:.2f} by CPU")
    if tablet in readings:
        slower, more = captured.wall / tablet.wall, captured.cpu / tablet.cpu
        print(f"  of a tablet / capture: {slower:.2f} by the clock, {more:.2f} by CPU")
    return max(ratio, by_cpu) >= 1 / 3


def workloads(server: Server, rows: int, transactions: int) -> Iterator[Workload]:
    """Write the three workloads into a server's log, each when the one before was read."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    create_ratchet_user(server, databases=[DATABASE])
    for name in ("bulk", "single", *(f"mixed{n}" for n in range(TABLES))):
        server.execute(f"CREATE TABLE {name} {_COLUMNS}", database=DATABASE)
    server.execute(_SINGLE, database=DATABASE)
    joined = ", ".join(f"({_DIGITS}) t{n}" for n in range(5))
    number = " + ".join(f"t{n}.d * {10**n}" for n in range(5))

    def bulk() -> int:
        for begin in range(0, rows, 50_000):
            n = f"(n + {begin})"
            source = f"SELECT {number} AS n FROM {joined} WHERE t4.d < 5"
            values = f"SELECT {n}, {_VALUES.format(n=n)} FROM ({source}) numbers"
            server.execute(f"INSERT INTO bulk {_NAMES} {values}", database=DATABASE)
        return -(-rows // 50_000) * 50_000

    def single() -> int:
        server.execute(f"CALL single({transactions})", database=DATABASE)
        return transactions

    def mixed() -> int:
        count = 0
        with server.connect(database=DATABASE, autocommit=False) as connection:
            cursor = connection.cursor()
            for n in range(rows // 100):
                table, begin = f"mixed{n % TABLES}", n * 10
                values = ", ".join(
                    f"({i}, 'name {i}', 'c{i % 1000}', {i}, {i / 100})"
                    for i in range(begin, begin + 10)
                )
                cursor.execute(f"INSERT INTO {table} {_NAMES} VALUES {values}")
                where = f"WHERE id >= {begin} AND id < {begin}"
                cursor.execute(f"UPDATE {table} SET amount = amount + 1 {where} + 7")
                cursor.execute(f"DELETE FROM {table} {where} + 3")
                connection.commit()
                count += 20
        return count

    with Session.connect(config(server)) as session:
        for name, write in (("bulk", bulk), ("single", single), ("mixed", mixed)):
            start = session.executed()
            count = write()
            yield Workload(name, start, session.executed(), count)


def config(server: Server) -> SourceConfig:
    """How to reach a server."""
    return SourceConfig(
        shard=ShardId("shop", "-"),
        host=server.host,
        port=server.port,
        user=RATCHET_USER,
        password=RATCHET_PASSWORD,
        database=DATABASE,
    )


def frame_only(source: SourceConfig, workload: Workload) -> int:
    """Receive and frame as many XIDs (the ends of transactions) as the workload has."""
    stream = BinlogStream(source, workload.start, DumpOptions(server_id=1001))
    left = workload.end.seq - workload.start.seq
    while left > 0:
        stream.receive(1.0)
        left -= int((stream.index["type"][stream.first : stream.count] == 16).sum())
        stream.first = stream.count
        if stream.is_full:
            stream.recycle()
    stream.close()
    return -1


def decode_and_drop(source: SourceConfig, workload: Workload) -> int:
    """Receive, frame, walk, decode to Arrow, and forget it."""
    stream = BinlogStream(source, workload.start, DumpOptions(server_id=1002))
    decoders = Decoders(InvalidValuePolicy())
    count = 0

    def drop(batch: TransactionBatch) -> int:
        nonlocal count
        for slot in set(batch.rows["slot"].tolist()):
            for op in (1, 2, 3):
                chosen = batch.rows[(batch.rows["slot"] == slot) & (batch.rows["op"] == op)]
                if chosen.size:
                    rows = decoders.of(slot, batch.maps).decode(
                        batch.buffers[0], chosen["start"].copy(), chosen["end"].copy(), op
                    )
                    count += rows.event.size
        return 0

    reader = Reader(
        shard=source.shard,
        database=DATABASE,
        patterns=TablePatterns(),
        start=workload.start,
        catalog=ServerCatalog(stream.control, keyspace="shop"),
        keep=drop,
    )
    reader.start_slice(known=frozenset(), limit=1 << 60)
    goal = workload.end.executed
    while not reader.position().executed.contains_all(goal):
        stream.receive(1.0)
        stream.first, _ = reader.feed(stream.data, stream.index, stream.first, stream.count)
        if stream.is_full:
            reader.flush()
            stream.recycle()
    reader.flush()
    stream.close()
    return count


def capture(source: SourceConfig, workload: Workload, folder: Path, *, vitess: bool = False) -> int:
    """Take the workload as one slice."""
    lake = folder / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    open_lake(lake, now=1)
    result = capture_slice(
        CaptureRequest(
            source=source,
            start=workload.start,
            generation=1,
            round_number=1,
            lake=str(lake),
            patterns=TablePatterns(),
            limits=SliceLimits(max_bytes=1 << 60, max_seconds=600, stop_at=workload.end.executed),
            dump=DumpOptions(server_id=1003),
            vitess=vitess,
        )
    )
    close_streams()
    if result.error is not None:
        raise result.error
    assert result.slice is not None
    return result.slice.rows


if __name__ == "__main__":
    sys.exit(main())
