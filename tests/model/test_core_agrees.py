"""The ranks that the model and the merge compare say the same as `core.token.compare`."""

from __future__ import annotations

import itertools

import pytest

from ratchet.core.lineage import NO_LINEAGE
from ratchet.core.token import EventToken, Order, compare
from tests.model import scenarios
from tests.model.world import Log

LOGS = {
    f"{world.name}, {log.shard}": log for world in scenarios.WORLDS for log in world.logs
}  # fmt: skip


def order(a: EventToken, b: EventToken, bound: int = 0) -> Order:
    return compare(a, b, clock_bound_us=bound, lineage=NO_LINEAGE)


def tokens(log: Log) -> list[EventToken]:
    return [
        log.token(number, idx)
        for number, tx in enumerate(log.transactions)
        for idx in range(len(tx.changes))
    ]


@pytest.mark.parametrize("name", LOGS)
def test_ranks_along_a_stream_say_what_compare_says(name: str) -> None:
    for a, b in itertools.product(tokens(LOGS[name]), repeat=2):
        ours, theirs = a.at.rank.parts, b.at.rank.parts
        by_rank = Order.SAME if ours == theirs else Order.OLDER if ours < theirs else Order.NEWER
        assert order(a, b) is by_rank


@pytest.mark.parametrize("name", LOGS)
def test_whatever_is_not_older_than_a_floor_has_a_higher_rank_than_it_resolves_to(
    name: str,
) -> None:
    """So the merge applies every change that compare calls newer or unknown."""
    log = LOGS[name]
    for floor, change in itertools.product(range(len(log.floors)), tokens(log)):
        told = order(change, log.floor_token(floor, floor, chunk=1))
        if told is not Order.OLDER:
            assert change.at.rank.seq > log.resolved[floor]


def test_with_another_order_a_floor_resolves_below_its_number() -> None:
    """Else the model would not tell containment from counting."""
    log = scenarios.OTHER_ORDER.logs[0]
    assert any(seq < floor.cardinality for seq, floor in zip(log.resolved, log.floors, strict=True))


def test_compare_leaves_two_shards_unknown_within_the_clock_bound() -> None:
    """Which is why the merge never asks it: each shard has its own registers."""
    low, high = (log.token(0, 0) for log in scenarios.SHARD_IN_KEY.logs)
    assert high.ts - low.ts == 5
    assert order(low, high, bound=5) is order(high, low, bound=5) is Order.UNKNOWN
    assert order(low, high, bound=4) is Order.OLDER
