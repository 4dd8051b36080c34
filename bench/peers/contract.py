"""What a peer is told and what it answers: the job's file, the result's file, the clock between.

Only the standard library is imported here, because a peer runs in an environment of its own, which
has nothing of Ratchet's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

# What both sides call the columns; `placed` is the one that a change always moves.
COLUMNS = ("id", "name", "code", "amount", "placed", "price")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One race of one peer.

    Attributes:
        what: "load" or "follow".
        host: of the source.
        port: of the source.
        user: who reads it.
        password: of a private server that ends with the benchmark.
        database: the source's.
        table: the source's.
        rows: in the source when the race ends.
        changes: made since the load.
        folder: the peer's own, kept from its load to its follow.
        start: file, position and gtid of the log before the changes.
        end: the same, behind them.
        result: the file to write.
    """

    what: str
    host: str
    port: int
    user: str
    password: str
    database: str
    table: str
    rows: int
    changes: int
    folder: str
    start: Mapping[str, Any]
    end: Mapping[str, Any]
    result: str

    @classmethod
    def read(cls, path: str) -> Self:
        """The job in a file."""
        return cls(**json.loads(Path(path).read_text()))

    @property
    def home(self) -> Path:
        """The peer's folder, as a path."""
        return Path(self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a peer says about its race.

    Attributes:
        seconds: from the first byte asked of the source to the last row safe in the target.
        rows: rows or changes handled.
        version: the peer's name and version.
        settings: those that matter, in a line.
        target: format and path.
        check: count, ids and amounts, where the harness cannot read the target itself.
    """

    seconds: float
    rows: int
    version: str
    settings: str
    target: Mapping[str, str]
    check: Mapping[str, int] | None = None

    def write(self, path: str) -> None:
        """Put it into a file."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        Path(path).write_text(json.dumps(fields))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The result in a file."""
        return cls(**json.loads(Path(path).read_text()))


def serve(races: Mapping[str, Callable[[Job], Result]]) -> int:
    """Run the race that the command line's job asks for; the exit code.

    Args:
        races: what this peer can do, by its name.
    """
    job = Job.read(sys.argv[1])
    if job.what not in races:
        print(f"it cannot {job.what}", file=sys.stderr)
        return 1
    races[job.what](job).write(job.result)
    return 0
