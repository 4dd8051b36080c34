"""How long a run that was killed takes until all tables are fresh again, beside one that goes on.

    python bench/crash.py [--tables N] [--rounds R]

A private MySQL with N tables (40) of 100 rows, followed by a run. R times (10) a row of each table
is updated and one deleted, so that each table has its side table and its small files. Then, from
the moment at which a row of each table was changed until a cut shows all of them:

    going on    the run lives
    restart     the run was killed with SIGKILL before, and is started behind the changes

Printed: seconds of both, and the ratio. A lease whose holder was killed on this machine is not
waited for.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

from bench.lib.following import DATABASE, ROOT, fill, following
from lab.servers import MysqlServer, Server
from ratchet.core.gtid import GtidSet
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake

ROWS: Final = 100
_PATIENCE: Final = 900.0  # seconds


def change(server: Server, tables: int, number: int) -> None:
    """Update a row of each table, and delete another."""
    with server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        for table in range(tables):
            cursor.execute(f"UPDATE t{table} SET amount = amount + 1 WHERE id = {ROWS - 1}")
            cursor.execute(f"DELETE FROM t{table} WHERE id = {number}")
        connection.commit()


def until_shown(server: Server, lake: Lake) -> float:
    """Seconds until a cut shows all that the server has executed by now."""
    begin = time.monotonic()
    ((text,),) = server.execute("SELECT @@GLOBAL.gtid_executed")
    wanted = GtidSet.parse("mysql", str(text))
    while time.monotonic() < begin + _PATIENCE:
        cut = Cuts(lake).last()
        shards = cut.shards.values() if cut is not None else ()
        if any(shard.position.executed.contains_all(wanted) for shard in shards):
            return time.monotonic() - begin
        time.sleep(0.1)
    sys.exit(f"not shown within {_PATIENCE} s")


def main() -> None:
    """Follow, kill, start again, print."""
    parser = argparse.ArgumentParser(description="What a kill costs.")
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-") as folder, MysqlServer() as server:
        home = Path(folder)
        fill(server, given.tables, ROWS)
        lake = Lake.at(str(home / "lake"))
        with following(server, home) as run:
            for number in range(given.rounds):
                change(server, given.tables, number)
                until_shown(server, lake)
            change(server, given.tables, given.rounds)
            going = until_shown(server, lake)
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
        change(server, given.tables, given.rounds + 1)
        command = [sys.executable, "-m", "ratchet.jobs.cli", "run", str(home / "ratchet.yaml")]
        with (home / "again.log").open("wb") as out:
            again = subprocess.Popen(
                command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True
            )
            try:
                behind = until_shown(server, lake)
            finally:
                again.terminate()
                again.wait()
    print(f"{given.tables} tables, a row of each updated and one deleted")
    print(f"  going on {going:8.2f} s")
    print(f"  restart  {behind:8.2f} s")
    print(f"  ratio    {behind / going:8.1f}")


if __name__ == "__main__":
    main()
