"""How fast a stretch of the change log is compared with what mysql-replication reads of the binlog.

    python bench/logcheck.py [--rows N] [--flavor mariadb|mysql]

A private server logs inserts and updates of six columns, in transactions of 1,000 rows and of one;
they are captured into a lake, and compared from the socket and the change files to the verdict.
Also what a sample of a run takes (`jobs.watch.logsample`): 2,000 rows of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
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
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.logstretch import StretchBounds, check_stretch, stretches
from ratchet.ingest.rounds import RoundTaker, local_runner
from ratchet.ingest.slices import CaptureRequest, SliceLimits
from ratchet.jobs.watch.logsample import BYTES, ROWS
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig
from ratchet.wire.session import Session

DATABASE: Final = "bench"
_TABLE: Final = (
    "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(40), code CHAR(8), amount INT, "
    "placed TIMESTAMP(6) NULL, price DECIMAL(18,2))"
)


def main() -> int:
    """Run the benchmark; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--flavor", choices=["mariadb", "mysql"], action="append")
    given = parser.parse_args()
    good = True
    for flavor in given.flavor or ["mariadb", "mysql"]:
        kind = {"mariadb": MariadbServer, "mysql": MysqlServer}[flavor]
        with kind() as server, tempfile.TemporaryDirectory() as folder:
            good &= measure(server, Path(folder), given.rows)
    return 0 if good else 1


def measure(server: Server, folder: Path, rows: int) -> bool:
    """Write, capture, compare; whether all was equal."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    server.execute(_TABLE, database=DATABASE)
    create_ratchet_user(server, databases=[DATABASE])
    source = SourceConfig(
        shard=ShardId("bench", "-"),
        host=server.host,
        port=server.port,
        user=RATCHET_USER,
        password=RATCHET_PASSWORD,
        database=DATABASE,
    )
    lake = open_lake(folder / "lake", now=1)
    with Session.connect(source) as session:
        start = session.executed()
    write(server, rows)
    request = CaptureRequest(
        source=source,
        start=start,
        generation=1,
        round_number=1,
        lake=lake.root,
        patterns=TablePatterns(),
        limits=SliceLimits(max_seconds=600, min_seconds=0.0),
        dump=DumpOptions(server_id=4242),
    )
    outcome = RoundTaker(RoundLog(lake), local_runner).take([request])
    assert outcome.committed is not None, outcome.errors
    return report(server.flavor, lake, source, None) & report(
        server.flavor, lake, source, StretchBounds(rows=ROWS, bytes=BYTES)
    )


def write(server: Server, rows: int) -> None:
    """Half of the rows in transactions of 1,000, some updated, the others one by one."""
    with server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute("SET autocommit = 1")
        for first in range(0, rows, 1000):
            values = ", ".join(
                f"({n}, 'name {n}', 'c{n % 1000}', {n % 97}, '2026-01-01 00:00:00.5', {n}.25)"
                for n in range(first, first + 1000)
            )
            cursor.execute(f"INSERT INTO t VALUES {values}")
            cursor.execute(f"UPDATE t SET amount = {first} WHERE id = {first}")


def report(flavor: str, lake: Lake, source: SourceConfig, bounds: StretchBounds | None) -> bool:
    """Compare once, and say how fast."""
    (stretch,) = stretches(RoundLog(lake).since(0), str(source.shard))
    wall, cpu = time.perf_counter(), time.process_time()
    result, read = check_stretch(lake, source, stretch, policy=InvalidValuePolicy(), bounds=bounds)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    what = "a sample" if bounds else "whole"
    print(
        f"{flavor:<8} {what:<9} {result.rows:>8,} rows in {result.transactions:,} transactions, "
        f"{read / 1e6:.1f} MB, {wall:.2f} s ({cpu:.2f} s CPU): {result.rows / wall:,.0f} rows/s, "
        f"{result.differences} differences"
    )
    return not result.differences


if __name__ == "__main__":
    sys.exit(main())
