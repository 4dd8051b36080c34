"""What verification in the background costs: processor time, freshness, and how long a pass takes.

    python bench/verify_background.py [--rows N] [--rate CHANGES] [--seconds S] [--load SHARE]

A private MySQL with a large table at rest, and two that are written to at a steady rate (see
bench/freshness.py). A run follows, three times on one lake: without background verification, with
it at the share given, and at 100 %. In the last two the large table is due as the run begins. Told
of each: the age of rows when their merge is committed, processor time of the run and of the server,
the share of it that reading the pieces took, and how long the pass took, if it ended.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np

from bench.freshness import Writer, ages_of, own_and
from bench.lib.following import add_table, fill, following
from bench.lib.processes import Processes
from lab.servers import MysqlServer
from ratchet.store.comparisons import Comparison, Comparisons
from ratchet.store.files import Lake
from ratchet.store.notes import current_epoch
from ratchet.store.passes import Pass, Passes

BIG: Final = "big"
WARM_UP: Final = 30.0  # seconds
_TABLES: Final = 2
_SMALL: Final = 100_000  # rows of the tables that are written to


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One run.

    Attributes:
        median: age of rows when they are there, seconds.
        late: 99th percentile.
        run: processor seconds a second of the run.
        server: of the server and the writer.
    """

    median: float
    late: float
    run: float
    server: float


def main() -> int:
    """Run the benchmark; 1 if a pass found a difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--load", default="5%")
    parser.add_argument("--wait", type=float, default=0, help="seconds more, for a pass to end")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    lake, wrong = Lake.at(home / "lake"), 0
    try:
        with MysqlServer(buffer_pool="1G") as server:
            fill(server, _TABLES, _SMALL)
            add_table(server, BIG, given.rows)
            print(f"{given.rows:,} rows at rest; {given.rate:,.0f} changes/s of others")
            base = None
            for number, load in enumerate(("off", given.load, "100%")):
                off = load == "off"
                verify = {"every": "off"} if off else {"every": "1h", "load": load}
                if not off:
                    passes = Passes(replace(lake, epoch=current_epoch(lake)))
                    passes.end()
                    passes.save_schedule({f"shop.{BIG}": 1})
                # Each run's writer inserts keys of its own.
                arm = _measure(server, home, verify, given, first=(number + 1) * 10_000_000)
                base = base or arm
                _tell(load, arm, base)
                if not off:
                    wrong += _tell_pass(lake)
    finally:
        shutil.rmtree(home)
    return int(wrong > 0)


def _measure(
    server: MysqlServer,
    home: Path,
    verify: dict[str, Any],
    given: argparse.Namespace,
    *,
    first: int,
) -> Arm:
    lake, begun = Lake.at(home / "lake"), time.time_ns() // 1000
    with following(server, home, verify) as run:
        writer = Writer(server, _TABLES, _SMALL, given.rate, first=first)
        writer.start()
        time.sleep(WARM_UP)
        all_of_it, begin = Processes(run.pid), time.time()
        cpu, own = all_of_it.cpu(), own_and(server)
        while time.time() < begin + given.seconds:
            time.sleep(5)
            all_of_it.cpu()
        took = time.time() - begin
        cpu, own = (all_of_it.cpu() - cpu) / took, (own_and(server) - own) / took
        writer.finish()
        until = time.monotonic() + (given.wait if verify["every"] != "off" else 0)
        while time.monotonic() < until and _ended(lake, begun) is None:
            time.sleep(1)
    ages, _ = ages_of(home / "lake" / "shop", begin, begin + took)
    median, late = np.percentile(ages, [50, 99])
    return Arm(median=median, late=late, run=cpu, server=own)


def _ended(lake: Lake, begun: int) -> Comparison | None:
    found = Comparisons(lake).last("shop", BIG)
    return found if found is not None and found.until > begun else None


def _tell(load: str, arm: Arm, base: Arm) -> None:
    print(
        f"  {load:<5} fresh: median {arm.median:5.2f} s, 99 % {arm.late:5.2f} s "
        f"(RATIO {arm.median / base.median:4.2f}, {arm.late / base.late:4.2f}); CPU a second: "
        f"run {arm.run:4.2f} s (+{arm.run - base.run:5.2f}), "
        f"server and writer {arm.server:4.2f} s (+{arm.server - base.server:5.2f})"
    )


def _tell_pass(lake: Lake) -> int:
    """Print how far the pass has come; the differences that it found."""
    found: Comparison | Pass | None = Passes(lake).last() or Comparisons(lake).last("shop", BIG)
    if found is None:
        print("        no pass began", flush=True)
        return 0
    if isinstance(found, Comparison):
        seconds = (found.until - found.since) / 1e6
        print(f"        pass: {found.rows:,} rows in {seconds:,.1f} s", flush=True)
    else:
        seconds = (time.time_ns() // 1000 - found.since) / 1e6
        print(f"        pass: {found.rows:,} rows in the first {seconds:,.1f} s", flush=True)
    return found.differences


if __name__ == "__main__":
    raise SystemExit(main())
