"""How far shards may be read, given how far the others are: the bound, and who gives way when."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ShardSlice
from ratchet.jobs.capture.skew import (
    LEAP,
    LOOK,
    PATIENCE,
    KeyspaceSkew,
    ShardProgress,
    Skew,
    bound_of,
    reach_of,
)

SECOND = 1_000_000
NOW = 1_000_000 * SECOND  # by everybody's clock
A, B, C = "shop/a", "shop/b", "shop/c"


def piece(shard: str, **changes: Any) -> ShardSlice:
    place = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
    settings = {
        "transactions": 1 if "max_ts" in changes else 0, "min_ts": changes.get("max_ts"),
        "max_ts": None, "observed_at": NOW, "caught_up": False, **changes,
    }  # fmt: skip
    return ShardSlice(
        shard=shard, generation=0, start=place, end=place, runs=(), rows=0, bytes=0, **settings
    )


def ago(seconds: float) -> int:
    return NOW - int(seconds * SECOND)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"caught_up": True, "max_ts": ago(9)}, ShardProgress(NOW)),
        ({"max_ts": ago(9)}, ShardProgress(ago(9))),
        ({}, ShardProgress(ago(50))),  # inside a large transaction: as far as before
        ({"max_ts": ago(9), "held_ts": ago(4)}, ShardProgress(ago(4), ago(4))),
        ({"max_ts": NOW + SECOND}, ShardProgress(NOW)),  # no clock brings a shard further than now
        ({"held_ts": NOW + SECOND}, ShardProgress(NOW, NOW + SECOND)),
    ],
)
def test_how_far_a_slice_shows_a_shard_to_be_read(
    changes: dict[str, Any], expected: ShardProgress
) -> None:
    assert reach_of(piece(A, **changes), ShardProgress(ago(50), ago(49))) == expected


def test_the_bound_is_that_of_the_others() -> None:
    reaches = {A: ShardProgress(100), B: ShardProgress(500), C: ShardProgress(300)}
    assert [bound_of(shard, reaches, 7) for shard in (A, B, C)] == [307, 107, 107]
    assert bound_of("a shard that does not count", reaches, 7) == 107
    assert bound_of(A, {A: ShardProgress(100)}, 7) is None


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Stage:
    """A Skew of 2 s and 0.5 s of slack, its clocks, and what was planned."""

    def __init__(self, threshold: float | None = 2.0) -> None:
        self.clock = Clock()
        self.skew = Skew(
            lambda: KeyspaceSkew(
                threshold, slack=0.5, clock=self.clock, wall=lambda: NOW / 1e6 + self.clock.now
            )
        )

    def plan(self, *shards: str, resting: tuple[str, ...] = ()) -> dict[str, int | None]:
        return self.skew.plan(shards or (A, B), resting)

    def note(self, *pieces: ShardSlice, failed: tuple[str, ...] = ()) -> None:
        self.skew.note(pieces, failed)


def test_nobody_is_bound_alone_or_without_a_threshold() -> None:
    assert Stage().plan(A) == {A: None}
    off = Stage(None)
    off.note(piece(A, max_ts=ago(500)), piece(B, caught_up=True))
    assert off.plan(A, B, C, resting=(C,)) == {A: None, B: None}


def test_the_first_round_only_finds_out_where_all_stand() -> None:
    stage = Stage()
    assert all(bound is not None and bound < ago(1e5) for bound in stage.plan().values())
    stage.note(piece(A, held_ts=ago(90)), piece(B, held_ts=ago(60)))
    assert stage.plan() == {A: ago(57.5)}  # B waits before what A has to reach first
    assert stage.skew.held == {B}
    stage.note(piece(A, max_ts=ago(61), held_ts=ago(57)))
    # Both read all that they were allowed to: from here on the bounds leap.
    assert stage.plan() == {A: ago(52.5), B: ago(49.5)}
    assert not stage.skew.held


def test_idle_shards_hold_nobody_up() -> None:
    stage = Stage()
    stage.plan()
    stage.note(piece(A, caught_up=True), piece(B, max_ts=ago(1)))
    assert stage.plan() == {A: ago(-1.5), B: NOW + int(2.5 * SECOND)}
    assert not stage.skew.held


def test_a_keyspace_waits_for_no_other() -> None:
    """Nothing moves between two sources: one that could not keep up held up all the others."""
    other = "till/a"
    stage = Stage()
    assert stage.plan(A, other) == {A: None, other: None}
    stage.note(piece(A, max_ts=ago(500)), piece(other, caught_up=True), failed=())
    assert stage.plan(A, other) == {A: None, other: None}
    stage.plan(A, B, other)
    stage.note(piece(A, held_ts=ago(90)), piece(B, held_ts=ago(60)), failed=(other,))
    assert stage.plan(A, B, other) == {A: ago(57.5), other: None}
    assert stage.skew.held == {B}
    # A leap that one keyspace refuses is forgotten for all, and shortened for that one only.
    stage.note(piece(A, max_ts=ago(58), held_ts=ago(57)), piece(other, max_ts=ago(300)))
    stage.plan(A, B, other)
    far = [piece(A, max_ts=ago(30)), piece(B, max_ts=ago(58), held_ts=ago(57)), piece(other)]
    assert not stage.skew.accepts(far, ())
    assert stage.skew.accepts(far[2:], ())


def test_any_shards_reach_the_end_in_lockstep() -> None:
    """Streams that are as uneven as can be: each round brings the furthest behind forward."""
    streams = {
        A: [ago(1000 - n / 10) for n in range(9000)],
        B: [ago(900), ago(899), ago(300), ago(2)],
        C: [ago(950 - 3 * n) for n in range(300)],
    }
    limits = {A: 100, B: 10, C: 1000}  # transactions in a slice
    stage = Stage()
    rounds = refused = 0
    done: dict[str, list[int]] = {shard: [] for shard in streams}
    while any(streams.values()):
        pieces, read = [], {}
        rounds += 1
        limits[A] = 100 if len(streams[A]) > 4500 else 40  # in mid-way it becomes slow
        for shard, bound in stage.plan(*streams).items():
            left, taken = streams[shard], []
            while left and len(taken) < limits[shard] and (bound is None or left[0] <= bound):
                taken.append(left.pop(0))
            stopped = bool(left) and len(taken) < limits[shard]
            more: dict[str, Any] = {"max_ts": taken[-1]} if taken else {}
            if not left:
                more["caught_up"] = True
            read[shard] = taken
            pieces.append(piece(shard, held_ts=left[0] if stopped else None, **more))
        if stage.skew.accepts(pieces, ()):
            stage.note(*pieces)
            done = {shard: done[shard] + read.get(shard, []) for shard in streams}
        else:
            refused += 1
            streams = {shard: read.get(shard, []) + left for shard, left in streams.items()}
        stage.clock.now += 0.001
        ahead = max((taken[-1] for taken in done.values() if taken), default=0)
        behind = min((left[0] for left in streams.values() if left), default=ahead)
        assert ahead - behind <= 2.5 * SECOND
    assert 0 < refused < rounds / 10
    assert rounds < 250  # a threshold in each would be more than 400


def test_a_held_shard_is_asked_from_time_to_time() -> None:
    stage = Stage()
    stage.plan()
    stage.note(piece(A, max_ts=ago(90)), piece(B, held_ts=ago(9)))
    assert list(stage.plan()) == [A]
    stage.clock.now += LOOK
    assert list(stage.plan()) == [A, B]
    assert list(stage.plan()) == [A]
    assert stage.skew.held == {B}


def test_a_shard_in_trouble_is_waited_for_so_long(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.plan()
    stage.note(piece(A, caught_up=True), piece(B, max_ts=ago(1)))
    for after in (5.0, PATIENCE + 4):
        stage.clock.now = after
        busy = piece(B, max_ts=ago(-2.2), held_ts=ago(-2.8), observed_at=ago(-after))
        stage.note(busy, failed=(A,))
        assert set(stage.plan(resting=(A,)).values()) <= {ago(-2.5)}  # a look, now and then
        assert stage.plan(resting=(A,)) == {}
        assert stage.skew.held == {B}
    stage.clock.now = PATIENCE + 5
    with caplog.at_level(logging.INFO):
        assert stage.plan(resting=(A,)) == {B: None}
        assert stage.skew.ignored == {A}
        stage.plan(resting=(A,))
        # It is back, far behind: now the others wait for it.
        stage.note(piece(A, max_ts=ago(0)), piece(B, max_ts=ago(-30), observed_at=ago(-35)))
        assert stage.plan() == {A: ago(-32.5), B: ago(-2.5)}
    assert not stage.skew.ignored
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "shop/a has not moved for 30 s" in said[0]
    assert "moves again" in said[1]


def test_a_shard_that_answers_and_does_not_move_either() -> None:
    """A transaction that takes minutes to come, for instance."""
    stage = Stage()
    stage.plan()
    stage.note(piece(A, max_ts=ago(90)), piece(B, held_ts=ago(9)))
    for seconds in (1, PATIENCE):
        assert B in stage.skew.held or seconds == 1
        stage.clock.now += seconds
        stage.note(piece(A))
        found = stage.plan()
    assert found[B] is None
    stage.note(piece(A, max_ts=ago(80)))
    assert stage.plan()[A] == ago(6.5)
    assert stage.skew.held == {B}


def test_a_held_shard_is_not_one_that_does_not_move() -> None:
    stage = Stage()
    stage.plan()
    stage.note(piece(A, max_ts=ago(90)), piece(B, held_ts=ago(9)))
    for _ in range(10):
        stage.clock.now += PATIENCE
        stage.note(piece(A, max_ts=ago(80)), piece(B, held_ts=ago(9)))
        assert stage.plan() == {A: ago(6.5), B: ago(77.5)}
    assert not stage.skew.ignored


def test_a_shard_that_has_ended_does_not_count() -> None:
    stage = Stage()
    stage.plan()
    stage.note(piece(A, max_ts=ago(90)), piece(B, held_ts=ago(9)))
    assert stage.plan(B) == {B: None}


def leaping(stage: Stage, *seconds: float) -> int:
    """Rounds in which both shards read all that they were allowed to; the last one's bound."""
    bound = None
    for one in seconds:
        bound = stage.plan()[A]
        pieces = [piece(s, max_ts=ago(one + 1), held_ts=ago(one)) for s in (A, B)]
        assert stage.skew.accepts(pieces, ())
        stage.note(*pieces)
    assert bound is not None
    return bound


def test_rounds_of_shards_that_keep_up_leap() -> None:
    """Else a mirror that was down for a night would take hours to catch up."""
    stage = Stage()
    assert leaping(stage, 9000, 8000) == ago(9000 - 2.5 - 5)
    assert leaping(stage, 7000) == ago(8000 - 2.5 - 10)
    assert leaping(stage, 6000) == ago(7000 - 2.5 - 20)
    longest = leaping(stage, *range(5999, 5900, -1), 5000)
    assert longest == ago(5901 - 2.5 - LEAP)
    stage.note(piece(A, caught_up=True), piece(B, caught_up=True))
    assert stage.plan()[A] == NOW + int(2.5 * SECOND)


def test_a_leap_that_leaves_a_shard_behind_does_not_count() -> None:
    stage = Stage()
    leaping(stage, 9000, 8000, 7000, 6000, 5000)  # the next one goes 80 s beyond the margin
    stage.plan()
    far, near = piece(A, max_ts=ago(4920), held_ts=ago(4917)), piece(B, max_ts=ago(4960))
    assert not stage.skew.accepts([far, near], ())
    # Nothing was noted; the next leap goes as far as the slower one came, less a quarter.
    assert stage.plan()[A] == ago(5000 - 2.5 - (40 * 0.75 - 2.5))
    slow = [piece(A, max_ts=ago(4972), held_ts=ago(4969)), piece(B, max_ts=ago(4971))]
    assert stage.skew.accepts(slow, ())
    stage.note(*slow)  # B took its time: further would bring nothing
    assert stage.plan()[B] == ago(4969 - 2.5 - 27.5)
    leaping(stage, 4900)
    assert stage.plan()[A] == ago(4900 - 2.5 - 27.5 * 1.1)  # slowly, from now on


def test_nobody_leaps_while_a_shard_is_in_trouble() -> None:
    stage = Stage()
    leaping(stage, 9000, 8000, 7000)
    stage.plan()
    read = [piece(A, max_ts=ago(6990), held_ts=ago(6980))]
    assert not stage.skew.accepts(read, (B,))
    stage.note(failed=(B,))
    assert stage.plan(resting=(B,)) == {A: ago(6997.5)}
    assert stage.skew.accepts([piece(A, max_ts=ago(6998), held_ts=ago(6997))], ())


def test_a_commit_time_from_the_future() -> None:
    """Held while the others are behind; read when they are not: it may never become true."""
    stage = Stage()
    stage.plan()
    future = NOW + 3600 * SECOND
    stage.note(piece(A, max_ts=ago(90)), piece(B, held_ts=future))
    assert stage.plan() == {A: ago(-2.5)}
    stage.note(piece(A, max_ts=ago(1)))
    assert stage.plan() == {A: ago(-2.5), B: None}
    stage.note(piece(A, max_ts=ago(0)), piece(B, max_ts=future))
    # The shard counts as read up to now, not up to the future.
    assert stage.plan() == {A: ago(-2.5), B: ago(-2.5)}
