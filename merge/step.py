"""The values of a merge step: what it is told, what its tables share, what became of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ratchet.core.committimes import is_ahead
from ratchet.core.errors import RatchetError, TableStoppedError
from ratchet.core.position import Position
from ratchet.core.rounds import Round, ShardSlice
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.direct import MOST_ROWS
from ratchet.merge.gather import TableBacklog
from ratchet.store.cuts import Cut, CutShard
from ratchet.store.rounds import StreamState
from ratchet.store.tables import TableState

# Seconds after which a cut asks an object store again for the newest version of a table that rests:
# a request for each of thousands of tables in each step would be most of its work.
LOOK_AGAIN: Final = 120
_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions:
    """How a step goes about it.

    Attributes:
        policy: decides about the lake's types; the one that capture uses.
        parallel: tables merged at the same time.
        max_bytes: change files that one step takes, all tables together; at least one round.
        max_rows: changes of one table that one step takes; at least one round.
        pool: Spark's scheduler pool for the merges; None is the default one.
        direct: whether small batches may be merged in this process (merge.direct).
    """

    policy: InvalidValuePolicy
    parallel: int = 2
    max_bytes: int = 1 << 30
    max_rows: int = MOST_ROWS
    pool: str | None = None
    direct: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step did.

    Attributes:
        cut: the cut that it wrote; None if there was nothing to do.
        changed: keyspace.table -> rows inserted, updated and deleted; only tables that had changes.
        stopped: keyspace.table -> why it stopped in this step.
        seconds: how long it took.
        left: rounds that were there when it began, and were too much for it.
    """

    cut: Cut | None
    changed: Mapping[str, int]
    stopped: Mapping[str, TableStoppedError]
    seconds: float
    left: int = 0

    @property
    def worked(self) -> bool:
        """Whether there was anything to do."""
        return self.cut is not None or bool(self.stopped)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTask:
    """One table in a step.

    Attributes:
        state: as the step found it.
        found: what the rounds hold for it.
        rounds: those rounds.
        above: the round that it holds.
        catches_up: whether its dump has just ended.
    """

    state: TableState
    found: TableBacklog
    rounds: Sequence[Round]
    above: int
    catches_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What all tables of a step share.

    Attributes:
        round: it goes up to this one.
        streams: how the shards' streams stand there.
        shards: what its cut says of the shards.
        before: the last cut; None: there is none.
        now: microseconds UTC.
        left: rounds above `round` that were there when it began.
    """

    round: int
    streams: Mapping[str, StreamState]
    shards: Mapping[str, CutShard]
    before: Cut | None
    now: int
    left: int = 0

    @property
    def positions(self) -> dict[str, Position]:
        """Where the shards stand at the round."""
        return {shard: stream.position for shard, stream in self.streams.items()}

    def metadata(self) -> dict[str, Any]:
        """What each Delta commit of the step says of itself."""
        times = [t for s in self.shards.values() for t in (s.min_ts, s.max_ts) if t is not None]
        return {
            "ratchet": 1,
            "round": self.round,
            "positions": {shard: str(p.executed) for shard, p in sorted(self.positions.items())},
            "min_ts": min(times, default=None),
            "max_ts": max(times, default=None),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """What became of one table."""

    state: TableState
    changed: int = 0
    error: RatchetError | None = None


def step_to(
    number: int,
    streams: Mapping[str, StreamState],
    above: Sequence[Round],
    before: Cut | None,
    now: int,
) -> Step:
    """The step to a round.

    Args:
        number: the round.
        streams: how the shards' streams stand at it.
        above: rounds above the last cut, in order.
        before: the last cut.
        now: microseconds UTC.
    """
    shards = {}
    for shard, stream in streams.items():
        old = before.shards.get(shard) if before else None
        pieces = [p for r in above if r.number <= number for p in r.slices if p.shard == shard]
        early = [p.min_ts for p in pieces if p.min_ts is not None]
        late = [p.max_ts for p in pieces if p.max_ts is not None]
        seen = [p.observed_at for p in pieces]
        # Earlier versions took any time that a log had.
        known = [min(old.latest_ts, old.observed_at + _SECOND)] if old else seen[:1] or [now]
        latest = [*map(_latest, pieces), *_jumps(pieces, old), *known]
        shards[shard] = CutShard(
            position=stream.position,
            min_ts=min(early, default=None),
            max_ts=max(late, default=None),
            latest_ts=max(latest),
            observed_at=max(seen, default=old.observed_at if old else now),
            generation=stream.generation,
        )
    return Step(round=number, streams=streams, shards=shards, before=before, now=now)


def _jumps(pieces: Sequence[ShardSlice], old: CutShard | None) -> list[int]:
    """When a stream has begun anew behind a gap: what it left out was committed until then."""
    found = []
    at = old.position if old else None
    for piece in pieces:
        if at is not None and piece.start.executed != at.executed:
            found.append(piece.observed_at)
        at = piece.end
    return found


def _latest(piece: ShardSlice) -> int:
    """Nothing in the slice was committed later, microseconds UTC; 0 if nothing is in it.

    MariaDB's log has whole seconds: a transaction of second 10 may have been committed at 10.9. It
    was committed before capture saw it, though.
    """
    if piece.max_ts is None:
        return 0
    if is_ahead(piece.odd_ts, piece.max_ts):
        return piece.observed_at  # all that is known of one whose time cannot be
    if piece.end.flavor != "mariadb":
        return piece.max_ts
    return min(piece.max_ts + 999_999, max(piece.max_ts, piece.observed_at))
