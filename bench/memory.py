"""What memory a run takes that gets one transaction of millions of rows.

    python bench/memory.py [--rows N] [--flavor mariadb|mysql]

A run follows a private server with one table of 100,000 rows. Then N rows (10,000,000) of six
columns are inserted in one transaction, and, once they are in the mirror, updated in another.
Printed for each: the seconds from its commit until it is in the mirror, and the most that the run's
processes held meanwhile, Java's apart from the others (pages that several share count once). In the
end the mirror's rows are counted and summed up, and must be the server's.

Exit code 1 if more than 1.5 GiB were held outside Java.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench.lib.following import DATABASE, add_rows, fill, following
from bench.lib.processes import Processes
from bench.lib.watch import Watch
from lab.servers import MariadbServer, MysqlServer, Server

AT_FIRST: Final = 100_000
LIMIT: Final = 1536  # MiB
PATIENCE: Final = 1800.0  # seconds
SUMS: Final = "COUNT(*), SUM(id), SUM(amount), SUM(CAST(price * 100 AS {integer}))"


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--flavor", choices=["mariadb", "mysql"], default="mysql")
    given = parser.parse_args()
    kind = {"mariadb": MariadbServer, "mysql": MysqlServer}[given.flavor]
    options = {"max-binlog-cache-size": str(8 << 30)}
    home = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    try:
        with kind(buffer_pool="1G", options=options) as server:
            fill(server, 1, AT_FIRST)
            with following(server, home) as run:
                changes: dict[str, Callable[[], Any]] = {
                    "inserted": lambda: add_rows(server, "t0", AT_FIRST, given.rows),
                    "updated": lambda: server.execute(
                        f"UPDATE t0 SET amount = amount + 1 WHERE id >= {AT_FIRST}",
                        database=DATABASE,
                    ),
                }
                print(f"{given.flavor} {server.version}, {given.rows:,} rows in one transaction")
                held = [
                    _measure(server, home, run.pid, what, do, given.rows)
                    for what, do in changes.items()
                ]
    finally:
        shutil.rmtree(home)
    return 0 if max(held) <= LIMIT else 1


def _measure(  # noqa: PLR0917 - one call
    server: Server, home: Path, pid: int, what: str, change: Callable[[], Any], rows: int
) -> float:
    with _Memory(pid) as memory:
        change()
        committed = time.monotonic()
        expected = _of_server(server)
        while (found := _of_mirror(home)) != expected:
            if time.monotonic() > committed + PATIENCE:
                raise SystemExit(f"the mirror has {found}, the server {expected}")
            time.sleep(2)
        seconds = time.monotonic() - committed
    print(
        f"  {what}: in the mirror after {seconds:.0f} s ({rows / seconds:,.0f} rows/s); "
        f"outside Java {memory.others:,.0f} MiB, Java {memory.java:,.0f} MiB",
        flush=True,
    )
    return memory.others


def _of_server(server: Server) -> tuple[int, ...]:
    (row,) = server.execute(f"SELECT {SUMS.format(integer='SIGNED')} FROM t0", database=DATABASE)
    return tuple(int(str(value)) for value in row)


def _of_mirror(home: Path) -> tuple[int, ...]:
    table = DeltaTable(str(home / "lake" / "shop" / "t0"))
    query = f"SELECT {SUMS.format(integer='BIGINT')} FROM t"
    found = pa.table(QueryBuilder().register("t", table).execute(query).read_all())
    return tuple(int(column[0].as_py()) for column in found.columns)


class _Memory(Watch):
    """The most that some processes ever held, MiB: Java's, and the others together."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.others = self.java = 0.0
        self._processes = Processes(pid)

    def look(self) -> None:
        """Once more."""
        others, whole = self._processes.memories()
        self.others = max(self.others, others)
        self.java = max(self.java, whole - others)


if __name__ == "__main__":
    raise SystemExit(main())
