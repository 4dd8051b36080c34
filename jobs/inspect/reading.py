"""From the config to how a source's tables are read: the same for whoever reads them.

Lives here: the one composition of servers, replicas, throttle and pace for dump, verify, repair,
heal and a run's own verification. Does not live here: connections' settings (`sources`), reading
(`snapshot`).

Invariant: nothing reads whole tables but by a `ReadOptions`, so the config's throttle holds for all
of it; of one process together, as a run makes one and hands it to all its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import replica_configs, source_configs
from ratchet.snapshot.records import DumpSettings, ShardSource
from ratchet.snapshot.throttle import Throttle, ThrottleLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How tables are read.

    Attributes:
        shards: ShardId as text -> where it is read from, with the replicas that the throttle asks.
        settings: the pace, the throttle, and what becomes of values.
    """

    shards: Mapping[str, ShardSource]
    settings: DumpSettings


def reading_of(config: Config, generations: Mapping[str, int]) -> ReadOptions:
    """What the config says of it.

    Args:
        config: with its live shards.
        generations: ShardId as text -> generation of its stream; 0 where it has none yet.
    """
    given = config.snapshot
    shards = {
        str(shard): ShardSource(
            config=source,
            generation=generations.get(str(shard), 0),
            replicas=replica_configs(shard, config.shards[shard]),
        )
        for shard, source in source_configs(config).items()
    }
    limits = ThrottleLimits(
        rows_per_second=given.max_rows_per_second or 0,
        threads_running=given.max_threads_running or 0,
        replica_lag=given.max_replica_lag or 0,
    )
    settings = DumpSettings(
        parallel=given.readers,
        chunk_seconds=given.chunk_seconds,
        chunk_rows=given.chunk_rows,
        patience=config.capture.reconnect_seconds,
        throttle=Throttle(limits),
        policy=config.policy,
        deletion_vectors=config.merge.deletion_vectors,
    )
    return ReadOptions(shards=shards, settings=settings)
