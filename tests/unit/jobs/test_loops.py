"""The loops: when they work, rest, try again and end. Told with fakes that count."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from itertools import pairwise

import pytest

from ratchet.core.errors import (
    BugError,
    ConfigError,
    LockedError,
    PositionLostError,
    RatchetError,
    RetryableError,
)
from ratchet.jobs.capture.loops import (
    CaptureLoop,
    CaptureOutcome,
    Control,
    DumpLoop,
    MergeLoop,
    MergeOutcome,
    VerifyLoop,
    WatchLoop,
)
from ratchet.jobs.capture.pace import BURST, StepPace


class Clock:
    """Moves only when told to, or a little with each look."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def finish(*loops: CaptureLoop | DumpLoop | MergeLoop | WatchLoop) -> None:
    for loop in loops:
        loop.join(20)
        assert not loop.is_alive()


def test_capture_takes_rounds_until_told_to_stop() -> None:
    control = Control()
    taken: list[int] = []

    def capture(_: Collection[str]) -> CaptureOutcome:
        taken.append(len(taken))
        if len(taken) == 5:
            control.stop()
        return CaptureOutcome(committed=len(taken))

    loop = CaptureLoop(control, capture, shards=["a/-"], patience=1)
    loop.start()
    finish(loop)
    assert len(taken) == 5
    assert control.error is None


def test_a_failing_shard_rests_alone_and_comes_back() -> None:
    control = Control()
    seen: list[set[str]] = []

    def capture(resting: Collection[str]) -> CaptureOutcome:
        seen.append(set(resting))
        failures: dict[str, RatchetError] = {}
        if "a/2" not in resting and len(seen) < 3:
            failures["a/2"] = RetryableError("gone")
        if len(seen) > 10 and "a/2" not in resting:
            control.stop()
        return CaptureOutcome(committed=None, failures=failures)

    loop = CaptureLoop(
        control, capture, shards=["a/1", "a/2"], patience=100, clock=Clock(0.05), jitter=lambda: 1.0
    )
    loop.start()
    finish(loop)
    assert seen[0] == set()
    assert seen[1] == {"a/2"}
    assert seen[-1] == set()
    assert control.error is None
    assert loop.troubled == frozenset()


def test_patience_ends_with_the_shards_own_error() -> None:
    control = Control()
    error = RetryableError("gone", source="a/-")
    loop = CaptureLoop(
        control,
        lambda _: CaptureOutcome(committed=None, failures={"a/-": error}),
        shards=["a/-"],
        patience=5,
        clock=Clock(1.0),
    )
    loop.start()
    finish(loop)
    assert control.error is error
    assert control.draining
    assert not control.stopping


def test_an_operator_error_ends_the_run_after_what_was_captured_is_merged() -> None:
    control = Control()
    pending = [1, 2, 3]
    error = ConfigError("unfit")
    capture = CaptureLoop(
        control,
        lambda _: CaptureOutcome(committed=None, failures={"a/-": error}),
        shards=["a/-"],
        patience=5,
    )

    def step() -> MergeOutcome:
        if not pending:
            return MergeOutcome(worked=False)
        pending.pop()
        return MergeOutcome(worked=True)

    merge = MergeLoop(control, step, pace=StepPace(0), patience=0)
    capture.start()
    merge.start()
    finish(capture, merge)
    assert pending == []
    assert control.error is error


def test_merge_sees_what_a_slow_feeder_left_last() -> None:
    control = Control()
    pending: list[int] = []

    def dump(_: object) -> int:
        control.drain()
        pending.append(1)
        return 1

    def step() -> MergeOutcome:
        return MergeOutcome(worked=bool(pending) and bool(pending.pop()))

    loops = (
        DumpLoop(control, dump, every=None),
        MergeLoop(control, step, pace=StepPace(0), patience=0),
    )
    for loop in loops:
        loop.start()
    finish(*loops)
    assert pending == []


def test_the_dump_goes_on_when_a_table_that_rests_has_its_turn() -> None:
    control, begun = Control(), []
    rests = [0.05, 0.05, math.inf]

    def dump(_: object) -> int:
        begun.append(time.monotonic())
        if len(begun) == 3:
            control.stop()
        return 0

    loop = DumpLoop(control, dump, every=100.0, rests=lambda: rests.pop(0))
    loop.start()
    finish(loop)
    assert len(begun) == 3
    assert begun[1] - begun[0] >= 0.04


def test_stop_does_not_wait_for_the_rest_of_the_merges() -> None:
    control = Control()
    steps: list[int] = []

    def step() -> MergeOutcome:
        steps.append(1)
        control.stop()
        return MergeOutcome(worked=True)

    merge = MergeLoop(control, step, pace=StepPace(0), patience=0)
    merge.start()
    finish(merge)
    assert steps == [1]


@pytest.mark.parametrize(("source", "tries"), [("", 7), ("shop/-", 13)])
def test_a_step_waits_for_a_server_as_capture_does(source: str, tries: int) -> None:
    """A conflict is tried again for a minute, a server that is away for `patience`."""
    control, clock, seen = Control(), Clock(), []

    def step() -> MergeOutcome:
        seen.append(clock.now)
        raise RetryableError("it is away", source=source)

    def wait(seconds: float, _: object = None) -> None:
        clock.now += seconds

    control.wait = wait  # type: ignore[method-assign]
    merge = MergeLoop(control, step, pace=StepPace(0), patience=200, clock=clock)
    with pytest.raises(RetryableError, match="away"):
        merge.work()
    assert len(seen) == tries
    assert (seen[-1] >= 200) == bool(source)


@pytest.mark.parametrize(("tables", "apart"), [(1, 5.0), (20, 20.0), (1000, 60.0)])
def test_steps_come_at_once_while_they_are_rare_and_take_their_time_else(
    tables: int, apart: float
) -> None:
    pace, now, begins = StepPace(None), 0.0, []
    while now < 7200:  # as many as it lets
        begins.append(now)
        now = max(now + 2.0, pace.took_step(now, tables))
    assert [after - before for before, after in pairwise(begins[:BURST])] == [2.0] * (BURST - 1)
    late = [after - before for before, after in pairwise(begins[2 * BURST :])]
    assert {round(one, 6) for one in late} == {apart}
    pace, now = StepPace(None), 0.0
    for _ in range(200):  # rarer than that: none waits
        assert pace.took_step(now, tables) == now
        assert pace.took_step(now + 2.0, tables) == now + 2.0
        now += 2 * apart + 2.0


def test_an_hour_of_rest_lets_as_many_follow_as_a_start() -> None:
    pace = StepPace(None)
    for number in range(100):
        pace.took_step(float(number), 5)
    begin = 100_000.0
    waits = [pace.took_step(begin + number, 5) - begin - number for number in range(BURST + 3)]
    assert waits[: BURST - 1] == [0.0] * (BURST - 1)
    assert waits[-1] > 5


@pytest.mark.parametrize("interval", [0.0, 5.0])
def test_a_given_interval_is_kept(interval: float) -> None:
    pace = StepPace(interval)
    assert [pace.took_step(float(number), 9) for number in range(40)] == [
        number + interval for number in range(40)
    ]


def test_what_is_asked_of_the_loop_is_done_while_it_is_not_time_for_a_step() -> None:
    """A command waited for as long as the config let steps be apart."""
    control, clock, seen = Control(), Clock(), []

    def rest(seconds: float, _: object = None) -> None:
        clock.now += seconds

    def between() -> bool:
        seen.append(clock.now)
        if clock.now >= 8:
            control.stop()
        return False

    control.rest = rest  # type: ignore[method-assign]
    merge = MergeLoop(
        control,
        lambda: MergeOutcome(worked=True),
        pace=StepPace(100),
        patience=0,
        between=between,
        clock=clock,
    )
    merge.work()
    assert seen == [0, 1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("interval", "begins"), [(None, [0, 5]), (60.0, [0, 60])])
def test_who_waits_for_a_cut_gets_it_at_once(interval: float | None, begins: list[float]) -> None:
    """A comparison waits for what it has read. What the config says of steps is kept."""
    control, clock, begun = Control(), Clock(), []
    pace = StepPace(interval)
    for _ in range(20):
        pace.took_step(0.0, 1)

    def step() -> MergeOutcome:
        begun.append(clock.now)
        if len(begun) == len(begins):
            control.stop()
        return MergeOutcome(worked=True)

    def rest(seconds: float, _: object = None) -> None:
        clock.now += seconds

    def between() -> bool:
        return clock.now == 4

    control.rest = rest  # type: ignore[method-assign]
    merge = MergeLoop(control, step, pace=pace, patience=0, between=between, clock=clock)
    merge.work()
    assert begun == begins


def test_a_backlog_is_worked_off_without_rests() -> None:
    control, clock, begun = Control(), Clock(), []
    left = [3, 2, 1, 0]

    def step() -> MergeOutcome:
        begun.append(clock.now)
        clock.now += 1
        left.pop(0)
        if not left:
            control.stop()
        return MergeOutcome(worked=True, is_behind=bool(left and left[0]))

    def rest(seconds: float, _: object = None) -> None:
        clock.now += seconds

    control.rest = rest  # type: ignore[method-assign]
    merge = MergeLoop(control, step, pace=StepPace(100), patience=0, clock=clock)
    merge.work()
    assert begun == [0, 1, 2, 102]


def failing(error: Exception) -> Callable[[], MergeOutcome]:
    def step() -> MergeOutcome:
        raise error

    return step


def test_an_unknown_failure_is_a_bug_with_its_cause() -> None:
    control = Control()
    merge = MergeLoop(control, failing(KeyError("x")), pace=StepPace(0), patience=0)
    merge.start()
    finish(merge)
    assert isinstance(control.error, BugError)
    assert isinstance(control.error.__cause__, KeyError)


def test_the_first_error_is_the_one_that_counts() -> None:
    control = Control()
    first, second = ConfigError("first"), ConfigError("second")
    control.fail(first, drain=True)
    control.fail(second)
    assert control.error is first


class Work:
    """A background task that says how long it rests."""

    def __init__(self, control: Control, name: str, log: list[str], rests: list[float]) -> None:
        self.control, self.name, self.log, self.rests = control, name, log, rests
        self.errors: list[RetryableError] = []

    def next_bite(self) -> float:
        self.log.append(self.name)
        if len(self.log) > 20:
            self.control.stop()
        if self.errors:
            raise self.errors.pop()
        return self.rests.pop(0) if self.rests else 100.0


def test_the_most_urgent_task_comes_first() -> None:
    control, log = Control(), []
    urgent = Work(control, "doubts", log, [0.0, 0.0, 0.05])
    other = Work(control, "background", log, [0.0, 100.0])
    loop = VerifyLoop(control, [urgent, other], patience=10)
    loop.start()
    deadline = time.monotonic() + 60
    while (len(log) < 6 or not loop.rested) and time.monotonic() < deadline:
        time.sleep(0.01)
    control.stop()
    loop.join(60)
    assert log[:3] == ["doubts"] * 3
    assert sorted(log[3:6]) == ["background", "background", "doubts"]
    assert loop.rested
    assert control.error is None


def test_a_task_that_fails_is_tried_again_and_ends_the_run_in_the_end() -> None:
    control, log = Control(), []
    task = Work(control, "doubts", log, [])
    task.errors = [RetryableError("away")]
    loop = VerifyLoop(control, [task], patience=60)
    loop.start()
    deadline = time.monotonic() + 60
    while len(log) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    control.stop()
    loop.join(60)
    assert control.error is None

    control = Control()
    task = Work(control, "doubts", [], [])
    task.errors = [RetryableError("away")] * 9
    loop = VerifyLoop(control, [task], patience=0)
    loop.start()
    loop.join(60)
    assert isinstance(control.error, RetryableError)
    assert control.draining
    assert not control.stopping, "what is captured is merged before the run ends"

    control = Control()
    task = Work(control, "doubts", [], [])
    task.errors = [LockedError("an ALTER waits")]
    loop = VerifyLoop(control, [task], patience=0)
    loop.start()
    deadline = time.monotonic() + 60
    while len(task.log) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    control.stop()
    loop.join(60)
    assert len(task.log) == 2
    assert control.error is None, "that is no failure of its server"


def test_a_server_that_comes_back_is_looked_at_at_once() -> None:
    """It may have other settings: what it does not log any more is lost until the next look."""
    control = Control()
    looks: list[bool] = []

    def look() -> None:
        looks.append(True)
        control.drain()

    watch = WatchLoop(control, look, every=3600)
    failures = iter([{"a/-": RetryableError("away")}, {}])
    capture = CaptureLoop(
        control,
        lambda _: CaptureOutcome(committed=None, failures=next(failures, {})),
        shards=["a/-"],
        patience=60,
        back=watch.hurry,
        jitter=lambda: 0.0,
    )
    watch.start()
    capture.start()
    finish(watch, capture)
    assert looks == [True]


def test_an_error_that_ends_the_run_is_looked_behind_before() -> None:
    """Settings that lose changes may be its reason, and must not be forgotten."""
    control = Control()
    told: list[str] = []
    capture = CaptureLoop(
        control,
        lambda _: CaptureOutcome(committed=None, failures={"a/-": PositionLostError("gone")}),
        shards=["a/-"],
        patience=60,
        alarmed=lambda: told.append(str(control.error)),
    )
    capture.start()
    finish(capture)
    assert told == ["None"], "before the others hear of it"
    assert isinstance(control.error, PositionLostError)
