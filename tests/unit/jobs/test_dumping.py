"""A pass of the dump: which tables, patience with servers, tables that cannot be dumped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.errors import LakeError, RetryableError, TableStoppedError
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.schema import TableSchema
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.config.selection import RoundBarrier, Selection
from ratchet.jobs.reporting.observe import Record, StopReporter, TableStopped
from ratchet.jobs.run.altered import AlteredTables
from ratchet.jobs.run.dumping import ComputeTable, DumpRunner, note_failure
from ratchet.jobs.topology.discover import DiscoveredTable
from ratchet.snapshot.dump import DumpOutcome
from ratchet.snapshot.errors import ShardsDifferError
from ratchet.snapshot.records import OnProgress, TableDumpRequest, TableFailed
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.stops import ShapeChange, StopReason
from ratchet.store.tables import Tables, TableState


class FakeDumper:
    def __init__(self, on_progress: OnProgress, failing: Collection[str]) -> None:
        self._on_progress = on_progress
        self._failing = failing
        self.wanted: list[TableDumpRequest] = []

    def run(
        self,
        wanted: Sequence[TableDumpRequest],
        *,
        more: Callable[[], Sequence[TableDumpRequest]],
    ) -> DumpOutcome:
        wanted = list(wanted)
        while joining := more():
            wanted += joining
        self.wanted += wanted
        error = TableStoppedError("it has no key", hint="add one")
        failed = {one.name: error for one in wanted if one.name in self._failing}
        for name in failed:
            self._on_progress(TableFailed(table=name, error=error))
        done = tuple(one.name for one in wanted if one.name not in failed)
        return DumpOutcome(done=done, failed=failed, left=())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "ratchet.yaml"
    path.write_text(
        "lake: ./lake\nsources: {shop: {kind: binlog, shards: {'-': {host: h, user: u}}}}"
    )
    return load_config(path)


FOUND = [
    DiscoveredTable(keyspace="shop", table=table, shards=("shop/-",), rows=5)
    for table in ("nokey", "orders")
]


class Stage:
    def __init__(self, lake: Lake, config: Config) -> None:
        self.lake, self.config = lake, config
        self.selection = Selection(config.sources)
        self.turnstile = RoundBarrier()
        self.told: list[Record] = []
        self.dumpers: list[FakeDumper] = []
        self.stop = threading.Event()

    def dumping(
        self,
        look: Callable[[], list[DiscoveredTable]] = lambda: FOUND,
        *,
        check: Callable[[], None] = lambda: None,
        again: Collection[str] = (),
        patience: float = 60,
        locked: Callable[[], Collection[str]] = tuple,
        altered: AlteredTables | None = None,
        compute: ComputeTable | None = None,
        failing: Collection[str] = ("shop.nokey",),
    ) -> DumpRunner:
        def make(on_progress: OnProgress) -> FakeDumper:
            self.dumpers.append(FakeDumper(on_progress, failing))
            return self.dumpers[-1]

        return DumpRunner(
            look,
            Tables(self.lake),
            self.selection,
            make,  # type: ignore[arg-type] # stands in for a Dumper
            turnstile=self.turnstile,
            check=check,
            stop=self.stop,
            patience=patience,
            stops=StopReporter(self.told.append),
            again=again,
            locked=locked,
            altered=altered,
            compute=compute,
        )


@pytest.fixture
def stage(lake: Lake, config: Config) -> Stage:
    return Stage(lake, config)


def test_a_table_that_cannot_begin_is_found_stopped(stage: Stage) -> None:
    assert stage.dumping().once() == 1
    assert stage.selection.known("shop") == ("nokey", "orders")
    assert [r.table for r in stage.told if isinstance(r, TableStopped)] == ["shop.nokey"]
    (state,) = Tables(stage.lake).list()
    assert (state.name, state.phase) == ("shop.nokey", "stopped")
    assert state.stopped is not None
    assert (state.stopped.message, state.stopped.hint) == ("it has no key", "add one")


def test_a_table_that_goes_on_by_itself_tells_why_it_does_not(stage: Stage) -> None:
    """What has altered it is no news any more; it is still tried again."""
    states = Tables(stage.lake)
    schema = TableSchema(keyspace="shop", table="nokey", columns=(), key=("id",))
    state = TableState(keyspace="shop", table="nokey", schema=schema, key=("id",))
    states.stop(state, message="DROP PRIMARY KEY", hint="redump", at_round=7, altered=True)
    stage.dumping(again={"shop.nokey"}).once()
    told = StopReason(message="it has no key", hint="add one", round=7, altered=True)
    assert states.load("shop", "nokey").stopped == told  # type: ignore[union-attr]


def test_it_is_not_tried_again_in_every_pass(stage: Stage) -> None:
    """But once in each run, as the cause may be mended by then."""
    dumping = stage.dumping(again={"shop.nokey"})
    for _ in range(3):
        dumping.once()
    tries = [one.again for d in stage.dumpers for one in d.wanted if one.table == "nokey"]
    assert tries == [True]


def test_nothing_to_do(stage: Stage) -> None:
    assert stage.dumping(list).once() == 0
    assert stage.dumpers == []


def test_servers_are_waited_for(stage: Stage) -> None:
    answers: list[RetryableError] = [RetryableError("gone")]

    def look() -> list[DiscoveredTable]:
        if answers:
            raise answers.pop()
        return FOUND

    assert stage.dumping(look).once() == 1


def test_and_given_up(stage: Stage) -> None:
    def look() -> list[DiscoveredTable]:
        raise RetryableError("gone")

    with pytest.raises(RetryableError, match="gone"):
        stage.dumping(look, patience=0).once()


def test_a_dump_does_not_begin_before_the_rounds_that_did_not_know_its_tables(stage: Stage) -> None:
    """What they read of the table, or left out of it, would be in no later round."""
    seen: list[bool] = []
    done = threading.Event()

    def dump() -> None:
        stage.dumping().once()
        done.set()

    with stage.turnstile:
        thread = threading.Thread(target=dump)
        thread.start()
        seen.append(done.wait(0.3))
        assert stage.selection.known("shop") == ("nokey", "orders")
        assert not any(dumper.wanted for dumper in stage.dumpers)
    assert done.wait(10)
    thread.join()
    assert [len(dumper.wanted) for dumper in stage.dumpers] == [2]


def test_a_run_that_ends_does_not_begin_a_dump(stage: Stage) -> None:
    stage.stop.set()
    assert stage.dumping().once() == 0


def test_not_without_the_lease(stage: Stage) -> None:
    def lost() -> None:
        raise LakeError("lost its lease")

    with pytest.raises(LakeError):
        stage.dumping(check=lost).once()
    assert stage.dumpers == []


def test_a_table_that_waits_and_is_gone_stops_by_name(lake: Lake, config: Config) -> None:
    """Dropped at the source before the dump that it waits for: it must not wait for good."""
    tables = Tables(lake)
    for name in ("gone", "orders"):
        schema = TableSchema(keyspace="shop", table=name, columns=(), key=())
        tables.save(TableState(keyspace="shop", table=name, schema=schema, key=()))
    stage = Stage(lake, config)
    stage.dumping().once()
    gone, orders = tables.load("shop", "gone"), tables.load("shop", "orders")
    assert gone is not None and orders is not None  # noqa: PT018 - both are there
    assert (gone.phase, orders.phase) == ("stopped", "new")
    assert gone.stopped is not None
    assert "no longer has it" in gone.stopped.message
    assert "redump 'shop.gone'" in gone.stopped.hint
    assert any(isinstance(one, TableStopped) and one.table == "shop.gone" for one in stage.told)


def put(lake: Lake, name: str) -> None:
    schema = TableSchema(keyspace="shop", table=name, columns=(), key=())
    Tables(lake).save(TableState(keyspace="shop", table=name, schema=schema, key=()))


def exclude(stage: Stage, table: str) -> None:
    patterns = TablePatterns(("*", f"!{table}"))
    stage.selection.change({"shop": patterns})


def test_a_table_that_is_dropped_while_the_servers_are_asked_does_not_come_back(
    stage: Stage,
) -> None:
    put(stage.lake, "orders")

    def look() -> list[DiscoveredTable]:
        found = [one for one in FOUND if stage.selection.patterns("shop").matches(one.table)]
        if state := Tables(stage.lake).load("shop", "orders"):
            with stage.selection.deciding():  # as `ratchet table drop` does it
                exclude(stage, "orders")
                Tables(stage.lake).remove(state)
        return found

    stage.dumping(look).once()
    assert [one.table for dumper in stage.dumpers for one in dumper.wanted] == ["nokey"]


def test_a_table_that_is_added_while_the_servers_are_asked_does_not_stop(stage: Stage) -> None:
    """It was in the mirror before, and what was found goes by the patterns without it."""
    put(stage.lake, "orders")
    exclude(stage, "orders")

    def look() -> list[DiscoveredTable]:
        found = [one for one in FOUND if stage.selection.patterns("shop").matches(one.table)]
        if len(found) < len(FOUND):
            stage.selection.change({"shop": TablePatterns(("*",))})
        return found

    stage.dumping(look).once()
    assert {one.table for dumper in stage.dumpers for one in dumper.wanted} == {"nokey", "orders"}
    orders = Tables(stage.lake).load("shop", "orders")
    assert orders is not None
    assert orders.phase == "new"


def test_tables_join_a_pass_that_is_under_way_each_one_once(stage: Stage) -> None:
    found = FOUND[1:]
    looks = 0

    def is_look_due() -> bool:
        nonlocal looks, found
        looks += 1
        found = FOUND
        # It is in hand, though its state does not say so yet.
        assert stage.selection.is_dumping("shop.orders")
        return looks < 4

    stage.dumping(lambda: found).once(is_look_due)
    (dumper,) = stage.dumpers
    assert [one.table for one in dumper.wanted] == ["orders", "nokey"]
    assert not stage.selection.is_dumping("shop.orders")
    assert not stage.selection.is_dumping("shop.nokey")


def test_a_keyspace_with_a_locked_table_is_looked_at_again_and_stops_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are dumped meanwhile; that its tables were not found says nothing of them."""
    monkeypatch.setattr("ratchet.jobs.run.dumping._LOCKED", 0.01)
    put(stage.lake, "orders")
    looks = [[], [], FOUND]  # type: ignore[var-annotated]
    seen = 0

    def look() -> list[DiscoveredTable]:
        nonlocal seen
        seen += 1
        orders = Tables(stage.lake).load("shop", "orders")
        assert orders is not None
        assert orders.phase == "new"
        return looks[min(seen, 3) - 1]

    locked = lambda: () if seen >= 3 else ("shop",)  # noqa: E731
    assert stage.dumping(look, locked=locked).once() == 1
    assert seen == 3
    assert [one.table for dumper in stage.dumpers for one in dumper.wanted] == ["nokey", "orders"]


@pytest.mark.parametrize(
    ("error", "altered"),
    [
        (TableStoppedError("it has no key", hint="add one"), False),
        (ShardsDifferError("the shards' columns differ: v", hint="redump TABLE"), True),
    ],
)
def test_a_first_dump_that_meets_shards_that_differ_is_tried_again(
    lake: Lake, error: TableStoppedError, *, altered: bool
) -> None:
    """A run that began while a statement went from shard to shard left the table out for good."""
    wanted = TableDumpRequest(keyspace="shop", table="t", shards=("shop/-80", "shop/80-"))
    note_failure(Tables(lake), wanted, TableFailed(table="shop.t", error=error))
    state = Tables(lake).load("shop", "t")
    assert state is not None
    assert state.phase == "stopped"
    assert state.stopped is not None
    assert state.stopped.altered == altered
    assert state.stopped.hint == error.hint
    assert AlteredTables(Tables(lake), lambda _: True).due([state]) == (
        {"shop.t"} if altered else set()
    )


def test_tables_that_are_computed_let_others_be_dumped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,350 tables were altered at once: none was dumped until all had been looked at."""
    monkeypatch.setattr("ratchet.jobs.run.dumping._COMPUTING", 0.0)
    monkeypatch.setattr("ratchet.jobs.run.dumping._LATER", 0.0)
    tables = Tables(stage.lake)
    schema = TableSchema(keyspace="shop", table="t", columns=(), key=("id",))
    why = StopReason(message="its columns changed", hint="", round=3, altered=True)
    place = Position(executed=GtidSet.parse("mariadb", "0-1-9"))
    for number in range(3):
        tables.save(
            TableState(
                keyspace="shop",
                table=f"t{number}",
                schema=schema,
                key=("id",),
                phase="stopped",
                stopped=why,
                change=ShapeChange(shard="shop/-", position=place, round=3),
            )
        )
    computed: list[str] = []
    dumped: list[int] = []

    def compute(state: TableState, _: Callable[[], bool]) -> None:
        computed.append(state.table)
        tables.save(replace(state, phase="streaming", stopped=None, change=None))

    runner = stage.dumping(
        altered=AlteredTables(tables, lambda _: True), compute=compute, failing=()
    )
    for _ in range(3):
        dumped.append(runner.once())
        assert len(computed) == len(dumped)
    assert computed == ["t0", "t1", "t2"]
    assert dumped[0] == 2, "both others were dumped behind the first"
