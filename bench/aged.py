"""What a lake costs that a run has been writing to for a fortnight, beside one of a day.

    python bench/aged.py [--tables N] [--long ROUNDS]

Two lakes, filled with what a run has written by then, a round each two seconds: 43,200 rounds, and
604,800; of two shards and N tables (2) each. Printed for both, with their ratio: seconds and memory
for what a run reads of the log at its start and each hour, and for the removal of an hour's rounds.
Then what the log of rounds itself takes: two hours' rounds are committed one by one, and what lies
in its folder is added up. Nothing of it is Spark's.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import pyarrow as pa

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, Round, ShardSlice
from ratchet.merge.maintain import prune_change_log
from ratchet.snapshot.start import start_round
from ratchet.store import rounds as round_log
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog

DAY: Final = 43_200  # rounds
EVERY: Final = 2_000_000  # microseconds
SHARDS: Final = ("shop/-80", "shop/80-")
UUID: Final = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_BATCH: Final = 5_000


@dataclass(frozen=True)
class Cost:
    """Of one thing: seconds, and MiB that it took at most."""

    seconds: float
    memory: float


def position(number: int) -> Position:
    """A shard's behind a round."""
    return Position(executed=GtidSet(flavor="mysql").with_interval(UUID, 1, number * 40 + 1))


def round_of(number: int, at: int, tables: int) -> Round:
    """A round of a busy server."""
    slices = tuple(
        ShardSlice(
            shard=shard, generation=0, start=position(number), end=position(number + 1), runs=(),
            transactions=40, rows=400, bytes=40_000, min_ts=at, max_ts=at, observed_at=at,
            caught_up=True,
        )
        for shard in SHARDS
    )  # fmt: skip
    files = tuple(
        ChangeFile(
            keyspace="shop", table=f"t{table}", shard=SHARDS[table % 2], schema="0" * 16,
            path=f"_ratchet/changes/shop/@segments/{number:012d}-x-0.segment#{table * 4000}+4000",
            rows=40, bytes=4000, min_seq=number, max_seq=number + 40, inserts=10, updates=20,
            deletes=10, misfits={},
        )
        for table in range(tables)
    )  # fmt: skip
    return Round(number=number, committed_at=at, slices=slices, files=files, events=())


def fill(lake: Lake, count: int, tables: int, now: int) -> None:
    """Give a lake the log that a run leaves, in few commits.

    By what lies behind `RoundLog.append`, which takes one round and some milliseconds for it.
    """
    log = RoundLog(lake)
    table = log._table  # noqa: SLF001
    streams: dict[str, round_log.StreamState] = {}
    rows = []
    log.last_number()
    for number in range(1, count + 1):
        value = round_of(number, now - (count - number) * EVERY, tables)
        streams = round_log._after(streams, value)  # noqa: SLF001
        rows.append(round_log._row(value, streams))  # noqa: SLF001
        if len(rows) == _BATCH or number == count:
            table.append(
                pa.Table.from_pylist(rows, schema=round_log._SCHEMA),  # noqa: SLF001
                app_id=round_log.APP_ID,
                version=number,
                operation="fill",
            )
            rows = []


def resident() -> float:
    """MiB that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def cost(work: Callable[[], object]) -> Cost:
    """Of a call."""
    done, peak, before = threading.Event(), [0.0], resident()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], resident())

    thread = threading.Thread(target=watch)
    thread.start()
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    done.set()
    thread.join()
    return Cost(seconds, max(0.0, peak[0] - before))


def costs(count: int, tables: int) -> dict[str, Cost]:
    """What is read of a log of so many rounds."""
    home = Path(tempfile.mkdtemp(prefix="ratchet-aged-"))
    now = time.time_ns() // 1000
    lake = replace(open_lake(home / "lake", now=1), epoch=1)
    fill(lake, count, tables, now)
    start = {shard: position(count + 1) for shard in SHARDS}
    found = {
        "a start: the newest round": cost(lambda: RoundLog(lake).last()),
        "a dump's first round": cost(lambda: start_round(lake, start)),
        "what waits for a merge": cost(lambda: RoundLog(lake).earliest_above(count - 10)),
        "an hour's rounds removed": cost(
            lambda: prune_change_log(
                lake, RoundLog(lake), [], now=now, keep=count * EVERY / 1e6 - 3600
            )
        ),
    }
    shutil.rmtree(home)
    return found


def folder() -> str:
    """What the log of rounds takes, of two hours of them."""
    home = Path(tempfile.mkdtemp(prefix="ratchet-aged-"))
    lake = replace(open_lake(home / "lake", now=1), epoch=1)
    log = RoundLog(lake)
    began = time.monotonic()
    for number in range(1, 3601):
        log.append(round_of(number, time.time_ns() // 1000, 2))
    seconds = time.monotonic() - began
    every = list((home / "lake/_ratchet/rounds/_delta_log").iterdir())
    points = [one for one in every if one.name.endswith(".checkpoint.parquet")]
    size = sum(one.stat().st_size for one in every) / 2**20
    of_points = sum(one.stat().st_size for one in points) / 2**20
    shutil.rmtree(home)
    return (
        f"3,600 rounds committed one by one: {seconds / 3600 * 1000:.1f} ms each; "
        f"{len(every):,} files of log, {size:.1f} MiB, {len(points)} of them checkpoints, "
        f"{of_points:.1f} MiB"
    )


def main() -> None:
    """Print both and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=2)
    parser.add_argument("--long", type=int, default=14 * DAY)
    given = parser.parse_args()
    short, long = costs(DAY, given.tables), costs(given.long, given.tables)
    print(f"{'':28} {DAY:>9,} rounds     {given.long:>9,} rounds     ratio")
    for name, one in short.items():
        other = long[name]
        print(
            f"{name:28} {one.seconds:6.2f} s {one.memory:5.0f} MiB   "
            f"{other.seconds:6.2f} s {other.memory:6.0f} MiB   "
            f"{other.seconds / max(one.seconds, 0.01):6.1f}"
        )
    print(folder())


if __name__ == "__main__":
    main()
