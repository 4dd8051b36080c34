"""Vitess keyspaces that are read from their tablets' MySQL servers: which shards there are now.

Lives here: which of the config's shards are read, and what becomes of streams whose shard is no
longer among them. Does not live here: the journal (`ingest.binlog.workflows`), keyspaces behind a
vtgate (`reshard`), whose shards are not in the config.

The config lists servers, and a reshard needs new ones: they may be added before traffic is
switched. A shard whose key range another's live stream covers is left alone until that stream's
journal has begun it; one that was resharded away may stay in the list, or go.

Invariant: no two shards of a keyspace that are read at a time have a common key range.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Final

from ratchet.core.errors import ConfigError, PositionLostError
from ratchet.core.keyrange import KeyRange, overlap
from ratchet.core.position import Position
from ratchet.core.rounds import ShardSlice
from ratchet.core.shard import ShardId
from ratchet.ingest.binlog.seek import check_follows, position_at
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import server_ids, source_configs
from ratchet.jobs.topology.begin import begin_streams, executed
from ratchet.jobs.topology.gaps import begin_after_a_gap
from ratchet.jobs.topology.lineage import heir, name_of, of_keyspace
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.wire.binlog import DumpOptions

log: Final = logging.getLogger("ratchet.jobs.run")

# How much earlier than needed a stream begins, so that the order does not hang on clocks: what
# comes twice by it is left out.
_MARGIN: Final = 60_000_000  # microseconds


def keyspaces(config: Config) -> list[str]:
    """The keyspaces that are read so."""
    return [name for name, source in config.sources.items() if source.vitess]


def with_live_shards(config: Config, streams: Mapping[str, StreamState]) -> Config:
    """The config with the shards that are read, of these keyspaces.

    Args:
        config: as loaded.
        streams: the streams of the round log.

    Raises:
        ConfigError: two shards that no stream is known of overlap.
    """
    sources = dict(config.sources)
    for keyspace in keyspaces(config):
        listed = config.sources[keyspace].shards
        mine = of_keyspace(keyspace, streams)
        going = {name for name, stream in mine.items() if stream.journal is None}
        fresh = [n for n in listed if n not in mine and not any(overlap(n, o) for o in mine)]
        _check_apart(keyspace, fresh)
        live = {name: shard for name, shard in listed.items() if name in going or name in fresh}
        sources[keyspace] = replace(config.sources[keyspace], shards=live)
    return replace(config, sources=sources)


def take_over(config: Config, lake: Lake, rounds: RoundLog, *, now: int) -> None:
    """Begin the shards that took over from such as the config no longer lists.

    Their streams begin at the time up to which the old ones were read. So nothing has to be dumped
    again, if the new shards' binlogs reach back so far and their copy was complete by then. Else
    the tables' states say afterwards what is.

    Args:
        config: as loaded.
        lake: the lake.
        rounds: its round log.
        now: microseconds UTC.

    Raises:
        ConfigError: no listed shard holds what a stream's shard held.
        RetryableError: a server does not answer.
        LakeError: the round cannot be committed.
    """
    for keyspace in keyspaces(config):
        gone, heirs = check_listed(config, keyspace, of_keyspace(keyspace, rounds.streams()))
        if not gone:
            continue
        slices, lost = _heirs(config, keyspace, gone, heirs, now=now)
        if lost:
            begin_after_a_gap(lake, rounds, keyspace, slices, now=now)
        else:
            begin_streams(rounds, slices, now=now)


def check_listed(
    config: Config, keyspace: str, streams: Mapping[str, StreamState]
) -> tuple[dict[str, StreamState], list[str]]:
    """Whether the config lists all shards that are needed to go on.

    Args:
        config: as loaded.
        keyspace: one that is read so.
        streams: name of a shard -> its stream.

    Returns:
        The streams whose shards are not listed any more, and the listed shards that take over.

    Raises:
        ConfigError: some shards are missing, or overlap.
    """
    listed = config.sources[keyspace].shards
    gone = {n: s for n, s in streams.items() if n not in listed and s.journal is None}
    # A stream that was begun and never read: its shard is new, and not one that is gone.
    unread = [name for name, stream in gone.items() if not stream.ts]
    if unread:
        raise _lacks(keyspace, unread, "to which a reshard sent rows")
    heirs = [n for n in listed if n not in streams and any(overlap(n, old) for old in gone)]
    ranges = [KeyRange.of(name) for name in heirs]
    bare = [name for name in gone if not KeyRange.of(name).is_within(ranges)]
    if bare:
        raise _lacks(keyspace, bare, "and no other listed shards hold the same key range")
    _check_apart(keyspace, heirs)
    return gone, heirs


def _heirs(
    config: Config,
    keyspace: str,
    gone: Mapping[str, StreamState],
    heirs: Collection[str],
    *,
    now: int,
) -> tuple[list[ShardSlice], bool]:
    """The slices that begin the heirs' streams, and whether those have a gap."""
    fields = {"event": "reshard_missed", "source": keyspace, "gone": sorted(gone)}
    try:
        places = {name: _place(config, ShardId(keyspace, name), gone) for name in heirs}
    except PositionLostError as error:
        shards = {str(ShardId(keyspace, name)) for name in heirs}
        starts = executed(source_configs(config), shards)
        slices = [
            heir(shard, place, _sources(keyspace, name_of(shard), gone), now=now)
            for shard, place in starts.items()
        ]
        log.warning(
            "%s: %s are no longer in the config, and their streams cannot be continued by %s (%s)",
            keyspace, ", ".join(sorted(gone)), ", ".join(heirs), error, extra={"fields": fields},
        )  # fmt: skip
        return slices, True
    slices = []
    for name, place in places.items():
        sources = _sources(keyspace, name, gone)
        seen = {shard: stream.position for shard, stream in sources.items()}
        slices.append(heir(str(ShardId(keyspace, name)), place, sources, now=now, seen=seen))
    log.warning(
        "%s: %s are no longer in the config; %s have what was written there since, and their "
        "streams begin at that time",
        keyspace, ", ".join(sorted(gone)), ", ".join(heirs), extra={"fields": fields},
    )  # fmt: skip
    return slices, False


def _place(config: Config, shard: ShardId, gone: Mapping[str, StreamState]) -> Position:
    """Where an heir's stream begins: at the least time up to which its sources were read.

    Raises:
        PositionLostError: its log does not follow on what was read.
    """
    sources = _sources(shard.keyspace, shard.shard, gone)
    since = min(stream.ts for stream in sources.values())
    if not since:
        raise PositionLostError(
            f"it is not known up to which time {', '.join(sources)} were read",
            operation="follow a reshard",
            source=str(shard),
        )
    source = source_configs(config)[shard]
    options = DumpOptions(server_id=server_ids(config)[shard])
    bound = config.merge.clock_bound_ms * 1000
    start = position_at(source, since - bound - _MARGIN, options)
    seen = {name: stream.position for name, stream in sources.items()}
    generation = 1 + max(stream.generation for stream in sources.values())
    check_follows(source, start, seen, options, generation=generation)
    return start


def _sources(keyspace: str, name: str, gone: Mapping[str, StreamState]) -> dict[str, StreamState]:
    """ShardId as text -> stream of the shards that one took rows over from."""
    return {
        str(ShardId(keyspace, old)): stream for old, stream in gone.items() if overlap(name, old)
    }


def _lacks(keyspace: str, shards: Collection[str], why: str) -> ConfigError:
    return ConfigError(
        f"sources.{keyspace}.shards lacks {', '.join(sorted(shards))}, {why}",
        operation="start",
        hint="add the shards that `SHOW VITESS_SHARDS` lists, with their tablets' MySQL servers",
    )


def _check_apart(keyspace: str, shards: Collection[str]) -> None:
    for one, other in combinations(shards, 2):
        if overlap(one, other):
            raise ConfigError(
                f"sources.{keyspace}.shards has {one} and {other}, whose key ranges overlap, and "
                "the mirror follows neither",
                operation="start",
                hint="leave out those that do not serve yet, or no longer; once the others are "
                "followed, a reshard's targets can be added",
            )
