"""What a change costs that is computed in the lake, beside a new dump of the table.

    python bench/ddl.py [--rows N] [--rate CHANGES]

A private MySQL with a large table at rest, and two that are written to at a steady rate (see
bench/freshness.py). A run follows, with its defaults. The large table is altered one way after the
other, and at the end dumped again. Told of each: seconds from the end of the ALTER until the Delta
table shows it, the ratio to the new dump, and how old the rows of the other tables were when they
were merged meanwhile (median and 99 %, with the ratio to a time without any of this).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np
from deltalake import DeltaTable

from bench.freshness import Writer, ages_of
from bench.lib.following import DATABASE, ROOT, add_table, fill, following
from lab.servers import MysqlServer

BIG: Final = "big"
WARM_UP: Final = 30.0  # seconds
USUAL: Final = 30.0
_TABLES: Final = 2
_SMALL: Final = 100_000  # rows of the tables that are written to
_LONGEST: Final = 3600.0
_REST: Final = 4.0  # times as long as it took: a table that was computed rests (jobs.run.altered)
_PARTITIONS: Final = 30
KINDS: Final = (
    ("a constant", "ADD x INT NOT NULL DEFAULT 7"),
    ("a new name", "RENAME COLUMN code TO letters"),
    ("a column goes", "DROP COLUMN letters"),
    ("three at once", "ADD y VARCHAR(9) DEFAULT 'why', DROP COLUMN x, RENAME COLUMN name TO title"),
    ("one that is read", "ADD z BIGINT AS (amount * 3) STORED"),
)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rate", type=float, default=500)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    tables = home / "lake" / "shop"
    try:
        with MysqlServer(buffer_pool="1G") as server:
            fill(server, _TABLES, _SMALL)
            add_table(server, BIG, given.rows)
            server.execute(_partitioned(given.rows), database=DATABASE)
            with following(server, home):
                writer = Writer(server, _TABLES, _SMALL, given.rate)
                writer.start()
                time.sleep(WARM_UP)
                usual = _timed(tables, lambda: time.sleep(USUAL))
                found = []
                for what, alter in KINDS:
                    found.append((what, _timed(tables, partial(_altered, server, tables, alter))))
                    time.sleep(_REST * found[-1][1][0])
                less = _timed(tables, partial(_emptied, server, tables))
                found.append(("a partition goes", less))
                dump = _timed(tables, lambda: _dumped(home))
                writer.finish()
    finally:
        shutil.rmtree(home)
    print(f"{given.rows:,} rows; {given.rate:,.0f} changes/s of other tables")
    # Of the one that is read the source is asked for two columns of seven.
    for what, one in (*found, ("a new dump", dump)):
        print(
            f"  {what:<16} {one[0]:7.1f} s (RATIO {one[0] / dump[0]:4.2f}); others: median "
            f"{one[1]:5.2f} s, 99 % {one[2]:5.2f} s (RATIO {one[1] / usual[1]:4.2f}, "
            f"{one[2] / usual[2]:4.2f})"
        )


def _partitioned(rows: int) -> str:
    bounds = [rows * (number + 1) // _PARTITIONS for number in range(_PARTITIONS - 1)]
    parts = [f"PARTITION p{n} VALUES LESS THAN ({bound})" for n, bound in enumerate(bounds)]
    parts.append("PARTITION rest VALUES LESS THAN MAXVALUE")
    return f"ALTER TABLE {BIG} PARTITION BY RANGE (id) ({', '.join(parts)})"


def _timed(tables: Path, work: Callable[[], Any]) -> tuple[float, float, float]:
    """Seconds that it took, and the ages of other tables' rows meanwhile: median and 99 %."""
    begin, clock = time.time(), time.monotonic()
    took = work() or time.monotonic() - clock
    time.sleep(max(0.0, 10 - took))  # so that there are merges to look at
    ages, _ = ages_of(tables, begin, time.time())
    median, late = np.percentile(ages, [50, 99])
    return took, float(median), float(late)


def _altered(server: MysqlServer, tables: Path, alter: str) -> float:
    """Seconds from the end of the statement until it shows."""
    before = DeltaTable(tables / BIG).schema()
    server.execute(f"ALTER TABLE {BIG} {alter}", database=DATABASE)
    begin = time.monotonic()
    while DeltaTable(tables / BIG).schema() == before:
        if time.monotonic() > begin + _LONGEST:
            raise SystemExit(f"{alter} does not show after {_LONGEST:,.0f} s")
        time.sleep(0.05)
    return time.monotonic() - begin


def _emptied(server: MysqlServer, tables: Path) -> float:
    """Seconds from the end of a DROP PARTITION until its rows are gone."""
    before = set(DeltaTable(tables / BIG).file_uris())
    server.execute(f"ALTER TABLE {BIG} DROP PARTITION p0", database=DATABASE)
    begin = time.monotonic()
    while (now := set(DeltaTable(tables / BIG).file_uris())) == before:
        if time.monotonic() > begin + _LONGEST:
            raise SystemExit(f"the rows are not gone after {_LONGEST:,.0f} s")
        time.sleep(0.05)
    took = time.monotonic() - begin
    print(f"a partition goes: {len(now & before)} of {len(before)} files stay as they are")
    return took


def _dumped(home: Path) -> None:
    command = [sys.executable, "-m", "ratchet.jobs.cli", "table", str(home / "ratchet.yaml")]
    subprocess.run([*command, "redump", BIG, "--wait"], cwd=ROOT, check=True, capture_output=True)


if __name__ == "__main__":
    main()
