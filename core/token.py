"""When a row was written: the event token, and the four rules by which two tokens compare.

A token is not a position (core.position): a position says where a stream goes on, a token says
which transaction wrote a row. Tokens have no `<`. `compare` answers OLDER, SAME, NEWER or UNKNOWN,
and whoever asks must say what UNKNOWN means to them. Merging never asks across shards: it keeps
one register per shard (docs/ordering.md), inside which ranks always decide.

Invariant: compare(a, b) is the mirror image of compare(b, a).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ratchet.core.errors import BugError
from ratchet.core.gtid import Gtid, GtidSet
from ratchet.core.lineage import Lineage
from ratchet.core.shard import ShardId


class Order(Enum):
    """How the first of two tokens stands to the second."""

    OLDER = "older"
    SAME = "same"
    NEWER = "newer"
    UNKNOWN = "unknown"

    @property
    def mirrored(self) -> Order:
        """How the second stands to the first."""
        return _MIRRORED.get(self, self)


_MIRRORED = {Order.OLDER: Order.NEWER, Order.NEWER: Order.OLDER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """The place in one shard's order: compared part by part, within one shard only.

    Attributes:
        generation: lineage generation of the stream.
        seq: how many transactions the stream's executed set holds with this one.
        idx: place in the transaction; FLOOR_IDX + chunk for a dumped row.
    """

    generation: int
    seq: int
    idx: int

    @property
    def parts(self) -> tuple[int, int, int]:
        """As a tuple, which does have an order: use it only where the shard is the same."""
        return (self.generation, self.seq, self.idx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """Where a transaction stands in one shard's stream.

    Attributes:
        shard: the shard.
        rank: its place there.
        gtid: the transaction; None for a row of the dump.
        position: the executed set with this transaction in it, or the dumped chunk's floor; None
            where it was not kept (the lake's token column keeps the rank only).
    """

    shard: ShardId
    rank: Rank
    gtid: Gtid | None = None
    position: GtidSet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventToken:
    """Which transaction wrote a row.

    Attributes:
        ts: commit time (for a dumped row, when it was read), microseconds UTC, by some server's
            clock.
        at: where it stands in the stream it was read from.
        source: where it stands on the shard that it was first written on, if it was copied from
            there inside the source system (a reshard's copy); always another shard.

    Raises:
        BugError: `source` is on the same shard.
    """

    ts: int
    at: Coordinates
    source: Coordinates | None = None

    def __post_init__(self) -> None:
        if self.source is not None and self.source.shard == self.at.shard:
            raise BugError(f"a transaction on {self.at.shard} cannot be a copy from there")


def compare(a: EventToken, b: EventToken, *, clock_bound_us: int, lineage: Lineage) -> Order:
    """How `a` stands to `b`, by the first rule that decides.

    1. Coordinates on one shard (their own or their source's): GTIDs and ranks. Not timestamps,
       because a timestamp is a statement's start and may run against the log's order.
    2. A shard that descends from the other's: after the cut-over it is newer.
    3. Unrelated shards: timestamps, if they differ by more than the clock bound.
    4. Otherwise UNKNOWN.

    Args:
        a: one token.
        b: the other.
        clock_bound_us: by how much two servers' clocks may differ, microseconds.
        lineage: which shard descends from which.
    """
    known = (compare_on_shard(ours, theirs) for ours, theirs in _on_one_shard(a, b))
    first = next((order for order in known if order is not Order.UNKNOWN), None)
    if first is not None:
        return first
    if a.at.shard == b.at.shard:
        return Order.UNKNOWN  # a diverged source: a clock cannot say which side was kept
    if lineage.is_newer(a.at.shard, a.at.gtid, than=b.at.shard):
        return Order.NEWER
    if lineage.is_newer(b.at.shard, b.at.gtid, than=a.at.shard):
        return Order.OLDER
    return _by_clock(a.ts, b.ts, clock_bound_us)


def compare_on_shard(a: Coordinates, b: Coordinates) -> Order:
    """Rule 1: how two coordinates on the same shard stand to each other.

    A higher generation is newer. Then containment: what the other's position holds is older. Ranks
    decide where a position is not known; two positions that do not hold each other's transaction
    are UNKNOWN.
    """
    if a.rank.generation != b.rank.generation:
        return _by_number(a.rank.generation, b.rank.generation)
    if a.gtid is not None and a.gtid == b.gtid:
        return _by_number(a.rank.idx, b.rank.idx)
    inside = (_inside(a, b), _inside(b, a))
    if inside == (True, True) and a.gtid is None and b.gtid is None:
        return _by_rank(a, b)  # two chunks with equal floors
    if inside == (True, True) and None in {a.gtid, b.gtid}:
        # The last event inside a floor: its position holds the floor, but the rows show it.
        return Order.OLDER if b.gtid is None else Order.NEWER
    return _BY_CONTAINMENT.get(inside) or _by_rank(a, b)


# (a in b's position, b in a's position). Both: the sets contradict each other. Neither: they have
# diverged. Where positions are not known, ranks decide.
_BY_CONTAINMENT = {
    (True, False): Order.OLDER,
    (True, None): Order.OLDER,
    (False, True): Order.NEWER,
    (None, True): Order.NEWER,
    (True, True): Order.UNKNOWN,
    (False, False): Order.UNKNOWN,
}


def _inside(a: Coordinates, b: Coordinates) -> bool | None:
    """Whether b's position holds a's transaction (or a's whole floor); None if unknown."""
    if b.position is None:
        return None
    if a.gtid is not None:
        return b.position.contains(a.gtid)
    if a.position is None:
        return None
    return b.position.contains_all(a.position)


def _by_rank(a: Coordinates, b: Coordinates) -> Order:
    if a.rank.seq != b.rank.seq:
        return _by_number(a.rank.seq, b.rank.seq)
    return _by_number(a.rank.idx, b.rank.idx)


def _by_clock(a: int, b: int, bound: int) -> Order:
    if abs(a - b) <= bound:
        return Order.UNKNOWN
    return Order.NEWER if a > b else Order.OLDER


def _by_number(a: int, b: int) -> Order:
    if a == b:
        return Order.SAME
    return Order.OLDER if a < b else Order.NEWER


def _on_one_shard(a: EventToken, b: EventToken) -> list[tuple[Coordinates, Coordinates]]:
    ours = [c for c in (a.at, a.source) if c is not None]
    theirs = [c for c in (b.at, b.source) if c is not None]
    found = [(x, y) for x in ours for y in theirs if x.shard == y.shard]
    # Own against own first; the rest are on different shards, as no source is on its own shard.
    return sorted(found, key=lambda pair: (pair != (a.at, b.at), str(pair[0].shard)))
