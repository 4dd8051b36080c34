"""A batch that ends the run again and again: its table is set aside, the others go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import ratchet.merge.attempts
from ratchet.core.errors import (
    BugError,
    EngineGoneError,
    LakeAwayError,
    OperatorError,
    RatchetError,
    RetryableError,
)
from ratchet.merge.attempts import Attempts
from ratchet.merge.batch import MergeBatch
from ratchet.merge.shape import Shape
from ratchet.store.files import Lake
from tests.merge_kit import PLAIN, POLICY, merger
from tests.unit.merge.test_directly import streaming

LARGE, OTHER = "ratchet.merge/large", "ratchet.merge/other"
MEMORY = OperatorError("the memory is too small for its changes")


def batch(rows: int = ratchet.merge.attempts.HEAVY_ROWS + 1, **more: Any) -> MergeBatch:
    return MergeBatch(
        shape=Shape.of(PLAIN, POLICY, key=("id",), many_shards=False, shard_in_key=False),
        path="shop/t", side_path="side", app_id=LARGE, round=9, files=(), bytes=1, rows=rows,
        may_delete=False, **more,
    )  # fmt: skip


class Runs:
    """One run after another, each with a process of its own."""

    def __init__(self, root: Path) -> None:
        self.lake = Lake.at(root)

    def begin(self, *, other: bool = True) -> Attempts:
        attempts = Attempts(self.lake)
        if other:
            attempts.went_well(OTHER)
        return attempts

    def killed(self, rows: int = ratchet.merge.attempts.HEAVY_ROWS + 1) -> None:
        self.begin().begin(LARGE, 3, batch(rows))

    def told(self, error: RatchetError = MEMORY) -> None:
        attempts = self.begin()
        attempts.begin(LARGE, 3, batch(1))
        attempts.failed(LARGE, 3, error)

    def why(self, above: int = 3, *, other: bool = True) -> str:
        found = self.begin(other=other).exhausted(LARGE, above, table="shop.large")
        return "" if found is None else found.message

    @property
    def is_suspect(self) -> bool:
        return Attempts(self.lake).is_suspect(LARGE, 3)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_killed_three_times(runs: Runs) -> None:
    for _ in range(2):
        runs.killed()
        assert runs.is_suspect
        assert not runs.why()
    runs.killed()
    assert "ended 3 runs: each was killed" in runs.why()
    assert not runs.why(above=4), "other rounds are another matter"
    assert not runs.why(other=False), "what ends every merge is no table's fault"


def test_an_error_that_is_told_counts_for_more(runs: Runs) -> None:
    runs.told()
    assert runs.is_suspect
    assert not runs.why()
    runs.told()
    assert runs.why() == f"its changes have ended 2 runs: {MEMORY.message}"
    hint = runs.begin().exhausted(LARGE, 3, table="shop.large")
    assert hint is not None
    assert "`ratchet table CONFIG redump 'shop.large'`" in hint.hint


def test_a_batch_that_nothing_is_merged_beside(runs: Runs) -> None:
    """It held up all tables for good: only the merge of another one told that it is to blame."""

    def why(key: str = LARGE) -> str:
        attempts = runs.begin(other=False)
        found = attempts.exhausted(key, 3, table="shop.large", alone=True)
        return "" if found is None else found.message

    for _ in range(3):
        runs.told()
        assert not why()
    runs.told()
    assert not runs.why(other=False), "beside others that fail as well"
    assert "ended 4 runs" in why()
    assert "ended 4 runs" in why(), "a kill kept it from being stopped"


def test_one_table_is_set_aside_like_that_and_no_second_one(runs: Runs) -> None:
    """What ends every merge would ask for a dump of each, one after the other."""
    for key in (LARGE, OTHER):
        for _ in range(4):
            runs.begin(other=False).failed(key, 3, MEMORY)

    def is_set_aside(key: str) -> bool:
        attempts = runs.begin(other=False)
        return attempts.exhausted(key, 3, table="shop.t", alone=True) is not None

    assert is_set_aside(LARGE)
    assert not is_set_aside(OTHER)
    runs.begin(other=False).went_well("ratchet.merge/third")
    assert is_set_aside(OTHER)


def test_a_large_one_that_fails_counts_once(runs: Runs) -> None:
    attempts = runs.begin()
    attempts.begin(LARGE, 3, batch())
    attempts.failed(LARGE, 3, MEMORY)
    attempts.begin(LARGE, 3, batch())  # the same run tries again
    attempts.failed(LARGE, 3, MEMORY)
    assert not runs.why()


def test_small_ones_are_not_noted_before(runs: Runs) -> None:
    runs.killed(rows=ratchet.merge.attempts.HEAVY_ROWS)
    assert not runs.is_suspect


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (MEMORY, True),
        (BugError("a merge failed"), True),
        (EngineGoneError("Spark's JVM has ended"), True),
        (RetryableError("a conflict"), False),
        (LakeAwayError("no space left on the device"), False),
    ],
)
@pytest.mark.parametrize("rows", [1, ratchet.merge.attempts.HEAVY_ROWS + 1])
def test_what_is_a_batch_s_fault(
    runs: Runs, error: RatchetError, rows: int, *, counts: bool
) -> None:
    attempts = runs.begin()
    attempts.begin(LARGE, 3, batch(rows))
    attempts.failed(LARGE, 3, error)
    assert runs.is_suspect == counts


def test_a_failure_that_is_nobody_s_fault_leaves_the_count(runs: Runs) -> None:
    for _ in range(2):
        runs.killed()
        attempts = runs.begin()
        attempts.begin(LARGE, 3, batch())
        attempts.failed(LARGE, 3, LakeAwayError("no space left on the device"))
        assert runs.is_suspect
        assert not runs.why()
    runs.killed()
    assert "ended 3 runs" in runs.why()


def test_what_went_well_and_what_is_gone_is_forgotten(runs: Runs) -> None:
    runs.killed()
    attempts = runs.begin()
    attempts.begin(LARGE, 3, batch())
    attempts.went_well(LARGE)
    assert not runs.is_suspect
    runs.killed()
    runs.begin().keep([OTHER])
    assert not runs.is_suspect


@pytest.mark.parametrize(
    ("failure", "message"),
    [(MemoryError(), "the memory is too small"), (ZeroDivisionError("x"), "a merge failed")],
)
def test_the_merger_tries_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, message: str
) -> None:
    """Ended by name twice; then its table alone stops, before the round it could not take."""
    source = streaming(tmp_path)
    source.tx("-", ("put", {"id": 1, "v": "x"}))
    source.round()

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("ratchet.merge.onetable.merge_table", fail)
    for _ in range(2):
        with merger(None, source) as merging, pytest.raises((OperatorError, BugError)) as raised:
            merging.step()
        assert message in raised.value.message
    with merger(None, source) as merging, pytest.raises((OperatorError, BugError)):
        merging.step()  # there is no other table whose merge went well
    with merger(None, source) as merging:
        merging._attempts.went_well(OTHER)
        monkeypatch.setattr(merging._attempts, "keep", lambda _: None)
        done = merging.step()
    assert message in done.stopped["shop.t"].message
    state = source.state
    assert state.phase == "stopped"
    assert state.stopped is not None
    assert state.stopped.round == source.rounds.last_number()
    assert done.cut is not None
    assert done.cut.stopped == ("shop.t",)


def test_suspects_come_alone_behind_the_others(tmp_path: Path) -> None:
    with merger(None, streaming(tmp_path)) as merging:
        seen: list[list[str]] = []
        cast("Any", merging)._is_suspect = lambda work: work.startswith("suspect")
        cast("Any", merging)._at_once = lambda _, works, alone=False: (
            seen.append([*works, *["alone"] * alone]) or []
        )
        merging._side_by_side(cast("Any", None), cast("Any", ["suspect 1", "a", "suspect 2", "b"]))
        merging._side_by_side(cast("Any", None), cast("Any", ["suspect 1"]))
    assert seen == [["a", "b"], ["suspect 1"], ["suspect 2"], [], ["suspect 1", "alone"]]
