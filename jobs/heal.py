"""`ratchet heal`: going on where a source has lost what the mirror needs.

Lives here: which shards' servers cannot go on, and giving their streams a new beginning. Does not
live here: what of the tables is dumped again by it (`gaps`), the dump itself (`ratchet run`).

A server cannot go on if it has purged what the mirror lacks, or never had, or has lost, what the
mirror holds: a pause longer than its binlogs, a failover that lost transactions, RESET, a backup
that was restored. The shard's stream then begins anew, now, one generation above: what its server
says from here on is newer than anything that was mirrored of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Final

from core.errors import ConfigError, PositionLostError, RetryableError
from core.rounds import ShardSlice
from core.shard import ShardId
from jobs.begin import executed
from jobs.config import Config
from jobs.gaps import begin_after_a_gap
from jobs.lineage import ancestors_of, keyspace_of
from jobs.positions import ask
from jobs.reshard import locate
from jobs.sources import source_configs
from jobs.text import nearest
from store.files import Lake, open_lake
from store.lease import Lease
from store.rounds import RoundLog, StreamState
from wire.session import SourceConfig

log: Final = logging.getLogger("jobs.run")

Configs = Mapping[ShardId, SourceConfig]


def run_heal(config: Config, *, shards: Sequence[str] = ()) -> int:
    """Begin the streams anew that cannot go on, and print what that means.

    Args:
        config: as loaded.
        shards: begin these anew in any case, as keyspace/shard.

    Raises:
        RetryableError: a server does not answer, or lacks transactions that may still come. What
            others have lost is healed by then.
        OperatorError: config and lake do not fit, or the lake is in use.
    """
    lake = open_lake(config.lake, now=_now(), create=False)
    with Lease.acquire(lake, f"ratchet heal {config.path}") as lease:
        lease.start(lambda _: None)  # `check` tells of it
        rounds = RoundLog(lake)
        located = locate(config, lake, rounds, now=_now())
        configs = source_configs(located.config)
        streams = rounds.streams()
        forced = _named(shards, configs)
        lost, waiting = find_lost(configs, streams, forced)
        lease.check()
        begin_anew(lake, rounds, configs, lost, now=_now())
        for shard in map(str, configs):
            print(_line(shard, streams, lost, waiting))
        if lost:
            print("`ratchet run` dumps them now, and goes on with the others meanwhile")
    if waiting:
        raise next(iter(waiting.values()))
    return 0


def find_lost(
    configs: Configs, streams: Mapping[str, StreamState], forced: Collection[str] = ()
) -> tuple[dict[str, str], dict[str, RetryableError]]:
    """Ask each shard's server whether it can go on.

    Args:
        configs: how to connect.
        streams: the lake's; shards without one, or whose stream has ended, are not asked.
        forced: shards that count as lost whatever they answer.

    Returns:
        Shard -> what is lost; and shard -> error, of those that may be able to go on later.

    Raises:
        ConfigError: a server is that of another shard.
    """
    lost: dict[str, str] = {}
    waiting: dict[str, RetryableError] = {}
    for shard, source in configs.items():
        if str(shard) in forced:
            stream = streams.get(str(shard))
            if stream is not None and stream.journal is None:
                lost[str(shard)] = "asked for"
            continue
        try:
            ask(source, streams)
        except PositionLostError as error:
            lost[str(shard)] = error.message
        except RetryableError as error:
            waiting[str(shard)] = error
    return lost, waiting


def begin_anew(
    lake: Lake, rounds: RoundLog, configs: Configs, lost: Mapping[str, str], *, now: int
) -> None:
    """Begin the streams of these shards now, and send what they wrote to a new dump.

    Args:
        lake: the lake.
        rounds: its round log.
        configs: how to connect.
        lost: shard -> why.
        now: microseconds UTC.

    Raises:
        RetryableError: a server does not answer; nothing of its keyspace is changed then.
        LakeError: the lake cannot be written.
    """
    streams = rounds.streams()
    for keyspace, shards in groupby(sorted(lost), key=keyspace_of):
        places = executed(configs, set(shards))
        slices = []
        for shard, place in places.items():
            log.warning("%s begins anew: %s", shard, lost[shard])
            slices.append(
                ShardSlice.beginning(
                    shard, place, generation=streams[shard].generation + 1, now=now,
                    # Its own life until now as well: nothing of that is merged any more.
                    ancestors=ancestors_of({shard: streams[shard]}),
                )
            )  # fmt: skip
        begin_after_a_gap(lake, rounds, keyspace, slices, now=now)


def _named(shards: Sequence[str], configs: Configs) -> set[str]:
    """The shards that names stand for: keyspace/shard, or the shard alone where it is the only one.

    Raises:
        ConfigError: there is no such shard, or there are several.
    """
    known = [str(shard) for shard in configs]
    found = set()
    for name in shards:
        hits = [one for one in known if name in {one, one.partition("/")[2]}]
        if len(hits) != 1:
            raise ConfigError(
                f"--shard {name}: " + (f"may be {', '.join(hits)}" if hits else "no such shard"),
                operation="heal",
                hint=nearest(name, known, f"there are {', '.join(known)}"),
            )
        found |= set(hits)
    return found


def _line(
    shard: str,
    streams: Mapping[str, StreamState],
    lost: Mapping[str, str],
    waiting: Mapping[str, RetryableError],
) -> str:
    if shard in lost:
        return f"{shard}: begins anew ({lost[shard]}); its rows are dumped again"
    if shard in waiting:
        return f"{shard}: left as it is ({waiting[shard].message})"
    return f"{shard}: " + ("can go on" if shard in streams else "not read yet")


def _now() -> int:
    return time.time_ns() // 1000
