"""When rows of a child may have come while a parent's change was open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, Round, ShardSlice, TableEvent
from ratchet.merge.cascades.openparents import first_began, unchecked_writes, written_meanwhile
from ratchet.store.formats import open_lake
from ratchet.store.unchecked import note_unchecked, read_unchecked

SECOND = 1_000_000
AT = Position(executed=GtidSet.empty("mariadb"), server="s")
SLICE = ShardSlice(
    shard="shop/-", generation=1, start=AT, end=AT, runs=(), transactions=1, rows=1, bytes=1,
    min_ts=100 * SECOND, max_ts=200 * SECOND, observed_at=205 * SECOND, caught_up=True,
)  # fmt: skip
FILE = ChangeFile(
    keyspace="shop", table="child", shard="shop/-", schema="0", path="p", rows=1, bytes=1,
    min_seq=1, max_seq=1, inserts=1, updates=0, deletes=0, misfits={},
)  # fmt: skip
EVENT = TableEvent(
    keyspace="shop", table="child", shard="shop/-", kind="ddl", statement="ALTER", gtid="0-1-1",
    seq=1, ts=150 * SECOND, effect="foreign_key",
)  # fmt: skip
CHILD = "shop.child", "shop/-"


def a_round(*files: ChangeFile, events: tuple[TableEvent, ...] = ()) -> Round:
    return Round(number=1, committed_at=300 * SECOND, slices=(SLICE,), files=files, events=events)


def test_writes_that_nobody_checked_count_as_of_the_end_of_their_slice() -> None:
    assert unchecked_writes([a_round(FILE)], {}) == {}
    unchecked = replace(FILE, unchecked=2)
    assert unchecked_writes([a_round(FILE, unchecked)], {}) == {CHILD: 200 * SECOND}
    assert unchecked_writes([a_round(unchecked)], {CHILD: 200 * SECOND}) == {}
    assert unchecked_writes([a_round(unchecked)], {CHILD: SECOND}) == {CHILD: 200 * SECOND}


@pytest.mark.parametrize(
    ("effect", "counts"),
    [("foreign_key", True), ("rows", True), ("doubt", True), ("columns", False), ("key", False)],
)
def test_statements_that_may_bring_keys_count(effect: str, counts: bool) -> None:  # noqa: FBT001
    value = a_round(events=(replace(EVENT, effect=effect),))  # type: ignore[arg-type]
    assert unchecked_writes([value], {}) == ({CHILD: 150 * SECOND} if counts else {})


def test_the_first_of_the_parents_statements_counts() -> None:
    value = a_round()
    early, late = replace(FILE, began=50), replace(FILE, began=150)
    assert first_began([(value, late), (value, early)]) == 50 * SECOND
    assert first_began([(value, late), (value, FILE)]) == 0  # a file that does not tell
    assert first_began([(value, late), (value, replace(FILE, began=900))]) == 0  # a clock ahead
    assert first_began([]) == 0


@pytest.mark.parametrize(
    ("began", "doubtful"), [(0, True), (100, True), (160, True), (161, False), (900, False)]
)
def test_who_wrote_behind_the_parents_statement(began: int, doubtful: bool) -> None:  # noqa: FBT001
    found = written_meanwhile(
        ["shop.child", "shop.other"], "shop/-", began * SECOND, {CHILD: 100 * SECOND}
    )
    assert set(found) == ({"shop.child"} if doubtful else set())
    assert written_meanwhile(["shop.child"], "shop/80-", 0, {CHILD: 100 * SECOND}) == {}


def test_it_is_noted_in_the_lake(tmp_path: Path) -> None:
    lake = replace(open_lake(tmp_path, now=1), epoch=1)
    assert read_unchecked(lake) == {}
    moments = {CHILD: 5, ("shop.child", "shop/80-"): 7, ("shop.b", "shop/-"): 9}
    note_unchecked(lake, moments)
    assert read_unchecked(lake) == moments
