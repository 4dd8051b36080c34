"""A merge step for the loop: what is told, when upkeep is due, when everything is reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from ratchet.core.errors import LakeError, RetryableError, TableStoppedError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.reporting.observe import Merged, Record, StopReporter, TableStopped
from ratchet.jobs.run.merging import (
    CLEAN_EVERY,
    COMPACT_EVERY,
    COMPACT_SECONDS,
    LakeUpkeep,
    MergeRunner,
)
from ratchet.merge.compaction import CompactionResult
from ratchet.merge.step import StepResult
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.errors import CommitConflictError
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.tables import Phase, Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


AT = Position(executed=GtidSet.parse("mariadb", "0-1-5"))


def cut(number: int, round_number: int) -> Cut:
    return Cut(number=number, round=round_number, merged_at=1, shards={}, tables={"shop.orders": 3})


NOTHING = StepResult(cut=None, changed={}, stopped={}, seconds=0.0)


@dataclass
class Stage:
    lake: Lake
    results: list[StepResult] = field(default_factory=list)
    told: list[Record] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    now: float = 0.0
    failure: Exception | None = None
    lost: bool = False

    def compact(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.done.append("compact")

    def clean(self) -> Iterator[None]:
        self.done.append("clean")
        for table in "ab":
            yield
            self.done.append(f"clean {table}")

    def check(self) -> None:
        if self.lost:
            raise LakeError("lost its lease")

    def merging(self) -> MergeRunner:
        return MergeRunner(
            lambda: self.results.pop(0) if self.results else NOTHING,
            self,
            self.lake,
            check=self.check,
            followed=lambda state: state.table != "left_out",
            observer=self.told.append,
            stops=StopReporter(self.told.append),
            clock=lambda: self.now,
        )

    def table(self, name: str, phase: Phase) -> None:
        schema = TableSchema(keyspace="shop", table=name, columns=(), key=())
        state = TableState(keyspace="shop", table=name, schema=schema, key=(), phase=phase)
        Tables(self.lake).save(state)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(open_lake(tmp_path / "lake", now=1))


def worked(number: int = 1) -> StepResult:
    return StepResult(cut=cut(1, number), changed={"shop.orders": 7}, stopped={}, seconds=1.5)


def test_steps_are_told(stage: Stage) -> None:
    merging = stage.merging()
    assert merging.round == 0
    stage.results = [worked(4)]
    assert merging.step().worked
    assert not merging.step().worked
    assert stage.told == [Merged(round=4, tables=1, rows=7, seconds=1.5)]
    assert merging.round == 4


def test_tables_that_stop_are_told(stage: Stage) -> None:
    error = TableStoppedError("a column went", hint="--again")
    stage.results = [StepResult(cut=None, changed={}, stopped={"shop.t": error}, seconds=0)]
    assert stage.merging().step().worked
    assert stage.told == [TableStopped(table="shop.t", message="a column went", hint="--again")]


@pytest.mark.parametrize(("phase", "told"), [("stopped", 1), ("dumping", 0), ("streaming", 0)])
def test_a_table_that_the_dump_has_in_hand_by_now_asks_for_nothing(
    stage: Stage, phase: Phase, told: int
) -> None:
    """It was computed before its stop was told, and the log said to type a command."""
    stage.table("t", phase)
    error = TableStoppedError("a column went", hint="--again")
    stage.results = [StepResult(cut=None, changed={}, stopped={"shop.t": error}, seconds=0)]
    assert stage.merging().step().worked
    assert len(stage.told) == told


def test_upkeep_comes_between_steps(stage: Stage) -> None:
    """Small files at the first step and after so many; what is old in its time, step by step."""
    merging = stage.merging()
    merging.step()
    assert stage.done == ["clean"], "the lake knows what is due"
    for _ in range(3):
        merging.step()
    assert stage.done == ["clean", "clean a", "clean b"], "there was nothing to merge"
    stage.done.clear()
    stage.results = [worked(n) for n in range(COMPACT_EVERY)]
    for _ in range(COMPACT_EVERY):
        merging.step()
        assert stage.done == ["compact"]
    merging.step()
    assert stage.done == ["compact"], "at rest"
    stage.now = CLEAN_EVERY
    stage.results = [worked()]
    merging.step()
    assert stage.done == ["compact", "compact", "clean"]
    stage.done.clear()
    merging.step()
    assert stage.done == ["clean a"]
    merging.step()
    merging.step()
    assert stage.done == ["clean a", "clean b"]
    stage.now = 2 * CLEAN_EVERY
    merging.step()
    assert stage.done[2:] == ["clean"]
    stage.now = 3 * CLEAN_EVERY  # due again before it is done
    merging.step()
    merging.step()
    assert stage.done[3:] == ["clean a", "clean b"]
    merging.step()
    assert stage.done[5:] == ["clean"]


def test_a_dump_that_has_ended_wants_a_step(stage: Stage) -> None:
    """Some times: the step before may not have come as far as the dump. And upkeep goes on."""
    merging = stage.merging()
    stage.table("a", "streaming")
    assert not merging.between()
    assert stage.done == ["clean"]
    tables = Tables(stage.lake)
    (state,) = tables.list()
    dump = DumpState(id="d", start_round=1, start={}, end=None)
    for number in range(3):
        dump = replace(dump, id=f"d{number}", end=None)
        tables.save(replace(state, phase="catching_up", dump=dump))
        assert not merging.between()
        tables.save(replace(state, phase="catching_up", dump=replace(dump, end={"shop/-": AT})))
        assert [merging.between() for _ in range(7)] == [True] * 5 + [False] * 2
    stage.lost = True
    with pytest.raises(LakeError, match="lost its lease"):
        merging.between()


def upkeep_of(stage: Stage, now: list[float]) -> LakeUpkeep:
    """With an hour for tombstones, nearly two for old versions."""
    return LakeUpkeep(
        spark=cast("SparkSession", None),
        lake=stage.lake,
        policy=InvalidValuePolicy(),
        forget=lambda state: stage.done.append(f"forget {state.table}"),
        change_log=1.0,
        tombstones=3600.0,
        history=7000.0,
        wall=lambda: now[0],
    )


def test_tables_are_cleaned_one_by_one_until_nothing_can_go(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand that rest cost nothing each hour; one that fails does not keep others from it."""
    failing: set[str] = set()

    def purge(_spark: object, _lake: object, state: TableState, **_: object) -> bool:
        if state.table in failing:
            raise RetryableError("conflict")
        stage.done.append(f"purge {state.table}")
        return True

    monkeypatch.setattr("ratchet.jobs.run.merging.purge_side", purge)
    monkeypatch.setattr("ratchet.jobs.run.merging.UNNAMED_SECONDS", 0.0)
    monkeypatch.setattr("ratchet.jobs.run.merging.purge_is_due", lambda *_, **__: True)
    monkeypatch.setattr("ratchet.jobs.run.merging.remove_old", lambda *_, **__: iter(()))
    now = [1_000_000.0]
    upkeep = upkeep_of(stage, now)
    for table in ("a", "b"):
        stage.table(table, "streaming")
    stage.table("c", "dumping")

    def cleaned() -> list[str]:
        stage.done.clear()
        for _ in upkeep.clean():
            pass
        now[0] += 3600
        return stage.done

    both = ["purge a", "forget a", "purge b", "forget b"]
    assert cleaned() == both
    assert cleaned() == both
    failing.add("a")
    assert cleaned() == ["forget a", *both[2:]]
    failing.clear()
    assert cleaned() == both[:2]
    assert cleaned() == []
    tables = Tables(stage.lake)
    (b,) = (one for one in tables.list() if one.table == "b")
    tables.save(replace(b, merged_round=7))
    assert cleaned() == both[2:]
    for _ in range(3):
        cleaned()
    assert cleaned() == []
    done = CompactionResult(files=8, bytes=1, left=False)
    monkeypatch.setattr("ratchet.jobs.run.merging.compact", lambda *_, **__: done)
    upkeep.compact()
    assert cleaned() == both
    cleaning = upkeep.clean()
    next(cleaning)
    tables.save(replace(b, phase="stopped"))
    stage.done.clear()
    assert list(cleaning) == [None] * 3  # behind the tombstones of a; before b and c
    assert stage.done == both[:2]


def test_tables_at_rest_are_not_looked_at_for_small_files(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a table costs some 10 ms: a thousand of them are not opened every 20 steps."""
    seen: list[str] = []
    left = False

    def look(_spark: object, _lake: object, state: TableState, *, now: int) -> CompactionResult:
        seen.append(state.table)
        return CompactionResult(files=0, bytes=0, left=left and now > 0)

    monkeypatch.setattr("ratchet.jobs.run.merging.compact", look)
    upkeep = upkeep_of(stage, [1.0])
    for table in ("a", "b"):
        stage.table(table, "streaming")
    stage.table("c", "dumping")
    upkeep.compact()
    assert seen == ["a", "b"]
    upkeep.compact()
    assert seen == ["a", "b"]
    tables = Tables(stage.lake)
    (b,) = (one for one in tables.list() if one.table == "b")
    tables.save(replace(b, merged_round=7))
    left = True  # files above the budget of one look
    upkeep.compact()
    left = False
    upkeep.compact()
    upkeep.compact()
    assert seen == ["a", "b", "b", "b"]


def test_looks_for_small_files_are_short_and_each_table_has_its_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream waits for a look: thousands of tables are looked at in many, the last ones too."""
    seen: list[str] = []

    def look(_spark: object, _lake: object, state: TableState, **_: object) -> CompactionResult:
        seen.append(state.table)
        stage.now += COMPACT_SECONDS / 2
        return CompactionResult(files=0, bytes=0, left=False)

    monkeypatch.setattr("ratchet.jobs.run.merging.compact", look)
    upkeep = replace(upkeep_of(stage, [1.0]), clock=lambda: stage.now)
    for table in "abc":
        stage.table(table, "streaming")
    for number in range(3):
        for state in Tables(stage.lake).list():  # all of them change between two looks
            Tables(stage.lake).save(replace(state, merged_round=number))
        upkeep.compact()
    assert seen == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.parametrize("kind", [RetryableError, CommitConflictError])
def test_a_conflict_puts_upkeep_off(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, kind: type[LakeError]
) -> None:
    """Of small files, and of what is cleaned: the next time comes by itself."""
    stage.failure = kind("conflict")

    def clean() -> Iterator[None]:
        stage.done.append("clean")
        yield
        raise kind("conflict")

    monkeypatch.setattr(stage, "clean", clean)
    merging = stage.merging()
    stage.results = [worked(n) for n in range(COMPACT_EVERY)]
    assert all(merging.step().worked for _ in range(COMPACT_EVERY))
    stage.now = CLEAN_EVERY
    merging.step()
    assert stage.done == ["clean", "clean"]


def test_nothing_without_the_lease(stage: Stage) -> None:
    stage.lost = True
    stage.results = [worked()]
    with pytest.raises(LakeError):
        stage.merging().step()
    assert stage.told == []


def test_reached(stage: Stage) -> None:
    merging = stage.merging()
    assert merging.has_reached(9), "no tables, nothing to wait for"
    stage.table("left_out", "catching_up")
    stage.table("stuck", "stopped")
    assert merging.has_reached(9)
    stage.table("orders", "catching_up")
    assert not merging.has_reached(0)
    stage.table("orders", "streaming")
    assert not merging.has_reached(1)
    Cuts(stage.lake).append(cut(1, 1))
    assert merging.has_reached(1)
    assert not merging.has_reached(2)


def test_runs_that_end_soon_clean_in_their_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is ended behind a table; none is cleaned twice in an hour, none is left out."""
    seen: list[str] = []
    monkeypatch.setattr("ratchet.jobs.run.merging.purge_is_due", lambda *_, **__: False)

    def remove(
        _spark: object, _lake: object, path: str, *, name: str, **_: object
    ) -> Iterator[int]:
        if not path.startswith("_"):
            seen.append(name)
        yield 0

    monkeypatch.setattr("ratchet.jobs.run.merging.remove_old", remove)
    monkeypatch.setattr("ratchet.jobs.run.merging._WRITE_EVERY", 0.0)
    for table in "abc":
        stage.table(table, "streaming")
    now = [1_000_000.0]
    for _ in range(3):
        run = upkeep_of(stage, now).clean()  # as a new process
        for _ in range(4):  # before the table, behind its files, its side table's, and itself
            next(run)
        now[0] += 60
    assert list(upkeep_of(stage, now).clean()) == [None] * 3
    assert seen == ["shop.a", "shop.b", "shop.c"]
    now[0] += CLEAN_EVERY
    for _ in upkeep_of(stage, now).clean():
        pass
    assert seen[3:] == ["shop.a", "shop.b", "shop.c"]


@pytest.mark.parametrize("how", ["dropped", "to be dumped again", "gone"])
def test_a_table_that_goes_between_two_bites_of_its_upkeep(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """What a command has dropped with its files does not come back as a table that is stopped."""

    def remove(*_: object, **__: object) -> Iterator[int]:
        yield 0
        raise LakeError("no such file")

    monkeypatch.setattr("ratchet.jobs.run.merging.purge_is_due", lambda *_, **__: False)
    monkeypatch.setattr("ratchet.jobs.run.merging.remove_old", remove)
    stage.table("a", "streaming")
    tables, cleaning = Tables(stage.lake), upkeep_of(stage, [1_000_000.0]).clean()
    next(cleaning), next(cleaning)  # before the table, and in its midst
    (state,) = tables.list()
    if how == "dropped":
        tables.remove(state)
    if how == "to be dumped again":
        tables.save(replace(state, phase="new", dump=None))
    list(cleaning)  # its folder was never there
    phases = [one.phase for one in tables.list()]
    assert phases == {"dropped": [], "to be dumped again": ["new"], "gone": ["stopped"]}[how]


def test_upkeep_stays_within_its_share_of_the_time(stage: Stage) -> None:
    """A bite of two seconds is followed by 38 of rest, at 5 %; merges go on meanwhile."""

    def clean() -> Iterator[None]:
        while True:
            stage.now += 2.0
            stage.done.append("bite")
            yield

    merging = stage.merging()
    stage.clean = clean  # type: ignore[method-assign]
    for _ in range(400):
        merging.step()
        stage.now += 0.5
    assert len(stage.done) == pytest.approx(stage.now * 0.05 / 2, abs=1)
