"""Heirs: the slice that begins the stream of a shard which took over from others in a reshard.

Pure; used for keyspaces behind a vtgate (`reshard`) and for tablets (`tablets`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.core.position import Position
from ratchet.core.rounds import ShardSlice
from ratchet.core.shard import ShardId
from ratchet.store.rounds import StreamState


def heir(
    shard: str,
    position: Position,
    sources: Mapping[str, StreamState],
    *,
    now: int,
    seen: Mapping[str, Position] | None = None,
) -> ShardSlice:
    """The beginning of an heir's stream: its generation is above those of its sources.

    Args:
        shard: ShardId as text.
        position: where its stream begins.
        sources: ShardId as text -> stream of each shard that it took over from.
        now: microseconds UTC.
        seen: see core.rounds.ShardSlice.
    """
    # In its own earlier life a shard is the same register, whose generation has risen.
    ancestors = {name: value for name, value in ancestors_of(sources).items() if name != shard}
    generation = 1 + max(stream.generation for stream in sources.values())
    return ShardSlice.beginning(
        shard, position, generation=generation, now=now, ancestors=ancestors, seen=seen
    )


def ancestors_of(sources: Mapping[str, StreamState]) -> dict[str, int]:
    """Shard -> up to which generation a successor of these streams supersedes it."""
    found: dict[str, int] = {}
    for shard, stream in sources.items():
        for name, generation in ((shard, stream.generation), *stream.ancestors.items()):
            found[name] = max(generation, found.get(name, generation))
    return found


def of_keyspace(keyspace: str, streams: Mapping[str, StreamState]) -> dict[str, StreamState]:
    """Name of a shard -> its stream, for the shards of one keyspace."""
    return {name_of(shard): one for shard, one in streams.items() if keyspace_of(shard) == keyspace}


def keyspace_of(shard: str) -> str:
    """The keyspace of a ShardId as text."""
    return ShardId.parse(shard).keyspace


def name_of(shard: str) -> str:
    """The shard's name in a ShardId as text."""
    return ShardId.parse(shard).shard
