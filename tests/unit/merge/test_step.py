"""What a cut says of its shards: nothing in it was committed later than it says."""

from __future__ import annotations

from dataclasses import replace

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import Round, ShardSlice
from ratchet.merge.step import step_to
from ratchet.store.cuts import Cut, CutShard
from ratchet.store.rounds import StreamState

SHARD = "shop/-"


def at(number: int) -> Position:
    return Position(
        executed=GtidSet.parse("mysql", f"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-{number}")
    )


def idle(start: int, end: int, *, seen: int, ts: int | None = None) -> ShardSlice:
    return ShardSlice(
        shard=SHARD, generation=0, start=at(start), end=at(end), runs=(), transactions=0, rows=0,
        bytes=0, min_ts=ts, max_ts=ts, observed_at=seen, caught_up=True,
    )  # fmt: skip


def latest(*pieces: ShardSlice, latest_ts: int = 10) -> int:
    shard = CutShard(position=at(5), min_ts=1, max_ts=10, latest_ts=latest_ts, observed_at=11)
    before = Cut(number=1, round=1, merged_at=1, shards={SHARD: shard}, tables={})
    rounds = [
        Round(number=2 + n, committed_at=1, slices=(piece,), files=(), events=())
        for n, piece in enumerate(pieces)
    ]
    streams = {SHARD: StreamState(position=pieces[-1].end)}
    return step_to(1 + len(pieces), streams, rounds, before, 99).shards[SHARD].latest_ts


def test_an_idle_shard_stays_as_late_as_it_was() -> None:
    assert latest(idle(5, 5, seen=50)) == 10


def test_a_transaction_is_as_late_as_its_commit() -> None:
    assert latest(idle(5, 6, seen=50, ts=40), idle(6, 6, seen=60)) == 40


def test_a_gap_may_hold_what_was_committed_until_it_was_seen() -> None:
    """The stream has begun anew at 8: 6 to 8 are in the position, and in no slice."""
    assert latest(idle(8, 8, seen=50), idle(8, 8, seen=60)) == 50


def test_a_time_from_the_future_counts_as_of_the_look() -> None:
    """Later than the truth, never earlier; and what comes behind it is as it was."""
    ahead = replace(idle(5, 6, seen=50, ts=40), odd_ts=9_000)
    assert latest(ahead) == 50
    assert latest(ahead, idle(6, 7, seen=60, ts=55)) == 55
    assert latest(replace(ahead, odd_ts=3)) == 40  # one from the past


def test_a_cut_of_an_earlier_version_does_not_last_for_years() -> None:
    second = 1_000_000
    found = latest(idle(5, 6, seen=3 * second, ts=2 * second), latest_ts=9_000 * second)
    assert found == 2 * second
