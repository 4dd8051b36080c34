"""What a reshard's targets end: which streams, which registers, and when a truncation is whole."""

from __future__ import annotations

from dataclasses import replace

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.merge.ancestry import LAST_SEQ, NO_ANCESTRY, Ancestry
from ratchet.store.dumpstates import DumpState
from ratchet.store.rounds import StreamState
from ratchet.store.tables import TableState

WHOLE, LEFT, RIGHT = "shop/0", "shop/-80", "shop/80-"
POSITION = Position(executed=GtidSet("mysql", {"3e11fa47-71ca-11e1-9e33-c80aa9429562": ((1, 9),)}))
STATE = TableState(
    keyspace="shop",
    table="t",
    schema=TableSchema(
        keyspace="shop",
        table="t",
        columns=(Column(name="id", type=ColumnType(name="bigint"), nullable=False),),
        key=("id",),
    ),
    key=("id",),
    phase="streaming",
    dump=DumpState(id="d", start_round=3, start={WHOLE: POSITION}),
)


def stream(generation: int, begun: int = 5, **ancestors: int) -> StreamState:
    """Ancestors by the words for the three shards."""
    names = {"whole": WHOLE, "left": LEFT, "right": RIGHT}
    known = {names[word]: last for word, last in ancestors.items()}
    return StreamState(position=POSITION, generation=generation, ancestors=known, begun=begun)


SPLIT = Ancestry({LEFT: stream(1, whole=0), RIGHT: stream(1, whole=0)})
AGAIN = Ancestry({LEFT: stream(3, whole=2, right=1), RIGHT: stream(3, whole=2, left=1)})


def test_only_streams_that_began_during_the_tables_life_matter() -> None:
    streams = {
        LEFT: stream(1, begun=3, whole=0),
        RIGHT: stream(1, begun=2, whole=0),
        "shop/c0-": stream(0, begun=0),
        "shop/d0-": stream(0, begun=4),
        "other/-80": stream(1, begun=9, whole=0),
    }
    assert set(Ancestry.of(STATE, streams).streams) == {LEFT}
    assert not Ancestry.of(STATE, {RIGHT: streams[RIGHT]})
    assert not NO_ANCESTRY
    assert Ancestry.of(replace(STATE, dump=None), {LEFT: stream(1, begun=0, whole=0)})


def test_streams_that_are_over_are_told_by_shard_and_generation() -> None:
    assert SPLIT.ended == {WHOLE: 0, LEFT: 0, RIGHT: 0}
    assert Ancestry({WHOLE: stream(2, left=1, right=1)}).ended == {WHOLE: 1, LEFT: 1, RIGHT: 1}
    assert AGAIN.ended == {WHOLE: 2, LEFT: 2, RIGHT: 2}


def test_an_ended_shard_is_truncated_with_its_last_heir() -> None:
    assert SPLIT.truncated({LEFT: (1, 20)}) == {}
    assert SPLIT.truncated({LEFT: (1, 20), RIGHT: (1, 12)}) == {WHOLE: (0, LAST_SEQ)}
    assert SPLIT.truncated({LEFT: (1, 20), RIGHT: (0, 12)}) == {}  # in an earlier life


def test_a_shards_later_life_is_an_heir_of_its_earlier_ones() -> None:
    """Named among its ancestors or not."""
    assert AGAIN.truncated({LEFT: (3, 20)}) == {}
    assert AGAIN.truncated({LEFT: (3, 20), RIGHT: (3, 1)}) == {
        shard: (generation, LAST_SEQ) for shard, generation in ((WHOLE, 2), (LEFT, 1), (RIGHT, 1))
    }
    named = Ancestry({WHOLE: stream(2, left=1, right=1, whole=0)})
    assert named.ended == {WHOLE: 1, LEFT: 1, RIGHT: 1}
    assert named.truncated({WHOLE: (2, 5)})[WHOLE] == (0, LAST_SEQ)


def test_an_ended_shard_has_no_other_heirs_than_its_own() -> None:
    elsewhere = replace(stream(4), ancestors={"shop/c0-": 3})
    both = Ancestry({**SPLIT.streams, "shop/c0-e0": elsewhere})
    assert both.truncated({LEFT: (1, 20), RIGHT: (1, 12)}) == {WHOLE: (0, LAST_SEQ)}


def test_a_shard_that_ended_twice_is_over_up_to_its_last_life() -> None:
    early, late = stream(1, whole=0), stream(3, whole=2)
    for heirs in ({LEFT: early, RIGHT: late}, {RIGHT: late, LEFT: early}):
        assert Ancestry(heirs).ended[WHOLE] == 2
        assert Ancestry(heirs).truncated({LEFT: (1, 5), RIGHT: (3, 5)}) == {WHOLE: (2, LAST_SEQ)}


def test_an_implied_tombstone_stands_where_side_tables_have_it() -> None:
    assert LAST_SEQ == 2**62


def test_a_merge_has_one_heir_for_several() -> None:
    merged = Ancestry({WHOLE: stream(2, left=1, right=1)})
    assert merged.truncated({WHOLE: (2, 5)}) == {LEFT: (1, LAST_SEQ), RIGHT: (1, LAST_SEQ)}


def test_conditions_name_each_shard_with_its_generation() -> None:
    one = Ancestry({LEFT: stream(1, whole=0)})
    assert one.is_heir("s.shard") == "(s.shard = 'shop/-80')"
    assert one.supersedes("s.shard", "t") == (
        "(s.shard = 'shop/-80' AND t.shard = 'shop/0' AND t.generation <= 0)"
    )
    assert one.implied("shard") == (
        "CASE shard WHEN 'shop/-80' THEN "
        "array(named_struct('shard', 'shop/0', 'generation', 0L)) END"
    )
