"""`ratchet heal`: going on where a source has lost what the mirror needs.

Lives here: which shards' servers cannot go on, and what is done about each. Does not live here:
going on at a parting (`rowheal`), what of the tables is dumped again (`gaps`), the dump itself
(`ratchet run`).

A server cannot go on if it has purged what the mirror lacks, or never had, or has lost, what the
mirror holds: a pause longer than its binlogs, a failover that lost transactions, RESET, a backup
that was restored. The shard's stream then begins anew, one generation above: what its server says
from here on is newer than anything that was mirrored of it. Where server and mirror still have a
history in common, it begins where that ends, and only the rows behind it are read again; else it
begins now, and all rows of the shard are dumped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ratchet.core.errors import ConfigError, PositionLostError, RetryableError
from ratchet.core.rounds import ShardSlice
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import source_configs
from ratchet.jobs.config.spelling import with_spelling
from ratchet.jobs.recovery.holding import held_lake
from ratchet.jobs.recovery.rowheal import (
    finish_healing,
    heal_rows,
    plan_heal,
    undo_unbegun,
    waiting_tables,
)
from ratchet.jobs.reporting.terminal import say
from ratchet.jobs.reporting.text import counted, nearest
from ratchet.jobs.topology.begin import executed, refuse_unfitting
from ratchet.jobs.topology.gaps import begin_after_a_gap
from ratchet.jobs.topology.lineage import ancestors_of, keyspace_of
from ratchet.jobs.topology.parting import DivergencePoint, find_parting
from ratchet.jobs.topology.positions import ask
from ratchet.jobs.topology.reshard import locate
from ratchet.jobs.topology.tablets import with_live_shards
from ratchet.jobs.topology.vitess import with_serving_shards
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.wire.session import SourceConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("ratchet.jobs.run")

Configs = Mapping[ShardId, SourceConfig]

_ASKED: Final = "asked for"


def run_heal(
    config: Config, *, shards: Sequence[str] = (), dump: bool = False, dry_run: bool = False
) -> int:
    """Let the streams go on that cannot, and print what that means.

    Args:
        config: as loaded.
        shards: these as well, though their servers may come right by themselves (a replica that is
            behind), as keyspace/shard.
        dump: have all rows of the shards dumped again, instead of those that were lost; also of
            those in `shards` that could go on.
        dry_run: only print what would be done.

    Raises:
        RetryableError: a server does not answer, or lacks transactions that may still come. What
            others have lost is healed by then.
        OperatorError: config and lake do not fit, or the lake is in use.
    """
    lake = open_lake(config.lake, now=_now(), create=False)
    with ExitStack() as stack:
        lake, check = stack.enter_context(
            held_lake(lake, f"ratchet heal {config.path}", dry_run=dry_run)
        )
        refuse_unfitting(config, lake)
        rounds = RoundLog(lake)
        located = with_spelling(_located(config, lake, rounds, dry_run=dry_run))
        configs = source_configs(located)
        streams = rounds.streams()
        named = _named(shards, configs)
        lost, waiting = find_lost(configs, streams, named, anew=named if dump else ())
        remedies = plan_remedies(rounds, configs, lost, dump=dump)
        for shard in map(str, configs):
            say(_line(shard, streams, remedies, waiting), flush=True)

        @cache
        def spark() -> SparkSession:
            from ratchet.jobs.engine.spark import spark_session

            return stack.enter_context(spark_session(located, "heal"))

        if dry_run:
            _print_plan(lake, rounds, remedies, config.policy)
        else:
            told = heal_lost(located, lake, rounds, remedies, spark=spark, check=check)
            for table, what in sorted(told.items()):
                say(f"{table}: {what}")
            if lost:
                say("`ratchet run` continues from there, and meanwhile dumps what has to be dumped")
    if waiting:
        raise next(iter(waiting.values()))
    return 0


def _located(config: Config, lake: Lake, rounds: RoundLog, *, dry_run: bool) -> Config:
    """The config with its live shards; but for a dry run, behind all complete reshards."""
    if dry_run:
        return with_live_shards(with_serving_shards(config), rounds.streams())
    return locate(config, lake, rounds, now=_now()).config


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedies:
    """What is done about the shards that cannot go on.

    Attributes:
        anew: shard -> why it begins anew now, and all its rows are dumped again.
        partings: of those that go on where their histories part, and lose some rows only.
        lost: shard -> why it cannot go on, of both kinds.
    """

    anew: Mapping[str, str]
    partings: Sequence[DivergencePoint]
    lost: Mapping[str, str]


def plan_remedies(
    rounds: RoundLog, configs: Configs, lost: Mapping[str, str], *, dump: bool = False
) -> Remedies:
    """Which shards go on at a parting, and which have to begin anew.

    All of a keyspace go the same way: a table keeps rows of shards, or single ones.

    Args:
        rounds: the round log.
        configs: how to connect.
        lost: shard -> why it cannot go on.
        dump: let all begin anew.

    Raises:
        RetryableError: a server does not answer.
    """
    sources = {str(shard): source for shard, source in configs.items()}
    anew: dict[str, str] = {}
    partings: list[DivergencePoint] = []
    for _, shards in groupby(sorted(lost), key=keyspace_of):
        mine = list(shards)
        if dump:
            anew |= {shard: lost[shard] for shard in mine}
            continue
        found = [find_parting(sources[shard], rounds) for shard in mine]
        why = [one for one in found if isinstance(one, str)]
        if why:
            anew |= {shard: f"{lost[shard]}; {why[0]}" for shard in mine}
        else:
            partings += [one for one in found if isinstance(one, DivergencePoint)]
    return Remedies(anew=anew, partings=partings, lost=lost)


def heal_lost(
    config: Config,
    lake: Lake,
    rounds: RoundLog,
    remedies: Remedies,
    *,
    spark: Callable[[], SparkSession],
    check: Callable[[], None],
) -> Mapping[str, str]:
    """Let the streams go on, or begin anew; and finish what an earlier heal has left.

    Args:
        config: with its live shards.
        lake: the lake, whose lease is ours.
        rounds: its round log.
        remedies: what is to be done.
        spark: gives the session; only called if there are rows to heal.
        check: raises when the lease is lost.

    Returns:
        keyspace.table -> what has become of it, of tables of which rows were to be healed.

    Raises:
        RetryableError: a server does not answer. What is left to do is in the tables' states.
        LakeError: the lake cannot be written.
    """
    check()
    told = dict(undo_unbegun(lake))
    # First of all, as what an earlier heal has left may need a shard that has parted again.
    begin_anew(lake, rounds, source_configs(config), remedies.anew, now=_now())
    if remedies.partings:
        told |= heal_rows(config, lake, spark(), remedies.partings, check=check, now=_now)
    elif waiting_tables(lake):
        told |= finish_healing(config, lake, spark(), check=check)
    return told


def find_lost(
    configs: Configs,
    streams: Mapping[str, StreamState],
    named: Collection[str] = (),
    *,
    anew: Collection[str] = (),
) -> tuple[dict[str, str], dict[str, RetryableError]]:
    """Ask each shard's server whether it can go on.

    Args:
        configs: how to connect.
        streams: the lake's; shards without one, or whose stream has ended, are not asked.
        named: shards that count as lost also if they may be able to go on later.
        anew: shards that count as lost in any case.

    Returns:
        Shard -> what is lost; and shard -> error, of those that may be able to go on later.

    Raises:
        ConfigError: a server is that of another shard.
    """
    lost: dict[str, str] = {}
    waiting: dict[str, RetryableError] = {}
    for shard, source in configs.items():
        try:
            ask(source, streams)
        except PositionLostError as error:
            lost[str(shard)] = error.message
        except ConfigError:
            if str(shard) not in anew:
                raise
            lost[str(shard)] = _ASKED
        except RetryableError as error:
            if str(shard) in named:
                lost[str(shard)] = error.message
            else:
                waiting[str(shard)] = error
        else:
            stream = streams.get(str(shard))
            if str(shard) in anew and stream is not None and stream.journal is None:
                lost[str(shard)] = _ASKED
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
            log.warning("%s begins from scratch: %s", shard, lost[shard])
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
    remedies: Remedies,
    waiting: Mapping[str, RetryableError],
) -> str:
    if shard in remedies.anew:
        return f"{shard}: begins from scratch ({remedies.anew[shard]}); its rows are dumped again"
    for parting in remedies.partings:
        if parting.shard == shard:
            return f"{shard}: continues after round {parting.round} ({remedies.lost[shard]})"
    if shard in waiting:
        return f"{shard}: left as it is ({waiting[shard].message})"
    return f"{shard}: " + ("can continue" if shard in streams else "not read yet")


def _print_plan(
    lake: Lake, rounds: RoundLog, remedies: Remedies, policy: InvalidValuePolicy
) -> None:
    for state in waiting_tables(lake):
        say(f"{state.name}: an earlier heal would be finished")
    for _, group in groupby(remedies.partings, key=lambda one: keyspace_of(one.shard)):
        plan = plan_heal(lake, rounds, list(group), policy)
        for table, count in sorted(plan.rows.items()):
            what = f"{counted(count, 'row')} would be read again" if count else "nothing is lost"
            say(f"{table}: {what}")
        for table, why in sorted(plan.dumps.items()):
            say(f"{table}: would be dumped again: {why}")
    say("none of this was done")


def _now() -> int:
    return time.time_ns() // 1000
