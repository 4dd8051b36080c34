"""The mirror under test: a live `ratchet run`, asked what it takes for right, and compared.

Lives here: starting it, waiting until a cut covers the source, the comparison of all that it calls
right. Does not live here: statements, what comes of a finding.

Invariant: what a table's rows are is read by PyMySQL on one side and deltalake on the other
(`tests/fix_e2e.py`). Ratchet's own files are asked only what it says of itself: phases, doubts,
cuts.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import yaml
from deltalake import DeltaTable, QueryBuilder
from fix_e2e import SHORT_LIVED, _frozen, _plain, source_rows

from lab.servers import RATCHET_PASSWORD, Server, create_ratchet_user
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.files import Lake
from ratchet.store.layout import encode_part
from ratchet.store.requests import Kind, Refusal, Request, Requests
from ratchet.store.tables import Tables, TableState

ROOT: Final = Path(__file__).resolve().parents[2]
KEYSPACE: Final = "shop"
FENCE: Final = "fence"
PATIENCE: Final = 180.0  # seconds that a mirror may take to come to rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong.

    Attributes:
        what: "silent", "gone", "died", "hung", "unnamed": a difference that the mirror calls right;
            a table that it calls right and nobody has; the run ended; it did not come to rest; a
            stop without a reason; "decoders": a second decoder reads the log otherwise.
        table: which; empty if it is about the run.
        detail: for a human.
    """

    what: str
    table: str
    detail: str


@dataclass(slots=True)
class Seen:
    """What a look at the mirror came to.

    Attributes:
        findings: what is wrong.
        right: tables that it calls right, and that are.
        rows: of those.
        stopped: table -> the mirror's reason.
        doubts: doubts that were waited for.
    """

    findings: list[Finding] = field(default_factory=list)
    right: list[str] = field(default_factory=list)
    rows: int = 0
    stopped: dict[str, str] = field(default_factory=dict)
    doubts: int = 0


class Mirror:
    """One lake and its live run.

    Args:
        server: the source.
        database: mirrored.
        folder: where config and lake go.
    """

    def __init__(self, server: Server, database: str, folder: Path) -> None:
        self._server, self._database = server, database
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0
        self._fence = 0
        self._lakes = 0
        self._asked: dict[tuple[str, str], float] = {}
        self._waiting: list[Request] = []
        self._cache: dict[tuple[str, str, int], Shown] = {}
        self._told: set[str] = set()
        create_ratchet_user(server, RATCHET_PASSWORD, [database])

    # --- its life ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a run on a new, empty lake."""
        self.end()
        self._lakes += 1
        self._asked, self._cache, self._told, self._waiting = {}, {}, set(), []
        home = self._folder / f"mirror-{self._lakes}"
        home.mkdir(parents=True)
        shard = {"host": self._server.host, "port": self._server.port, "user": "ratchet",
                 "password": "${RATCHET_FUZZ_PASSWORD}", "database": self._database}  # fmt: skip
        config = {
            "lake": "./lake",
            # It asks for each dump itself, to see what stops a table and why. Helper tables of
            # schema change tools are mirrored, too.
            "sources": {
                KEYSPACE: {
                    "kind": "binlog",
                    "shards": {"-": shard},
                    "tables": ["*", "_*"],
                    "schema_changes": "stop",
                }
            },
            "capture": {"round_seconds": 1.0},
            "merge": {"interval_seconds": 0},
            "spark": {"conf": {"spark.driver.extraJavaOptions": SHORT_LIVED}},
        }
        self.config = home / "ratchet.yaml"
        self.config.write_text(yaml.safe_dump(config))
        self.start()

    def start(self) -> None:
        """Start a run on the lake that is there."""
        home = self.config.parent
        self.log = home / f"run-{self._number}.log"
        self._number += 1
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ratchet.jobs.cli", "run", str(self.config)],
                cwd=ROOT,
                env={**os.environ, "RATCHET_FUZZ_PASSWORD": RATCHET_PASSWORD},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._lake: Lake | None = None

    def end(self) -> None:
        """Kill the run with everything that it started."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def lake_folder(self) -> Path:
        """Where the lake is."""
        return self.config.parent / "lake"

    def died(self) -> Finding | None:
        """Whether the run has ended, which it should not."""
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return None
        return Finding(what="died", table="", detail=f"exit {code}\n{self._tail()}")

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        told = [line for line in lines if "error:" in line and "is stopped:" not in line]
        return "\n".join([*told[-3:], "...", *lines[-8:]])[-3000:]

    # --- a look at it -----------------------------------------------------------------------------

    def look(self) -> Seen:
        """Wait until it has come to rest behind all that the source has done, and compare."""
        self._raise_fence()
        seen = Seen()
        rest = self._wait(seen)
        if rest is not None:
            self._compare_all(*rest, seen)
        return seen

    def rest(self) -> None:
        """Wait until all that was asked for is done; what goes wrong shows in the next look."""
        self._wait(Seen())

    def _wait(self, seen: Seen) -> tuple[dict[str, TableState], set[str], Cut] | None:
        deadline = time.monotonic() + PATIENCE
        while True:
            if (finding := self.died()) is not None:
                seen.findings.append(finding)
                return None
            rest = self._at_rest(seen)
            if not isinstance(rest, str):
                return rest
            if time.monotonic() > deadline:
                detail = f"{rest}\n{self._tail()}"
                seen.findings.append(Finding(what="hung", table="", detail=detail))
                return None
            time.sleep(0.3)

    def again(self, tables: Collection[str]) -> None:
        """Ask for new dumps."""
        for table in tables:
            self._ask("redump", table, every=0.0)

    def _raise_fence(self) -> None:
        """A row behind all that was done: where it is, everything is."""
        self._fence += 1
        with (
            self._server.connect(database=self._database) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {FENCE} (id INT PRIMARY KEY, n BIGINT)")
            cursor.execute(f"REPLACE INTO {FENCE} VALUES (1, {self._fence})")

    def _at_rest(self, seen: Seen) -> tuple[dict[str, TableState], set[str], Cut] | str:
        """The states, the source's tables and the cut, if all is decided; else what is not."""
        if not (self.lake_folder / "_ratchet").exists():
            return "there is no lake yet"
        if self._lake is None:
            self._lake = Lake.at(self.lake_folder)
            self._cuts, self._tables = Cuts(self._lake), Tables(self._lake)
            self._requests = Requests(self._lake)
        self._waiting = [one for one in self._waiting if not self._answered(one)]
        if self._waiting:
            return f"asked: {[(one.kind, one.table) for one in self._waiting]}"
        cut = self._cuts.last()  # before the states: a cut is written behind those of its step
        states = {state.table: state for state in self._tables.list(KEYSPACE)}
        left_out = self._left_out()
        source = self._source_tables() - {
            name for name in left_out if name not in states or states[name].phase == "new"
        }
        for name in source - set(states):
            self._ask("add", name, every=15.0)
        fence = states.get(FENCE)
        if fence is not None and fence.phase == "stopped":
            self._ask("redump", FENCE, every=15.0)
        moving = sorted(
            name
            for name in source
            if name not in states or states[name].phase not in {"streaming", "stopped"}
        )
        if moving:
            return f"not settled: {moving}"
        doubted = sorted(name for name, state in states.items() if _doubted(state))
        if doubted:
            seen.doubts += 1
            return f"in doubt: {doubted}"
        hidden = [
            name
            for name in source
            if states[name].phase == "streaming" and not (cut and cut.shows(states[name].name))
        ]
        if cut is None or hidden:
            return f"in no cut: {hidden}"
        if self._fence_at(cut) < self._fence:
            return "the newest cut does not hold the last row"
        return states, source, cut

    def _left_out(self) -> set[str]:
        """Tables that cannot be mirrored, as the run's log told: they have no state."""
        text = self.log.read_text(errors="replace")
        return set(re.findall(rf"warning: {KEYSPACE}\.(.+?) is left out: ", text))

    def _source_tables(self) -> set[str]:
        rows = self._server.execute(
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s "
            "AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')",
            (self._database,),
        )
        return {str(name) for (name,) in rows}

    def _fence_at(self, cut: Cut) -> int:
        version = cut.tables[f"{KEYSPACE}.{FENCE}"]
        found = _read(self.lake_folder, FENCE, version).column("n").to_pylist()
        return max((n for n in found if n is not None), default=0)

    def _ask(self, kind: Kind, table: str, *, every: float) -> None:
        now = time.monotonic()
        if now - self._asked.get((kind, table), -1e9) < every:
            return
        self._asked[kind, table] = now
        request = Request(
            kind=kind, keyspace=KEYSPACE, table=table, asked_at=time.time_ns() // 1000
        )
        self._requests.ask(request)
        self._waiting.append(request)

    def _answered(self, request: Request) -> bool:
        answer = self._requests.answer(request)
        if isinstance(answer, Refusal):
            self._requests.take_back(request)  # a table that went meanwhile, or is being dumped
        return answer != "waiting"

    # --- the comparison ---------------------------------------------------------------------------

    def _compare_all(
        self, states: dict[str, TableState], source: set[str], cut: Cut, seen: Seen
    ) -> None:
        for name, state in sorted(states.items()):
            if state.phase == "stopped":
                why = "" if state.stopped is None else state.stopped.message
                if name in source:
                    seen.stopped[name] = why
                if not why.strip():
                    seen.findings.append(Finding(what="unnamed", table=name, detail=str(state)))
                if "second decoder" in why:  # one of the two is wrong
                    seen.findings.append(Finding(what="decoders", table=name, detail=why))
            elif name not in source and (state.phase != "streaming" or name in self._told):
                continue
            elif name not in source:
                self._told.add(name)
                seen.findings.append(
                    Finding(what="gone", table=name, detail=f"{state.phase}, and there is no such")
                )
            else:
                self._told.discard(name)
                version = cut.tables[state.name]
                self._compare(name, version, "" if state.dump is None else state.dump.id, seen)

    def _compare(self, name: str, version: int, dump: str, seen: Seen) -> None:
        expected = source_rows(self._server, self._database, name)
        have = self._cache.get((name, dump, version))
        if have is None:
            self._cache = {key: rows for key, rows in self._cache.items() if key[0] != name}
            have = self._cache[name, dump, version] = mirror_rows(self.lake_folder, name, version)
        shown = set(have.columns)
        late = {column for row in expected for column in row if column not in shown}
        # Documented: a column that is NULL in all rows may come with its first value.
        empty = {column for column in late if all(row[column] is None for row in expected)}
        wanted = Counter(
            _frozen({column: value for column, value in row.items() if column not in empty})
            for row in expected
        )
        missing, extra = wanted - have.rows, have.rows - wanted
        if missing or extra:
            detail = (
                f"{missing.total()} rows missing, {extra.total()} extra; "
                f"source {_shown(missing)}; mirror {_shown(extra)}"
            )
            seen.findings.append(Finding(what="silent", table=name, detail=detail))
            return
        seen.right.append(name)
        seen.rows += wanted.total()


@dataclass(frozen=True, slots=True)
class Shown:
    """What a mirrored table shows: its columns and its rows."""

    columns: tuple[str, ...]
    rows: Counter[Any]


def mirror_rows(lake: Path, table: str, version: int) -> Shown:
    """A version of a mirrored table, without the token, in the form of `fix_e2e`."""
    found = _read(lake, table, version).drop_columns(["_token"])
    kinds = {one.name: one.type for one in found.schema}
    rows = Counter(
        _frozen({name: _plain(value, kinds[name]) for name, value in row.items()})
        for row in found.to_pylist()
    )
    return Shown(tuple(found.schema.names), rows)


def _read(lake: Path, table: str, version: int) -> pa.Table:
    delta = DeltaTable(f"{lake}/{KEYSPACE}/{encode_part(table)}", version=version)
    return pa.table(QueryBuilder().register("t", delta).execute("SELECT * FROM t").read_all())


def _doubted(state: TableState) -> bool:
    return state.phase == "streaming" and bool(state.doubts)


def _shown(rows: Counter[Any]) -> str:
    return str([dict(row) for row in list(rows)[:2]])[:600]
