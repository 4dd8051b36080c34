"""How far a mirror is behind: pure functions over what was read and what was merged.

Two things lag, one behind the other: the change log behind the servers, and the tables behind the
change log. What a reader of the tables sees is both together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.jobs.topology.lineage import of_keyspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ratchet.core.rounds import ShardSlice
    from ratchet.store.rounds import StreamState


def seen_until(piece: ShardSlice) -> int | None:
    """Everything committed before this moment is in the slice or before it; microseconds UTC.

    A stream that had nothing more to give had given all up to that moment. Otherwise the oldest
    commit of the slice counts: timestamps of a stream are not in order (facts.md); of one that was
    held with nothing to read, the next commit. None if it tells nothing.
    """
    if piece.caught_up:
        return piece.observed_at
    return piece.held_ts if piece.min_ts is None else piece.min_ts


def read_until(keyspace: str, streams: Mapping[str, StreamState]) -> int:
    """Everything committed on a source before this moment is in the change log.

    Args:
        keyspace: the source.
        streams: keyspace/shard -> where it stands.

    Returns:
        Microseconds UTC, by the stream that is furthest behind; 0 if unknown.
    """
    return min(
        (one.ts for one in of_keyspace(keyspace, streams).values() if one.journal is None),
        default=0,
    )


def tables_lag(log_lag: float | None, waiting_since: int | None, *, now: float) -> float | None:
    """Seconds that the tables are behind the servers at most.

    Args:
        log_lag: seconds that the change log is behind at most; None if unknown.
        waiting_since: commit time of the oldest captured transaction that is not merged,
            microseconds UTC; None if all are.
        now: seconds since the epoch.

    Returns:
        None if unknown.
    """
    if log_lag is None or waiting_since is None:
        return log_lag
    return max(log_lag, now - waiting_since / 1e6)
