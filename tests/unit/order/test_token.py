"""The four rules by which tokens compare, each on its own and as properties."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.errors import BugError
from ratchet.core.gtid import Gtid, GtidSet
from ratchet.core.lineage import NO_LINEAGE, Descent, Lineage
from ratchet.core.shard import ShardId
from ratchet.core.token import Coordinates, EventToken, Order, Rank, compare, compare_on_shard

A, B, C = (ShardId("shop", name) for name in ("-", "-80", "80-"))
ORIGINS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "3e11fa47-71ca-11e1-9e33-c80aa9429563")
BOUND = 1000


def upto(number: int, origin: str = ORIGINS[0]) -> GtidSet:
    return GtidSet("mysql", {origin: ((1, number),)})


def event(
    number: int, *, shard: ShardId = A, ts: int = 0, idx: int = 0, generation: int = 0
) -> EventToken:
    return EventToken(ts=ts, at=at(number, shard=shard, idx=idx, generation=generation))


def at(number: int, *, shard: ShardId, idx: int = 0, generation: int = 0) -> Coordinates:
    return Coordinates(
        shard=shard,
        gtid=Gtid(ORIGINS[0], number),
        position=upto(number),
        rank=Rank(generation=generation, seq=number, idx=idx),
    )


def order(a: EventToken, b: EventToken, lineage: Lineage = NO_LINEAGE) -> Order:
    return compare(a, b, clock_bound_us=BOUND, lineage=lineage)


def test_on_one_shard_the_log_decides_not_the_clock() -> None:
    """The lock-wait inversion of docs/ordering.md: :6 is later with an earlier timestamp."""
    assert order(event(5, ts=174_000_000), event(6, ts=171_000_000)) is Order.OLDER


def test_inside_one_transaction_the_place_decides() -> None:
    assert order(event(5, idx=1), event(5, idx=2)) is Order.OLDER
    assert order(event(5, idx=1), event(5, idx=1)) is Order.SAME


def test_a_higher_generation_is_newer_whatever_the_numbers() -> None:
    assert order(event(9, generation=0), event(2, generation=1)) is Order.OLDER


def test_unrelated_shards_need_clocks_apart_by_more_than_the_bound() -> None:
    a = event(5, shard=B, ts=10_000)
    assert order(a, event(1, shard=C, ts=10_000 + BOUND)) is Order.UNKNOWN
    assert order(a, event(1, shard=C, ts=10_001 + BOUND)) is Order.OLDER
    assert order(a, event(9, shard=C, ts=8_999)) is Order.NEWER


def test_a_copy_is_ranked_by_where_it_was_first_written() -> None:
    """A transaction copied to a reshard's target is the same event, however late it arrives."""
    original = event(5, shard=A, ts=1)
    copy = EventToken(ts=10**9, at=at(77, shard=B), source=at(5, shard=A))
    assert order(copy, original) is Order.SAME
    assert order(copy, event(6, shard=A, ts=2)) is Order.OLDER


def test_after_the_cut_over_a_descendant_is_newer() -> None:
    lineage = Lineage(
        (
            Descent(ancestor=A, descendant=B, cut_over=upto(10)),
            Descent(ancestor=B, descendant=C, cut_over=upto(3)),
        )
    )
    late_on_ancestor = event(1000, shard=A, ts=10**12)
    assert order(event(11, shard=B), late_on_ancestor, lineage) is Order.NEWER
    assert order(event(4, shard=C), late_on_ancestor, lineage) is Order.NEWER
    assert order(event(10, shard=B), late_on_ancestor, lineage) is Order.OLDER  # by the clock
    assert order(late_on_ancestor, event(11, shard=B), lineage) is Order.OLDER
    late_elsewhere = event(1000, shard=ShardId("other", "-"), ts=10**12)
    assert order(event(11, shard=B), late_elsewhere, lineage) is Order.OLDER  # by the clock


def test_descent_goes_over_any_number_of_reshards_and_either_of_two_ancestors() -> None:
    d, e, other = (ShardId("shop", name) for name in ("-40", "40-80", "c0-"))
    origins = [(A, B), (other, C), (B, C), (C, d), (d, e)]
    lineage = Lineage(
        tuple(Descent(ancestor=old, descendant=new, cut_over=upto(3)) for old, new in origins)
    )
    for ancestor in (A, B, C, d, other):
        assert lineage.is_newer(e, Gtid(ORIGINS[0], 4), than=ancestor)
        assert not lineage.is_newer(e, Gtid(ORIGINS[0], 3), than=ancestor)
        assert not lineage.is_newer(ancestor, Gtid(ORIGINS[0], 4), than=e)
    assert not lineage.is_newer(B, Gtid(ORIGINS[0], 4), than=other)


def test_diverged_positions_are_unknown_even_when_clocks_differ() -> None:
    a = event(5, ts=0)
    coordinates = Coordinates(
        shard=A,
        gtid=Gtid(ORIGINS[1], 1),
        position=upto(4).union(upto(1, ORIGINS[1])),
        rank=Rank(generation=0, seq=5, idx=0),
    )
    assert order(a, EventToken(ts=10**9, at=coordinates)) is Order.UNKNOWN


def test_two_copies_stand_as_where_they_are_read_not_as_at_their_source() -> None:
    a = EventToken(ts=0, at=at(1, shard=A), source=at(9, shard=B))
    b = EventToken(ts=0, at=at(2, shard=A), source=at(8, shard=B))
    assert order(a, b) is Order.OLDER
    # Also where the source's shard comes first by name.
    a = EventToken(ts=0, at=at(1, shard=B), source=at(9, shard=A))
    b = EventToken(ts=0, at=at(2, shard=B), source=at(8, shard=A))
    assert order(a, b) is Order.OLDER


def stands(
    number: int | None,
    position: GtidSet | None,
    *,
    seq: int,
    idx: int = 0,
    origin: str = ORIGINS[0],
) -> Coordinates:
    """A transaction, or a dumped row if it has no number."""
    return Coordinates(
        shard=A,
        gtid=None if number is None else Gtid(origin, number),
        position=position,
        rank=Rank(generation=0, seq=seq, idx=idx),
    )


TWO = upto(4).union(upto(1, ORIGINS[1]))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # Positions are not known: the ranks.
        (stands(4, None, seq=4), stands(5, None, seq=5), Order.OLDER),
        (stands(4, None, seq=4, idx=9), stands(5, None, seq=5), Order.OLDER),
        (stands(4, None, seq=4), stands(None, None, seq=4, idx=1 << 40), Order.OLDER),
        (stands(None, None, seq=3, idx=1 << 40), stands(4, upto(4), seq=4), Order.OLDER),
        # One is known, and holds the other: containment, whatever the ranks.
        (stands(4, None, seq=9), stands(5, upto(5), seq=5), Order.OLDER),
        # One is known, and does not hold the other: that alone says nothing, so the ranks.
        (stands(7, None, seq=7), stands(5, upto(5), seq=5), Order.NEWER),
        (stands(7, None, seq=3), stands(5, upto(5), seq=5), Order.OLDER),
        # Two dumped rows: by what their floors hold, whatever their chunks' numbers.
        (stands(None, upto(4), seq=4, idx=7), stands(None, upto(6), seq=6, idx=3), Order.OLDER),
        (stands(None, upto(4), seq=4, idx=3), stands(None, upto(4), seq=4, idx=7), Order.OLDER),
        (stands(None, upto(6), seq=6), stands(None, TWO, seq=4), Order.UNKNOWN),
        # The last event in a floor that lacks one before it ranks above the floor, and is in it.
        (stands(4, TWO, seq=5), stands(None, upto(4), seq=3, idx=1 << 40), Order.OLDER),
        # An event in a floor, though the floor lacks another that this stream had before it.
        (stands(4, TWO, seq=5), stands(None, upto(5), seq=3, idx=1 << 40), Order.OLDER),
        # Each holds the other: one of the sets is wrong.
        (stands(4, TWO, seq=4), stands(1, TWO, seq=5, origin=ORIGINS[1]), Order.UNKNOWN),
    ],
)
def test_what_positions_and_ranks_say(a: Coordinates, b: Coordinates, expected: Order) -> None:
    assert compare_on_shard(a, b) is expected
    assert compare_on_shard(b, a) is expected.mirrored


def test_on_one_shard_every_small_pair_is_its_own_mirror_image() -> None:
    """All of them, as a random pair is seldom on one shard, of one generation, and half known."""
    numbers = [None, Gtid(ORIGINS[0], 1), Gtid(ORIGINS[0], 2), Gtid(ORIGINS[1], 1)]
    sets = [None, upto(1), upto(2), upto(1, ORIGINS[1]), upto(2).union(upto(1, ORIGINS[1]))]
    ranks = [Rank(generation=g, seq=s, idx=i) for g, s, i in [(0, 1, 0), (0, 2, 0), (0, 2, 1)]]
    every = [
        Coordinates(shard=A, gtid=gtid, position=position, rank=rank)
        for gtid, position, rank in itertools.product(numbers, sets, ranks)
    ]
    for a, b in itertools.product(every, repeat=2):
        assert compare_on_shard(a, b) is compare_on_shard(b, a).mirrored, (a, b)


def test_a_floor_is_newer_than_what_it_contains_and_no_more() -> None:
    """Containment, not cardinality: the floor holds six transactions, but not the fifth of ours."""
    floor = Coordinates(
        shard=A,
        position=upto(4).union(upto(2, ORIGINS[1])),
        rank=Rank(generation=0, seq=6, idx=1 << 40),
    )
    row = EventToken(ts=0, at=floor)
    assert order(event(4), row) is Order.OLDER
    assert order(event(5), row) is Order.UNKNOWN  # and unknown is applied


def _elsewhere(source: Coordinates | None, own: Coordinates) -> Coordinates | None:
    return None if source is None or source.shard == own.shard else source


RANKS = st.builds(Rank, generation=st.integers(0, 2), seq=st.integers(0, 6), idx=st.integers(0, 2))
SETS = st.builds(
    lambda n, m: upto(n).union(upto(m, ORIGINS[1])), st.integers(1, 6), st.integers(1, 3)
)
COORDINATES = st.builds(
    Coordinates,
    shard=st.sampled_from((A, B, C)),
    rank=RANKS,
    gtid=st.none() | st.builds(Gtid, st.sampled_from(ORIGINS), st.integers(1, 6)),
    position=st.none() | SETS,
)
TOKENS = st.tuples(st.integers(0, 3 * BOUND), COORDINATES, st.none() | COORDINATES).map(
    lambda t: EventToken(ts=t[0], at=t[1], source=_elsewhere(t[2], t[1]))
)
LINEAGES = st.sampled_from(
    [NO_LINEAGE, Lineage((Descent(ancestor=A, descendant=B, cut_over=upto(3)),))]
)


def test_a_copy_comes_from_another_shard() -> None:
    with pytest.raises(BugError):
        EventToken(ts=0, at=at(1, shard=A), source=at(1, shard=A))


@given(TOKENS, TOKENS, LINEAGES)
def test_compare_is_its_own_mirror_image(a: EventToken, b: EventToken, lineage: Lineage) -> None:
    assert order(a, b, lineage) is order(b, a, lineage).mirrored


@given(TOKENS)
def test_a_token_is_the_same_as_itself(token: EventToken) -> None:
    assert order(token, token) is Order.SAME


@given(st.lists(st.integers(0, 4), min_size=3, max_size=12), st.integers(0, 10**6), st.data())
def test_along_one_stream_order_is_the_streams(
    origins: list[int], drift: int, data: st.DataObject
) -> None:
    """Any interleaving of origins, any clock: earlier in the stream is OLDER."""
    executed = GtidSet.empty("mysql")
    tokens = []
    for place, which in enumerate(origins):
        origin = ORIGINS[which % 2]
        number = executed.intervals.get(origin, ((0, 0),))[-1][1] + 1
        executed = executed.with_interval(origin, number, number)
        where = Coordinates(
            shard=A,
            gtid=Gtid(origin, number),
            position=executed,
            rank=Rank(generation=0, seq=executed.cardinality, idx=0),
        )
        tokens.append(EventToken(ts=(place * 7919 + drift) % 1000, at=where))
    i = data.draw(st.integers(0, len(tokens) - 2))
    j = data.draw(st.integers(i + 1, len(tokens) - 1))
    assert order(tokens[i], tokens[j]) is Order.OLDER
    assert tokens[i].at.rank.parts < tokens[j].at.rank.parts
