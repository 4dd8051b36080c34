"""A floor's rank comes from containment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.floor import join_runs, resolve_floor
from ratchet.core.gtid import Gtid, GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import GtidRange

U1, U2 = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "3e11fa47-71ca-11e1-9e33-c80aa9429563"


def test_one_origin_gives_the_cardinality() -> None:
    start = Position(executed=GtidSet("mysql", {U1: ((1, 10),)}))
    runs = [GtidRange(U1, 11, 20, 11), GtidRange(U1, 21, 30, 21)]
    for last in range(10, 31):
        assert resolve_floor(GtidSet("mysql", {U1: ((1, last),)}), start, runs) == last


def test_another_servers_order_gives_less_than_the_cardinality() -> None:
    """The stream had U2:1 before U1:11; the chunk's server U1:11 and :12, but not yet U2:1."""
    start = Position(executed=GtidSet("mysql", {U1: ((1, 10),)}))
    runs = [GtidRange(U2, 1, 1, 11), GtidRange(U1, 11, 12, 12)]
    floor = GtidSet("mysql", {U1: ((1, 12),)})
    assert floor.cardinality == 12
    assert resolve_floor(floor, start, runs) == 10


def test_no_runs_and_all_runs() -> None:
    start = Position(executed=GtidSet("mysql", {U1: ((1, 10),)}))
    floor = GtidSet("mysql", {U1: ((1, 99),)})
    assert resolve_floor(floor, start, []) == 10
    assert resolve_floor(floor, start, [GtidRange(U1, 11, 20, 11)]) == 20


def test_mariadb_domains() -> None:
    start = Position(executed=GtidSet.parse("mariadb", "0-1-100,1-1-5"))
    runs = [GtidRange("0", 101, 103, 106), GtidRange("1", 6, 6, 109), GtidRange("0", 104, 104, 110)]
    assert resolve_floor(GtidSet.parse("mariadb", "0-1-104,1-1-5"), start, runs) == 108
    assert resolve_floor(GtidSet.parse("mariadb", "0-1-102,1-1-6"), start, runs) == 107
    assert resolve_floor(GtidSet.parse("mariadb", "0-1-104,1-1-6"), start, runs) == 110


def test_join_runs_keeps_every_transaction() -> None:
    runs = [
        GtidRange(U1, 1, 5, 1),
        GtidRange(U1, 6, 7, 6),
        GtidRange(U2, 1, 1, 8),
        GtidRange(U1, 8, 8, 9),
    ]
    assert list(join_runs(runs)) == [
        GtidRange(U1, 1, 7, 1),
        GtidRange(U2, 1, 1, 8),
        GtidRange(U1, 8, 8, 9),
    ]
    # A run is held against the last one, not the first.
    runs = [GtidRange(U1, 1, 5, 1), GtidRange(U2, 1, 1, 6), GtidRange(U2, 2, 2, 7)]
    assert list(join_runs(runs)) == [GtidRange(U1, 1, 5, 1), GtidRange(U2, 1, 2, 6)]


def test_runs_with_a_hole_between_them_stay_apart() -> None:
    """Numbers that were never given to a transaction, or a place of the stream in between."""
    numbers = [GtidRange("0", 101, 101, 106), GtidRange("0", 103, 103, 108)]
    places = [GtidRange(U1, 1, 5, 1), GtidRange(U1, 6, 7, 9)]
    assert list(join_runs(numbers)) == numbers
    assert list(join_runs(places)) == places


def test_a_floor_that_ends_well_below_a_run_covers_nothing_of_it() -> None:
    """And takes nothing back of what is below."""
    start = Position(executed=GtidSet("mysql", {U1: ((1, 3),)}))
    assert resolve_floor(start.executed, start, [GtidRange(U1, 6, 7, 4)]) == 3


@given(st.lists(st.booleans(), max_size=12), st.sets(st.integers(0, 11)))
def test_everything_up_to_the_rank_is_in_the_floor_and_the_next_is_not(
    which: list[bool], missing: set[int]
) -> None:
    start = Position(executed=GtidSet("mysql", {U1: ((1, 3),)}))
    last = {U1: 3, U2: 0}
    stream = []
    for first in which:
        origin = U1 if first else U2
        last[origin] += 1
        stream.append(Gtid(origin, last[origin]))
    runs = [GtidRange(g.origin, g.number, g.number, 4 + i) for i, g in enumerate(stream)]
    floor = start.executed
    for i, gtid in enumerate(stream):
        if i not in missing:
            floor = floor.with_interval(gtid.origin, gtid.number, gtid.number)
    for form in (runs, join_runs(runs)):
        count = resolve_floor(floor, start, form) - 3
        assert all(floor.contains(gtid) for gtid in stream[:count])
        assert count == len(stream) or not floor.contains(stream[count])
