"""What a soak looks at every few seconds: memory, descriptors, threads, files, lag.

Lives here: one look. Does not live here: what becomes of them (`report`).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench.lib.processes import Processes
from bench.soak.fleet import BEAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look.

    Attributes:
        at: seconds since the soak began.
        python: MiB that the run holds, Java aside.
        java: MiB that Java holds.
        descriptors: open files of the run's own process.
        threads: of it.
        kinds: how many files of each kind are in the lake: `data` of tables and of side tables,
            `log` of every Delta table, `changes`, `notes`.
        size: MiB of them.
        lag: by keyspace, seconds by which the newest merged change is behind the clock.
        tidied: seconds since the run last noted that it had removed what is old.
    """

    at: float
    python: float
    java: float
    descriptors: int
    threads: int
    kinds: dict[str, int]
    size: float
    lag: dict[str, float]
    tidied: float = float("inf")

    @property
    def files(self) -> int:
        """In the lake, of all kinds."""
        return sum(self.kinds.values())


def take_sample(pid: int, lake: Path, keyspaces: list[str], began: float) -> Sample | None:
    """Look at a run and its lake; None if it has ended or nothing is merged yet.

    Args:
        pid: the run's.
        lake: its folder.
        keyspaces: each has a row that tells the time.
        began: when the soak did, `time.monotonic`.
    """
    lag = {keyspace: _lag(lake, keyspace) for keyspace in keyspaces}
    kinds, size = _contents(lake)
    try:
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    except OSError:
        return None
    python, every = Processes(pid).memories()
    return Sample(
        at=time.monotonic() - began,
        python=python,
        java=every - python,
        descriptors=descriptors,
        threads=threads,
        kinds=kinds,
        size=size,
        lag={keyspace: one for keyspace, one in lag.items() if one is not None},
        tidied=_tidied(lake),
    )


def _tidied(lake: Path) -> float:
    notes = (lake / "_ratchet" / "notes").glob("*/upkeep.json")
    with suppress(OSError, ValueError):  # it is just being replaced, or there is none yet
        return time.time() - max(note.stat().st_mtime for note in notes)
    return float("inf")


def _lag(lake: Path, keyspace: str) -> float | None:
    with suppress(Exception):  # it is not there yet, or upkeep has just removed a file
        query = QueryBuilder().register("beat", DeltaTable(str(lake / keyspace / BEAT)))
        (at,) = pa.table(query.execute("SELECT at FROM beat").read_all())["at"].to_pylist()
        return time.time() - float(at) if at else None
    return None


def _contents(lake: Path) -> tuple[dict[str, int], float]:
    kinds = Counter({"data": 0, "log": 0, "changes": 0, "notes": 0})
    size = 0
    todo = [lake]
    while todo:
        folder = todo.pop()
        kind = _kind(folder.relative_to(lake).parts)
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(Path(entry.path))
                else:
                    with suppress(OSError):
                        size += entry.stat().st_size
                        kinds[kind] += 1
    return dict(kinds), size / 2**20


def _kind(parts: tuple[str, ...]) -> str:
    """Of the files of this folder, as parts of its path in the lake."""
    if "_delta_log" in parts:
        return "log"
    if parts[:1] != ("_ratchet",) or parts[:2] == ("_ratchet", "side"):
        return "data"
    return "changes" if parts[:2] == ("_ratchet", "changes") else "notes"
