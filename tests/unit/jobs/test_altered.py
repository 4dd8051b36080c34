"""Which stopped tables are dumped again without a person, and how often."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.schema import TableSchema
from ratchet.jobs.run.altered import AlteredTables
from ratchet.store.files import Lake
from ratchet.store.stops import StopReason
from ratchet.store.tables import Tables, TableState

SCHEMA = TableSchema(keyspace="shop", table="t", columns=(), key=("id",))
ALTERED = StopReason(message="its columns changed", hint="", round=3, altered=True)
STOPPED = TableState(
    keyspace="shop", table="t", schema=SCHEMA, key=("id",), phase="stopped", stopped=ALTERED
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_a_statement_has_stopped_is_dumped_again(tmp_path: Path) -> None:
    tables = Tables(Lake.at(tmp_path))
    followed = AlteredTables(tables, lambda state: state.keyspace == "shop")
    other = replace(STOPPED, stopped=replace(ALTERED, altered=False))
    elsewhere = replace(STOPPED, keyspace="other")
    assert followed.due([STOPPED, other, elsewhere]) == {"shop.t"}
    assert not followed.any_waits
    tables.save(STOPPED)
    assert followed.any_waits
    assert tables.load("shop", "t") == STOPPED, "the note keeps why"


def test_each_time_it_comes_later(tmp_path: Path) -> None:
    clock = Clock()
    followed = AlteredTables(Tables(Lake.at(tmp_path)), lambda _: True, clock=clock)
    waits = []
    for _ in range(9):
        began = clock.now
        while not followed.due([STOPPED]):
            clock.now += 1
        waits.append(clock.now - began)
        followed.tried("shop.t")
    assert waits == [0, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_what_could_not_begin_is_tried_each_minute(tmp_path: Path) -> None:
    """A statement goes from shard to shard: it must not be waited for an hour behind the last."""
    clock = Clock()
    followed = AlteredTables(Tables(Lake.at(tmp_path)), lambda _: True, clock=clock)
    for _ in range(40):
        clock.now += 60
        assert followed.due([STOPPED])
        followed.tried("shop.t")
        followed.not_begun("shop.t")
    clock.now += 60
    followed.tried("shop.t")  # it has read rows
    clock.now += 59
    assert not followed.due([STOPPED])
    clock.now += 1
    assert followed.due([STOPPED])


def test_a_run_with_an_end_waits_for_a_table_that_is_taken(tmp_path: Path) -> None:
    """Its state does not say so yet, and the next try is a minute away."""
    tables = Tables(Lake.at(tmp_path))
    tables.save(STOPPED)
    in_hand = {"shop.t"}
    followed = AlteredTables(tables, lambda _: True, is_dumping=in_hand.__contains__)
    followed.tried("shop.t")
    assert followed.any_waits
    in_hand.clear()
    assert not followed.any_waits, "it could not be dumped"


def test_a_table_that_was_computed_is_dumped_without_a_rest(tmp_path: Path) -> None:
    """The rest is for passes over a table: a run must not end while it stands still for that."""
    tables = Tables(Lake.at(tmp_path))
    tables.save(STOPPED)
    followed = AlteredTables(tables, lambda _: True)
    followed.computed("shop.t", 1000)
    assert followed.due([STOPPED])
    assert followed.any_waits


@pytest.mark.parametrize("phase", ["new", "dumping", "catching_up"])
def test_a_run_with_an_end_waits_for_it(tmp_path: Path, phase: str) -> None:
    tables = Tables(Lake.at(tmp_path))
    tables.save(replace(STOPPED, phase=phase, stopped=None, standing=4))  # type: ignore[arg-type]
    assert AlteredTables(tables, lambda _: True).any_waits


def test_when_the_next_one_has_its_turn(tmp_path: Path) -> None:
    """A run waited for its next look at the servers, half a minute, for each of several ALTERs."""
    clock = Clock()
    followed = AlteredTables(Tables(Lake.at(tmp_path)), lambda _: True, clock=clock)
    assert followed.rests() == math.inf
    followed.computed("shop.a", 2.0)
    followed.tried("shop.b")
    assert followed.rests() == 8.0
    clock.now += 8.0
    assert followed.rests() == 52.0
    clock.now += 52.0
    assert followed.rests() == math.inf
