"""Preparing a run: the servers are asked, and lake, config and servers brought into agreement.

Lives here: `prepare`, and the order of what it does. Does not live here: each of these steps
(`begin`, `reshard`, `unfit`, `heal`, ...), making a run's parts of it (`wiring`).

Invariant: nothing is read from a server for a dump before the start of its stream is in the lake.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ratchet.core.errors import BehindError, RetryableError
from ratchet.core.shard import ShardId
from ratchet.core.shell import shell_word
from ratchet.jobs.capture.capturing import CatchUpTarget
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import source_configs
from ratchet.jobs.config.spelling import note_spelling, with_noted_spelling, with_spelling
from ratchet.jobs.preflight.datetypes import stop_other_types
from ratchet.jobs.preflight.restarts import doubt_restarted, read_starts
from ratchet.jobs.preflight.unfit import begin_without, look_at
from ratchet.jobs.recovery.heal import find_lost, heal_lost, plan_remedies
from ratchet.jobs.reporting.text import one_line
from ratchet.jobs.run.serving import ConfigFile
from ratchet.jobs.run.wiring import RunPlan
from ratchet.jobs.topology.asides import with_silent, without
from ratchet.jobs.topology.begin import (
    again_of_stopped,
    align,
    check_databases,
    check_keys,
    check_shards,
    databases_of,
    executed,
    fresh_shards,
    has_stood,
    heads,
    left_behind,
    named_again,
    record_starts,
)
from ratchet.jobs.topology.discover import look
from ratchet.jobs.topology.lineage import keyspace_of
from ratchet.jobs.topology.reshard import locate
from ratchet.store.anew import to_be_dumped
from ratchet.store.databasenote import note_databases, read_databases
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("ratchet.jobs.run")


def prepare(
    file: ConfigFile,
    lake: Lake,
    heal: Callable[[Config, Mapping[str, str]], None],
    *,
    dump: bool,
    merge: bool,
    until: bool,
    again: Sequence[str],
    dumped: Mapping[str, str],
    aside: Collection[str],
) -> RunPlan:
    """Ask the servers and bring the lake into agreement; may be done again from the start.

    Args:
        file: the config.
        lake: the lake.
        heal: given the config with its live shards and those that cannot go on, heals them.
        dump: as the command has it, like the following.
        merge: see there.
        until: whether the run ends when it has caught up.
        again: tables to dump afresh.
        dumped: keyspace.table -> id of the dump that `again` is to replace; one that has another by
            now has begun it already.
        aside: keyspaces whose sources are left in peace.

    Raises:
        RetryableError: a server does not answer.
        OperatorError: config and lake do not agree, or a server refuses us.
    """
    tables, rounds = Tables(lake), RoundLog(lake)
    _tell_helpers(tables.list(), file.config)
    full = with_noted_spelling(file.config, lake)
    located = locate(without(file.config, aside), lake, rounds, now=_now())
    known = tuple((state.keyspace, state.table) for state in tables.list())
    if located.following:
        return RunPlan(
            config=with_silent(located.config, full, aside),
            file=file,
            lake=lake,
            found=(),
            dump=dump,
            merge=merge,
            again=frozenset(),
            target=None,
            following=True,
            known=known,
        )
    config = with_spelling(located.config)
    note_spelling(lake, config)
    configs = source_configs(config)
    stop_other_types(lake, tables, config.policy)
    verdict = look_at(config.sources, configs, read_starts(lake), before={})
    doubt_restarted(lake, tables, verdict.lives, last_round=rounds.last_number())
    config = with_silent(begin_without(config, tables, verdict), full, aside)
    configs = source_configs(config)
    states = tables.list()
    lost, waiting = find_lost(configs, rounds.streams())  # refuses servers of other shards
    if config.capture.lost_position == "heal":
        heal(config, lost)
        states = tables.list()
        _tell_unhealed(waiting)
    target = CatchUpTarget(heads(configs)) if until else None
    found = [
        one for one in look(config.sources, configs) if not verdict.of(one.keyspace, one.table)
    ]
    begun = {state.name for state in states if dump_of(state) != dumped.get(state.name, "")}
    left = left_behind(states, found, config.sources)
    named = named_again(again, found, left) - begun
    check_keys(states, config.sources, named)
    shards = [str(shard) for shard in configs]
    streams = rounds.streams()
    fresh = fresh_shards(shards, streams, named, found)
    vitess = {name for name, source in config.sources.items() if source.is_vitess}
    by_itself = vitess | {name for name, source in config.sources.items() if source.vitess}
    read = {one.name: one.shards for one in found}
    check_shards(states, full.sources, streams, read, named)  # also of those that are set aside
    databases = databases_of(config.sources, configs)
    check_databases(databases, read_databases(lake), fresh)
    note_databases(lake, databases)
    align(
        lake,
        found,
        config.mirrors,
        fresh,
        ended=lambda s: s not in streams and ShardId.parse(s).keyspace in vitess,
        was_left=lambda shard, dump: (
            keyspace_of(shard) not in by_itself and has_stood(shard, dump, rounds)
        ),
    )
    for state in states:
        if state.name in named & left:  # the dump finds that it is gone
            tables.save(to_be_dumped(lake, state))
    record_starts(rounds, executed(configs, fresh), now=_now())
    retried = again_of_stopped(states) & {one.name for one in found}
    for state in states:
        if state.is_unreadable and state.name in retried and state.stopped is not None:
            log.warning("%s is dumped again: %s", state.name, state.stopped.message)
    return RunPlan(
        config=config,
        file=file,
        lake=lake,
        found=tuple(found),
        dump=dump,
        merge=merge,
        again=frozenset(named - left | retried),
        target=target,
        known=known,
        verdict=verdict,
    )


def dump_of(state: TableState) -> str:
    """The id of a table's newest dump; empty if it has none."""
    return "" if state.dump is None else state.dump.id


def _tell_helpers(states: Sequence[TableState], config: Config) -> None:
    """Earlier versions mirrored them like any other table."""
    for state in states:
        source = config.sources.get(state.keyspace)
        if source is not None and source.tables.leaves_to_tool(state.table):
            log.warning(
                "%s is not mirrored, as schema change tools name their own tables so. A pattern in "
                "`tables` that begins with _ takes it; `ratchet table CONFIG drop %s` forgets it",
                one_line(state.name),
                shell_word(state.name),
            )


def _tell_unhealed(waiting: Mapping[str, RetryableError]) -> None:
    for shard, error in waiting.items():
        if isinstance(error, BehindError):
            log.warning(
                "%s: not healed, as its server may be a replica that is behind. If transactions "
                "are lost, stop the run, then `ratchet heal CONFIG --shard %s`",
                shard,
                shell_word(shard),
            )


def heal_on_the_way(
    config: Config,
    lake: Lake,
    lost: Mapping[str, str],
    spark: Callable[[Config], SparkSession],
    check: Callable[[], None],
) -> None:
    """Let the streams go on that cannot, as `capture.lost_position` says.

    Raises:
        RatchetError: that cannot be done.
    """
    rounds = RoundLog(lake)
    remedies = plan_remedies(rounds, source_configs(config), lost)
    heal_lost(config, lake, rounds, remedies, spark=lambda: spark(config), check=check)


def _now() -> int:
    return time.time_ns() // 1000
