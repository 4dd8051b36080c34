"""`ratchet dump`, `merge` and `run`: the lease, the signals, the servers, Spark, then the run.

Lives here: the order of these, and what each command leaves out. Does not live here: making a run's
parts (`wiring`), the run itself (`pipeline`).

Invariant: a wrong password, a busy lake or a lost server is found before Spark is started.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from core.errors import (
    BehindError,
    LakeError,
    RatchetError,
    RetryableError,
    TableDifferentError,
    TableStoppedError,
)
from core.shard import ShardId
from jobs import logs
from jobs.begin import (
    again_of_stopped,
    align,
    check_keys,
    executed,
    fresh_shards,
    heads,
    named_again,
    record_starts,
)
from jobs.capturing import Target
from jobs.config import Config
from jobs.datetypes import stop_other_types
from jobs.discover import look
from jobs.encryption import warn_of_weak_links
from jobs.heal import find_lost, heal_lost, plan_remedies
from jobs.loops import Control
from jobs.reshard import locate
from jobs.restarts import doubt_restarted, read_starts
from jobs.serving import ConfigFile
from jobs.signals import stop_on_signals
from jobs.sources import source_configs
from jobs.spelling import note_spelling, with_spelling
from jobs.unfit import begin_without, look_at
from jobs.wiring import Plan, wire
from merge.maintain import remove_orphans
from snapshot.patience import Patience
from store.endings import Ending, Endings
from store.files import Lake, open_lake
from store.lease import Lease
from store.rounds import RoundLog
from store.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("jobs.run")

T = TypeVar("T")


def run_all(config: Config, *, until_caught_up: bool) -> int:
    """`ratchet run`."""
    return _run(config, "run", until_caught_up=until_caught_up)


def run_dump(config: Config, *, again: Sequence[str] = ()) -> int:
    """`ratchet dump`."""
    return _run(config, "dump", merge=False, again=again)


def run_merge(config: Config, *, until_caught_up: bool) -> int:
    """`ratchet merge`."""
    return _run(config, "merge", dump=False, until_caught_up=until_caught_up)


def _run(
    config: Config,
    command: str,
    *,
    dump: bool = True,
    merge: bool = True,
    until_caught_up: bool = False,
    again: Sequence[str] = (),
) -> int:
    control = Control()
    file = ConfigFile(config)
    warn_of_weak_links(config)

    with (
        Lease.acquire(
            open_lake(config.lake, now=_now()), f"ratchet {command} {config.path}"
        ) as lease,
        stop_on_signals(control.stop),
        ExitStack() as stack,
    ):
        lease.start(control.fail)
        lake = lease.lake
        stack.enter_context(_ending_noted(lake, command))
        remove_orphans(lake, RoundLog(lake))
        started: list[SparkSession] = []

        def spark(located: Config) -> SparkSession:
            if not started:
                from jobs.spark import spark_session

                started.append(stack.enter_context(spark_session(located, command)))
            return started[0]

        def prepared(named: Sequence[str]) -> Plan | None:
            return _patiently(
                lambda: _prepare(
                    file,
                    lake,
                    lambda located, lost: _heal(located, lake, lost, spark, lease.check),
                    dump=dump,
                    merge=merge,
                    until=until_caught_up,
                    again=named,
                ),
                config.capture.reconnect_seconds,
                control,
            )

        while (plan := prepared(again)) is not None:
            wire(plan, spark(plan.config), lease, control).run()
            if not control.turning:
                break
            control.go_on()
            # A run that only read old shards up to their end has dumped nothing yet.
            again = again if plan.following else ()
        if control.error is not None:
            raise control.error
    return 0


@contextmanager
def _ending_noted(lake: Lake, command: str) -> Iterator[None]:
    """Leave in the lake what has ended the run, for `ratchet status`."""
    endings = Endings(lake)
    endings.clear()
    try:
        yield
    except (TableStoppedError, TableDifferentError):
        raise  # the tables tell it
    except RatchetError as error:
        ending = Ending(
            command=command,
            at=_now(),
            exit_code=error.exit_code,
            message=logs.clean(str(error)),
            hint=logs.clean(error.hint),
        )
        # What has ended it may be the lake itself; that is told by the error.
        with suppress(LakeError):
            endings.save(ending)
        raise


def _prepare(
    file: ConfigFile,
    lake: Lake,
    heal: Callable[[Config, Mapping[str, str]], None],
    *,
    dump: bool,
    merge: bool,
    until: bool,
    again: Sequence[str],
) -> Plan:
    """Ask the servers and bring the lake into agreement; may be done again from the start.

    Args:
        file: the config.
        lake: the lake.
        heal: given the config with its live shards and those that cannot go on, heals them.
        dump: as the command has it, like the following.
        merge: see there.
        until: whether the run ends when it has caught up.
        again: tables to dump afresh.

    Raises:
        RetryableError: a server does not answer.
        OperatorError: config and lake do not agree, or a server refuses us.
    """
    tables, rounds = Tables(lake), RoundLog(lake)
    located = locate(file.config, lake, rounds, now=_now())
    config, configs = located.config, source_configs(located.config)
    known = tuple((state.keyspace, state.table) for state in tables.list())
    if located.following:
        return Plan(
            config=config,
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
    config = with_spelling(config)
    note_spelling(lake, config)
    configs = source_configs(config)
    stop_other_types(lake, tables, config.policy)
    verdict = look_at(config.sources, configs, read_starts(lake))
    doubt_restarted(lake, tables, verdict.lives, last_round=rounds.last_number())
    config = begin_without(config, tables, verdict)
    configs = source_configs(config)
    states = tables.list()
    lost, waiting = find_lost(configs, rounds.streams())  # refuses servers of other shards
    if config.capture.lost_position == "heal":
        heal(config, lost)
        states = tables.list()
        _tell_unhealed(waiting)
    target = Target(heads(configs)) if until else None
    found = [
        one for one in look(config.sources, configs) if not verdict.of(one.keyspace, one.table)
    ]
    named = named_again(again, found)
    check_keys(states, config.sources, named)
    shards = [str(shard) for shard in configs]
    streams = rounds.streams()
    fresh = fresh_shards(shards, streams, named, found)
    vitess = {name for name, source in config.sources.items() if source.is_vitess}
    align(
        tables,
        found,
        config.mirrors,
        fresh,
        ended=lambda s: s not in streams and ShardId.parse(s).keyspace in vitess,
    )
    record_starts(rounds, executed(configs, fresh), now=_now())
    retried = again_of_stopped(states) & {one.name for one in found}
    return Plan(
        config=config,
        file=file,
        lake=lake,
        found=tuple(found),
        dump=dump,
        merge=merge,
        again=frozenset(named | retried),
        target=target,
        known=known,
        verdict=verdict,
    )


def _tell_unhealed(waiting: Mapping[str, RetryableError]) -> None:
    for shard, error in waiting.items():
        if isinstance(error, BehindError):
            log.warning(
                "%s: not healed, as its server may be a replica that is behind. If transactions "
                "are lost, stop the run and say `ratchet heal CONFIG --shard %s`",
                shard,
                shard,
            )


def _heal(
    config: Config,
    lake: Lake,
    lost: Mapping[str, str],
    spark: Callable[[Config], SparkSession],
    check: Callable[[], None],
) -> None:
    rounds = RoundLog(lake)
    remedies = plan_remedies(rounds, source_configs(config), lost)
    heal_lost(config, lake, rounds, remedies, spark=lambda: spark(config), check=check)


def _patiently(work: Callable[[], T], patience: float, control: Control) -> T | None:
    """Do it until it succeeds; None if the run was stopped meanwhile.

    Raises:
        RetryableError: patience is over.
    """
    waiting = Patience(patience)
    while not control.stopping:
        try:
            return work()
        except RetryableError as error:
            pause = min(waiting.failed("servers", error), max(patience, 0.1))
            log.warning("%s; trying again in %.1f s", error, pause)
            control.rest(pause)
    return None


def _now() -> int:
    return time.time_ns() // 1000
