"""Verdicts: what later changes explain is the same, and nothing else is."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.snapshot.judge import KeyChange, PointRead, events_of, judge, row_at_cut

COLUMNS = ("id", "v")
SHARD = "shop/-"


def _position(upto: int) -> Position:
    return Position(executed=GtidSet.parse("mariadb", f"0-1-{upto}" if upto else ""))


def _events(states: list[Any], first: int = 1) -> list[KeyChange]:
    """The changes that lead from each state to the next; the n-th is transaction 0-1-n."""
    return [
        KeyChange(shard=SHARD, rank=(0, n, 0), gtid=f"0-1-{n}", before=a, after=b)
        for n, (a, b) in enumerate(pairwise(states), start=first)
    ]


def _history(rng: random.Random) -> list[Any]:
    states: list[Any] = [None if rng.random() < 0.3 else (1, 0)]
    for value in range(1, rng.randint(2, 6)):
        states.append(None if states[-1] and rng.random() < 0.3 else (1, value))
    return states


@settings(deadline=None)
@given(st.integers(0, 10**9))
def test_any_later_state_explains_a_look(seed: int) -> None:
    """A read at any moment from its floor on agrees with a mirror that is right at the cut."""
    rng = random.Random(seed)
    states = _history(rng)
    seen = rng.randrange(len(states))
    look = PointRead(row=states[seen], floor=_position(rng.randint(0, seen)))
    verdict = judge(states[0], _events(states), {SHARD: look}, COLUMNS, scanned=True)
    assert verdict.kind == "same"


@settings(deadline=None)
@given(st.integers(0, 10**9))
def test_a_wrong_mirror_is_never_explained(seed: int) -> None:
    """Whatever happens after the cut, a row that was wrong at the cut is reported."""
    rng = random.Random(seed)
    states = _history(rng)
    wrong = (1, 99) if rng.random() < 0.5 or states[0] is None else None
    look = PointRead(row=states[-1], floor=_position(0))
    verdict = judge(wrong, _events(states), {SHARD: look}, COLUMNS, scanned=states[-1] is not None)
    assert verdict.kind in {"changed", "missing", "extra"}


@settings(deadline=None)
@given(st.integers(0, 10**9))
def test_a_look_that_the_log_does_not_explain(seed: int) -> None:
    """A row that no change has made, or that is older than the read's floor, is a difference."""
    rng = random.Random(seed)
    states = [(1, value) for value in range(rng.randint(3, 6))]
    floor = rng.randint(1, len(states) - 1)
    for row in ((1, 77), None, states[rng.randrange(floor)]):
        look = PointRead(row=row, floor=_position(floor))
        verdict = judge(states[0], _events(states), {SHARD: look}, COLUMNS, scanned=True)
        assert verdict.kind in {"changed", "extra"}


@pytest.mark.parametrize(
    ("mirror", "scanned", "again", "kind", "columns"),
    [
        (None, True, (1, 2), "missing", ()),
        (None, True, None, "missing", ()),
        ((1, 2), False, None, "extra", ()),
        ((1, 2), False, (1, 2), "extra", ()),
        ((1, 2), True, (1, 3), "changed", ("v",)),
        ((1, 2), True, (1, 2), "changed", ()),
        ((1, 2), True, None, "changed", ()),
    ],
)
def test_without_changes_a_difference_is_one(
    mirror: Any, scanned: Any, again: Any, kind: str, columns: tuple[str, ...]
) -> None:
    """The kinds, as seen from the mirror; an unexplained second look is no help."""
    looks = {
        SHARD: PointRead(row=again, floor=_position(0)),
        "shop/x": PointRead(row=None, floor=_position(0)),
    }
    verdict = judge(mirror, [], looks, COLUMNS, scanned=scanned)
    assert (verdict.kind, verdict.columns) == (kind, columns)


def test_a_difference_names_its_columns() -> None:
    """Of the row before the first change, and of the row that the last change left."""
    columns = ("id", "v", "w")
    events = _events([(1, 1, 1), (1, 1, 2), (1, 1, 3)])
    for mirror, row, odd in (
        ((1, 9, 1), (1, 1, 3), ("v",)),
        ((1, 1, 1), (1, 9, 3), ("v",)),
    ):
        look = PointRead(row=row, floor=_position(0))
        verdict = judge(mirror, events, {SHARD: look}, columns, scanned=True)
        assert (verdict.kind, verdict.columns) == ("changed", odd)


def test_the_row_at_the_cut() -> None:
    """The row before the first change; without changes the one that was seen."""
    look = PointRead(row=(1, 7), floor=_position(0))
    assert row_at_cut(_events([(1, 1), (1, 2), (1, 7)]), look) == (1, 1)
    assert row_at_cut(_events([None, (1, 7)]), look) is None
    assert row_at_cut([], look) == (1, 7)


def _change(seq: int, before: Any, after: Any, shard: str = SHARD) -> dict[str, Any]:
    token = {"generation": 0, "seq": seq, "idx": 0, "shard": shard, "gtid": f"0-1-{seq}"}
    rows = [
        None if row is None else dict(zip(COLUMNS, row, strict=True)) for row in (before, after)
    ]
    return {"token": token, "before": rows[0], "after": rows[1]}


def test_a_moved_key_is_a_change_of_both() -> None:
    """The row leaves one key and comes to the other; what is given twice counts once."""
    changes = [_change(2, (1, 5), (2, 5)), _change(1, None, (1, 5)), _change(2, (1, 5), (2, 5))]
    found = events_of(changes, key=("id",), columns=COLUMNS)
    assert [(e.before, e.after) for e in found[(1,)]] == [(None, (1, 5)), ((1, 5), None)]
    assert [(e.before, e.after) for e in found[(2,)]] == [(None, (2, 5))]


def test_moving_between_shards() -> None:
    """Streams of two shards have no common order: a known row is right, any other is unsettled."""
    changes = [_change(1, (1, 5), None), _change(1, None, (1, 5), "shop/x")]
    events = events_of(changes, key=("id",), columns=COLUMNS)[(1,)]
    gone = PointRead(row=None, floor=_position(0))
    for row, kind in (((1, 5), "same"), ((1, 6), "unsettled")):
        there = PointRead(row=row, floor=_position(0))
        looks = {SHARD: gone, "shop/x": there}
        assert judge((1, 5), events, looks, COLUMNS, scanned=False).kind == kind
    for row in ((1, 5), (1, 6)):  # on both at once
        there = PointRead(row=row, floor=_position(0))
        both = {SHARD: there, "shop/x": there}
        assert judge((1, 5), events, both, COLUMNS, scanned=False).kind == "unsettled"
        changed_on_one = _events([(1, 5), (1, 6)])
        assert judge((1, 5), changed_on_one, both, COLUMNS, scanned=True).kind == "unsettled"
