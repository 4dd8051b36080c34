"""How long a run needs until many tables that are in doubt at once count as right again.

    python bench/doubts.py [--tables N] [--rows N]

A private MySQL with N tables (150) of some rows each (10,000), followed by a run, and one more, of
which a row is changed every half second. Then a row of each table is changed by a statement in the
log, as a session with binlog_format = STATEMENT does it: all tables are in doubt, are compared with
their source, and get the rows that the statements have changed. Printed: until the first and the
last table counts as right; how old a change of the other table was in the mirror before, and while
the others were compared, as median and at most, and the ratio; and whether all rows are right.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench.lib.following import DATABASE, add_table, fill, following
from lab.servers import MysqlServer, Server
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.tables import Tables

_PATIENCE: Final = 1800.0  # seconds
_BEFORE: Final = 30.0  # seconds for which the other table is watched first
_BEAT: Final = "beat"


class Beat(threading.Thread):
    """Changes a row of its own every half second, and looks how old the mirror's is."""

    def __init__(self, server: Server, lake: Lake) -> None:
        super().__init__(daemon=True)
        self._server, self._lake = server, lake
        self._end = threading.Event()
        self._written: dict[int, float] = {}
        self.ages: list[float] = []

    def run(self) -> None:
        """Write and look, until told to end."""
        number = 0
        with self._server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
            while not self._end.wait(0.5):
                number += 1
                cursor.execute(f"UPDATE {_BEAT} SET amount = {number} WHERE id = 1")
                connection.commit()
                self._written[number] = time.monotonic()
                self._look()

    def _look(self) -> None:
        cut = Cuts(self._lake).last()
        version = cut.tables.get(f"shop.{_BEAT}") if cut is not None else None
        if version is None:
            return
        table = DeltaTable(f"{self._lake.root}/shop/{_BEAT}", version=version)
        shown = _amount(table, 1)
        overdue = [at for number, at in self._written.items() if number > shown]
        self.ages.append(time.monotonic() - min(overdue) if overdue else 0.0)

    def take(self) -> list[float]:
        """The ages seen since this was asked last, seconds."""
        found, self.ages = self.ages, []
        return found

    def finish(self) -> None:
        """End it, and wait until it has."""
        self._end.set()
        self.join()


def decided(lake: Lake, tables: int) -> tuple[float, float]:
    """Seconds until the first and the last of the doubtful tables count as right again."""
    begin, first, seen = time.monotonic(), 0.0, 0
    while time.monotonic() < begin + _PATIENCE:
        states = Tables(lake).list()
        assert all(state.phase == "streaming" for state in states), states
        doubtful = sum(state.is_doubtful for state in states)
        seen = max(seen, doubtful)
        if seen and doubtful < seen and not first:
            first = time.monotonic() - begin
        if seen >= tables * 0.9 and not doubtful:  # some may be decided before the last are noted
            return first, time.monotonic() - begin
        time.sleep(0.5)
    sys.exit(f"not decided within {_PATIENCE} s")


def main() -> None:
    """Follow, put in doubt, wait, print."""
    parser = argparse.ArgumentParser(description="What many doubts at once cost.")
    parser.add_argument("--tables", type=int, default=150)
    parser.add_argument("--rows", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-") as folder, MysqlServer() as server:
        home = Path(folder)
        fill(server, given.tables, given.rows)
        add_table(server, _BEAT, 10)
        lake = Lake.at(str(home / "lake"))
        with following(server, home):
            beat = Beat(server, lake)
            beat.start()
            time.sleep(_BEFORE)
            before = beat.take()
            with server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
                cursor.execute("SET SESSION binlog_format = STATEMENT")
                for table in range(given.tables):
                    cursor.execute(f"UPDATE t{table} SET amount = -1 WHERE id = 7")
                connection.commit()
            first, last = decided(lake, given.tables)
            during = beat.take()
            beat.finish()
        wrong = [
            table
            for table in range(given.tables)
            if _amount(DeltaTable(f"{lake.root}/shop/t{table}"), 7) != -1
        ]
    print(f"{given.tables} tables of {given.rows:,} rows in doubt at once")
    print(f"  right again: the first after {first:.1f} s, the last after {last:.1f} s")
    print("  another table, s behind      median  highest")
    print(f"    before                   {median(before):8.2f} {max(before):8.2f}")
    print(f"    while they are compared  {median(during):8.2f} {max(during):8.2f}")
    print(f"    ratio                    {median(during) / median(before):8.1f}")
    print(f"  tables with a wrong row: {len(wrong)}")


def _amount(table: DeltaTable, number: int) -> int:
    rows = QueryBuilder().register("t", table)
    found = pa.table(rows.execute(f"SELECT amount FROM t WHERE id = {number}").read_all())
    return int(found["amount"][0].as_py())


if __name__ == "__main__":
    main()
