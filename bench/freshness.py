"""How long after its commit on the source a change is in the mirror, at a steady rate, and the CPU.

    python bench/freshness.py [--tables N] [--rate CHANGES] [--seconds S] [--rows N]

A private MySQL, whose log has each commit's time in microseconds, with N tables of some rows each;
a writer changes RATE rows a second: transactions of ten rows of one table (six updated, three
inserted, one deleted), the tables in turn. `ratchet run` follows with its defaults, a process of
its own. Counted is, for each row that a merge adds: the time of its Delta commit on the disk less
the row's token, behind a warm-up of 60 s. Deletes are not counted (they add no row); an update that
another overtakes before it is merged counts as that one.

CPU is that of the run and all its processes, of one second in each; the server's and the writer's
own stand beside it. Memory is what the run's processes hold (PSS), Java's aside. Target of issue 6:
median 8 s and 99th percentile 20 s with ten tables, 4 s and 8 s with one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.lib.following import DATABASE, fill, following
from bench.lib.processes import Processes
from lab.servers import MysqlServer

WARM_UP: Final = 60.0  # seconds
_UPDATED, _INSERTED, _DELETED = 6, 3, 1
_PER_TRANSACTION: Final = _UPDATED + _INSERTED + _DELETED


class Writer(threading.Thread):
    """Changes rows at a steady rate until told to end."""

    def __init__(
        self, server: MysqlServer, tables: int, rows: int, rate: float, *, first: int | None = None
    ) -> None:
        super().__init__(daemon=True)
        self._first = rows if first is None else first  # key of the first row that it inserts
        self._server = server
        self._tables = tables
        self._rows = rows
        self._pause = _PER_TRANSACTION / rate
        self._end = threading.Event()
        self.transactions = 0
        self.late = 0.0  # seconds, at most, behind the time at which a transaction was due

    def run(self) -> None:
        """Transactions, each at its time."""
        rng = random.Random(1)
        begin = time.monotonic()
        with self._server.connect(database=DATABASE, autocommit=False) as connection:
            cursor = connection.cursor()
            while not self._end.is_set():
                due = begin + self.transactions * self._pause
                now = time.monotonic()
                if now < due:
                    time.sleep(due - now)
                else:
                    self.late = max(self.late, now - due)
                number = self.transactions
                table, first = f"t{number % self._tables}", self._first + number * _INSERTED
                some = rng.sample(range(self._rows), _UPDATED + _DELETED)
                keys = ", ".join(map(str, some[:_UPDATED]))
                cursor.execute(f"UPDATE {table} SET amount = amount + 1 WHERE id IN ({keys})")
                values = ", ".join(
                    f"({first + n}, 'name {n}', 'c{number % 1000}', {number}, {n}.25)"
                    for n in range(_INSERTED)
                )
                cursor.execute(
                    f"INSERT INTO {table} (id, name, code, amount, price) VALUES {values}"
                )
                cursor.execute(f"DELETE FROM {table} WHERE id = {some[-1]}")
                connection.commit()
                self.transactions += 1

    def finish(self) -> None:
        """End it, and wait until it has."""
        self._end.set()
        self.join()


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, action="append", help="10 and then 1 by default")
    parser.add_argument("--rate", type=float, default=2000)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--rows", type=int, default=100_000, help="in all tables, at first")
    given = parser.parse_args()
    print(f"{given.rate:,.0f} changes/s for {given.seconds:.0f} s, {given.rows:,} rows a table")
    for tables in given.tables or [10, 1]:
        _measure(tables, given.rate, given.seconds, given.rows)
    return 0


def _measure(tables: int, rate: float, seconds: float, rows: int) -> None:
    home = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    try:
        with MysqlServer(buffer_pool="512M") as server:
            fill(server, tables, rows)
            with following(server, home) as run:
                writer = Writer(server, tables, rows, rate)
                writer.start()
                time.sleep(WARM_UP)
                all_of_it, begin = Processes(run.pid), time.time()
                cpu, own = all_of_it.cpu(), own_and(server)
                memory, until = 0.0, time.monotonic() + seconds
                while time.monotonic() < until:
                    time.sleep(5)
                    memory = max(memory, all_of_it.memory())
                    all_of_it.cpu()
                took = time.time() - begin
                cpu, own = (all_of_it.cpu() - cpu) / took, (own_and(server) - own) / took
                writer.finish()
        ages, commits = ages_of(home / "lake" / "shop", begin, begin + took)
        median, late = np.percentile(ages, [50, 99])
        print(f"{tables} tables, {len(ages):,} rows added in {took:.0f} s:")
        print(f"  median {median:.2f} s, 99 % {late:.2f} s, all {ages.max():.2f} s")
        print(f"  a commit of each table every {took * tables / commits:.2f} s")
        print(f"  CPU a second: the run {cpu:.2f} s, MySQL and the writer {own:.2f} s")
        print(
            f"  outside Java {memory:,.0f} MiB; writer {writer.late:.2f} s late at most", flush=True
        )
    finally:
        shutil.rmtree(home)


def ages_of(keyspace: Path, begin: float, end: float) -> tuple[Any, int]:
    """How old each row was when its commit was there, and the commits of that time."""
    found, commits = [], 0
    seen: set[Path] = set()  # a file that gets a vector is named again, and its rows are not new
    for commit in sorted(keyspace.glob("*/_delta_log/*.json")):
        table, at = commit.parent.parent, commit.stat().st_mtime
        actions = map(json.loads, commit.read_text().splitlines())
        added = [action["add"]["path"] for action in actions if "add" in action]
        new = {table / path for path in added if path.startswith("merge-")} - seen
        seen |= new
        if not begin <= at <= end:
            continue
        commits += bool(new)
        for path in new:
            tokens = pq.read_table(path, columns=["_token"])["_token"].combine_chunks()
            stamps = pc.struct_field(tokens, "ts").cast(pa.int64()).to_numpy()
            found.append(at - stamps / 1e6)
    if not found:
        raise SystemExit("nothing was merged in that time: give --seconds more")
    return np.concatenate(found), commits


def own_and(server: MysqlServer) -> float:
    """Processor seconds of this process and of the server."""
    times = os.times()
    return times.user + times.system + Processes(server.daemon.pid).cpu()


if __name__ == "__main__":
    raise SystemExit(main())
