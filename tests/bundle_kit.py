"""Lakes whose change log has many small objects, of rounds two seconds apart."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, Round, ShardSlice
from ratchet.merge.bundle import BundleLimits, BundleResult, bundle_rounds, remove_replaced
from ratchet.store import layout
from ratchet.store.delta.appendlog import NumberRange
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import SegmentPart, object_of, read_changes

ROOT: Final = Path(__file__).resolve().parent.parent
SHARDS: Final = ("shop/-80", "shop/80-")
EVERY: Final = 2_000_000  # microseconds
HOUR: Final = 3_600_000_000
LIMITS: Final = BundleLimits(rounds=10, few=3)
COLUMNS: Final = ("round", "committed_at", "rows", "bytes", "min_ts", "max_ts", "positions")

# All rounds are old, at once; four of them are worth a bundle. An hour passes between two looks.
AGED: Final = """
import ratchet.jobs.run.merging
from ratchet.merge.bundle import BundleLimits
BundleLimits.__init__.__kwdefaults__.update(age=0.0, kept=0.0, rounds=4, few=2)
ratchet.jobs.run.merging.CLEAN_EVERY = 0.0
"""


def aged(folder: Path) -> dict[str, str]:
    """Variables for a run whose hours are short."""
    return customized(folder / "aged", AGED)


def customized(place: Path, text: str) -> dict[str, str]:
    """Variables for a process of Python that begins with that; `place` is a new folder."""
    place.mkdir()
    (place / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": f"{place}{os.pathsep}{ROOT}"}


def at(number: int) -> Position:
    uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    return Position(executed=GtidSet(flavor="mysql").with_interval(uuid, 1, number))


def changes(table: str, shard: str, path: str, size: int, number: int) -> ChangeFile:
    return ChangeFile(
        keyspace="shop", table=table, shard=shard, schema="0" * 16, path=path, rows=1, bytes=size,
        min_seq=number, max_seq=number, inserts=1, updates=0, deletes=0, misfits={},
    )  # fmt: skip


def put(lake: Lake, number: int, shard: str, contents: list[bytes]) -> list[ChangeFile]:
    """The change files of a slice: one alone, several in a segment."""
    if len(contents) == 1:
        path = layout.change_file_path(
            "shop", "t0", round_number=number, shard=shard, schema="0" * 16, part=7
        )
        lake.create_file(path, contents[0])
        return [changes("t0", shard, path, len(contents[0]), number)]
    path = layout.segment_path("shop", round_number=number, shard=shard, part=7)
    lake.create_file(path, b"".join(contents))
    files, offset = [], 0
    for table, content in enumerate(contents):
        part = str(SegmentPart(path, offset, len(content)))
        files.append(changes(f"t{table}", shard, part, len(content), number))
        offset += len(content)
    return files


def append(log: RoundLog, number: int, files: list[ChangeFile]) -> Round:
    moment = number * EVERY
    slices = tuple(
        ShardSlice(
            shard=shard, generation=0, start=at(number), end=at(number + 1), runs=(),
            transactions=1, rows=4, bytes=400, min_ts=moment, max_ts=moment, observed_at=moment,
            caught_up=True,
        )
        for shard in SHARDS
    )  # fmt: skip
    value = Round(number=number, committed_at=moment, slices=slices, files=tuple(files), events=())
    log.append(value)
    return value


def fill(lake: Lake, first: int, last: int) -> None:
    """A segment of the one shard, and a file of the other one's, in each round."""
    log, rng = RoundLog(lake), random.Random(first)
    for number in range(first, last + 1):
        files = [
            *put(lake, number, SHARDS[0], [rng.randbytes(rng.randint(1, 50)) for _ in range(3)]),
            *put(lake, number, SHARDS[1], [rng.randbytes(20)]),
        ]
        append(log, number, files)


def bundle(
    lake: Lake,
    *,
    above: int = 0,
    below: int | None = None,
    now: int = 10 * HOUR,
    limits: BundleLimits = LIMITS,
) -> list[BundleResult]:
    log = RoundLog(lake)
    return list(bundle_rounds(lake, log, above=above, below=below, now=lambda: now, limits=limits))


def remove(lake: Lake, *, now: int) -> int:
    return sum(remove_replaced(lake, RoundLog(lake), now=lambda: now, limits=LIMITS))


def objects(lake: Lake) -> set[str]:
    return {file.path for file in lake.list(layout.CHANGES)}


def named(lake: Lake) -> set[str]:
    return {object_of(file.path) for value in walk(lake) for file in value.files}


def walk(lake: Lake) -> list[Round]:
    log = RoundLog(lake)
    return list(log.walk(max(1, log.first_number()), log.last_number()))


def contents(lake: Lake) -> list[tuple[int, ChangeFile, bytes]]:
    """All that can be read through the rounds, whatever it lies in."""
    return [
        (value.number, replace(file, path=""), read_changes(lake, file.path).to_pybytes())
        for value in walk(lake)
        for file in value.files
    ]


def rows(lake: Lake) -> list[dict[str, Any]]:
    """What the log has beside the records."""
    log = RoundLog(lake)
    log.last_number()
    found = log._table.read(columns=list(COLUMNS), where=NumberRange("round", 0))
    return sorted(found, key=lambda row: int(row["round"]))
