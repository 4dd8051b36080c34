"""Following the reshards of Vitess keyspaces, and what to do about those that were missed.

Lives here: when the streams of a reshard's targets begin, with which generation and ancestors;
whether a shard's stream can still be read to its end. Does not live here: the journal
(`ingest.vstream`), what ancestors mean to a merge (`merge`).

A run does not change its shards while it runs: when the last source of a reshard has ended, its
loops end between two of their steps, and the run is prepared anew. So what happens at noon
under a run is what happens when a run begins after a night in which everything was resharded.

Invariant: the streams of all targets begin in one round, behind the last slice of every source.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ratchet.core.errors import ShardGoneError
from ratchet.core.rounds import ShardSlice
from ratchet.core.shard import ShardId
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import source_configs, vtgate_config
from ratchet.jobs.topology.begin import begin_streams, executed
from ratchet.jobs.topology.gaps import begin_after_a_gap
from ratchet.jobs.topology.lineage import heir, keyspace_of, name_of, of_keyspace
from ratchet.jobs.topology.tablets import take_over, with_live_shards
from ratchet.jobs.topology.vitess import Topology, topologies, with_shards
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.wire.journal import FLAVOR
from ratchet.wire.vtgate import VStream

log: Final = logging.getLogger("ratchet.jobs.run")

_PROBE_SECONDS: Final = 10.0  # that a vtgate may take to refuse a position


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """A config whose Vitess keyspaces have their shards.

    Attributes:
        config: with the shards whose streams go on, or begin now.
        following: whether some of them do not serve any more: they are read up to their journal,
            and nothing is dumped until their successors have begun.
    """

    config: Config
    following: bool = False


def locate(config: Config, lake: Lake, rounds: RoundLog, *, now: int) -> ResolvedConfig:
    """Find the shards, after the streams of all complete reshards' targets have begun.

    What has to be dumped again, because a stream has a gap, is in the tables' states afterwards.

    Raises:
        RetryableError: a vtgate does not answer.
        OperatorError: it refuses us, or the config lacks shards that are needed.
        LakeError: a round cannot be committed.
    """
    begin_successors(rounds, now=now)
    following = False
    take_over(config, lake, rounds, now=now)
    config = with_live_shards(config, rounds.streams())
    found = topologies(config)
    if not found:
        return ResolvedConfig(config=config)
    shards: dict[str, tuple[str, ...]] = {}
    for keyspace, topology in found.items():
        streams = of_keyspace(keyspace, rounds.streams())
        going = [name for name, stream in streams.items() if stream.journal is None]
        silent = [name for name in going if name not in topology.serving]
        if any(_is_gone(config, keyspace, name, streams[name]) for name in silent):
            heirs = _heirs(config, rounds, keyspace, topology, silent, now=now)
            begin_after_a_gap(lake, rounds, keyspace, heirs, now=now)
            going = list(topology.serving)
        elif silent:
            following = True
        shards[keyspace] = tuple(going) or topology.serving
    return ResolvedConfig(
        config=with_shards(config, shards, found),
        following=following,
    )


def begin_successors(rounds: RoundLog, *, now: int) -> None:
    """Begin the streams of the targets of every reshard whose sources have all ended.

    Raises:
        LakeError: a round cannot be committed.
    """
    streams = rounds.streams()
    done: set[str] = set()
    for shard, stream in streams.items():
        journal = stream.journal
        if journal is None or shard in done:
            continue
        if all(one in streams and streams[one].journal is not None for one in journal.sources):
            done |= set(journal.sources)
            sources = {one: streams[one] for one in journal.sources}
            begun = [heir(s, place, sources, now=now) for s, place in journal.targets.items()]
            begin_streams(rounds, begun, now=now)
            log.info(
                "%s: the stream continues at %s",
                ", ".join(journal.sources),
                ", ".join(journal.targets),
                extra={"fields": {"event": "resharded", "sources": list(journal.sources)}},
            )


def _heirs(
    config: Config,
    rounds: RoundLog,
    keyspace: str,
    topology: Topology,
    gone: Collection[str],
    *,
    now: int,
) -> list[ShardSlice]:
    """The slices that begin, now, the streams of the shards that serve in place of those."""
    streams = rounds.streams()
    mine = {shard: one for shard, one in streams.items() if keyspace_of(shard) == keyspace}
    full = with_shards(config, {keyspace: topology.serving}, {keyspace: topology})
    new = {str(ShardId(keyspace, name)) for name in topology.serving} - set(mine)
    over = {s: one for s, one in mine.items() if name_of(s) in gone or one.journal is not None}
    starts = executed(source_configs(full), new)
    slices = [heir(shard, place, over, now=now) for shard, place in starts.items()]
    log.warning(
        "%s: the shards %s were ended by a reshard before their streams were read to the end; what "
        "was written there meanwhile is in no stream",
        keyspace,
        ", ".join(sorted(gone)),
        extra={"fields": {"event": "reshard_missed", "source": keyspace, "gone": sorted(gone)}},
    )
    return slices


def _is_gone(config: Config, keyspace: str, name: str, stream: StreamState) -> bool:
    """Whether a shard that does not serve cannot be streamed from its position either."""
    gate = vtgate_config(config.sources[keyspace])
    assert gate is not None  # noqa: S101 - asked of Vitess keyspaces only
    text = f"{FLAVOR}{stream.position.executed}"
    with VStream(gate, [(keyspace, name, text)], silence=_PROBE_SECONDS) as probe:
        deadline = time.monotonic() + _PROBE_SECONDS
        try:
            while time.monotonic() < deadline:
                if probe.receive(0.5) is not None:
                    return False
        except ShardGoneError:
            return True
    return False
