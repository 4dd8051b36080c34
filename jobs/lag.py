"""Up to which moment a slice of a shard's stream is sure to hold everything."""

from __future__ import annotations

from core.rounds import ShardSlice


def seen_until(piece: ShardSlice) -> int | None:
    """Everything committed before this moment is in the slice or before it; microseconds UTC.

    A stream that had nothing more to give had given all up to that moment. Otherwise the oldest
    commit of the slice counts: timestamps of a stream are not in order (facts.md). None if it tells
    nothing.
    """
    return piece.observed_at if piece.caught_up else piece.min_ts
