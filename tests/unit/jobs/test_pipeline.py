"""A run from start to end, with fakes in the place of capture, dump and merge."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ratchet.core.errors import (
    LakeError,
    PositionLostError,
    RatchetError,
    TableDifferentError,
    TableStoppedError,
)
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import Round, ShardSlice
from ratchet.core.schema import TableSchema
from ratchet.jobs.capture.capturing import CatchUpTarget
from ratchet.jobs.capture.loops import (
    CaptureLoop,
    CaptureOutcome,
    Control,
    DumpLoop,
    Loop,
    MergeLoop,
    MergeOutcome,
    Task,
    VerifyLoop,
)
from ratchet.jobs.capture.pace import StepPace
from ratchet.jobs.capture.skew import KeyspaceSkew, Skew
from ratchet.jobs.reporting.observe import Pulse, Record, StopReporter, TableStopped
from ratchet.jobs.run.pipeline import PULSE_SECONDS, MirrorRun, RunComponents, refuse_stopped
from ratchet.store import layout
from ratchet.store.comparisons import Comparison, Comparisons
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import Doubt, StopReason
from ratchet.store.tables import Tables, TableState


class Stage:
    """Counts what the loops do; every step of any of them brings the run forward."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.control = Control()
        self.rounds = 0
        self.merged = 0
        self.dumped = 0
        self.rows = 0
        self.seen_until: dict[str, int] = {}
        self.skew = Skew(lambda: KeyspaceSkew(None, slack=0))
        self.failure: RatchetError | None = None
        self.told: list[Record] = []

    def capture(self, _: Collection[str]) -> CaptureOutcome:
        if self.rounds > 3 and self.failure is not None:
            return CaptureOutcome(committed=None, failures={"shop/-": self.failure})
        self.rounds += 1
        self.rows += 10
        self.control.wait(0.001, -1)
        return CaptureOutcome(committed=self.rounds)

    def dump(self, _: object) -> int:
        self.dumped += 1
        return 1

    def merge(self) -> MergeOutcome:
        worked = self.merged < self.rounds
        self.merged += worked
        return MergeOutcome(worked=worked)

    @property
    def round(self) -> int:
        return self.merged

    def has_reached(self, number: int) -> bool:
        return self.merged >= number

    def run(
        self,
        *,
        dump: bool = True,
        merge: bool = True,
        target: CatchUpTarget | None = None,
        verify: Sequence[Task] | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> MirrorRun:
        control = self.control
        parts = RunComponents(
            control=control,
            stop=threading.Event(),
            capturing=self,
            capture=CaptureLoop(control, self.capture, shards=["shop/-"], patience=1),
            dump=DumpLoop(control, self.dump, every=100.0 if merge else None) if dump else None,
            merging=self if merge else None,
            merge=MergeLoop(control, self.merge, pace=StepPace(0), patience=0) if merge else None,
            verify=None if verify is None else VerifyLoop(control, verify, patience=1),
            target=target,
        )
        return MirrorRun(
            parts,
            rounds=RoundLog(self.lake),
            tables=Tables(self.lake),
            comparisons=Comparisons(self.lake),
            mirrored=lambda state: state.table != "left_out",
            followed=lambda state: state.table != "left_out",
            observer=self.told.append,
            stops=StopReporter(self.told.append),
            clock=clock,
        )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(open_lake(tmp_path / "lake", now=1))


def reached(number: int) -> CatchUpTarget:
    position = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
    target = CatchUpTarget({"shop/-": position})
    target.note({"shop/-": position}, number)
    return target


def round_of(number: int, *, ts: int) -> Round:
    ends = [Position(executed=GtidSet.parse("mariadb", f"0-1-{n}")) for n in (number, number + 1)]
    piece = ShardSlice(
        shard="shop/-", generation=0, start=ends[0], end=ends[1], runs=(), transactions=1, rows=1,
        bytes=1, min_ts=ts, max_ts=ts, observed_at=ts, caught_up=True,
    )  # fmt: skip
    return Round(number=number, committed_at=ts, slices=(piece,), files=(), events=())


def stop_table(lake: Lake, name: str) -> None:
    schema = TableSchema(keyspace="shop", table=name, columns=(), key=())
    Tables(lake).save(
        TableState(
            keyspace="shop",
            table=name,
            schema=schema,
            key=(),
            phase="stopped",
            stopped=StopReason(message=f"{name} has no key", hint="add one", round=0),
        )
    )


def test_a_dump_ends_when_the_tables_are_loaded(stage: Stage) -> None:
    stage.run(merge=False).run()
    assert stage.dumped == 1
    assert stage.merged == 0


def test_a_lake_that_cannot_be_looked_at_ends_the_loops_before_the_run(stage: Stage) -> None:
    """At a pulse, on the side; and behind an error of a loop's it hides nothing."""
    times = iter(float(n) * PULSE_SECONDS for n in range(10**6))
    run = stage.run(clock=lambda: next(times))
    long = "ä" * 90  # its state's path does not tell whose it is, so it cannot just be stopped
    stop_table(stage.lake, long)
    Path(stage.lake.absolute(layout.state_path("shop", long))).write_text("{")
    with pytest.raises(LakeError, match="damaged"):
        run.run()
    assert stage.control.stopping
    names = {thread.name for thread in threading.enumerate() if isinstance(thread, Loop)}
    assert not names, "the loops have ended"


def test_what_failed_first_is_told_though_the_lake_cannot_be_looked_at(stage: Stage) -> None:
    stop_table(stage.lake, "broken")
    run = stage.run()
    Path(stage.lake.absolute("_ratchet/tables/shop/broken.json")).write_text("{")
    stage.failure = PositionLostError("purged", hint="heal")
    with pytest.raises(PositionLostError, match="purged"):
        run.run()


def test_until_caught_up(stage: Stage) -> None:
    stage.run(target=reached(20)).run()
    assert stage.dumped == 1
    assert stage.merged >= 20


def test_merge_alone_until_caught_up(stage: Stage) -> None:
    stage.run(dump=False, target=reached(5)).run()
    assert stage.dumped == 0
    assert stage.merged >= 5


def test_stopped_from_outside(stage: Stage) -> None:
    def stop() -> None:
        while not stage.rounds:
            stage.control.wait(0.05, stage.control.rings)
        stage.control.stop()

    stopping = threading.Thread(target=stop)
    stopping.start()
    stage.run().run()
    stopping.join()
    assert stage.rounds > 0


def test_the_error_that_ended_it_is_raised_after_what_was_captured_is_merged(stage: Stage) -> None:
    stage.failure = PositionLostError("purged")
    with pytest.raises(PositionLostError):
        stage.run().run()
    assert stage.merged == stage.rounds == 4


def test_a_stopped_table_is_told_of_once_and_decides_the_end(stage: Stage) -> None:
    stop_table(stage.lake, "nokey")
    stop_table(stage.lake, "left_out")
    times = iter(range(0, 10_000_000, 100))
    with pytest.raises(TableStoppedError, match=r"but 1 is stopped") as caught:
        stage.run(target=reached(20), clock=lambda: float(next(times))).run()
    assert caught.value.hint == "shop.nokey: nokey has no key\n  -> add one"
    assert [r.table for r in stage.told if isinstance(r, TableStopped)] == ["shop.nokey"]
    pulses = [r for r in stage.told if isinstance(r, Pulse)]
    assert pulses
    assert pulses[0].stopped == 1
    # The first one may come before capture has taken a round.
    assert any(pulse.rows_per_second > 0 for pulse in pulses)


def test_a_stopped_table_does_not_end_an_endless_run(stage: Stage) -> None:
    stop_table(stage.lake, "nokey")
    timer = threading.Timer(0.2, stage.control.stop)
    timer.start()
    stage.run().run()
    timer.join()


def test_a_pulse_counts_sources_that_are_set_aside(stage: Stage) -> None:
    stage.seen_until = {"shop/a": 999_000_000}
    stage.merged = 1
    RoundLog(stage.lake).append(round_of(1, ts=900_000_000))
    run = stage.run()
    run._wall = lambda: 1000.0

    def pulse(silent: dict[str, int]) -> Pulse:
        run._silent = silent
        run._pulse()
        last = stage.told[-1]
        assert isinstance(last, Pulse)
        return last

    assert (pulse({}).lag, pulse({}).tables_lag) == (1.0, 1.0)
    late = pulse({"bad": 700_000_000})
    assert (late.lag, late.tables_lag) == (300.0, 300.0)
    assert late.sentence().endswith("behind by at most 5 min, set aside: bad")
    unknown = pulse({"bad": 0})
    assert (unknown.lag, unknown.tables_lag) == (None, None)
    assert "set aside: bad" in unknown.sentence()


def test_pulse_says_how_far_behind(stage: Stage) -> None:
    stage.seen_until = {"shop/a": 995_000_000, "shop/b": 999_000_000}
    log = RoundLog(stage.lake)
    for number, seconds in ((1, 900), (2, 960), (3, 970)):
        log.append(round_of(number, ts=seconds * 1_000_000))

    def pulse(merged: int) -> Pulse:
        stage.merged = merged
        run = stage.run()
        run._wall = lambda: 1000.0
        run._pulse()
        last = stage.told[-1]
        assert isinstance(last, Pulse)
        return last

    behind = pulse(merged=1)
    assert (behind.lag, behind.tables_lag) == (5.0, 40.0)
    assert "tables behind by at most 40 s, log behind by at most 5 s" in behind.sentence()
    assert pulse(merged=3).tables_lag == 5.0
    nothing_yet = pulse(merged=0)
    assert nothing_yet.tables_lag is None
    assert "tables behind" not in nothing_yet.sentence()
    assert PULSE_SECONDS > 1
    assert "held back" not in nothing_yet.sentence()
    stage.skew = SimpleNamespace(
        held=frozenset({"shop/b", "shop/a"}), ignored=frozenset({"shop/c"})
    )
    apart = pulse(merged=0)
    assert (apart.held, apart.ignored) == (("shop/a", "shop/b"), ("shop/c",))
    assert "held back: shop/a, shop/b, not waiting for shop/c" in apart.sentence()


def test_several_stopped_tables_and_their_hints(stage: Stage) -> None:
    for name in ("a", "b"):
        stop_table(stage.lake, name)
    with pytest.raises(TableStoppedError) as caught:
        refuse_stopped(Tables(stage.lake).list())
    assert "2 are stopped" in caught.value.message
    lines = ["shop.a: a has no key", "shop.b: b has no key", "  -> add one"]
    assert caught.value.hint == "\n".join(lines)
    refuse_stopped([])


class Rests:
    """A background task that rests, after it has done what it is told."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def next_bite(self) -> float:
        self._work()
        return 0.05


def doubt_table(lake: Lake, name: str, *, doubtful: bool) -> None:
    schema = TableSchema(keyspace="shop", table=name, columns=(), key=())
    doubt = Doubt(message="an ALTER", statement="ALTER ...", round=1)
    Tables(lake).save(
        TableState(
            keyspace="shop", table=name, schema=schema, key=(), phase="streaming",
            doubts={"shop/-": doubt} if doubtful else {},
        )
    )  # fmt: skip


def test_a_run_does_not_end_before_all_doubts_are_decided(stage: Stage) -> None:
    doubt_table(stage.lake, "orders", doubtful=True)
    doubt_table(stage.lake, "left_out", doubtful=True)
    times = iter(range(10**6))
    decided: list[int] = []

    def decide() -> None:
        if next(times) == 5:
            assert not stage.control.stopping
            decided.append(1)
            doubt_table(stage.lake, "orders", doubtful=False)

    stage.run(target=reached(2), verify=[Rests(decide)]).run()
    assert decided


def test_a_run_ends_though_a_table_is_put_in_doubt_each_second(stage: Stage) -> None:
    """It was found equal at what the run waits for; what came later is the next comparison's."""
    doubt_table(stage.lake, "orders", doubtful=True)
    times = iter(range(10**6))
    ended: list[int] = []

    def renew() -> None:
        at = next(times)
        state = Tables(stage.lake).load("shop", "orders")
        assert state is not None
        later = Doubt(message="a heartbeat", statement="", round=3 + at)
        Tables(stage.lake).save(replace(state, doubts={"shop/-": later}))
        if at == 5:
            assert not stage.control.stopping
            Comparisons(stage.lake).save(
                Comparison(keyspace="shop", table="orders", dump="", since=1, until=2, round=2)
            )
            ended.append(at)

    stage.run(target=reached(2), verify=[Rests(renew)]).run()
    assert ended == [5]


def test_a_run_ends_though_a_background_task_never_rests(stage: Stage) -> None:
    """What is due has a share of a run that has caught up, and no more."""

    class Busy:
        def next_bite(self) -> float:
            stage.control.wait(0.01, stage.control.rings)
            return 0.0

    clock = iter(float(n) for n in range(10**6))
    stage.run(target=reached(2), verify=[Busy()], clock=lambda: next(clock)).run()
    assert stage.merged >= 2


def test_differences_that_were_only_told_are_the_exit_code(stage: Stage) -> None:
    doubt_table(stage.lake, "orders", doubtful=False)
    doubt_table(stage.lake, "left_out", doubtful=False)
    done = Comparisons(stage.lake)
    for name, wrong in (("orders", 3), ("left_out", 4)):
        done.save(
            Comparison(
                keyspace="shop", table=name, dump="", since=1, until=2, round=1, differences=wrong
            )
        )
    with pytest.raises(TableDifferentError, match=r"shop\.orders: 3 rows") as caught:
        stage.run(target=reached(2), verify=[]).run()
    assert caught.value.exit_code == 1
    assert "--table 'shop.orders'" in caught.value.hint
    done.save(Comparison(keyspace="shop", table="orders", dump="", since=3, until=4, round=2))
    stage.control.go_on()
    Stage(stage.lake).run(target=reached(2), verify=[]).run()
