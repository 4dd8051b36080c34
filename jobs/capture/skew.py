"""Keeping a keyspace's shards together: how far each may be read, given how far the others are.

Lives here: `ShardProgress`, `bound_of` (pure), `KeyspaceSkew`, which remembers what rounds brought
and plans the next one for the shards of a keyspace, and `Skew`, which does so for all keyspaces.
Does not live here: stopping there (`SliceLimits.not_after`, the feeds).

Keyspaces do not wait for each other: no row moves between them, and a source that cannot keep up
would hold up all the others.

A row that moves from one shard to another is a delete here and an insert there. While the shard it
left is read further than the one it went to, the mirror lacks it. So no shard is read beyond the
furthest behind of the *others* by more than a threshold, in commit time; that one itself is bounded
by the next one only, so it is never held by what it alone has to make good.

Progress: a held shard's reach is the commit time of the transaction it waits before, so when all
are held, the one whose transaction is the oldest goes on. A shard held with nothing to read is left
out of rounds, which costs nothing; so is waiting out a round's time in the feed, which was dropped:
the others' catching up would have got one threshold in a whole round's time.

Catching up: one threshold a round would be a few times real time only. So where all shards reached
their bounds, the next round leaps: its bounds lie further ahead, twice as far each time. A leap in
which a shard does not get that far would leave the others ahead of it, so such a round is not
committed at all (`accepts`), and the next leap is shorter. No version of the mirror shows a leap.

What gives way to the mirror going on, always:
- a shard that ended by a journal does not count (it is no stream any more);
- one that has not moved for `PATIENCE`, in trouble or not, does not count until it moves;
- commit times from the future: a shard counts as read up to now at most, and is not held before
  such a transaction once the others are near the present.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ratchet.core.rounds import ShardSlice
from ratchet.core.shard import ShardId

log: Final = logging.getLogger("ratchet.jobs.run")

# Seconds that a shard which does not move holds the others back: a server's restart or a failover
# mostly takes less, and the mirror's lag that it costs the others is what an operator hardly sees.
PATIENCE: Final = 30.0
LEAP: Final = 3600.0  # seconds of commit time that a round may bring at most
# How leaps grow: fast until one was too long, then slowly, since such a round's work is lost.
_FAST: Final = 2.0
_SLOWLY: Final = 1.1
LOOK: Final = 5.0  # seconds after which a held shard is asked all the same: status shows it


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """How far a shard's stream is known to be read.

    Attributes:
        until: commit time, microseconds UTC: what was committed before it has been read, as far as
            commit times of one stream are in order; 0: nothing is known.
        held_ts: commit time of the transaction that the stream was stopped before; None: it was
            not, or nobody knows.
    """

    until: int = 0
    held_ts: int | None = None


def reach_of(piece: ShardSlice, before: ShardProgress) -> ShardProgress:
    """What a slice tells.

    Not later than the moment of the slice, whatever a server's clock says: else a commit time from
    the future would let the others run ahead of that shard.

    Args:
        piece: the slice.
        before: what was known before it.
    """
    if piece.caught_up:
        return ShardProgress(piece.observed_at)
    until = before.until if piece.max_ts is None else piece.max_ts
    if piece.held_ts is not None:
        until = piece.held_ts
    return ShardProgress(min(until, piece.observed_at), piece.held_ts)


def bound_of(shard: str, reaches: Mapping[str, ShardProgress], margin: int) -> int | None:
    """The latest commit time that a shard may be read up to; None: any.

    Args:
        shard: which.
        reaches: of all shards that count.
        margin: microseconds that it may be ahead of the others.
    """
    others = [reach.until for other, reach in reaches.items() if other != shard]
    return min(others) + margin if others else None


def _is_through(piece: ShardSlice) -> bool:
    """Whether it read all that it was allowed to."""
    return piece.caught_up or piece.held_ts is not None


def _keeps(piece: ShardSlice, reaches: Mapping[str, ShardProgress], margin: int) -> bool:
    bound = bound_of(piece.shard, reaches, margin)
    return piece.max_ts is None or bound is None or piece.max_ts <= bound


class KeyspaceSkew:
    """Plans rounds so that the shards of a keyspace stay together. For one thread.

    Args:
        threshold: seconds that shards may be apart in commit time; None: any.
        slack: seconds that the servers' clocks may be apart.
        clock: seconds, rising.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        threshold: float | None,
        *,
        slack: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._margin = None if threshold is None else int((threshold + slack) * 1e6)
        self._clock = clock
        self._wall = wall
        self._reaches: dict[str, ShardProgress] = {}
        self._asked: dict[str, float] = {}
        self._counted: frozenset[str] = frozenset()  # in the newest plan
        self._leap = 0  # microseconds beyond the margin
        self._growth = _FAST
        self._stuck: dict[str, float] = {}  # shard -> since when it does not move
        # Shards that had nothing to read within their bound in the newest plan.
        self.held: frozenset[str] = frozenset()
        # Shards that the others do not wait for: the bound does not hold for them now.
        self.ignored: frozenset[str] = frozenset()

    def plan(
        self, streams: Collection[str], resting: Collection[str] = ()
    ) -> dict[str, int | None]:
        """The shards to read next, each with its `SliceLimits.not_after`.

        A shard of which nothing is known yet lets the others read nothing: the first round of a run
        only finds out where each stream stands, where several have something to read.

        Args:
            streams: all whose streams go on.
            resting: those that cannot be read now.
        """
        ready = [shard for shard in streams if shard not in resting]
        if self._margin is None:
            return dict.fromkeys(ready)
        self._ignore(streams)
        counted = {s: self._reach(s) for s in streams if s not in self.ignored}
        self._counted = frozenset(counted)
        if self._stuck or len(ready) < len(streams):
            self._leap = 0  # the others must not wait for rounds that a shard in trouble spoils
        margin = self._margin + self._leap
        bounds = {s: self._released(s, bound_of(s, counted, margin)) for s in ready}
        self.held = frozenset(s for s, bound in bounds.items() if self._waits(s, bound))
        now = self._clock()
        found = {
            shard: bound
            for shard, bound in bounds.items()
            if shard not in self.held or now - self._asked[shard] >= LOOK
        }
        self._asked |= dict.fromkeys(found, now)
        return found

    def accepts(self, slices: Sequence[ShardSlice], failed: Collection[str]) -> bool:
        """Whether a round may be committed: it leaves no shard too far ahead of the others.

        A round that is refused is to be forgotten: it is read again, up to bounds that are nearer.

        Args:
            slices: what was read.
            failed: shards that were asked in vain.
        """
        if self._margin is None or not self._leap:
            return True
        before = {shard: self._reach(shard) for shard in self._counted}
        after = before | {p.shard: reach_of(p, self._reach(p.shard)) for p in slices}
        if not failed and all(_keeps(piece, after, self._margin) for piece in slices):
            return True
        got = min(r.until for r in after.values()) - min(r.until for r in before.values())
        self._leap = max(0, min(self._leap, got) * 3 // 4 - self._margin)
        self._growth = _SLOWLY
        return False

    def note(self, slices: Sequence[ShardSlice], failed: Collection[str]) -> None:
        """Take note of what a committed round brought.

        Args:
            slices: what was read.
            failed: shards that were asked in vain.
        """
        now = self._clock()
        self._stretch(slices, failed)
        for piece in slices:
            self._reaches[piece.shard] = reach_of(piece, self._reach(piece.shard))
            if piece.transactions or piece.caught_up or piece.held_ts is not None:
                self._stuck.pop(piece.shard, None)
            else:
                self._stuck.setdefault(piece.shard, now)
        for shard in failed:
            self._reaches[shard] = ShardProgress(self._reach(shard).until)
            self._stuck.setdefault(shard, now)

    def _reach(self, shard: str) -> ShardProgress:
        return self._reaches.get(shard, ShardProgress())

    def _stretch(self, slices: Sequence[ShardSlice], failed: Collection[str]) -> None:
        """Decide how far the next round leaps, if it does."""
        if self._margin is None:
            return
        if failed or all(piece.caught_up for piece in slices):
            self._leap, self._growth = 0, _FAST
        elif all(_is_through(piece) for piece in slices) and any(p.transactions for p in slices):
            longer = int(max(self._leap, self._margin) * self._growth)
            self._leap = min(longer, int(LEAP * 1e6))

    def _waits(self, shard: str, bound: int | None) -> bool:
        held_ts = self._reach(shard).held_ts
        return held_ts is not None and bound is not None and held_ts > bound

    def _released(self, shard: str, bound: int | None) -> int | None:
        """No bound where only a wrong clock holds the shard: it waits for what has not come yet."""
        now = int(self._wall() * 1e6)
        held_ts = self._reach(shard).held_ts
        if bound is not None and held_ts is not None and held_ts > now and bound >= now:
            return None
        return bound

    def _ignore(self, streams: Collection[str]) -> None:
        now = self._clock()
        found = frozenset(
            s for s in streams if s in self._stuck and now - self._stuck[s] >= PATIENCE
        )
        if len(streams) > 1:
            for shard in sorted(found - self.ignored):
                log.warning(
                    "%s has not moved for %.0f s: the other shards continue without it, and may "
                    "be ahead of it by more than capture.max_skew_seconds",
                    shard,
                    PATIENCE,
                    extra={"fields": {"event": "skew_unbounded", "source": shard}},
                )
            for shard in sorted(self.ignored - found):
                log.info(
                    "%s moves again: the other shards wait for it",
                    shard,
                    extra={"fields": {"event": "skew_bounded", "source": shard}},
                )
        self.ignored = found


class Skew:
    """Plans rounds so that the shards of each keyspace stay together. For one thread.

    Args:
        make: makes a keyspace's part.
    """

    def __init__(self, make: Callable[[], KeyspaceSkew]) -> None:
        self._keyspaces: defaultdict[str, KeyspaceSkew] = defaultdict(make)

    @property
    def held(self) -> frozenset[str]:
        """Shards that had nothing to read within their bound in the newest plan."""
        return frozenset().union(*(one.held for one in self._keyspaces.values()))

    @property
    def ignored(self) -> frozenset[str]:
        """Shards that the others do not wait for: the bound does not hold for them now."""
        return frozenset().union(*(one.ignored for one in self._keyspaces.values()))

    def plan(
        self, streams: Collection[str], resting: Collection[str] = ()
    ) -> dict[str, int | None]:
        """See KeyspaceSkew.plan."""
        found: dict[str, int | None] = {}
        for keyspace, shards in _by_keyspace(streams).items():
            found |= self._keyspaces[keyspace].plan(shards, resting)
        return found

    def accepts(self, slices: Sequence[ShardSlice], failed: Collection[str]) -> bool:
        """Whether each keyspace accepts what the round holds of it; see KeyspaceSkew.accepts."""
        parts = self._parts(slices, failed)
        # Each one is asked: whoever refuses makes its own leap shorter.
        refused = [one for one, mine, failures in parts if not one.accepts(mine, failures)]
        return not refused

    def note(self, slices: Sequence[ShardSlice], failed: Collection[str]) -> None:
        """See KeyspaceSkew.note."""
        for one, mine, failures in self._parts(slices, failed):
            one.note(mine, failures)

    def _parts(
        self, slices: Sequence[ShardSlice], failed: Collection[str]
    ) -> Iterator[tuple[KeyspaceSkew, list[ShardSlice], list[str]]]:
        failures = _by_keyspace(failed)
        for keyspace, shards in _by_keyspace([*(piece.shard for piece in slices), *failed]).items():
            mine = [piece for piece in slices if piece.shard in shards]
            yield self._keyspaces[keyspace], mine, failures.get(keyspace, [])


def _by_keyspace(shards: Collection[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for shard in shards:
        found.setdefault(ShardId.parse(shard).keyspace, []).append(shard)
    return found
