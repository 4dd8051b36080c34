"""One merge step for the loop, and the upkeep between steps.

Lives here: when upkeep is due, what is told of a step, what `--until-caught-up` asks. Does not live
here: when a step is made (`loops`), merging and upkeep themselves (`merge`).

Invariant: nothing is merged or removed without the lease; upkeep never meets a merge, because one
thread does both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from ratchet.core.errors import LakeError, RetryableError, TableStoppedError
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.capture.loops import MergeOutcome
from ratchet.jobs.reporting.observe import Merged, Observer, StopReporter
from ratchet.jobs.reporting.text import size
from ratchet.jobs.run.altered import AlteredTables
from ratchet.jobs.run.bundling import bundle_change_log
from ratchet.jobs.watch.budget import Budget
from ratchet.merge.bundle import BundleLimits
from ratchet.merge.lostparts import lost_parts
from ratchet.merge.maintain import (
    compact,
    prune_change_log,
    prune_cuts,
    remove_old,
    remove_strays,
)
from ratchet.merge.purge import purge_is_due, purge_side
from ratchet.merge.step import LOOK_AGAIN, StepResult
from ratchet.store.cuts import Cuts
from ratchet.store.delta.errors import CommitConflictError
from ratchet.store.files import Lake
from ratchet.store.retention import UNNAMED_SECONDS
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState
from ratchet.store.upkeeps import TableCleanup, read_upkeep, write_upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("ratchet.jobs.run")

COMPACT_EVERY: Final = 20  # steps between two looks for small files, from the first on
COMPACT_SECONDS: Final = 2.0  # after which a look begins with no further table
CLEAN_EVERY: Final = 3600.0  # seconds between two removals of what is too old
STRAYS_EVERY: Final = 86_400.0  # seconds between two looks through all change files
_PURGE_AT: Final = 25 / 24  # of the time that tombstones are kept: then all that are older go
_WRITE_EVERY: Final = 5.0  # seconds between two notes of what was cleaned
_ASKS: Final = 5  # steps, a second apart, that are wanted for a dump that has ended
_DONE: Final = object()


class Upkeep(Protocol):
    """What is done between two steps."""

    def compact(self) -> None:
        """Put small files together."""

    def clean(self) -> Iterator[None]:
        """Remove what is older than its retention: some of it at each `next`."""


class MergeRunner:
    """Merges. `step` and `between` for one thread; `has_reached` for another.

    Args:
        merge: makes a merge step of all that is committed.
        upkeep: see Upkeep.
        lake: the lake.
        check: raises when the lease is lost.
        followed: whether the config mirrors a table, and its source is read.
        serve: does what commands ask of the run.
        observer: told of every step.
        stops: told of tables that stop.
        altered: which of them are dumped again by themselves; None: none are.
        look: makes the dump look for tables at once.
        has_looked: whether what tables of several shards wait for is not there, up to a round.
        maintenance: the share of the time that may be spent on removing what is old.
        clock: seconds, rising.
    """

    def __init__(
        self,
        merge: Callable[[], StepResult],
        upkeep: Upkeep,
        lake: Lake,
        *,
        check: Callable[[], None],
        followed: Callable[[TableState], bool],
        serve: Callable[[], None] = lambda: None,
        observer: Observer,
        stops: StopReporter,
        altered: AlteredTables | None = None,
        look: Callable[[], None] = lambda: None,
        has_looked: Callable[[int], bool] = lambda _: True,
        maintenance: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._merge = merge
        self._upkeep = upkeep
        self._tables = Tables(lake)
        self._cuts = Cuts(lake)
        self._check = check
        self._followed = followed
        self._serve = serve
        self._observer = observer
        self._stops = stops
        self._altered = altered or AlteredTables(self._tables, lambda _: False)
        self._look = look
        self._has_looked = has_looked
        self._clock = clock
        last = self._cuts.last()
        self.round = 0 if last is None else last.round
        self._asked: dict[str, int] = {}  # dump -> how often a step was wanted for it
        self._steps = 0
        self._clean_at = clock()  # the lake knows what is due
        self._budget = Budget(maintenance, now=clock())
        self._cleaning: Iterator[None] | None = None

    def step(self) -> MergeOutcome:
        """Merge what there is.

        Raises:
            RetryableError: it may be done again.
            LakeError: the lake cannot be written, or the lease is lost.
        """
        self._check()
        self._serve()
        result = self._merge()
        if result.stopped:
            self._tell_stopped(result.stopped)
        if result.cut is not None:
            self.round = result.cut.round
            self._observer(
                Merged(
                    round=result.cut.round,
                    tables=len(result.changed),
                    rows=sum(result.changed.values()),
                    seconds=round(result.seconds, 3),
                )
            )
        if result.worked:
            if self._steps % COMPACT_EVERY == 0:  # the first: a run may be ended before its 20th
                self._try(self._upkeep.compact)
            self._steps += 1
        self._try(self._clean)
        return MergeOutcome(
            worked=result.worked, changed=len(result.changed), is_behind=result.left > 0
        )

    def between(self) -> bool:
        """What else this thread does, while it is not time for a step; whether one is wanted now.

        It is where a table's dump has ended: the rows are there, and only a step shows them. Some
        times, as capture has to come as far as the dump first.

        Raises:
            as `step` does.
        """
        self._check()
        self._serve()
        self._try(self._clean)
        ready = [
            state.dump.id
            for state in self._tables.list()
            if state.phase == "catching_up" and state.dump is not None and state.dump.end
        ]
        self._asked = {dump: self._asked.get(dump, 0) + 1 for dump in ready}
        return any(count <= _ASKS for count in self._asked.values())

    def _tell_stopped(self, stopped: Mapping[str, TableStoppedError]) -> None:
        states = {state.name: state for state in self._tables.list()}
        for table, error in stopped.items():
            state = states.get(table)
            # The dump may have it in hand by now: then nobody has to be asked for it either.
            stands = state is not None and state.phase == "stopped"
            if state is None or (stands and not self._altered.takes(state)):
                self._stops.tell(table, error.message, error.hint)
                continue
            how = "is computed anew" if self._altered.computes(state) else "is dumped again"
            if state.awaits_shards and self._altered.computes(state):
                how = "goes on, once its other shards have had the statement too,"
            log.warning(
                "%s: %s; it %s by itself, and can be read as it was meanwhile",
                table,
                error.message,
                how,
                extra={"fields": {"event": "schema_change", "table": table}},
            )
            self._look()

    def has_reached(self, number: int) -> bool:
        """Whether all tables that can stream do, and hold everything up to this round."""
        states = [state for state in self._tables.list() if self._followed(state)]
        if any(state.phase == "catching_up" for state in states):
            return False
        cut = self._cuts.last()
        if not self._has_looked(number):
            return False
        streaming = any(state.phase == "streaming" for state in states)
        return not streaming or (cut is not None and cut.round >= number)

    def _clean(self) -> None:
        """A bit of it. With many tables, all of it may take longer than until it is due again."""
        began = self._clock()
        if self._budget.rest(began):
            return
        if self._cleaning is None:
            if began < self._clean_at:
                return
            self._cleaning = self._upkeep.clean()
            self._clean_at = began + CLEAN_EVERY
        try:
            if next(self._cleaning, _DONE) is _DONE:
                self._cleaning = None
        except (RetryableError, CommitConflictError):
            self._cleaning = None  # what it raised from does not go on
            raise
        finally:
            self._budget.spend(self._clock() - began, self._clock())

    def _try(self, work: Callable[[], None]) -> None:
        self._check()
        try:
            work()
        except (RetryableError, CommitConflictError) as error:
            # A conflict with a reader's or another writer's commit; the next time comes by itself.
            log.warning("upkeep put off: %s", error)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeUpkeep:
    """The upkeep of one lake; see Upkeep.

    Attributes:
        spark: the session.
        lake: the lake.
        policy: decides about the lake's types.
        forget: tells the merger that a table's side table has been purged.
        change_log: seconds that the change log is kept.
        tombstones: seconds that tombstones are kept.
        history: seconds that old versions of the tables are kept.
        wall: seconds since the epoch.
        clock: seconds, rising.
        limits: which objects of the change log are put together.
        looked: table -> its place when it was last looked at for small files; None: there was more
            to do. The one that was looked at last stands last.
        compacted: tables of which small files were put together since they were cleaned: those that
            they were are not old yet.
    """

    spark: SparkSession
    lake: Lake
    policy: InvalidValuePolicy
    forget: Callable[[TableState], None]
    change_log: float
    tombstones: float
    history: float
    wall: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    limits: BundleLimits = field(default_factory=BundleLimits)
    looked: dict[str, object | None] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)

    def compact(self) -> None:
        """Put small files of streaming tables together, of those that have changed.

        Those that were not looked at for longest come first, so that each has its turn although
        there may be thousands and the time is short.
        """
        until = self.clock() + COMPACT_SECONDS
        turn = {name: number for number, name in enumerate(self.looked)}
        for state in sorted(Tables(self.lake).list(), key=lambda state: turn.get(state.name, -1)):
            if self.clock() >= until:
                break
            if state.phase == "streaming" and self.looked.get(state.name) != _place(state):
                try:
                    done = compact(self.spark, self.lake, state, now=int(self.wall() * 1e6))
                except LakeError as error:
                    self._stop_lost(state, error)
                    continue
                if done.files:
                    self.compacted.add(state.name)
                    told = f"{done.files} small files ({size(done.bytes)})"
                    log.debug("%s: %s put together", state.name, told)
                self.looked.pop(state.name, None)
                self.looked[state.name] = None if done.left else _place(state)

    def clean(self) -> Iterator[None]:
        """Remove old rounds with their change files and old cuts; then, table by table, the rest.

        At last the small change files of older rounds are put together.

        What was done when stands in the lake, so that runs that end soon do it in their turn: the
        table that was cleaned last comes last. One that rests is left alone once everything that
        can go is gone.
        """
        done = read_upkeep(self.lake)
        now = self.wall()
        if now >= done.logs + CLEAN_EVERY:
            self._clean_logs(int(now * 1e6))
            done = replace(done, logs=now)
            write_upkeep(self.lake, done)
        tables = dict(done.tables)
        states = Tables(self.lake).list()
        written = self.clock()
        for name in sorted(
            (state.name for state in states), key=lambda n: tables[n].last if n in tables else 0.0
        ):
            yield
            keyspace, _, table = name.partition(".")
            state = Tables(self.lake).load(keyspace, table)  # as it is by now
            if state is None or state.phase != "streaming" or not self._is_due(state, tables):
                continue
            cleaned = yield from self._clean_table(state, tables.get(name))
            if cleaned is not None:
                tables[name] = cleaned
            if self.clock() >= written + _WRITE_EVERY:
                write_upkeep(self.lake, replace(done, tables=tables))
                written = self.clock()
        if now >= done.strays + STRAYS_EVERY:
            strays = remove_strays(self.lake, RoundLog(self.lake))
            if strays:
                log.info("change log: %d files that no round names removed", strays)
            done = replace(done, strays=now)
        known = {state.name for state in states}
        tables = {name: one for name, one in tables.items() if name in known}
        changed, done = tables != done.tables, replace(done, tables=tables)
        if now == done.strays or changed:
            write_upkeep(self.lake, done)
        if now >= done.bundles + CLEAN_EVERY:  # the last: no table waits for a backlog of it
            yield from bundle_change_log(
                self.lake,
                done,
                began=now,
                limits=self.limits,
                wall=self.wall,
                clock=self.clock,
            )

    def _clean_logs(self, now: int) -> None:
        states = Tables(self.lake).list()
        pruned = prune_change_log(
            self.lake, RoundLog(self.lake), states, now=now, keep=self.change_log
        )
        if pruned.files:
            log.info("change log: %s in %d files removed", size(pruned.bytes), pruned.files)
        prune_cuts(Cuts(self.lake), now=now, history=self.history)

    def _is_due(self, state: TableState, tables: Mapping[str, TableCleanup]) -> bool:
        before = tables.get(state.name)
        if before is None:
            return True
        longest = max(self.tombstones * _PURGE_AT, self.history + LOOK_AGAIN, UNNAMED_SECONDS)
        over = self._rests(state, before) and before.last >= before.since + longest
        return self.wall() >= before.last + CLEAN_EVERY and not over

    def _rests(self, state: TableState, before: TableCleanup) -> bool:
        """Whether nothing has come since that could go one day."""
        return before.place == _place(state) and state.name not in self.compacted

    def _clean_table(
        self, state: TableState, before: TableCleanup | None
    ) -> Generator[None, None, TableCleanup | None]:
        """A table's old tombstones and files, a bite at a time; what to remember of it."""
        now = self.wall()
        since = before.since if before and self._rests(state, before) else now
        moment, files = int(now * 1e6), 0
        try:
            # The DELETE of a few tombstones takes Spark seconds: not for each hour's.
            if purge_is_due(self.lake, state, now=moment, keep=self.tombstones * _PURGE_AT):
                purge_side(
                    self.spark,
                    self.lake,
                    state,
                    policy=self.policy,
                    now=moment,
                    keep=self.tombstones,
                )
                yield
            for path in (state.path, state.side_path):
                for removed in remove_old(
                    self.spark, self.lake, path, name=state.name, keep=self.history, now=moment
                ):
                    files += removed
                    yield
        except (RetryableError, CommitConflictError) as error:
            log.warning("upkeep of %s put off: %s", state.name, error)
            return None
        except LakeError as error:
            self._stop_lost(state, error)
            return None
        finally:
            self.forget(state)
        if files:
            log.debug("%s: %d files of old versions removed", state.name, files)
        self.compacted.discard(state.name)
        return TableCleanup(place=_place(state), since=since, last=now)

    def _stop_lost(self, state: TableState, error: LakeError) -> None:
        """Stop a table that cannot be kept up since a part of it is gone; any other error leaves.

        Args:
            state: the table, as it was when its upkeep began.
            error: of its upkeep.
        """
        now = Tables(self.lake).load(state.keyspace, state.table)
        if now is None or not now.is_past_dump or _place(now)[0] != _place(state)[0]:
            return  # it was dropped meanwhile, or is to be dumped again
        gone = lost_parts(self.lake, state, error)
        if gone is None:
            raise error
        log.error("%s is stopped: %s", state.name, gone.message)
        Tables(self.lake).stop(
            now, message=gone.message, hint=gone.hint, at_round=state.merged_round + 1
        )


def _place(state: TableState) -> tuple[str, int]:
    """What a table's dump and the rounds merged into it have brought it to."""
    return "" if state.dump is None else state.dump.id, state.merged_round
