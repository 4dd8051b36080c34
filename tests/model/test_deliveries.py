"""Merging is commutative, idempotent and monotone, however events are delivered.

Random histories of several shards, cut into deliveries that are doubled, re-ordered and late; the
model of `reference`, no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.reference import Batch, Key, Mirror, join, live, merge, reduced, shown, side_commit
from tests.model.world import Change, Log, Tx

pytestmark = pytest.mark.slow

KEYS = (1, 2, 3)
SHARDS = ("a", "b", "c")
EXAMPLES = settings(max_examples=300, deadline=None)


@st.composite
def logs(draw: st.DrawFn, shard: str = "a", *, truncates: bool = True) -> Log:
    """A shard's history: any changes that its rows allow, at any times."""
    base: dict[Key, str] = {key: f"{shard}{key}" for key in draw(st.sets(st.sampled_from(KEYS)))}
    rows: set[Key] = set(base)
    transactions = []
    for number in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, 100))
        changes: list[Change] = []
        if truncates and draw(st.integers(0, 9)) == 0:
            rows.clear()
        else:
            for idx in range(draw(st.integers(1, 3))):
                change = draw(st.sampled_from(_possible(rows, f"{shard}{number}.{idx}")))
                rows.discard(change.old)
                if change.new is not None:
                    rows.add(change.new)
                changes.append(change)
        transactions.append(Tx(at, tuple(changes), draw(st.integers(0, 1))))
    return Log(shard, base, tuple(transactions))


def _possible(rows: set[Key], value: str) -> list[Change]:
    free = [key for key in KEYS if key not in rows]
    return [
        *(Change(None, key, value) for key in free),
        *(Change(key, None) for key in sorted(rows, key=str)),
        *(Change(key, new, value) for key in sorted(rows, key=str) for new in (key, *free)),
    ]


@st.composite
def deliveries(draw: st.DrawFn, length: int) -> list[tuple[int, int]]:
    """Stretches of a log in any order, doubled and overlapping, that hold all of it together."""
    spans = st.tuples(st.integers(0, length), st.integers(0, length)).map(sorted)
    found = [(first, last) for first, last in draw(st.lists(spans, max_size=4))]
    cuts = sorted({0, length, *draw(st.sets(st.integers(0, length), max_size=3))})
    return draw(st.permutations([*found, *pairwise(cuts)]))


def dumped(log: Log) -> Mirror:
    """The table as a dump at the very start leaves it."""
    return Mirror(main=log.chunk(KEYS, 0, 0, 1).registers)


def final(log: Log) -> dict[object, str]:
    return dict(log.rows[-1])


@EXAMPLES
@given(st.data())
def test_any_delivery_of_all_events_ends_in_the_source(data: st.DataObject) -> None:
    """Doubled, re-ordered, late: tombstones are what makes this true."""
    log = data.draw(logs())
    mirror = dumped(log)
    for first, last in data.draw(deliveries(len(log.transactions))):
        mirror = merge(mirror, log.batch(first, last), contested=False)
    assert {key: row.row for (key, _), row in mirror.main.items()} == final(log)


@EXAMPLES
@given(st.data())
def test_no_register_ever_falls(data: st.DataObject) -> None:
    """Neither a row's rank nor a tombstone's, so no row is shown again once it was overwritten."""
    log = data.draw(logs(truncates=False))
    mirror = dumped(log)
    for first, last in data.draw(deliveries(len(log.transactions))):
        before = join(mirror.main, mirror.side)
        mirror = merge(mirror, log.batch(first, last), contested=False)
        after = join(mirror.main, mirror.side)
        assert all(after[place].rank >= register.rank for place, register in before.items())


@EXAMPLES
@given(st.data())
def test_a_delivery_again_and_a_kill_in_between_change_nothing(data: st.DataObject) -> None:
    log = data.draw(logs())
    mirror, contested = dumped(log), data.draw(st.booleans())
    for first, last in data.draw(deliveries(len(log.transactions))):
        batch = log.batch(first, last)
        killed = side_commit(mirror, batch, contested=contested)
        mirror = merge(mirror, batch, contested=contested)
        assert merge(killed, batch, contested=contested) == mirror
        assert merge(mirror, batch, contested=contested) == mirror


@st.composite
def worlds(draw: st.DrawFn) -> list[Log]:
    """Several shards with histories of their own; keys are not unique among them."""
    return [draw(logs(shard)) for shard in SHARDS[: draw(st.integers(2, 3))]]


def merged_in(logs_: Sequence[Log], order: Sequence[tuple[int, int, int]]) -> Mirror:
    mirror = Mirror()
    for log in logs_:
        mirror = merge(mirror, Batch(dumped(log).main), contested=True)
    for shard, first, last in order:
        mirror = merge(mirror, logs_[shard].batch(first, last), contested=True)
    return mirror


@EXAMPLES
@given(st.data())
def test_shards_may_come_in_any_order(data: st.DataObject) -> None:
    """One table, the same for every order: what is shown depends on the registers alone."""
    shards = data.draw(worlds())
    steps = [
        (number, first, last)
        for number, log in enumerate(shards)
        for first, last in data.draw(deliveries(len(log.transactions)))
    ]
    one = merged_in(shards, data.draw(st.permutations(steps)))
    other = merged_in(shards, data.draw(st.permutations(steps)))
    assert one.main == other.main
    registers = join(*(log.batch(0, len(log.transactions)).registers for log in shards))
    registers = join(registers, *(dumped(log).main for log in shards))
    assert one.main == shown(registers, one.marks, contested=True)
    shards_rows = {(key, log.shard): row for log in shards for key, row in final(log).items()}
    assert {p: r.row for p, r in live(registers, one.marks).items()} == shards_rows


@EXAMPLES
@given(st.data())
def test_keys_that_are_unique_in_the_end_are_shown_whatever_the_clocks_say(
    data: st.DataObject,
) -> None:
    """Convergence: a key that one shard holds at the end is shown as that shard has it."""
    shards = data.draw(worlds())
    steps = [(n, 0, len(log.transactions)) for n, log in enumerate(shards)]
    mirror = merged_in(shards, data.draw(st.permutations(steps)))
    held: dict[object, list[str]] = {}
    for log in shards:
        for key, row in final(log).items():
            held.setdefault(key, []).append(row)
    rows = {key: row.row for (key, _), row in mirror.main.items()}
    assert rows.keys() == held.keys()
    assert all(rows[key] in values for key, values in held.items())
    assert all(rows[key] == values[0] for key, values in held.items() if len(values) == 1)


@given(st.data())
def test_a_batch_is_the_same_in_any_order_of_its_changes(data: st.DataObject) -> None:
    log = data.draw(logs())
    changes = [said for transaction in log.registers for said in transaction]
    assert reduced(data.draw(st.permutations(changes))) == reduced(changes)
