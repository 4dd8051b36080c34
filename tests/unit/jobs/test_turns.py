"""Whose turn it is to be compared with its source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.schema import TableSchema
from ratchet.jobs.watch.turns import Turns
from ratchet.store.comparisons import Comparison, Comparisons
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.passes import Passes
from ratchet.store.tables import TableState

HOUR = 3600 * 10**6


class Stage:
    def __init__(self, lake: Lake) -> None:
        self.lake, self.now = lake, 10 * HOUR
        self.comparisons = Comparisons(lake)
        self.states = [table("a"), table("b")]
        self.turns = self.new()

    def new(self) -> Turns:
        """As another run has them."""
        return Turns(Passes(self.lake), self.comparisons, every=3600.0, wall=lambda: self.now)

    def due(self) -> str | None:
        found = self.turns.due(self.states)
        return None if found is None else found.table

    def compared(self, name: str) -> None:
        one = Comparison(
            keyspace="shop", table=name, dump="", since=self.now, until=self.now, round=1
        )
        self.comparisons.save(one)


def table(name: str) -> TableState:
    schema = TableSchema(keyspace="shop", table=name, columns=(), key=())
    return TableState(keyspace="shop", table=name, schema=schema, key=(), phase="streaming")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(open_lake(tmp_path / "lake", now=1))


def test_the_first_turn_comes_one_interval_after_a_table_was_seen(stage: Stage) -> None:
    assert stage.due() is None
    stage.now += HOUR - 1
    assert stage.due() is None
    stage.now += 1
    assert stage.due() == "a"


def test_many_short_runs_are_as_one_that_goes_on(stage: Stage) -> None:
    assert stage.due() is None
    for _ in range(6):
        stage.now += HOUR // 6
        stage.turns = stage.new()
    assert stage.due() == "a"


def test_who_has_waited_longest_comes_first(stage: Stage) -> None:
    assert stage.due() is None
    stage.now += HOUR
    stage.turns.put_off("shop.a")
    assert stage.due() == "b"
    stage.turns.put_off("shop.b")
    assert stage.due() is None
    stage.now += HOUR
    assert stage.due() in {"a", "b"}


def test_a_comparison_for_another_reason_counts(stage: Stage) -> None:
    """For a doubt, or by `ratchet repair`."""
    assert stage.due() is None
    stage.now += HOUR
    stage.compared("a")
    assert stage.due() == "b"
    stage.compared("b")
    assert stage.due() is None


def test_a_table_that_comes_later_waits_as_long(stage: Stage) -> None:
    assert stage.due() is None
    stage.now += HOUR
    stage.states.append(table("c"))
    stage.turns.put_off("shop.a")
    stage.turns.put_off("shop.b")
    assert stage.due() is None
    stage.now += HOUR
    stage.turns.put_off("shop.a")
    stage.turns.put_off("shop.b")
    assert stage.due() == "c"


def test_a_table_that_went_and_came_back_is_new(stage: Stage) -> None:
    assert stage.due() is None
    gone, stage.states = stage.states, []
    stage.now += HOUR
    assert stage.due() is None
    stage.states = gone
    assert stage.due() is None


def test_a_table_that_was_computed_is_compared_at_once(stage: Stage) -> None:
    """What the mirror has made of its rows is proved by the source, and not a day later."""
    assert stage.due() is None
    computed = DumpState(id="d1", start_round=1, start={}, computed=True)
    stage.states = [table("a"), replace(table("b"), dump=computed)]
    assert stage.due() == "b"
    assert stage.due() is None  # it is under way, or could not be compared
    stage.states = [table("a"), replace(table("b"), dump=replace(computed, id="d2"))]
    assert stage.due() == "b"
    stage.turns = stage.new()
    assert stage.due() == "b"
    stage.comparisons.save(
        Comparison(keyspace="shop", table="b", dump="d2", since=1, until=1, round=1)
    )
    stage.turns = stage.new()
    assert stage.due() is None
    dumped = replace(computed, id="d3", computed=False)
    stage.states = [table("a"), replace(table("b"), dump=dumped)]
    assert stage.due() is None
