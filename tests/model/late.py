"""Two holders of one lake, of which the first stands still at any step while the second takes over.

Real code of the store, of the dump's books, of repairs, of computed tables and of the upkeep, on a
folder; only the source and the rows are made up: round n brings the row n, and a dump brings the
rows of all rounds before it, each row with the name of what brought it. So what lies in a table
says where it is from. A repair marks the rows that it writes with the name of its holder.

A step is any touch of the lake. The first holder is halted before its step `halt`; the second one
takes the lake over and works, and before its step `wake` the first one goes on to its end.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from lease_kit import Passing

from ratchet.core.change import TOKEN_COLUMN
from ratchet.core.errors import ConfigError, RatchetError, RetryableError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.reshaping import NotComputableError
from ratchet.core.rounds import ChangeFile, Round, ShardSlice
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.config.config import load_config
from ratchet.jobs.config.selection import Selection
from ratchet.jobs.recovery.repair import note
from ratchet.jobs.run.serving import ConfigFile, TableRequestHandler
from ratchet.jobs.topology.gaps import begin_after_a_gap
from ratchet.merge.bundle import BundleLimits, bundle_rounds, remove_replaced
from ratchet.merge.compaction import compact_files
from ratchet.merge.maintain import needed_from, prune_change_log, remove_orphans
from ratchet.merge.plan import app_id
from ratchet.merge.remake import remake, reshaping_of
from ratchet.merge.repair import ExpectedRow, repair_table
from ratchet.snapshot.ledger import ChunkTracker, open_ledger
from ratchet.snapshot.reader import ChunkResult
from ratchet.store import filelock, layout, staged, takeover
from ratchet.store.anew import (
    clear_place,
    end_removal,
    forget_old_log,
    is_readable,
    standing_of,
    used_numbers,
)
from ratchet.store.cuts import Cut, Cuts, CutShard
from ratchet.store.delta.actions import AppTransaction, CommitInfo, DataFile, rewrite_info
from ratchet.store.delta.commits import commit_files, committed
from ratchet.store.delta.datafiles import write_data_file
from ratchet.store.delta.errors import CommitConflictError
from ratchet.store.delta.log import replay, replay_existing
from ratchet.store.delta.tables import (
    create_mirrored_table,
    mirrored_schema,
    open_delta,
    query,
    table_version,
)
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lease import Lease
from ratchet.store.requests import Kind, Request
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import missing, open_changes
from ratchet.store.staged import remove_given_up, take_place, taken
from ratchet.store.stops import ShapeChange, StopReason
from ratchet.store.tables import Tables, TableState

AT = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
COLUMNS = pa.schema([pa.field("id", pa.int64()), pa.field("by", pa.string())])
ADDED = Column(name="x", type=ColumnType(name="int"))
ALTER = "ALTER TABLE t ADD x INT NOT NULL DEFAULT 7"
TOKEN = {"ts": 0, "shard": "k/-", "gtid": None, "generation": 0, "seq": 0, "idx": 0}
POLICY = InvalidValuePolicy()
TOUCHES = (
    "read_file", "read_buffer", "read_json", "write_json", "create_file", "create_behind", "copy",
    "delete",     "delete_folder", "list", "open_output", "is_file", "change_json",
)  # fmt: skip
SHARD = "k/-"
MARK = " mended by "


class _NoSpark:
    """What Spark would be asked ends here: tests/spark/test_fence.py has its fence."""

    def newSession(self) -> None:  # noqa: N802 - Spark's name
        raise RetryableError("there is no Spark here", operation="test")


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
    patch.setattr(staged, "ThreadPoolExecutor", _OneByOne)  # what it copies are steps as well
    patch.setattr(filelock, "LOCK_SECONDS", 0.3)
    for name, held in (("unlink", "dir_fd"), ("link", "dst_dir_fd")):
        patch.setattr(os, name, _in_held_folder(getattr(os, name), held))
    yield


def _in_held_folder(genuine: Callable[..., None], held: str) -> Callable[..., None]:
    """What is done in a folder that is held open (store.folders) is a step as well."""

    def touch(*args: Any, **kwargs: Any) -> None:
        steps: Steps | None = getattr(_mine, "steps", None)
        if steps is not None and kwargs.get(held) is not None:
            steps.step()
        genuine(*args, **kwargs)

    return touch


class _OneByOne:
    """Stands for a pool of threads."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, work: Callable[[Any], Any], every: Iterable[Any]) -> Iterator[Any]:
        return map(work, every)


# --- what a holder does ---------------------------------------------------------------------------


@dataclass
class Holder:
    """One run, in small: what it was told, it does to the lake."""

    lake: Lake
    name: str
    done: list[int] = field(default_factory=list)
    dumps: int = 0

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
        """All rounds into the table, its being shown, its state, then a cut."""
        if (state := self._past_dump()) is None:
            return
        state, last = self._merged(state)
        if state.is_staged:
            self._show(state, last)
        rounds, cuts = RoundLog(self.lake), Cuts(self.lake)
        before = cuts.last()
        # A late one's table may have been dropped meanwhile.
        version = replay_existing(self.lake, state.shown_path, "merge")
        place = CutShard(position=AT, min_ts=None, max_ts=None, latest_ts=1, observed_at=1)
        cuts.append(
            Cut(
                number=before.number + 1 if before else 1,
                round=rounds.last_number(),
                merged_at=1,
                shards={SHARD: place},
                tables={"k.t": version.version},
                stopped=(),
            )
        )

    def _past_dump(self) -> TableState | None:
        """The table as merges take it; a staged one that was shown already is as it stands."""
        state = Tables(self.lake).load("k", "t")
        if state is None or state.dump is None or not state.is_past_dump:
            return None
        shown = taken(self.lake, state.shown_path, app_id(state)) if state.is_staged else None
        return state if shown is None else self._shown(state, shown)

    def _merged(self, state: TableState) -> tuple[TableState, int]:
        """Commit what is captured; the last round that the table has now."""
        assert state.dump is not None
        files = replay_existing(self.lake, state.path, "merge")
        begin = max(committed(files, app_id(state)) or 0, state.dump.start_round - 1)
        todo = RoundLog(self.lake).since(begin)
        if not todo:
            return state, begin
        rows = []
        for one in todo:
            for file in one.files:
                with open_changes(self.lake, file.path) as stream:
                    rows += [(id_, f"round {one.number}") for id_ in json.loads(stream.read())]
        last = todo[-1].number
        done = AppTransaction(app_id=app_id(state), version=last, updated_at=1)
        added = self._rows(state.path, rows, "merge", columns=files.schema)
        if commit_files(self.lake, state.path, files, [_info(files), done, added]) is None:
            raise CommitConflictError("somebody else merges", operation="merge")
        if not state.is_staged:
            state = Tables(self.lake).save(replace(state, merged_round=last, phase="streaming"))
        return state, last

    def _show(self, state: TableState, last: int) -> None:
        """Put the staged table in the place of the one that is shown."""
        path, shown, app = state.path, state.shown_path, app_id(state)
        take_place(self.lake, path, shown, app_id=app, version=last, now=1)
        self._shown(state, last)

    def _shown(self, state: TableState, last: int) -> TableState:
        """Note that it is shown, then remove what it was made of."""
        after = replace(state, phase="streaming", merged_round=last, standing=None)
        Tables(self.lake).save(after)
        self.lake.delete_folder(state.path)
        return after

    def dump(self) -> None:
        """The table afresh, of what the rounds until now have brought, in two chunks."""
        self._fill(self._begun())

    def half(self) -> None:
        """A dump of which one chunk is read when it ends."""
        self._fill(self._begun(), chunks=1)

    def resume(self) -> None:
        """Go on with a dump that somebody has left in the midst, or begin one, as a run does."""
        state = Tables(self.lake).load("k", "t")
        if state is None or state.phase == "new" or (state.is_computed and state.change is None):
            self.dump()
        elif state.phase == "dumping" and not state.is_computed:
            self._fill(state) if is_readable(self.lake, state.path) else self.dump()

    def _begun(self) -> TableState:
        """As `snapshot.start` does it."""
        tables, last = Tables(self.lake), RoundLog(self.lake).last_number()
        before = tables.load("k", "t")
        self.dumps += 1
        start = DumpState(id=f"{self.name}{self.dumps}", start_round=last + 1, start={SHARD: AT})
        if before is None:
            end_removal(self.lake, "k", "t")
        standing = None if before is None else standing_of(self.lake, before)
        state = replace(_new(), phase="dumping", dump=start, merged_round=last, standing=standing)
        state = tables.save(state)
        self.lake.clear_way(state.side_path)
        clear_place(self.lake, "k", "t", state.path)
        if state.is_staged:
            remove_given_up(self.lake, state)
        return state

    def _fill(self, state: TableState, chunks: int = 2) -> None:
        assert state.dump is not None
        used = used_numbers(self.lake, "k", "t", state.path)
        create_mirrored_table(
            self.lake, state.path, COLUMNS, key=("id",), name="k.t", now=1, above=used
        )
        forget_old_log(self.lake, "k", "t", state.path, used)
        ledger = open_ledger(
            self.lake, path=state.path, dump=state.dump.id, generations={SHARD: 0},
            columns=mirrored_schema(COLUMNS, table="k.t"), key=("id",),
        )  # fmt: skip
        for _ in range(chunks):
            self._chunk(ledger, state.path, state.dump)
        if not ledger.done:
            return
        dump = replace(state.dump, end={SHARD: AT}, done=True)
        Tables(self.lake).save(replace(state, phase="catching_up", dump=dump))

    def _chunk(self, ledger: ChunkTracker, path: str, dump: DumpState) -> None:
        """The first half of the rows, or all that are left."""
        claim = ledger.claim()
        if claim is None:
            return
        last = dump.start_round - 1
        begin = 1 if claim.keys.after is None else int(claim.keys.after[0]) + 1
        end = last // 2 if begin == 1 else last
        rows = [(n, f"dump {dump.id}") for n in range(begin, end + 1)]
        columns = mirrored_schema(COLUMNS, table="k.t")
        action = self._rows(path, rows, f"dump-{dump.id}", columns=columns)
        ledger.finish(
            claim,
            ChunkResult(
                number=claim.number, shard=SHARD, keys=claim.keys,
                end=None if end == last else (str(end),),
                file=action.path, size=action.size, stats=action.stats_text,
                rows=len(rows), bytes=1, floor=AT, read_at=0, seconds=0.0, misfits={},
            ),
        )  # fmt: skip
        draft = ledger.draft()
        assert draft is not None
        ledger.write(draft)
        ledger.committed(draft)

    def repair(self) -> None:
        """One row is written anew, and one that is not there is buried."""
        state, cut = Tables(self.lake).load("k", "t"), Cuts(self.lake).last()
        if state is None or state.dump is None or state.phase != "streaming" or cut is None:
            return
        if cut.tables.get("k.t") != table_version(self.lake, state.path):
            return  # merged further than the cut: it is refused
        (was,) = {by for id_, by in _rows_at(self.lake, state.path) if id_ == 1}
        by = f"{was.partition(MARK)[0]}{MARK}{self.name}"
        row = {"id": 1, "by": by} | ({"x": 7} if state.whole.columns[-1] == ADDED else {})
        version = repair_table(
            _NoSpark(),  # type: ignore[arg-type]
            self.lake,
            state,
            [
                ExpectedRow(key={"id": 1}, shard="", rows={SHARD: row}),
                ExpectedRow(key={"id": 999}, shard="", rows={SHARD: None}),
            ],
            cut=cut,
            streams=RoundLog(self.lake).streams(),
            policy=POLICY,
            now=1,
        )
        note(self.lake, cut, {"k.t": version})

    def alter(self) -> None:
        """The table stops at an ALTER, behind all that is merged."""
        tables, state = Tables(self.lake), self._past_dump()
        if state is None or state.is_staged or state.dump is None or ADDED in state.whole.columns:
            return
        files = replay_existing(self.lake, state.path, "merge")
        merged = max(committed(files, app_id(state)) or 0, state.dump.start_round - 1)
        change = ShapeChange(shard=SHARD, position=AT, round=merged + 1, statement=ALTER)
        why = StopReason(message="altered", hint="", round=merged + 1, altered=True)
        stopped = replace(state, phase="stopped", stopped=why, change=change, merged_round=merged)
        tables.save(stopped)

    def compute(self) -> None:
        """Make the rows behind the ALTER from those that are shown."""
        state = Tables(self.lake).load("k", "t")
        if state is None or state.change is None or state.dump is None:
            return
        described = replace(state.whole, columns=(*state.whole.columns, ADDED))
        try:
            reshaping = reshaping_of(self.lake, state, POLICY, lambda _: described)
            remake(self.lake, state, reshaping, deletion_vectors=True, now=1)
        except NotComputableError:
            self.dump()  # as the run does

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
        if tables.load("k", "t") is not None:  # what is mirrored no more is nobody's to keep up
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

    def add(self) -> None:
        """`ratchet table add`, of a config that left the table out: it is dumped anew."""
        self._asked("add", "t", before="!t")

    def remove(self) -> None:
        """`ratchet table drop --delete`, of a config that had it until now."""
        self._asked("drop", "!t", before="t", delete=True)

    def damage(self) -> None:
        """Somebody else spoils the table's log, which is no step of ours."""
        log = Path(self.lake.root) / layout.table_path("k", "t") / "_delta_log"
        commits = sorted(log.glob("*.json"))
        if commits:
            commits[-1].write_text("{")

    def _asked(self, kind: Kind, pattern: str, *, before: str = "", delete: bool = False) -> None:
        folder = Path(self.lake.root).parent
        now = load_config(_config(folder, pattern))
        was = load_config(_config(folder, before or pattern))
        file = ConfigFile(replace(was, path=now.path))
        serving = TableRequestHandler(self.lake, file, Selection(was.sources))
        try:
            serving.do(Request(kind=kind, keyspace="k", table="t", delete=delete, asked_at=1))
        except (ConfigError, RetryableError):
            return  # it is not there, or is being dumped: the user is told

    def orphans(self) -> None:
        """What a run does first."""
        remove_orphans(self.lake, RoundLog(self.lake))

    def _rows(
        self, path: str, rows: list[tuple[int, str]], kind: str, *, columns: pa.Schema
    ) -> DataFile:
        values = {"x": 7, TOKEN_COLUMN: TOKEN}
        found = [
            {**{name: values.get(name) for name in columns.names}, "id": id_, "by": by}
            for id_, by in rows
        ]
        table = pa.Table.from_pylist(found, schema=columns)
        return write_data_file(
            self.lake, path, [table], columns, kind=kind, described=("id",), now=1
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
    columns = (
        Column(name="id", type=ColumnType(name="bigint")),
        Column(name="by", type=ColumnType(name="varchar", length=99, charset="utf8mb4")),
    )
    schema = TableSchema(keyspace="k", table="t", columns=columns, key=("id",))
    return TableState(keyspace="k", table="t", schema=schema, key=("id",))


def _rows_at(lake: Lake, path: str, version: int | None = None) -> list[tuple[int, str]]:
    table = open_delta(lake, path, version)
    if table is None:
        raise WrongError(f"{path} is lost")
    return [
        (row["id"], row["by"])
        for batch in query(table, path, 'SELECT id, "by" FROM t')
        for row in batch.to_pylist()
    ]


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
        is_locked: whether it stood still with a file's lock, for which the successor ends by name.
    """

    steps: int
    after: int
    error: BaseException | None
    is_locked: bool = False


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
        before = {**before, "state": Tables(second.lake).load("k", "t"), "marks": _marks(lake)}
        _mine.steps = mine
        for one in ("orphans", *other):
            getattr(second, one)()
    except filelock.StuckLockError:
        return Outcome(steps=steps.count, after=mine.count, error=None, is_locked=True)
    except RatchetError as error:
        raise WrongError(f"the successor cannot go on: {error}") from error
    finally:
        _mine.steps = None
        go.set()
        thread.join()
    check(lake, other, before)
    _go_on(lake)  # whoever comes later finds all in order as well
    check(lake, other, before)
    ended = errors[0] if errors else None
    if ended is not None and not isinstance(ended, RatchetError):
        raise ended
    return Outcome(steps=steps.count, after=mine.count, error=ended)


def _go_on(lake: Lake) -> None:
    """One more holder, who does what there is to do."""
    third = take(lake, "third")
    for one in ("orphans", "resume", "compute", "merge"):
        getattr(third, one)()


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
        if before["state"] is not None and not {"drop", "remove"} & {*other}:
            raise WrongError("the state is lost")
        return
    was_stopped = before["state"] is not None and before["state"].phase == "stopped"
    if state.stopped is not None and state.stopped.message == "late" and not was_stopped:
        raise WrongError("the late one has stopped the table")
    dump = state.dump
    if "dump" in other and (dump is None or dump.id.startswith("late")):
        raise WrongError("the dump of the successor is hidden")
    _check_cut(lake, state, last)
    if dump is not None and state.is_past_dump:
        _check_rows(lake, state, dump)
    if before["marks"] is not None and not _marks(lake) <= before["marks"]:
        raise WrongError("the late one has repaired a row")


def _marks(lake: Lake) -> set[tuple[int, str]]:
    """The rows that people see which the late one has repaired."""
    path = layout.table_path("k", "t")
    if not is_readable(lake, path) or open_delta(lake, path) is None:
        return set()
    return {row for row in _rows_at(lake, path) if row[1].endswith(f"{MARK}late")}


def _check_cut(lake: Lake, state: TableState, last: int) -> None:
    """What the newest cut shows of the table is whole, while a dump is made behind it as well."""
    cut = Cuts(lake).last()
    if cut is None:
        return
    if cut.round > last:
        raise WrongError("a cut of a round that there is not")
    if state.standing is not None:
        found = sorted(id_ for id_, _ in _rows_at(lake, state.shown_path, state.standing))
        if found != list(range(1, len(found) + 1)) or len(found) < cut.round:
            raise WrongError(f"version {state.standing} stands, and has the rows {found}")


def _check_rows(lake: Lake, state: TableState, dump: DumpState) -> None:
    """The table has what its dump and the rounds brought, and the rounds to come are there."""
    rounds = RoundLog(lake)
    rounds.last_number()
    shown = taken(lake, state.shown_path, app_id(state)) if state.is_staged else None
    path = state.path if shown is None else state.shown_path
    files = replay(lake, path)
    if files is None:
        raise WrongError("the table is lost")
    merged = max(committed(files, app_id(state)) or 0, dump.start_round - 1)
    for one in rounds.since(max(merged, rounds.first_number() - 1)):
        for file in one.files:
            if missing(lake, [file.path]):
                raise WrongError(f"round {one.number} names a file that is gone")
    found = [(id_, by.partition(MARK)[0]) for id_, by in _rows_at(lake, path)]
    if dump.computed:  # those of before are from an earlier dump, and from its rounds
        found = [(id_, "" if id_ < dump.start_round else by) for id_, by in found]
    was = "" if dump.computed else f"dump {dump.id}"
    wanted = [(n, was) for n in range(1, dump.start_round)]
    wanted += [(n, f"round {n}") for n in range(dump.start_round, merged + 1)]
    if sorted(found) != sorted(wanted):
        raise WrongError(f"rows {sorted(set(found) ^ set(wanted))[:9]}, {len(found)} in all")


def copied(source: Lake, folder: Path) -> Lake:
    """The prepared lake at another place."""
    shutil.copytree(source.root, folder)
    return Lake.at(folder)
