"""A pass of the dump: which tables, patience with servers, tables that cannot be dumped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from ratchet.core.errors import LakeError, RetryableError, TableStoppedError
from ratchet.core.schema import TableSchema
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.config.selection import RoundBarrier, Selection
from ratchet.jobs.reporting.observe import Record, StopReporter, TableStopped
from ratchet.jobs.run.dumping import DumpRunner
from ratchet.jobs.topology.discover import DiscoveredTable
from ratchet.snapshot.dump import DumpOutcome
from ratchet.snapshot.records import OnProgress, TableDumpRequest, TableFailed
from ratchet.store.files import Lake, open_lake
from ratchet.store.tables import Tables, TableState


class FakeDumper:
    def __init__(self, on_progress: OnProgress, failing: Collection[str]) -> None:
        self._on_progress = on_progress
        self._failing = failing
        self.wanted: list[TableDumpRequest] = []

    def run(self, wanted: Sequence[TableDumpRequest]) -> DumpOutcome:
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
    ) -> DumpRunner:
        def make(on_progress: OnProgress) -> FakeDumper:
            self.dumpers.append(FakeDumper(on_progress, {"shop.nokey"}))
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
