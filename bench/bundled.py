"""What it costs to put a change log's small objects together, and what it spares.

    python bench/bundled.py [--rounds N] [--tables N] [--rows BYTES]

A lake in a folder with a log of N rounds (3,000) of two shards, a segment for each with the change
files of some tables; all of them old and merged. Printed for bundling, for removing what was
bundled and for two more passes: objects and bytes in the folder behind it; seconds of the clock and
of processors, and MiB, that it takes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

from bench.aged import EVERY, SHARDS, cost, round_of
from ratchet.core.rounds import ChangeFile, Round
from ratchet.merge.bundle import BundleLimits, bundle_rounds, remove_replaced
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import SegmentPart

HOUR: Final = 3_600_000_000


def with_objects(lake: Lake, value: Round, size: int) -> Round:
    """A round whose segments are there."""
    files: list[ChangeFile] = []
    for shard in SHARDS:
        mine = [one for one in value.files if one.shard == shard]
        path = layout.segment_path("shop", round_number=value.number, shard=shard, part=0)
        with lake.open_output(path) as sink:
            for place, one in enumerate(mine):
                sink.write(bytes([value.number % 256]) * size)
                part = SegmentPart(path, place * size, size)
                files.append(replace(one, path=str(part), bytes=size))
    return replace(value, files=tuple(files))


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--rows", type=int, default=4000, help="bytes of a change file")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="ratchet-bundled-"))
    lake = replace(open_lake(home / "lake", now=1), epoch=1)
    now = time.time_ns() // 1000
    log = RoundLog(lake)
    for number in range(1, given.rounds + 1):
        at = now - 2 * HOUR - (given.rounds - number) * EVERY
        log.append(with_objects(lake, round_of(number, at, given.tables), given.rows))
    limits = BundleLimits()

    def bundle(above: int) -> None:
        for _ in bundle_rounds(
            lake, RoundLog(lake), above=above, below=None, now=lambda: now, limits=limits
        ):
            pass

    def remove() -> None:
        later = time.time_ns() // 1000 + HOUR
        for _ in remove_replaced(lake, RoundLog(lake), now=lambda: later, limits=limits):
            pass

    def told(what: str) -> str:
        found = lake.list(layout.CHANGES)
        rounds = [file for file in lake.list(layout.ROUNDS) if "_delta_log" not in file.path]
        return (
            f"{what:22} {len(found):>7,} objects {sum(f.size for f in found) / 2**20:8.1f} MiB; "
            f"rounds {len(rounds):>4,} files {sum(f.size for f in rounds) / 2**20:6.1f} MiB"
        )

    print(told("before"))
    for what, work in (
        ("bundled", lambda: bundle(0)),
        ("removed", remove),
        ("a pass without its mark", lambda: bundle(0)),
        ("a second pass", lambda: bundle(given.rounds - 1)),
    ):
        began = time.process_time()
        found = cost(work)
        busy = time.process_time() - began
        print(f"{told(what)}; {found.seconds:6.2f} s {busy:5.2f} s {found.memory:5.0f} MiB")
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
