"""What a run costs that has little to do: `ratchet run --until-caught-up`, as cron starts it.

    python bench/short_run.py [--tables N] [--runs R]

A private MySQL with N small tables (5), mirrored by a first run. Then R times (5) on two lakes in
turn: a row of each of two tables is changed, and a run brings it into the mirror; on one lake as it
is, on the other with a Spark that is started at once, as every run did until 2026-11-26. Printed:
seconds and processor seconds of both (Java's too), the median of the runs, and the ratio.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np
import yaml

from bench.lib.following import DATABASE, ROOT, fill
from lab.servers import RATCHET_PASSWORD, RATCHET_USER, MysqlServer, Server

ROWS: Final = 100
# The same command; its session is used as soon as there is one.
_AT_ONCE: Final = """
import sys
from ratchet.store import lazyspark
begin = lazyspark.LazySession.__init__
def at_once(self, start):
    begin(self, start)
    self.session
lazyspark.LazySession.__init__ = at_once
from ratchet.jobs.cli import main
sys.exit(main())
"""


def config_at(home: Path, server: Server) -> Path:
    """A config file of its own, for a lake of its own."""
    home.mkdir()
    shard = {"host": server.host, "port": server.port, "user": RATCHET_USER}
    shard |= {"password": RATCHET_PASSWORD, "database": DATABASE}
    path = home / "ratchet.yaml"
    path.write_text(
        yaml.safe_dump(
            {"lake": "./lake", "sources": {"shop": {"kind": "binlog", "shards": {"-": shard}}}}
        )
    )
    return path


def timed(program: list[str], config: Path) -> tuple[float, float]:
    """Seconds and processor seconds of a run, with all that it has started."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, *program, "run", str(config), "--until-caught-up"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True)
    took, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, used


def main() -> None:
    """Run both in turn, print."""
    parser = argparse.ArgumentParser(description="Runs that have little to do.")
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    programs = {"as it is": ["-m", "ratchet.jobs.cli"], "Spark at once": ["-c", _AT_ONCE]}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-") as folder, MysqlServer() as server:
        fill(server, given.tables, ROWS)
        configs = {
            name: config_at(Path(folder, f"{number}"), server)
            for number, name in enumerate(programs)
        }
        for number in range(given.runs + 1):
            for table in ("t0", "t1"):
                server.execute(
                    f"UPDATE {table} SET amount = {number} WHERE id = {number}", database=DATABASE
                )
            for name, program in programs.items():
                found[name].append(timed(program, configs[name]))
    # The first ones have dumped.
    middle = {name: np.median(every[1:], axis=0) for name, every in found.items()}
    for name, (took, used) in middle.items():
        print(f"{name:<14} {took:5.2f} s, CPU {used:5.2f} s")
    ratio = middle["Spark at once"] / middle["as it is"]
    print(f"RATIO          {ratio[0]:5.2f}, CPU {ratio[1]:5.2f}")


if __name__ == "__main__":
    main()
