"""Rounds: what is committed, what is carried over, whose errors come back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from event_kit import SERVER

from ratchet.core.errors import LakeError, RetryableError
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, GtidRange, Round, ShardSlice
from ratchet.core.shard import ShardId
from ratchet.ingest.rounds import RoundTaker, near_runner
from ratchet.ingest.slices import CaptureRequest, CaptureResult
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import SegmentPart
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig


def at(number: int) -> Position:
    return Position(executed=GtidSet.parse("mysql", f"{SERVER}:1-{number}"), server=SERVER)


def request(shard: str, taker: RoundTaker, begin: int) -> CaptureRequest:
    source = SourceConfig(shard=ShardId("shop", shard), host="h", user="u", database="shop")
    return CaptureRequest(
        source=source,
        start=taker.position(f"shop/{shard}") or at(begin),
        generation=1,
        round_number=taker.next_number,
        lake="unused",
        patterns=TablePatterns(),
        dump=DumpOptions(server_id=1),
    )


class FakeSlices:
    """Moves each shard by some transactions, with or without a file."""

    def __init__(self) -> None:
        self.moves: dict[str, int] = {}
        self.rows: dict[str, int] = {}
        self.fails: set[str] = set()

    def __call__(self, requests: Sequence[CaptureRequest]) -> Sequence[CaptureResult]:
        return [self.one(request) for request in requests]

    def one(self, request: CaptureRequest) -> CaptureResult:
        shard = str(request.source.shard)
        if shard in self.fails:
            return CaptureResult(shard=shard, error=RetryableError("gone"))
        first, moved = request.start.seq + 1, self.moves.get(shard, 0)
        last = first + moved - 1
        rows = self.rows.get(shard, 0)
        file = ChangeFile(
            keyspace="shop", table="t", shard=shard, schema="x", path=f"{shard}-{first}", rows=rows,
            bytes=1, min_seq=first, max_seq=last, inserts=rows, updates=0, deletes=0, misfits={},
        )  # fmt: skip
        taken = ShardSlice(
            shard=shard, generation=1, start=request.start, end=at(last),
            runs=(GtidRange(SERVER, first, last, first),) if moved else (),
            transactions=moved, rows=rows,
            bytes=10 * moved, min_ts=first if moved else None, max_ts=last if moved else None,
            observed_at=1, caught_up=True,
        )  # fmt: skip
        return CaptureResult(shard=shard, slice=taken, files=(file,) if rows else ())


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log(tmp_path: Path) -> RoundLog:
    return RoundLog(open_lake(tmp_path / "lake", now=1))


def test_a_round_holds_all_shards_and_moves_their_positions(log: RoundLog) -> None:
    slices = FakeSlices()
    taker = RoundTaker(log, slices, clock=Clock())
    slices.moves, slices.rows = {"shop/a": 3, "shop/b": 2}, {"shop/a": 1}
    outcome = taker.take([request("a", taker, 10), request("b", taker, 20)])
    committed = outcome.committed
    assert committed is not None
    assert committed.number == 1
    assert [s.shard for s in committed.slices] == ["shop/a", "shop/b"]
    assert log.last() == committed
    assert taker.position("shop/a") == at(13)
    assert taker.position("shop/b") == at(22)
    assert set(outcome.caught_up) == {"shop/a", "shop/b"}


def test_nothing_new_is_not_committed(log: RoundLog) -> None:
    taker = RoundTaker(log, FakeSlices(), clock=Clock())
    assert taker.take([request("a", taker, 10)]).committed is None
    assert log.last_number() == 0
    assert taker.position("shop/a") is None


def test_moves_without_rows_are_carried_into_the_next_commit(log: RoundLog) -> None:
    slices, clock = FakeSlices(), Clock()
    taker = RoundTaker(log, slices, heartbeat_commit_seconds=10, clock=clock)
    slices.moves, slices.rows = {"shop/a": 1}, {"shop/a": 1}
    taker.take([request("a", taker, 10)])
    slices.rows = {}
    for _ in range(3):
        assert taker.take([request("a", taker, 10)]).committed is None
    assert taker.position("shop/a") == at(14)
    clock.now += 10
    committed = taker.take([request("a", taker, 10)]).committed
    assert committed is not None
    (one,) = committed.slices
    assert (one.start, one.end) == (at(11), at(15))
    assert one.runs == (GtidRange(SERVER, 12, 15, 12),)
    assert (one.transactions, one.bytes, one.min_ts, one.max_ts) == (4, 40, 12, 15)


def test_a_round_says_whose_copies_were_captured_all_the_way(log: RoundLog) -> None:
    """What was carried over from a slice without them has them not."""
    slices, clock = FakeSlices(), [0.0]
    copying = {"shop/a"}

    def run(requests: Sequence[CaptureRequest]) -> Sequence[CaptureResult]:
        return [replace(one, copies=one.shard in copying) for one in slices(requests)]

    taker = RoundTaker(log, run, heartbeat_commit_seconds=5, clock=lambda: clock[0])
    slices.moves = {"shop/a": 1, "shop/b": 1}

    def take() -> Round | None:
        return taker.take([request("a", taker, 5), request("b", taker, 5)]).committed

    assert take() is None
    clock[0] = 10.0
    copying.add("shop/b")
    second = take()
    assert second is not None
    assert second.copies == ("shop/a",)
    clock[0] = 20.0
    third = take()
    assert third is not None
    assert third.copies == ("shop/a", "shop/b")
    assert [one.copies for one in log.since(0)] == [second.copies, third.copies]
    bare = replace(third, copies=()).to_json()
    assert "copies" not in bare
    assert Round.from_json(bare).copies == (), "as earlier versions wrote it"


def test_a_round_that_is_refused_leaves_nothing(log: RoundLog, tmp_path: Path) -> None:
    slices, asked = FakeSlices(), []

    def refuses(found: Sequence[ShardSlice], failed: Collection[str]) -> bool:
        asked.append(([one.shard for one in found], list(failed)))
        return False

    taker = RoundTaker(log, slices, clock=Clock())
    slices.moves, slices.rows, slices.fails = {"shop/a": 1}, {"shop/a": 1}, {"shop/b"}
    lake = tmp_path / "lake"
    (lake / "shop").mkdir()
    (lake / "shop" / "a-11").touch()
    requests = [replace(request(name, taker, 10), lake=str(lake)) for name in ("a", "b")]
    outcome = taker.take(requests, accepts=refuses)
    assert asked == [(["shop/a"], ["shop/b"])]
    assert outcome.refused
    assert (outcome.committed, outcome.positions, outcome.slices) == (None, {}, ())
    assert list(outcome.errors) == ["shop/b"]
    assert (log.last_number(), taker.position("shop/a")) == (0, None)
    assert not (lake / "shop" / "a-11").exists()
    assert taker.take(requests).committed is not None


def test_a_refused_segment_is_removed_once(log: RoundLog, tmp_path: Path) -> None:
    """Several change files of a slice lie in it."""
    lake, slices = tmp_path / "lake", FakeSlices()
    slices.moves, slices.rows = {"shop/a": 1}, {"shop/a": 1}

    def in_a_segment(requests: Sequence[CaptureRequest]) -> list[CaptureResult]:
        (result,) = slices(requests)
        (file,) = result.files
        parts = [str(SegmentPart("shop/one.segment", at, 1)) for at in range(3)]
        return [replace(result, files=tuple(replace(file, path=part) for part in parts))]

    (lake / "shop").mkdir()
    (lake / "shop" / "one.segment").write_text("abc")
    taker = RoundTaker(log, in_a_segment, clock=Clock())
    asked = [replace(request("a", taker, 10), lake=str(lake))]
    assert taker.take(asked, accepts=lambda *_: False).refused
    assert not list((lake / "shop").iterdir())


def test_a_failing_shard_does_not_hold_up_the_others(log: RoundLog) -> None:
    slices = FakeSlices()
    taker = RoundTaker(log, slices, clock=Clock())
    slices.moves, slices.rows, slices.fails = {"shop/a": 1}, {"shop/a": 1}, {"shop/b"}
    outcome = taker.take([request("a", taker, 10), request("b", taker, 20)])
    assert outcome.committed is not None
    assert [s.shard for s in outcome.committed.slices] == ["shop/a"]
    assert list(outcome.errors) == ["shop/b"]
    assert taker.position("shop/b") is None


def test_a_commit_that_fails_moves_nothing(log: RoundLog) -> None:
    slices = FakeSlices()
    taker = RoundTaker(log, slices, clock=Clock())
    slices.moves, slices.rows = {"shop/a": 1}, {"shop/a": 1}
    wanted = request("a", taker, 10)
    other = Round(number=1, committed_at=1, slices=(), files=(), events=())

    def overtaken(requests: Sequence[CaptureRequest]) -> Sequence[CaptureResult]:
        RoundLog(log._table._lake).append(other)
        return slices(requests)

    taker._run = overtaken
    with pytest.raises(LakeError):
        taker.take([wanted])
    assert taker.position("shop/a") is None
    assert log.last() == other


# --- near and far ---------------------------------------------------------------------------------


class Places:
    """Where each round's slices were taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: RoundLog) -> None:
        self.seen: list[str] = []
        self.up = False
        self._slices, self._taker = FakeSlices(), RoundTaker(log, FakeSlices())
        monkeypatch.setattr("ratchet.ingest.rounds.capture_slice", partial(self._take, "near"))
        monkeypatch.setattr(
            "ratchet.ingest.rounds.close_streams", lambda: self.seen.append("closed")
        )
        self.run = near_runner(
            lambda every: [self._take("far", one) for one in every], is_far_up=lambda: self.up
        )

    def _take(self, where: str, one: CaptureRequest) -> CaptureResult:
        self.seen.append(where)
        return self._slices.one(one)

    def rounds(self, *transactions: int) -> list[str]:
        """Rounds of so many transactions, of ten bytes each, on both of two shards."""
        self.seen.clear()
        for count in transactions:
            self._slices.moves = {"shop/a": count, "shop/b": count}
            found = self.run([request(shard, self._taker, 1) for shard in "ab"])
            assert [one.shard for one in found] == ["shop/a", "shop/b"]
        return self.seen


def test_small_rounds_stay_near(monkeypatch: pytest.MonkeyPatch, log: RoundLog) -> None:
    places = Places(monkeypatch, log)
    assert places.rounds(0, 10, 200_000) == ["near"] * 6
    assert places.run([]) == []


def test_behind_a_large_round_all_are_far(monkeypatch: pytest.MonkeyPatch, log: RoundLog) -> None:
    """And the streams that were kept here are closed: the server sends to one only."""
    places = Places(monkeypatch, log)
    far = ["far"] * 4
    assert places.rounds(0, 220_000, 0, 0) == ["near"] * 4 + ["closed", *far]


def test_once_the_other_place_is_up(monkeypatch: pytest.MonkeyPatch, log: RoundLog) -> None:
    places = Places(monkeypatch, log)
    assert places.rounds(0) == ["near"] * 2
    places.up = True
    assert places.rounds(0, 0) == ["closed", *["far"] * 4]
    places.up = False
    assert places.rounds(0) == ["far"] * 2
