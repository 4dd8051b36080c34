"""What the capture loop asks for, and when a run has everything that it was started for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.core.errors import BugError, LakeError, RatchetError, RetryableError, ShardGoneError
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import Journal, ShardSlice, TableEvent
from ratchet.core.shard import ShardId
from ratchet.ingest.rounds import RoundTaker
from ratchet.ingest.slices import CaptureRequest, CaptureResult
from ratchet.jobs.capture.capturing import (
    CaptureRunner,
    CaptureSettings,
    CatchUpTarget,
    Stream,
    guarded,
)
from ratchet.jobs.capture.loops import CaptureOutcome
from ratchet.jobs.config.selection import RoundBarrier
from ratchet.jobs.reporting.observe import Record, RoundCommitted
from ratchet.jobs.topology.begin import record_starts
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.wire.connect import SourceConfig


def position(number: int) -> Position:
    return Position(executed=GtidSet.parse("mariadb", f"0-1-{number}"))


class Source:
    """Shards that move by one transaction each round; some fail."""

    def __init__(self) -> None:
        self.requests: list[CaptureRequest] = []
        self.failing: dict[str, RatchetError] = {}
        self.journals: dict[str, Journal] = {}
        self.broken = False
        self.observed_at = 2
        self.worth = True  # whether a slice has something to commit
        self.held: dict[str, int] = {}  # shard -> commit time of what its slice waits before
        self.max_ts: dict[str, int] = {}  # shard -> newest commit time of a slice that goes on
        self.reopened: tuple[str, ...] = ()  # why streams had to be opened anew
        self.empty: set[str] = set()  # shards whose slices bring nothing of what there is

    def run(self, requests: Sequence[CaptureRequest]) -> list[CaptureResult]:
        if self.broken:
            raise RetryableError("the capture job failed")
        self.requests += requests
        return [self._slice(request) for request in requests]

    def _slice(self, request: CaptureRequest) -> CaptureResult:
        shard = str(request.source.shard)
        if shard in self.failing:
            return CaptureResult(shard=shard, error=self.failing[shard])
        end = position(request.start.seq + 1)
        piece = ShardSlice(
            shard=shard, generation=0, start=request.start, end=end, runs=(), transactions=1,
            rows=2, bytes=10, min_ts=1, max_ts=1, observed_at=self.observed_at, caught_up=True,
            journal=self.journals.get(shard),
        )  # fmt: skip
        if shard in self.max_ts:
            piece = replace(piece, caught_up=False, max_ts=self.max_ts[shard])
        if shard in self.empty:
            piece = replace(piece, end=request.start, transactions=0, rows=0, caught_up=False)
        if shard in self.held:
            piece = replace(piece, caught_up=False, held_ts=self.held[shard])
        event = TableEvent(
            keyspace="shop", table="t", shard=shard, kind="ddl", statement="", gtid="0-1-1", seq=1,
            ts=1,
        )  # fmt: skip
        events = (event,) if self.worth else ()
        return CaptureResult(shard=shard, slice=piece, events=events, broken=self.reopened)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


@pytest.fixture
def source() -> Source:
    return Source()


def capturing(
    lake: Lake,
    source: Source,
    target: CatchUpTarget | None = None,
    told: list[Record] | None = None,
    *,
    turn: Callable[[], None] = lambda: None,
    reopened: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
    **more: Any,
) -> CaptureRunner:
    log = RoundLog(lake)
    records: list[Record] = [] if told is None else told
    shards = [ShardId("shop", name) for name in ("a", "b")]
    record_starts(log, {str(shard): position(5) for shard in shards}, now=1)
    streams = {
        str(shard): Stream(
            source=SourceConfig(shard=shard, host="h", user="u", database="shop"),
            server_id=100 + number,
        )
        for number, shard in enumerate(shards)
    }
    settings = CaptureSettings(lake=lake.root, round_seconds=2, round_bytes=99, heartbeat=5, **more)
    taker = RoundTaker(log, source.run, heartbeat_commit_seconds=1e9, clock=lambda: 10.0)
    return CaptureRunner(
        streams,
        settings,
        taker,
        patterns=lambda _: TablePatterns(("*",)),
        known=lambda keyspace: (f"{keyspace}-table",),
        turnstile=RoundBarrier(),
        observer=records.append,
        target=target,
        turn=turn,
        reopened=reopened,
        clock=clock,
    )


def test_requests_follow_each_other(lake: Lake, source: Source) -> None:
    told: list[Record] = []
    capture = capturing(lake, source, told=told)
    assert capture.round(()).committed == 2
    assert capture.round({"shop/b"}).committed == 3
    a, b, again = source.requests
    assert (a.start, b.start, again.start) == (position(5), position(5), position(6))
    assert (a.round_number, again.round_number) == (2, 3)
    assert (a.known, a.limits.max_seconds, a.limits.max_bytes) == (("shop-table",), 2, 99)
    assert [r.dump.server_id for r in (a, b)] == [100, 101]
    assert [r.rows for r in told if isinstance(r, RoundCommitted)] == [4, 2]
    assert capture.rows == 6


def test_a_shard_that_is_ahead_is_left_out_until_the_others_have_come(
    lake: Lake, source: Source
) -> None:
    """What a slice tells of its shard bounds the others in the next round."""
    source.held = {"shop/a": 500, "shop/b": 9_000_500}
    capture = capturing(lake, source, max_skew=2.0, clock_bound=0.5)
    observed = source.observed_at = 10_000_000
    capture.round(())
    assert [r.limits.not_after for r in source.requests] == [2_500_000] * 2
    source.requests.clear()
    del source.held["shop/a"]  # it catches up
    capture.round(())
    # Twice the margin more than the bound: both read all that they were allowed to.
    assert [r.limits.not_after for r in source.requests] == [16_500_500]
    assert [str(r.source.shard) for r in source.requests] == ["shop/a"]
    assert capture.skew.held == {"shop/b"}
    source.requests.clear()
    source.broken = True
    assert set(capture.round(()).failures) == {"shop/a", "shop/b"}
    source.broken = False
    capture.round(())
    bounds = {str(r.source.shard): r.limits.not_after for r in source.requests}
    assert bounds == {"shop/a": 11_500_500, "shop/b": observed + 2_500_000}


def test_a_leap_that_leaves_a_shard_behind_is_not_committed(lake: Lake, source: Source) -> None:
    source.held = {"shop/a": 500, "shop/b": 500}
    capture = capturing(lake, source, max_skew=2.0, clock_bound=0.5)
    source.observed_at = 90_000_000
    capture.round(())
    assert capture.round(()).committed is not None  # a leap, of which nothing is said against
    before = RoundLog(lake).last_number(), capture.rows
    source.max_ts = {"shop/a": 19_000_000, "shop/b": 12_000_000}
    source.held = {"shop/a": 19_500_000}
    source.requests.clear()
    assert capture.round(()) == CaptureOutcome(committed=None)
    assert (RoundLog(lake).last_number(), capture.rows) == before
    source.max_ts = {"shop/a": 13_000_000, "shop/b": 12_000_000}
    assert capture.round(()).committed is not None
    first, _, again, _ = source.requests
    assert (first.start, first.round_number) == (again.start, again.round_number)


def test_without_a_threshold_nobody_is_held(lake: Lake, source: Source) -> None:
    source.held = {"shop/a": 500, "shop/b": 9_000_500}
    capture = capturing(lake, source)
    for _ in range(3):
        capture.round(())
    assert [r.limits.not_after for r in source.requests] == [None] * 6
    assert not capture.skew.held


def test_a_stream_that_gives_nothing_is_told_about(
    lake: Lake, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    """Every half a minute, as long as it lasts; not of one that has nothing to give."""
    now = 0.0
    capture = capturing(lake, source, clock=lambda: now, max_skew=None)
    source.empty = {"shop/a"}

    def told() -> list[str]:
        return [one for one in caplog.messages if "nothing has arrived" in one]

    counts = []
    for _ in range(7):
        capture.round(())
        counts.append(len(told()))
        now += 12
    assert counts == [0, 0, 0, 1, 1, 1, 2]
    assert all(one.startswith("shop/a:") for one in told())
    source.empty = set()
    capture.round(())
    source.empty = {"shop/a"}
    capture.round(())
    now += 29
    capture.round(())
    assert len(told()) == 2, "it counts from the last slice that brought something"


def test_a_stream_that_breaks_is_told_about_once_a_minute(
    lake: Lake, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    looks: list[float] = []
    capture = capturing(
        lake, source, clock=lambda: now, max_skew=None, reopened=lambda: looks.append(now)
    )
    source.reopened = (
        "an event's checksum does not fit its bytes",
        "nothing was received for 10 s",
    )
    for _ in range(13):
        capture.round(["shop/b"])
        now += 10
    told = [one for one in caplog.messages if "was opened again" in one]
    assert told == [
        f"shop/a: its stream broke ({times} times) and was opened again: nothing was received for "
        "10 s"
        for times in (2, 12, 12)
    ]
    assert len(looks) == 13, "its server may have been started again each time"


def test_failures_are_handed_on_by_shard(lake: Lake, source: Source) -> None:
    source.failing["shop/b"] = RetryableError("gone")
    captured = capturing(lake, source).round(())
    assert captured.committed == 2
    assert dict(captured.failures) == source.failing
    source.broken = True
    captured = capturing(lake, source).round(())
    assert set(captured.failures) == {"shop/a", "shop/b"}


def test_a_reshard_ends_streams_and_turns_the_run(lake: Lake, source: Source) -> None:
    """When the last of its sources has ended; an ended shard is asked for no more."""
    turns: list[int] = []
    capture = capturing(lake, source, turn=lambda: turns.append(len(source.requests)))
    journal = Journal(sources=("shop/a", "shop/b"), targets={"shop/-": position(50)})
    source.journals["shop/a"] = journal
    assert capture.round(()).committed == 2
    assert not turns
    source.journals["shop/b"] = journal
    capture.round(())
    assert turns == [3]
    assert [str(one.source.shard) for one in source.requests] == ["shop/a", "shop/b", "shop/b"]
    assert capture.round(()).committed is None  # nobody is left
    assert len(source.requests) == 3


def test_a_shard_that_is_gone_turns_the_run(lake: Lake, source: Source) -> None:
    turns: list[str] = []
    capture = capturing(lake, source, turn=lambda: turns.append("turn"))
    source.failing["shop/b"] = ShardGoneError("no more")
    captured = capture.round(())
    assert (captured.committed, dict(captured.failures), turns) == (2, {}, ["turn"])
    capture.round(())
    assert [str(one.source.shard) for one in source.requests] == ["shop/a", "shop/b", "shop/a"]


def test_target(lake: Lake, source: Source) -> None:
    """Reached when every shard has it; then no slice ends for it any more."""
    target = CatchUpTarget({"shop/a": position(7), "shop/b": position(6)})
    capture = capturing(lake, source, target)
    assert target.round is None
    capture.round(())
    assert target.round is None
    capture.round(())
    assert target.round == 3
    capture.round(())
    stops = [r.limits.stop_at for r in source.requests]
    assert stops == [position(7).executed, position(6).executed, position(7).executed] + [None] * 3


def test_target_that_is_held_already(lake: Lake, source: Source) -> None:
    target = CatchUpTarget({"shop/a": position(5), "shop/b": position(4)})
    capture = capturing(lake, source, target)
    assert target.round is None  # the streams may not be those that the mirror has followed
    capture.round(())
    assert target.round == 2
    capture.round(())
    assert source.requests[-1].limits.max_seconds == 0.5  # the run is about to end


def test_what_is_not_worth_a_round_counts_as_well(lake: Lake, source: Source) -> None:
    """Transactions of other databases: nothing is committed, and nothing more is waited for."""
    source.worth = False
    target = CatchUpTarget({"shop/a": position(6), "shop/b": position(6)})
    assert capturing(lake, source, target).round(()).committed is None
    assert target.round == 1


def test_nothing_is_committed_without_the_lease(lake: Lake, source: Source) -> None:
    def lost() -> None:
        raise LakeError("lost its lease")

    log = RoundLog(lake)
    taker = RoundTaker(log, guarded(source.run, lost))
    capture = capturing(lake, source)
    request = replace(capture._request("shop/a", None), round_number=2)
    with pytest.raises(LakeError, match="lease"):
        taker.take([request])
    assert log.last_number() == 1


def test_a_stream_without_a_start_is_a_bug(lake: Lake, source: Source) -> None:
    capture = capturing(lake, source)
    capture._taker = RoundTaker(RoundLog(Lake.at(f"{lake.root}-other")), source.run)
    with pytest.raises(BugError):
        capture.round(())
