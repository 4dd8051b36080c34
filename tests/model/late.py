"""Two holders of one lake, of which the first stands still at any step while the second takes over.

Real code of the store, of the dump's books and of the upkeep, on a folder; only the source and the
rows are made up: round n brings the row n, and a dump brings the rows of all rounds before it, each
row with the name of what brought it. So what lies in a table says where it is from.

A step is any touch of the lake. The first holder is halted before its step `halt`; the second one
takes the lake over and works, and before its step `wake` the first one goes on to its end.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lease_kit import Passing

from ratchet.core.errors import ConfigError, RatchetError, RetryableError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, Round, ShardSlice
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.jobs.config.config import load_config
from ratchet.jobs.config.selection import Selection
from ratchet.jobs.run.serving import ConfigFile, TableRequestHandler
from ratchet.jobs.topology.gaps import begin_after_a_gap
from ratchet.merge.bundle import BundleLimits, bundle_rounds, remove_replaced
from ratchet.merge.compaction import compact_files
from ratchet.merge.maintain import needed_from, prune_change_log, remove_orphans
from ratchet.snapshot.ledger import open_ledger
from ratchet.snapshot.reader import ChunkResult
from ratchet.store import layout, takeover
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.actions import AppTransaction, CommitInfo, rewrite_info
from ratchet.store.delta.commits import commit_files, committed
from ratchet.store.delta.datafiles import write_data_file
from ratchet.store.delta.errors import CommitConflictError
from ratchet.store.delta.log import replay, replay_existing
from ratchet.store.delta.tables import create_mirrored_table, open_delta, query
from ratchet.store.files import Lake, open_lake
from ratchet.store.lease import Lease
from ratchet.store.requests import Kind, Request
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import missing, open_changes
from ratchet.store.tables import DumpState, StopReason, Tables, TableState

AT = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
COLUMNS = pa.schema([pa.field("id", pa.int64()), pa.field("by", pa.string())])
TOUCHES = (
    "read_file", "read_json", "write_json", "create_file", "delete", "delete_folder", "list",
    "open_output", "is_file", "change_json",
)  # fmt: skip
SHARD = "k/-"


class WrongError(AssertionError):
    """Something of the late one is visible, or something is lost."""


@dataclass
class Steps:
    """Counts the steps of one thread, and does something before one of them."""

    at: int
    then: Callable[[], None]
    count: int = 0
    inside: bool = False

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.then()


_mine = threading.local()


@contextmanager
def stepping(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """From here on each touch of the lake is a step of the thread that does it."""
    for name in TOUCHES:
        genuine = getattr(Lake, name)

        def touch(self: Lake, *args: Any, _genuine: Any = genuine, **kwargs: Any) -> Any:
            steps: Steps | None = getattr(_mine, "steps", None)
            if steps is not None and not steps.inside:
                steps.step()
            return _genuine(self, *args, **kwargs)

        patch.setattr(Lake, name, touch)

    def one_by_one(work: Any, paths: Any, alive: Any) -> None:
        for path in paths:
            work(path)
            alive()

    patch.setattr(takeover, "_each", one_by_one)
    yield


# --- what a holder does ---------------------------------------------------------------------------


@dataclass
class Holder:
    """One run, in small: what it was told, it does to the lake."""

    lake: Lake
    name: str
    done: list[int] = field(default_factory=list)

    def capture(self) -> None:
        """One round: a change file, then its commit."""
        rounds = RoundLog(self.lake)
        number = rounds.last_number() + 1
        path = layout.change_file_path(
            "k", "t", round_number=number, shard=SHARD, schema="0", part=id(self) % 2**40
        )
        with self.lake.open_output(path) as sink:
            sink.write(json.dumps([number]).encode())
        file = ChangeFile(
            keyspace="k", table="t", shard=SHARD, schema="0", path=path, rows=1, bytes=10,
            min_seq=1, max_seq=1, inserts=1, updates=0, deletes=0, misfits={},
        )  # fmt: skip
        piece = ShardSlice.beginning(SHARD, AT, generation=0, now=number, ancestors={})
        rounds.append(
            Round(number=number, committed_at=number, slices=(piece,), files=(file,), events=())
        )
        self.done.append(number)

    def merge(self) -> None:
        """All rounds into the table, its state, then a cut."""
        rounds, tables, cuts = RoundLog(self.lake), Tables(self.lake), Cuts(self.lake)
        state = tables.load("k", "t")
        if state is None or state.dump is None or state.phase != "streaming":
            return
        app = f"ratchet.merge/{state.dump.id}"
        files = replay_existing(self.lake, state.path, "merge")
        begin = max(committed(files, app) or 0, state.dump.start_round - 1)
        todo = rounds.since(begin)
        if todo:
            rows = []
            for one in todo:
                for file in one.files:
                    with open_changes(self.lake, file.path) as stream:
                        rows += [(id_, f"round {one.number}") for id_ in json.loads(stream.read())]
            last = todo[-1].number
            done = AppTransaction(app_id=app, version=last, updated_at=1)
            added = self._rows(state.path, rows, "merge")
            if commit_files(self.lake, state.path, files, [_info(files), done, added]) is None:
                raise CommitConflictError("somebody else merges", operation="merge")
            tables.save(replace(state, merged_round=last))
        before = cuts.last()
        # A late one's table may have been dropped meanwhile.
        version = replay_existing(self.lake, state.path, "merge")
        cuts.append(
            Cut(
                number=before.number + 1 if before else 1,
                round=rounds.last_number(),
                merged_at=1,
                shards={},
                tables={"k.t": version.version},
                stopped=(),
            )
        )

    def dump(self) -> None:
        """The table afresh, of what the rounds until now have brought, in two chunks."""
        tables, rounds = Tables(self.lake), RoundLog(self.lake)
        state = tables.load("k", "t") or _new()
        last = rounds.last_number()
        start = DumpState(id=self.name, start_round=last + 1, start={SHARD: AT})
        state = tables.save(replace(state, phase="dumping", dump=start, merged_round=last))
        create_mirrored_table(self.lake, state.path, COLUMNS, key=("id",), name="k.t", now=1)
        files = replay(self.lake, state.path)
        assert files is not None
        ledger = open_ledger(
            self.lake, path=state.path, dump=self.name, generations={SHARD: 0},
            columns=files.schema, key=("id",),
        )  # fmt: skip
        half = last // 2
        for rows, end in ((range(1, half + 1), (str(half),)), (range(half + 1, last + 1), None)):
            claim = ledger.claim()
            assert claim is not None
            action = self._rows(
                state.path, [(n, f"dump {self.name}") for n in rows], f"dump-{self.name}"
            )
            ledger.finish(
                claim,
                ChunkResult(
                    number=claim.number, shard=SHARD, keys=claim.keys, end=end,
                    file=action.path, size=action.size, stats=action.stats_text,
                    rows=len(rows), bytes=1, floor=AT, read_at=0, seconds=0.0, misfits={},
                ),
            )  # fmt: skip
            draft = ledger.draft()
            assert draft is not None
            ledger.write(draft)
            ledger.committed(draft)
        tables.save(replace(state, phase="streaming", merged_round=last))

    def stop(self) -> None:
        """As when a doubt has come true: only the state says so."""
        tables = Tables(self.lake)
        state = tables.load("k", "t")
        if state is not None:
            why = StopReason(message=self.name, hint="", round=state.merged_round)
            tables.save(replace(state, phase="stopped", stopped=why))

    def upkeep(self) -> None:
        """Small files together, old change files away, those of the other rounds together."""
        tables, rounds = Tables(self.lake), RoundLog(self.lake)
        compact_files(self.lake, layout.table_path("k", "t"), key=("id",), now=1)
        self.bundle()
        prune_change_log(self.lake, rounds, tables.list(), now=10**12, keep=0)

    def bundle(self) -> None:
        """Objects of old rounds together; those that were before go at once."""
        rounds, now = RoundLog(self.lake), lambda: 10**12
        limits = BundleLimits(age=0, kept=0, rounds=2, few=1)
        needed = needed_from(Tables(self.lake).list(), Cuts(self.lake).last())
        for _ in remove_replaced(self.lake, rounds, now=now, limits=limits):
            pass
        for _ in bundle_rounds(self.lake, rounds, above=0, below=needed, now=now, limits=limits):
            pass
        for _ in remove_replaced(self.lake, rounds, now=now, limits=limits):
            pass

    def heal(self) -> None:
        """The source has lost what the mirror needs: the stream begins anew, the table waits."""
        rounds = RoundLog(self.lake)
        generation = rounds.streams()[SHARD].generation + 1
        heir = ShardSlice.beginning(SHARD, AT, generation=generation, now=1, ancestors={})
        begin_after_a_gap(self.lake, rounds, "k", [heir], now=1)

    def redump(self) -> None:
        """`ratchet table redump`."""
        self._asked("redump", "t")

    def drop(self) -> None:
        """`ratchet table drop`, whose config leaves the table out."""
        self._asked("drop", "!t")

    def _asked(self, kind: Kind, pattern: str) -> None:
        config = load_config(_config(Path(self.lake.root).parent, pattern))
        serving = TableRequestHandler(self.lake, ConfigFile(config), Selection(config.sources))
        try:
            serving.do(Request(kind=kind, keyspace="k", table="t", delete=False, asked_at=1))
        except (ConfigError, RetryableError):
            return  # it is not there, or is being dumped: the user is told

    def orphans(self) -> None:
        """What a run does first."""
        remove_orphans(self.lake, RoundLog(self.lake))

    def _rows(self, path: str, rows: list[tuple[int, str]], kind: str) -> dict[str, Any]:
        schema = pa.schema([*COLUMNS])
        table = pa.table([[n for n, _ in rows], [by for _, by in rows]], schema=schema)
        return write_data_file(
            self.lake, path, [table], schema, kind=kind, described=("id",), now=1
        )


def _config(folder: Path, pattern: str) -> Path:
    """A config's file beside the lake; what is no step of ours is there before the first one."""
    path = folder / f"{'out' if pattern.startswith('!') else 'in'}.yaml"
    if not path.exists():
        path.write_text(
            f"lake: ./lake\nsources:\n  k:\n    kind: binlog\n    tables: ['*', '{pattern}']\n"
            "    shards: {'-': {host: h, user: u}}\n"
        )
    return path


def _new() -> TableState:
    columns = (Column(name="id", type=ColumnType(name="bigint")),)
    schema = TableSchema(keyspace="k", table="t", columns=columns, key=("id",))
    return TableState(keyspace="k", table="t", schema=schema, key=("id",))


def _info(files: Any) -> CommitInfo:
    return rewrite_info("MERGE", read=files.version, now=1)


# --- one history ----------------------------------------------------------------------------------

Work = tuple[str, ...]


def prepared(folder: Path) -> Lake:
    """A lake with a table that streams and small files, as a run has left it that was killed."""
    lake = open_lake(folder, now=1)
    held = take(lake, "zero")
    for work in ("capture", "capture", "dump", "capture", "merge", "capture", "merge", "capture"):
        getattr(held, work)()
    return lake


def take(lake: Lake, name: str) -> Holder:
    """Take the lake from whoever has it, who looks as if on another machine."""
    lease = Lease.acquire(lake, f"ratchet run {name}", passing=Passing().time)
    lake.write_json(layout.LEASE_FILE, {**asdict(lease.holder), "machine": "elsewhere"})
    return Holder(lease.lake, name)


@dataclass
class Outcome:
    """What became of a history.

    Attributes:
        steps: how many the late one made until it was halted or done.
        after: how many the other one made.
        error: what ended the late one.
    """

    steps: int
    after: int
    error: BaseException | None


def history(lake: Lake, late: Work, other: Work, *, halt: int, wake: int) -> Outcome:
    """One history of two holders; looks at the lake at its end.

    Raises:
        WrongError: the lake is not right.
    """
    halted, go = threading.Event(), threading.Event()
    errors: list[BaseException] = []
    first = take(lake, "late")

    def stand_still() -> None:
        halted.set()
        go.wait()

    steps = Steps(halt, stand_still)

    def work() -> None:
        _mine.steps = steps
        try:
            for one in late:
                getattr(first, one)()
        except BaseException as error:  # noqa: BLE001 - looked at by the caller
            errors.append(error)
        finally:
            halted.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    halted.wait()
    before = visible(lake)

    def wake_it() -> None:
        go.set()
        thread.join()

    mine = Steps(wake, wake_it)
    _mine.steps = mine
    try:
        second = take(lake, "other")
        _mine.steps = None
        before = {**before, "state": Tables(second.lake).load("k", "t")}
        _mine.steps = mine
        for one in ("orphans", *other):
            getattr(second, one)()
    except RatchetError as error:
        raise WrongError(f"the successor cannot go on: {error}") from error
    finally:
        _mine.steps = None
        go.set()
        thread.join()
    for _ in range(2):  # whoever comes later finds all in order as well
        check(lake, other, before)
        take(lake, "third").merge()
    error = errors[0] if errors else None
    if error is not None and not isinstance(error, RatchetError):
        raise error
    return Outcome(steps=steps.count, after=mine.count, error=error)


def visible(lake: Lake) -> Mapping[str, Any]:
    """What there is to lose when the late one stands still."""
    return {"round": RoundLog(lake).last_number(), "state": Tables(lake).load("k", "t")}


def check(lake: Lake, other: Work, before: Mapping[str, Any]) -> None:
    """Nothing of the late one's is visible that came behind the take-over, and nothing is lost."""
    rounds, tables = RoundLog(lake), Tables(lake)
    last = rounds.last_number()
    if last < before["round"]:
        raise WrongError("a round is lost")
    state = tables.load("k", "t")
    if state is None:
        if before["state"] is not None and "drop" not in other:
            raise WrongError("the state is lost")
        return
    was_stopped = before["state"] is not None and before["state"].phase == "stopped"
    if state.stopped is not None and state.stopped.message == "late" and not was_stopped:
        raise WrongError("the late one has stopped the table")
    if "dump" in other and (state.dump is None or state.dump.id != "other"):
        raise WrongError("the dump of the successor is hidden")
    cut = Cuts(lake).last()
    if cut is not None and cut.round > last:
        raise WrongError("a cut of a round that there is not")
    if state.dump is not None and state.phase == "streaming":
        _check_rows(lake, state, state.dump)


def _check_rows(lake: Lake, state: TableState, dump: DumpState) -> None:
    """The table has what its dump and the rounds brought, and the rounds to come are there."""
    rounds = RoundLog(lake)
    rounds.last_number()
    files = replay(lake, state.path)
    if files is None:
        raise WrongError("the table is lost")
    merged = max(committed(files, f"ratchet.merge/{dump.id}") or 0, dump.start_round - 1)
    for one in rounds.since(max(merged, rounds.first_number() - 1)):
        for file in one.files:
            if missing(lake, [file.path]):
                raise WrongError(f"round {one.number} names a file that is gone")
    table = open_delta(lake, state.path)
    if table is None:
        raise WrongError("the table is lost")
    found = [
        (row["id"], row["by"])
        for batch in query(table, state.path, 'SELECT id, "by" FROM t')
        for row in batch.to_pylist()
    ]
    wanted = [(n, f"dump {dump.id}") for n in range(1, dump.start_round)]
    wanted += [(n, f"round {n}") for n in range(dump.start_round, merged + 1)]
    if sorted(found) != sorted(wanted):
        raise WrongError(f"rows {sorted(set(found) ^ set(wanted))[:9]}, {len(found)} in all")


def copied(source: Lake, folder: Path) -> Lake:
    """The prepared lake at another place."""
    shutil.copytree(source.root, folder)
    return Lake.at(folder)
