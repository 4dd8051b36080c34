"""What a fault happens to: servers, a run that follows them and is started again, a lake.

Lives here: the scene, what is done with it, and what is seen of it from outside. Does not live
here: the scenes that there are (`scenes`), the faults, what is made of it all (`trial`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench.lib.following import DATABASE, add_table
from bench.soak.equal import differences
from bench.soak.fleet import BEAT, Writer
from bench.soak.life import Life
from lab.clock import Clock
from lab.cluster import SparkCluster
from lab.disks import SmallDisk
from lab.proxy import Proxy
from lab.servers import Server

TABLES: Final = 3
ROWS: Final = 2_000  # of each
_RATE: Final = 60.0  # changes in a second on each server
_LARGE: Final = 100_000  # rows of a table whose dump takes a while
_POLL: Final = 0.25
_ASKED_WITHIN: Final = 60.0  # seconds that `status` may take
_STOP: Final = 120.0


class NotFitError(Exception):
    """The scene is not as a fault needs it: it was not tried."""


@dataclass(kw_only=True)
class Scene:
    """One of each that a fault may need.

    Attributes:
        home: a folder for its files.
        servers: by keyspace.
        lake: its folder as we see it, or its address.
        is_elsewhere: whether that folder is on a disk that only the run has mounted.
        life: the run, as a supervisor has it.
        new_life: another machine's supervisor: its name, and what its environment has besides.
        proxies: by keyspace; the run reaches the servers through them.
        disk: the lake's own, or the one of temporary files.
        clock: the run's.
        cluster: Spark's.
        notes: what is told of a fault besides its figures.
        dumped: the table that is being dumped; empty: none.
    """

    home: Path
    servers: Mapping[str, Server]
    lake: Path | str
    life: Life
    new_life: Callable[[str, Mapping[str, str]], Life]
    proxies: Mapping[str, Proxy] = field(default_factory=dict)
    disk: SmallDisk | None = None
    clock: Clock | None = None
    cluster: SparkCluster | None = None
    notes: list[str] = field(default_factory=list)
    dumped: str = ""
    is_elsewhere: bool = False
    _made: int = 0
    _machines: int = 0
    _changes: int = 1

    # --- time, in which the supervisor does its work ---

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""
        self.until(lambda: False, seconds)

    def until(self, holds: Callable[[], bool], limit: float) -> float | None:
        """Seconds until something holds; None: it did not within the limit."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < limit:
            self.life.look()
            if holds():
                return time.monotonic() - began
            time.sleep(min(_POLL, max(0.0, limit - passed)))
        return None

    # --- the source ---

    def writers(self, seed: int) -> list[Writer]:
        """Somebody who writes to each server, not started yet."""
        return [
            Writer(server, TABLES, ROWS, _RATE, seed + number)
            for number, server in enumerate(self.servers.values())
        ]

    def execute(self, *statements: str) -> None:
        """Execute statements on each server, each on its own."""
        for server in self.servers.values():
            for statement in statements:
                server.execute(statement, database=DATABASE)

    def change(self) -> int:
        """Make a change on each server; its number."""
        self._changes += 1
        self.execute(f"INSERT INTO {BEAT} VALUES ({self._changes}, {time.time()!r})")
        return self._changes

    def begin_dump(self, limit: float) -> None:
        """Make a large table, and wait until some of it is dumped."""
        self._made += 1
        self.dumped = f"large{self._made}"
        for server in self.servers.values():
            add_table(server, self.dumped, _LARGE)
        if self.until(lambda: "dumping" in self._phases(), limit) is None:
            raise NotFitError("no dump began")

    # --- the lake, and the run ---

    def another(self, **environment: str) -> Life:
        """A supervisor on another machine, which has started nothing yet."""
        self._machines += 1
        return self.new_life(f"other{self._machines}", environment)

    def is_seen(self, change: int) -> bool:
        """Whether it is in the lake, of each server, and what was being dumped is."""
        for keyspace in self.servers:
            if self._count(keyspace, BEAT, f"id = {change}") != 1:
                return False
            if self.dumped and self._count(keyspace, self.dumped, "true") != _LARGE:
                return False
        return not self.dumped or set(self._phases()) == {"streaming"}

    def compared(self, limit: float) -> tuple[int, str]:
        """All rows of all tables, once they are equal; what is wrong if they never are.

        Nobody writes.
        """
        found: list[tuple[int, str]] = []

        def equal() -> bool:
            rows, wrong = 0, []
            for keyspace, server in self.servers.items():
                try:
                    count, what = differences(self._shown(keyspace), keyspace, server)
                except Exception as error:  # noqa: BLE001 - a file is removed while it is read
                    count, what = 0, {"lake": str(error)}
                rows += count
                wrong += [f"{keyspace}.{table}: {text}" for table, text in what.items()]
            found.append((rows, "; ".join(wrong)))
            return not wrong

        self.until(equal, limit)
        return found[-1]

    def status(self) -> Mapping[str, Any] | None:
        """What `ratchet status` says; None: nothing."""
        process = self.life.command("status", "--json")
        said = self.life.log
        try:
            if process.wait(_ASKED_WITHIN) != 0:
                return None
        except subprocess.TimeoutExpired:
            process.kill()
            return None
        with suppress(ValueError):
            # Warnings, if there are any, stand before it.
            found: Mapping[str, Any] = json.loads("{" + said.read_text().partition("{")[2])
            return found
        return None

    def stop(self) -> None:
        """End the run cleanly; `wait` starts it again."""
        if (code := self.life.stop(_STOP)) != 0:
            self.notes.append(f"stopped with exit {code}")

    def heal(self) -> None:
        """Wait for the run to say that its position is lost, and type what a person decides."""
        lost = self.life.ends[5]
        if self.until(lambda: self.life.ends[5] > lost, _ASKED_WITHIN) is None:
            raise NotFitError("no run said that the position is lost")
        code = self.life.command("heal").wait(_STOP)
        self.notes.append(f"exit 5, then `ratchet heal`: exit {code}")

    def processes(self, program: str) -> list[int]:
        """The run's own that run a program."""
        return [pid for pid in below(self.life.pid or 0) if program_of(pid) == program]

    def _phases(self) -> list[str]:
        found = self.status() or {"tables": [{"phase": "unknown"}]}
        return [str(table["phase"]) for table in found["tables"]]

    def _shown(self, part: str) -> Path | str:
        """Where a lake is that has that part of this one, and which readers find.

        deltalake does not follow the path to a disk in another namespace.
        """
        if isinstance(self.lake, str) or not self.is_elsewhere:
            return self.lake
        copy = self.home / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.lake / part, copy / part)
        return copy

    def _count(self, keyspace: str, table: str, condition: str) -> int:
        options = {"AWS_ALLOW_HTTP": "true"} if isinstance(self.lake, str) else None
        with suppress(Exception):  # it is not there yet, or a file has just been removed
            folder = f"{self._shown(f'{keyspace}/{table}')}/{keyspace}/{table}"
            delta = DeltaTable(folder, storage_options=options)
            query = QueryBuilder().register("t", delta)
            asked = f"SELECT count(*) AS n FROM t WHERE {condition}"
            (count,) = pa.table(query.execute(asked).read_all())["n"].to_pylist()
            return int(count)
        return -1


def below(pid: int) -> list[int]:
    """All processes that a process has started, and those that they have."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # it has ended
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *below(child)]
    return found


def program_of(pid: int) -> str:
    """The name of what a process runs; nothing, if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def peak_of(pid: int) -> float:
    """MiB that a process has held in memory at most."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024
    return 0.0


def is_halted(pid: int) -> bool:
    """Whether a process stands still."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def signal_all(pids: list[int], number: int) -> None:
    """Send a signal to those that are there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
