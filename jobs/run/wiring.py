"""Making a run's parts out of the rooms: the one place where all of them meet.

Lives here: constructors and their arguments. Does not live here: any decision.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.rounds import RoundTaker, Runner, near_runner, spark_runner
from ratchet.ingest.slices import ENDING
from ratchet.jobs.capture.capturing import (
    CaptureRunner,
    CaptureSettings,
    CatchUpTarget,
    Stream,
    guarded,
)
from ratchet.jobs.capture.loops import (
    CaptureLoop,
    Control,
    DumpLoop,
    MergeLoop,
    VerifyLoop,
    WatchLoop,
)
from ratchet.jobs.capture.pace import StepPace
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.selection import RoundBarrier, Selection
from ratchet.jobs.config.sources import server_ids, source_configs, vtgate_config
from ratchet.jobs.engine.sparksettings import CAPTURE, DUMP, MERGE, is_local, stays_here
from ratchet.jobs.engine.sparkwatch import SparkWatch, cancel_jobs, read_work
from ratchet.jobs.inspect.changelog import ChangeLog
from ratchet.jobs.inspect.reading import reading_of
from ratchet.jobs.inspect.verify import Verifier
from ratchet.jobs.preflight.foreignkeys import ForeignKeyWatch, read_keys
from ratchet.jobs.preflight.leftout import LeftOutCheck
from ratchet.jobs.preflight.restarts import doubt_restarted, read_starts
from ratchet.jobs.preflight.unfit import FitnessResult, UnfitRegister, look_at
from ratchet.jobs.reporting.observe import StopReporter, tell
from ratchet.jobs.run.altered import AlteredTables
from ratchet.jobs.run.computing import TableComputer
from ratchet.jobs.run.dumping import DumpRunner
from ratchet.jobs.run.guard import GuardedTask, SparkGuard
from ratchet.jobs.run.merging import LakeUpkeep, MergeRunner
from ratchet.jobs.run.pipeline import MirrorRun, RunComponents
from ratchet.jobs.run.serving import ConfigFile, TableRequestHandler
from ratchet.jobs.topology.discover import DiscoveredTable, look
from ratchet.jobs.topology.lag import read_until
from ratchet.jobs.watch.background import BackgroundVerifier
from ratchet.jobs.watch.doubts import Doubts
from ratchet.jobs.watch.logsample import SHARE as LOG_SHARE
from ratchet.jobs.watch.logsample import LogSamples
from ratchet.jobs.watch.mending import Mender
from ratchet.jobs.watch.partitions import PartitionWatch
from ratchet.jobs.watch.vanished import doubt_vanished
from ratchet.jobs.watch.verdicts import Verdicts
from ratchet.merge.ages import refuse_other_ages
from ratchet.merge.keep import keep_rows
from ratchet.merge.progress import Progress
from ratchet.merge.rounds import Merger
from ratchet.merge.step import MergeOptions
from ratchet.snapshot.dump import Dumper
from ratchet.snapshot.records import OnProgress
from ratchet.snapshot.tasks import near_reader, spark_reader
from ratchet.store.comparisons import Comparisons
from ratchet.store.files import Lake
from ratchet.store.lazyspark import is_started
from ratchet.store.lease import Lease
from ratchet.store.leftout import LeftOutTables
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MERGE_PATIENCE: Final = 60.0  # seconds that a piece waits for the mirror to come as far


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What a run is to do.

    Attributes:
        config: the whole config, with the shards of now.
        file: the config as it was read.
        lake: opened.
        found: the tables that the servers have.
        dump: whether it dumps.
        merge: whether it merges.
        again: tables (keyspace.table) to dump whatever their phase.
        target: what it waits for, if it does.
        following: whether shards are read that serve no more, up to their end by a reshard.
        known: keyspace and table of what the mirror holds besides `found`.
        verdict: which sources and tables are not fit to be followed.
    """

    config: Config
    file: ConfigFile
    lake: Lake
    found: tuple[DiscoveredTable, ...]
    dump: bool
    merge: bool
    again: frozenset[str]
    target: CatchUpTarget | None
    following: bool = False
    known: tuple[tuple[str, str], ...] = ()
    verdict: FitnessResult = field(default_factory=FitnessResult)


def wire(
    plan: RunPlan,
    spark: SparkSession,
    lease: Lease,
    control: Control,
    look: Callable[[], None] = lambda: None,
) -> MirrorRun:
    """A run, ready to go; from time to time it looks besides whether more could be done."""
    return _RunBuilder(plan, spark, lease, control).run(look)


class _RunBuilder:
    """What all parts of one run share, and the making of each."""

    def __init__(self, plan: RunPlan, spark: SparkSession, lease: Lease, control: Control) -> None:
        self._plan, self._spark, self._lease, self._control = plan, spark, lease, control
        self._config = plan.config
        self._configs = source_configs(plan.config)
        self._guard = SparkGuard(spark, plan.config)
        self._stop = threading.Event()
        self._stops = StopReporter(tell)
        self._selection = Selection(plan.config.sources)
        self._unfit = UnfitRegister(
            lambda before: look_at(
                self._selection.sources, self._configs, read_starts(plan.lake), before
            ),
            plan.verdict,
        )
        self._altered = AlteredTables(
            Tables(plan.lake), self._follows_ddl, is_dumping=self._selection.is_dumping
        )
        self._turnstile = RoundBarrier()
        streams = RoundLog(plan.lake).streams()
        self._generations = {shard: stream.generation for shard, stream in streams.items()}
        self._reading = reading_of(plan.config, self._generations)
        self._seen = {shard: stream.seen for shard, stream in streams.items()}
        # Earlier versions took any time that a log had.
        now = time.time_ns() // 1000
        self._since = {shard: min(stream.ts, now) for shard, stream in streams.items()}
        self._silent = {
            name: read_until(name, streams)
            for name, source in plan.config.sources.items()
            if not source.shards
        }
        self._partitions = PartitionWatch(plan.lake, self._reading.shards, self._is_named)
        for keyspace, table in (*((one.keyspace, one.table) for one in plan.found), *plan.known):
            self._selection.add(keyspace, table)

    def _is_named(self, keyspace: str, table: str) -> bool:
        source = self._selection.sources.get(keyspace)
        return source is not None and source.tables.matches(table)

    def run(self, look: Callable[[], None]) -> MirrorRun:
        """The run."""

        def look_at_sources() -> None:
            self._unfit.look()
            look()

        ENDING.clear()
        config, control, guard = self._config, self._control, self._guard
        watch = WatchLoop(control, look_at_sources, every=config.capture.look_seconds)
        capturing = self._capturing(watch.hurry)
        capture = CaptureLoop(
            control,
            guard.in_pool(CAPTURE, "capture", capturing.round),
            shards=[str(shard) for shard in config.shards],
            patience=config.capture.reconnect_seconds,
            back=watch.hurry,
            alarmed=self._unfit.look_once_more,
        )
        dump = merging = merge = verify = verdicts = keys = None
        if self._plan.dump and not self._plan.following:
            # `dump` looks once; a run looks again, for tables that have come.
            every = config.capture.look_seconds if self._plan.merge else None
            dump = DumpLoop(
                control,
                guard.plain("dump", self._dumping().once),
                every=every,
                rests=self._altered.rests,
            )
        # Ages are looked at before capture adds to the log.
        if not self._plan.merge:
            refuse_other_ages(self._plan.lake, Progress(self._plan.lake))
        else:
            merger = self._merger()
            merger.refuse_other_ages()
            verifier = self._verifier()
            verdicts = self._verdicts(merger, verifier)
            keys = self._foreign_keys()
            merging = self._merging(merger, verdicts, keys)
            pace = config.merge.interval_seconds
            if pace is None and (self._plan.target is not None or self._plan.following):
                pace = 0.0  # it has an end, and somebody waits for it
            merge = MergeLoop(
                control,
                guard.in_pool(MERGE, "merge", merging.step),
                pace=StepPace(pace, now=time.monotonic()),
                patience=config.capture.reconnect_seconds,
                between=guard.in_pool(MERGE, "merge", merging.between),
            )
            if not self._plan.following:
                tasks = [
                    GuardedTask(guard, self._doubts(verifier, verdicts)),
                    GuardedTask(guard, self._log_samples(verdicts)),
                    GuardedTask(guard, self._background(verdicts, merge.hurry)),
                ]
                verify = VerifyLoop(control, tasks, patience=config.capture.reconnect_seconds)
        parts = RunComponents(
            control=control,
            stop=self._stop,
            capturing=capturing,
            capture=capture,
            dump=dump,
            merging=merging,
            merge=merge,
            verify=verify,
            watch=watch if self._plan.merge else None,
            watch_spark=SparkWatch(
                self._spark,
                limit=config.spark.stall_seconds,
                read=partial(read_work, driver_works=is_local(config)),
                cancel=cancel_jobs,
            ).look,
            undecided=[
                *(one for one in (verdicts, keys) if one is not None),
                *((self._altered,) if dump is not None else ()),
            ],
            target=self._plan.target,
            finish=partial(self._finish, watch) if self._plan.merge else lambda: None,
            following=self._plan.following,
            cut_short=self._cut_short,
        )
        return MirrorRun(
            parts,
            rounds=RoundLog(self._plan.lake),
            tables=Tables(self._plan.lake),
            comparisons=Comparisons(self._plan.lake),
            mirrored=self._selection.mirrors,
            followed=self._selection.follows,
            observer=tell,
            stops=self._stops,
            goes_on=self._altered.takes,
            silent=self._silent,
        )

    def _cut_short(self) -> None:
        ENDING.set()
        if is_started(self._spark):  # slices may be read by its tasks
            cancel_jobs(self._spark)

    def _finish(self, watch: WatchLoop) -> None:
        """Stop what is refused, also by what the run has no time left to look at.

        The next run may find a server that was started once more, with other settings.
        """
        if watch.is_hurried:
            self._unfit.look_once_more()
        if self._plan.target is not None:  # the next run begins behind statements of its own
            self._partitions.look(now=True)
        self._unfit.stop(Tables(self._plan.lake), self._stops)
        self._unfit.end(self._plan.lake)

    def _capturing(self, reopened: Callable[[], None]) -> CaptureRunner:
        config, given = self._config, self._config.capture
        ids = server_ids(config)
        streams = {
            str(shard): Stream(
                source=source,
                server_id=ids[shard],
                generation=self._generations.get(str(shard), 0),
                vtgate=vtgate_config(config.sources[shard.keyspace]),
                vitess=config.sources[shard.keyspace].vitess,
                seen=self._seen.get(str(shard), {}),
                since=self._since.get(str(shard), 0),
            )
            for shard, source in self._configs.items()
        }
        settings = CaptureSettings(
            lake=self._plan.lake.root,
            round_seconds=given.round_seconds,
            round_bytes=given.round_bytes,
            heartbeat=given.heartbeat_seconds,
            policy=self._policy,
            max_skew=given.max_skew_seconds,
            clock_bound=config.merge.clock_bound_ms / 1000,
        )
        taker = RoundTaker(
            RoundLog(self._plan.lake),
            guarded(self._runner(), self._lease.check),
            heartbeat_commit_seconds=given.idle_commit_seconds,
        )
        return CaptureRunner(
            streams,
            settings,
            taker,
            patterns=self._selection.patterns,
            known=self._selection.known,
            turnstile=self._turnstile,
            observer=tell,
            target=self._plan.target,
            turn=self._control.turn,
            reopened=reopened,
        )

    def _runner(self) -> Runner:
        on_cluster = not stays_here(self._config)
        return near_runner(
            spark_runner(self._spark, pool=CAPTURE),
            is_far_up=lambda: on_cluster or is_started(self._spark),
        )

    def _dumping(self) -> DumpRunner:
        config = self._config
        sight = LeftOutCheck(
            lambda *, unfit, locked: look(
                self._selection.sources, self._configs, unfit=unfit, locked=locked
            ),
            self._unfit.of,
            noted=LeftOutTables(self._plan.lake),
            tell=self._stops.leave_out,
        )

        def tables() -> list[DiscoveredTable]:
            self._partitions.look()
            return sight.tables()

        return DumpRunner(
            tables,
            Tables(self._plan.lake),
            self._selection,
            self._dumper,
            turnstile=self._turnstile,
            check=self._lease.check,
            stop=self._stop,
            patience=config.capture.reconnect_seconds,
            stops=self._stops,
            refused=self._unfit.of,
            look_again=self._unfit.look,
            again=self._plan.again,
            locked=lambda: sight.locked,
            altered=self._altered if self._plan.merge else None,
            compute=self._guard.in_pool(
                DUMP,
                "dump",
                TableComputer(
                    self._spark, self._plan.lake, self._reading.shards, self._reading.settings
                ),
            ),
        )

    def _follows_ddl(self, state: TableState) -> bool:
        source = self._config.sources.get(state.keyspace)
        follows = source is not None and source.follows(state.table)
        return follows and self._selection.follows(state)

    def _dumper(self, on_progress: OnProgress) -> Dumper:
        return Dumper(
            self._plan.lake,
            self._reading.shards,
            # Per call, because the dumper's threads are its own.
            self._guard.in_pool(DUMP, "dump", near_reader(spark_reader(self._spark))),
            settings=self._reading.settings,
            keep=partial(keep_rows, self._spark, self._plan.lake, policy=self._policy),
            on_progress=on_progress,
            stop=self._stop,
        )

    def _verifier(self) -> Verifier:
        lake, patience = self._plan.lake, self._config.capture.reconnect_seconds
        return Verifier(
            self._config,
            lake,
            self._spark,
            reading=self._reading,
            since=lambda cut: ChangeLog(
                lake, cut, policy=self._policy, stop=self._stop, patience=patience
            ),
            stop=self._stop,
        )

    def _verdicts(self, merger: Merger, verifier: Verifier) -> Verdicts:
        mender = Mender(
            spark=self._spark,
            lake=self._plan.lake,
            verifier=verifier,
            policy=self._policy,
            check=self._lease.check,
            forget=merger.forget,
        )
        return Verdicts(
            self._plan.lake,
            mend=mender.mend,
            stops=self._stops,
            ring=self._control.ring,
            goes_on=self._altered.takes,
        )

    def _doubts(self, verifier: Verifier, verdicts: Verdicts) -> Doubts:
        return Doubts(
            self._plan.lake,
            lambda: look(self._selection.sources, self._configs),
            self._selection.follows,
            reading=self._reading,
            verifier=verifier,
            verdicts=verdicts,
            ends=self._plan.target is not None,
            observer=tell,
        )

    def _background(self, verdicts: Verdicts, hurry: Callable[[], None]) -> BackgroundVerifier:
        settings = self._config.verify
        return BackgroundVerifier(
            self._plan.lake,
            lambda: look(self._selection.sources, self._configs),
            self._selection.follows,
            reading=self._reading,
            verdicts=verdicts,
            settings=replace(settings, load=settings.load * (1 - LOG_SHARE)),
            observer=tell,
            stop=self._stop,
            patience=_MERGE_PATIENCE,
            hurry=hurry,
        )

    def _log_samples(self, verdicts: Verdicts) -> LogSamples:
        return LogSamples(
            self._config,
            self._plan.lake,
            reading=self._reading,
            verdicts=verdicts,
            observer=tell,
            stop=self._stop,
        )

    def _merger(self) -> Merger:
        return Merger(
            self._spark,
            self._plan.lake,
            MergeOptions(policy=self._policy, parallel=self._config.merge.parallel, pool=MERGE),
            wanted=self._selection.mirrors,
            waits=lambda state: state.foreign_keys is None,
            computes=self._altered.computes,
        )

    def _merging(self, merger: Merger, verdicts: Verdicts, keys: ForeignKeyWatch) -> MergeRunner:
        config, lake = self._config.merge, self._plan.lake
        upkeep = LakeUpkeep(
            spark=self._spark,
            lake=lake,
            policy=self._policy,
            forget=merger.forget,
            change_log=config.change_log_retention,
            tombstones=config.tombstone_retention,
            history=config.table_history,
        )
        return MergeRunner(
            merger.step,
            upkeep,
            lake,
            check=self._lease.check,
            followed=self._selection.follows,
            serve=self._between_steps(verdicts, keys),
            observer=tell,
            stops=self._stops,
            altered=self._altered,
            look=self._control.look,
            has_looked=merger.has_looked,
            maintenance=config.maintenance,
        )

    def _foreign_keys(self) -> ForeignKeyWatch:
        rounds = RoundLog(self._plan.lake)
        return ForeignKeyWatch(
            self._plan.lake,
            lambda keyspace: read_keys(keyspace, self._configs, rounds.positions),
            sources=lambda: self._selection.followed,
            last_round=rounds.last_number,
        )

    def _between_steps(self, verdicts: Verdicts, keys: ForeignKeyWatch) -> Callable[[], None]:
        """What the merge's thread does before a step, as nobody else writes states then."""
        lake = self._plan.lake
        serving = TableRequestHandler(
            lake, self._plan.file, self._selection, look=self._control.look
        )
        tables = Tables(lake)
        last_round = RoundLog(lake).last_number

        def work() -> None:
            serving.serve()
            keys.look()
            verdicts.apply()
            self._unfit.stop(tables, self._stops)
            if news := self._unfit.take_news():
                number = last_round()
                doubt_restarted(lake, tables, news.lives, last_round=number)
                doubt_vanished(tables, news.present, last_round=number)

        return work

    @property
    def _policy(self) -> InvalidValuePolicy:
        return self._config.policy
