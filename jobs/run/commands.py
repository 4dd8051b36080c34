"""`ratchet dump`, `merge` and `run`: the lease, the signals, the servers, Spark, then the run.

Lives here: the order of these, what each command leaves out, and going on with other shards or
without a source. Does not live here: asking the servers (`prepare`), making a run's parts
(`wiring`), the run itself (`pipeline`).

Invariant: a wrong password, a busy lake or a lost server is found before Spark is started.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ratchet.core.errors import (
    LakeAwayError,
    LakeError,
    PositionLostError,
    RatchetError,
    RetryableError,
    TableDifferentError,
    TableStoppedError,
)
from ratchet.jobs.capture.loops import Control
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import source_configs
from ratchet.jobs.preflight.encryption import warn_of_weak_links
from ratchet.jobs.preflight.fileguard import warn_of_exposed_files
from ratchet.jobs.reporting import logs
from ratchet.jobs.reporting.observe import tell
from ratchet.jobs.run.lakewait import LakeWait
from ratchet.jobs.run.prepare import dump_of, heal_on_the_way, prepare
from ratchet.jobs.run.serving import ConfigFile
from ratchet.jobs.run.signals import stop_on_signals
from ratchet.jobs.run.wiring import RunPlan, wire
from ratchet.jobs.topology.asides import Asides
from ratchet.jobs.topology.positions import ask
from ratchet.jobs.topology.tablets import with_live_shards
from ratchet.jobs.topology.vitess import topologies, with_shards
from ratchet.merge.maintain import remove_orphans
from ratchet.snapshot.patience import RetryBudget
from ratchet.store.endings import Ending, Endings
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lease import Lease
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("ratchet.jobs.run")

_RETRY: Final = 5.0  # seconds until a run that has done all else tries a source again


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
    file = ConfigFile(config)
    warn_of_weak_links(config)
    warn_of_exposed_files(config)
    lake = open_lake(config.lake, now=_now())
    with Lease.acquire(lake, f"ratchet {command} {config.path}") as lease, ExitStack() as stack:
        # Who says `dump` waits for it, and is to be told at once what is the matter.
        asides = Asides(
            config.sources if merge else (),
            tell=tell,
            note=lambda found: _note_aside(lease.lake, command, found),
        )
        lake_wait = LakeWait(config.lake_wait)
        control = Control(survives=lambda error: asides.take(error) or lake_wait.take(error))
        stack.enter_context(stop_on_signals(control.stop))
        lease.start(control.fail)
        stack.enter_context(_ending_noted(lease.lake, command))
        if not lease.continues:  # all change files are listed for it: a fortnight's
            remove_orphans(lease.lake, RoundLog(lease.lake))
        one = _Command(
            name=command,
            file=file,
            lease=lease,
            stack=stack,
            control=control,
            asides=asides,
            lake_wait=lake_wait,
            dump=dump,
            merge=merge,
            until=until_caught_up,
        )
        one.run(again)
        if control.error is not None:
            raise control.error
    return 0


@dataclass(slots=True, kw_only=True)
class _Command:
    """One command, from the first question to the servers to its end.

    Attributes:
        name: as it is typed.
        file: the config.
        lease: of the lake.
        stack: what is closed when it ends.
        control: of its loops.
        asides: the sources that it goes on without.
        lake_wait: waits for a lake that is away.
        dump: whether it dumps.
        merge: whether it merges.
        until: whether it ends when it has caught up.
        dumped: keyspace.table -> id of the dump that was there when it began.
    """

    name: str
    file: ConfigFile
    lease: Lease
    stack: ExitStack
    control: Control
    asides: Asides
    lake_wait: LakeWait
    dump: bool
    merge: bool
    until: bool
    dumped: Mapping[str, str] = field(default_factory=dict)
    _spark: list[SparkSession] = field(default_factory=list)

    def run(self, again: Sequence[str]) -> None:
        """Run until it is done or told to stop; anew whenever its shards change.

        Args:
            again: tables to dump afresh.

        Raises:
            RatchetError: what ended it.
        """
        control = self.control
        if again:
            states = Tables(self.lease.lake).list()
            self.dumped = {state.name: dump_of(state) for state in states}
        while (plan := self._prepared(again)) is not None:
            try:
                spark = self._session(plan.config)
                wire(plan, spark, self.lease, control, self._look_at_asides).run()
            except (TableStoppedError, TableDifferentError):
                self.asides.refuse(0.0)  # what is worse is told of
                raise
            if control.turning:
                control.go_on()
                self.lake_wait.wait(control, self.lease.renew)
            elif not self.until or control.is_stopped or not self._wait_for_asides():
                break

    def _session(self, config: Config) -> SparkSession:
        if not self._spark:
            from ratchet.jobs.engine.spark import spark_session

            self._spark.append(self.stack.enter_context(spark_session(config, self.name)))
        return self._spark[0]

    def _prepared(self, again: Sequence[str]) -> RunPlan | None:
        """What is to be done; None if the run was stopped meanwhile.

        Raises:
            RetryableError: patience is over.
            RatchetError: no source can be followed, or config and lake do not agree.
        """
        patience = self._patience
        waiting = RetryBudget(patience)
        while not self.control.stopping:
            try:
                return self._prepare_those_left(again)
            except LakeAwayError as error:
                if not self.lake_wait.take(error):
                    raise
                self.lake_wait.wait(self.control, self.lease.renew)
            except RetryableError as error:
                pause = min(waiting.failed("servers", error), max(patience, 0.1))
                log.warning("%s; trying again in %.1f s", error, pause)
                self.control.rest(pause)
        return None

    def _prepare_those_left(self, again: Sequence[str]) -> RunPlan:
        """Without the sources that fail; the error of the last one if all do."""
        lake, check = self.lease.lake, self.lease.check

        def heal(located: Config, lost: Mapping[str, str]) -> None:
            heal_on_the_way(located, lake, lost, self._session, check)

        while True:
            try:
                return prepare(
                    self.file,
                    lake,
                    heal,
                    dump=self.dump,
                    merge=self.merge,
                    until=self.until,
                    again=again,
                    dumped=self.dumped,
                    aside=self.asides.names,
                )
            except RatchetError as error:
                if not self.asides.take(error):
                    self.asides.take_back()
                    raise

    @property
    def _patience(self) -> float:
        return self.file.config.capture.reconnect_seconds

    # --- sources that the run goes on without -----------------------------------------------------

    def _look_at_asides(self) -> None:
        if self.asides.look(self._ask):
            self.control.turn()

    def _wait_for_asides(self) -> bool:
        """All else is done: wait for one of them; False if there is none, or it was told to stop.

        Raises:
            RatchetError: none of them will come, or patience is over.
        """
        control = self.control
        control.go_on()
        while self.asides.names and not control.stopping:
            self.asides.refuse(self._patience)
            if self.asides.look(self._ask, at_once=True):
                return True
            control.rest(_RETRY)
        return False

    def _ask(self, keyspace: str) -> None:
        """Whether its source can be followed again, as far as that shows at once.

        Raises:
            RatchetError: it cannot.
        """
        config, streams = self.file.config, RoundLog(self.lease.lake).streams()
        own = replace(config, sources={keyspace: config.sources[keyspace]})
        found = topologies(own)
        own = with_live_shards(own, streams)
        own = with_shards(own, {name: one.serving for name, one in found.items()}, found)
        for source in source_configs(own).values():
            try:
                ask(source, streams)
            except PositionLostError:
                if config.capture.lost_position != "heal":
                    raise


def _note_aside(lake: Lake, command: str, aside: Mapping[str, RatchetError]) -> None:
    """Leave in the lake what the run goes on without, for `ratchet status`."""
    found = {keyspace: _ending(command, error) for keyspace, error in aside.items()}
    with suppress(LakeAwayError):  # who waits for the lake comes here again
        Endings(lake).save_aside(found)


def _ending(command: str, error: RatchetError) -> Ending:
    return Ending(
        command=command,
        at=_now(),
        exit_code=error.exit_code,
        message=logs.clean(str(error)),
        hint=logs.clean(error.hint),
    )


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
        # What has ended it may be the lake itself; that is told by the error.
        with suppress(LakeError):
            endings.save(_ending(command, error))
        raise


def _now() -> int:
    return time.time_ns() // 1000
