"""One capture round for the loop: requests for the shards that take part, and what came of it.

Lives here: `CaptureRunner`, and `CatchUpTarget`, which knows when a run has everything that it was
started for. Does not live here: when to take a round (`loops`), taking it (`ingest`).

Invariant: a round is committed only while the lease is held.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ratchet.core.errors import BugError, RatchetError, RetryableError, ShardGoneError
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import Round, ShardSlice
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.rounds import RoundTaker, Runner
from ratchet.ingest.slices import CaptureRequest, CaptureResult, SliceLimits
from ratchet.jobs.capture.loops import CaptureOutcome
from ratchet.jobs.capture.skew import KeyspaceSkew, Skew
from ratchet.jobs.config.selection import RoundBarrier
from ratchet.jobs.reporting.observe import Observer, RoundCommitted
from ratchet.jobs.reporting.text import counted, moment, one_line
from ratchet.jobs.topology.asides import name_source
from ratchet.jobs.topology.lag import seen_until
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig
from ratchet.wire.vtgate import VtgateConfig

log: Final = logging.getLogger("ratchet.jobs.run")

_PAUSE: Final = 0.2  # seconds, where there is nothing to read
_STILL: Final = 3  # heartbeats without a byte after which a stream is dead
# Seconds after which a stream that gives nothing, of a server that has more, is told about: a slice
# does not end inside a transaction, so each one brings something.
_PATIENCE: Final = 30.0
# Seconds of a round once a run has all that it waits for: the run ends behind such a round.
_LAST: Final = 0.5
_BROKEN_EVERY: Final = 60.0  # seconds between two warnings of a stream that breaks
_ODD_EVERY: Final = 3600.0  # seconds between two warnings of commit times that cannot be


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A shard as capture sees it.

    Attributes:
        source: its server.
        server_id: the replica id that its stream shows.
        generation: lineage generation of the stream.
        vtgate: the vtgate whose VStream is read; None: the server's binlog.
        vitess: whether that is a Vitess tablet's.
        seen: see core.rounds.ShardSlice; as the run begins.
        since: nothing that is still to be read was committed earlier, microseconds UTC; as the run
            begins; 0: unknown.
    """

    source: SourceConfig
    server_id: int
    generation: int = 0
    vtgate: VtgateConfig | None = None
    vitess: bool = False
    seen: Mapping[str, Position] = field(default_factory=dict)
    since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """What is the same for all shards.

    Attributes:
        lake: root of the lake.
        round_seconds: how long a round takes.
        round_bytes: how much one shard may read in a round.
        heartbeat: seconds after which an idle server says that it is there.
        policy: what becomes of values that do not fit.
        max_skew: seconds that shards may be apart in commit time; None: any.
        clock_bound: seconds that the servers' clocks may be apart.
    """

    lake: str
    round_seconds: float
    round_bytes: int
    heartbeat: float
    policy: InvalidValuePolicy = field(default_factory=InvalidValuePolicy)
    max_skew: float | None = None
    clock_bound: float = 0.0


@dataclass(slots=True)
class _ShardFailure:
    count: int = 0  # since it was told of
    told: float = -_BROKEN_EVERY


class CatchUpTarget:
    """What `--until-caught-up` waits for: all that each shard had executed when the run began.

    Args:
        positions: ShardId as text -> that position.
    """

    def __init__(self, positions: Mapping[str, Position]) -> None:
        self._missing = dict(positions)
        self.round: int | None = None

    def wanted(self, shard: str) -> Position | None:
        """What the shard still has to reach; None if it has."""
        return self._missing.get(shard)

    def note(self, positions: Mapping[str, Position], last_round: int) -> None:
        """Take note of how far the streams were read.

        Args:
            positions: shard -> where its stream stands, which was just read: only a stream that
                could be opened tells that the mirror's position is one of the server's history. A
                number below it is not enough: after a failover it may name another transaction.
            last_round: the newest committed round. What was read behind it and not committed
                touches no mirrored table.
        """
        for shard, position in positions.items():
            wanted = self._missing.get(shard)
            if wanted is not None and position.executed.contains_all(wanted.executed):
                del self._missing[shard]
        if not self._missing and self.round is None:
            self.round = last_round


class CaptureRunner:
    """Takes rounds. For one thread.

    Args:
        streams: ShardId as text -> its stream.
        settings: see CaptureSettings.
        taker: takes and commits the rounds.
        patterns: keyspace -> which of its tables are mirrored.
        known: keyspace -> names of the tables that the mirror holds.
        turnstile: entered with each round.
        observer: told of every committed round.
        target: what the run waits for, if it does.
        turn: called when a reshard's last source has ended.
        reopened: called when streams were opened anew: their servers may have been started again.
        clock: seconds, rising.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        streams: Mapping[str, Stream],
        settings: CaptureSettings,
        taker: RoundTaker,
        *,
        patterns: Callable[[str], TablePatterns],
        known: Callable[[str], tuple[str, ...]],
        turnstile: RoundBarrier,
        observer: Observer,
        target: CatchUpTarget | None = None,
        turn: Callable[[], None] = lambda: None,
        reopened: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._streams = dict(streams)
        self._turn, self._reopened = turn, reopened
        self._settings = settings
        self._taker = taker
        self._patterns = patterns
        self._known = known
        self._turnstile = turnstile
        self._observer = observer
        self._target = target
        self._clock = clock
        self._wall = wall
        self.rows = 0  # changes captured so far
        # Shard -> everything committed before this moment has been read; microseconds UTC.
        self.seen_until: dict[str, int] = {}
        self._odd: dict[str, float] = {}  # shard -> when it was told of an odd commit time
        self._broken: dict[str, _ShardFailure] = {}
        self._empty: dict[str, float] = {}  # shard -> since when its slices bring nothing
        slack = settings.clock_bound
        self.skew = Skew(
            lambda: KeyspaceSkew(settings.max_skew, slack=slack, clock=clock, wall=wall)
        )

    def round(self, resting: Collection[str]) -> CaptureOutcome:
        """Take one round of all shards that are not resting and have something to read.

        Raises:
            LakeError: it cannot be committed.
        """
        began = self._clock()
        plan = self.skew.plan(self._streams, resting)
        if not plan:
            # Those that are left rest, or wait for those that rest, or the run is about to turn.
            time.sleep(_PAUSE)
            return CaptureOutcome(committed=None)
        try:
            with self._turnstile:
                requests = [self._request(*one) for one in plan.items()]
                outcome = self._taker.take(requests, accepts=self.skew.accepts)
        except RetryableError as error:
            # The job failed as a whole: nothing of it counts, for any shard.
            self.skew.note((), plan)
            return CaptureOutcome(committed=None, failures=dict.fromkeys(plan, error))
        for shard, failure in outcome.errors.items():
            name_source(failure, shard)
        for shard, reasons in outcome.broken.items():
            self._tell_broken(shard, reasons)
        if outcome.broken:
            self._reopened()
        if not outcome.refused or outcome.errors:
            self.skew.note(outcome.slices, outcome.errors)
        for piece in outcome.slices:
            stream = self._streams[piece.shard]
            since = max(stream.since, self._since(piece))
            self._streams[piece.shard] = replace(stream, seen=piece.seen, since=since)
            self._watch(piece)
            self._tell_odd(piece)
        if outcome.committed is not None:
            self._tell(outcome.committed, self._clock() - began)
            self._end(outcome.committed)
        # By our clock a moment ago; a slice ends with asking the server whether there is more.
        now = int(self._wall() * 1e6)
        self.seen_until |= {one: now for one in outcome.caught_up if one in self._streams}
        if self._target is not None:
            self._target.note(outcome.positions, self._taker.next_number - 1)
        number = None if outcome.committed is None else outcome.committed.number
        return CaptureOutcome(committed=number, failures=self._without_gone(outcome.errors))

    def _watch(self, piece: ShardSlice) -> None:
        """Say so when a stream that should give something gives nothing, round after round."""
        nothing = piece.end.executed == piece.start.executed
        if not nothing or piece.caught_up or piece.held_ts is not None:
            self._empty.pop(piece.shard, None)
            return
        now = self._clock()
        if now - self._empty.setdefault(piece.shard, now) >= _PATIENCE:
            self._empty[piece.shard] = now
            log.warning(
                "%s: nothing has arrived for %.0f s although the server has written more; if "
                "this persists, check the server's load, its connections of our user, what "
                "`ratchet -v run` logs, and on Vitess whether a row is larger than "
                "--grpc-max-message-size allows",
                piece.shard,
                _PATIENCE,
                extra={"fields": {"event": "stream_empty", "source": piece.shard}},
            )

    def _since(self, piece: ShardSlice) -> int:
        """What comes behind a slice was not committed before this; 0: unknown."""
        if piece.caught_up:
            return piece.observed_at - int(self._settings.clock_bound * 1e6)
        return piece.max_ts or 0

    def _tell_broken(self, shard: str, reasons: Sequence[str]) -> None:
        """Say so, not too often, when a stream breaks and is opened anew: a link may be failing."""
        broken = self._broken.setdefault(shard, _ShardFailure())
        broken.count += len(reasons)
        now = self._clock()
        if now - broken.told >= _BROKEN_EVERY:
            log.warning(
                "%s: its stream broke (%s) and was opened again: %s",
                shard,
                counted(broken.count, "time"),
                one_line(reasons[-1]),
                extra={
                    "fields": {"event": "stream_broken", "source": shard, "count": broken.count}
                },
            )
            broken.told, broken.count = now, 0

    def _tell_odd(self, piece: ShardSlice) -> None:
        """Say so, not too often, when a commit time cannot be."""
        if piece.odd_ts is None:
            return
        now = self._clock()
        if now - self._odd.get(piece.shard, -_ODD_EVERY) >= _ODD_EVERY:
            self._odd[piece.shard] = now
            log.warning(
                "%s: its log has a transaction with an impossible commit time, %s UTC: time "
                "travel and lags use the time when it was read, or the commit time before it. A "
                "session used SET TIMESTAMP, or the server's clock is wrong (`ratchet check`)",
                piece.shard,
                moment(piece.odd_ts),
                extra={"fields": {"event": "odd_commit_time", "source": piece.shard}},
            )

    def _without_gone(self, errors: Mapping[str, RatchetError]) -> dict[str, RatchetError]:
        """The failures of shards that are still there; without those that are not, the run turns.

        What has to be done about these is found out where a run is prepared (jobs.reshard).
        """
        gone = {shard for shard, error in errors.items() if isinstance(error, ShardGoneError)}
        for shard in gone:
            log.warning("%s", errors[shard], extra={"fields": errors[shard].fields()})
            self._forget(shard)
        if gone:
            self._turn()
        return {shard: error for shard, error in errors.items() if shard not in gone}

    def _end(self, committed: Round) -> None:
        """Read no more of the shards that a reshard has ended."""
        for piece in committed.slices:
            if piece.journal is not None:
                self._forget(piece.shard)
                log.info(
                    "%s: a reshard ends its stream; %s take over",
                    piece.shard,
                    ", ".join(piece.journal.targets),
                    extra={"fields": {"event": "stream_ended", "source": piece.shard}},
                )
                if not set(piece.journal.sources) & set(self._streams):
                    self._turn()

    def _forget(self, shard: str) -> None:
        del self._streams[shard]
        self.seen_until.pop(shard, None)  # it does not lag: it is over

    def _position(self, shard: str) -> Position:
        position = self._taker.position(shard)
        if position is None:
            raise BugError("the stream has no start", operation="take a round", source=shard)
        return position

    def _request(self, shard: str, not_after: int | None) -> CaptureRequest:
        stream, settings = self._streams[shard], self._settings
        target = self._target
        wanted = None if target is None else target.wanted(shard)
        seconds = settings.round_seconds
        if target is not None and target.round is not None:
            seconds = min(seconds, _LAST)
        return CaptureRequest(
            source=stream.source,
            start=self._position(shard),
            generation=stream.generation,
            round_number=self._taker.next_number,
            lake=settings.lake,
            patterns=self._patterns(stream.source.shard.keyspace),
            known=self._known(stream.source.shard.keyspace),
            policy=settings.policy,
            limits=SliceLimits(
                max_bytes=settings.round_bytes,
                max_seconds=seconds,
                # A round of changes is worth a whole one's time: fewer and larger commits.
                min_seconds=seconds,
                stop_at=None if wanted is None else wanted.executed,
                not_after=not_after,
                clock_bound=int(settings.clock_bound * 1e6),
            ),
            dump=DumpOptions(
                server_id=stream.server_id,
                heartbeat=settings.heartbeat,
                deadline=max(10.0, _STILL * settings.heartbeat),
            ),
            vtgate=stream.vtgate,
            vitess=stream.vitess,
            since=stream.since,
            seen=stream.seen,
        )

    def _tell(self, committed: Round, seconds: float) -> None:
        rows = sum(piece.rows for piece in committed.slices)
        self.rows += rows
        self.seen_until |= {
            piece.shard: seen for piece in committed.slices if (seen := seen_until(piece))
        }
        self._observer(
            RoundCommitted(
                round=committed.number,
                shards=len(committed.slices),
                rows=rows,
                bytes=sum(piece.bytes for piece in committed.slices),
                seconds=round(seconds, 3),
            )
        )


def guarded(run: Runner, check: Callable[[], None]) -> Runner:
    """The runner, with a look at the lease between the slices and their commit."""

    def guard(requests: Sequence[CaptureRequest]) -> Sequence[CaptureResult]:
        found = run(requests)
        check()
        return found

    return guard
