"""From a chunk's floor to a rank, by containment.

A floor is a set of transactions that a chunk's read is sure to contain. Its cardinality is no
rank: another server may have executed the same transactions in another order, and then a bare
number would skip an event that the rows do not have (docs/ordering.md).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import GtidRange


def resolve_floor(floor: GtidSet, start: Position, runs: Iterable[GtidRange]) -> int:
    """The `seq` just below the first captured transaction that is not in the floor.

    Args:
        floor: what the chunk's read is sure to contain.
        start: the stream's position before the first run.
        runs: the captured transactions in stream order.

    Returns:
        The chunk's rank: every transaction up to this `seq` is in its rows, the next one may not
        be. If all captured ones are in the floor, the `seq` of the last.
    """
    seq = start.seq
    for run in runs:
        covered = _covered_from(floor, run.origin, run.first)
        if covered < run.last:
            return run.seq + covered - run.first
        seq = run.seq + run.last - run.first
    return seq


def join_runs(runs: Iterable[GtidRange]) -> Sequence[GtidRange]:
    """The same transactions in fewer runs: those that go on where the one before ended."""
    joined: list[GtidRange] = []
    for run in runs:
        if joined and _continues(joined[-1], run):
            joined[-1] = GtidRange(run.origin, joined[-1].first, run.last, joined[-1].seq)
        else:
            joined.append(run)
    return joined


def _continues(a: GtidRange, b: GtidRange) -> bool:
    return a.origin == b.origin and b.first == a.last + 1 and b.seq == a.seq + b.first - a.first


def _covered_from(floor: GtidSet, origin: str, first: int) -> int:
    """The last number that follows `first` without a gap in the floor; first - 1 if not even it."""
    spans = floor.intervals.get(origin, ())
    at = bisect_right(spans, first, key=lambda span: span[0]) - 1
    if at >= 0 and spans[at][1] >= first:
        return spans[at][1]
    return first - 1
