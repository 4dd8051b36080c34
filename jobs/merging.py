"""One merge step for the loop, and the upkeep between steps.

Lives here: when upkeep is due, what is told of a step, what `--until-caught-up` asks. Does not live
here: when a step is made (`loops`), merging and upkeep themselves (`merge`).

Invariant: nothing is merged or removed without the lease; upkeep never meets a merge, because one
thread does both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from core.errors import RetryableError
from core.types import MisfitPolicy
from jobs.observe import Merged, Observer, Stops
from jobs.text import size
from merge.maintain import compact, prune_change_log, prune_cuts, vacuum
from merge.purge import purge_side
from merge.step import StepResult
from store.cuts import Cuts
from store.delta_tables import table_version
from store.files import Lake
from store.rounds import RoundLog
from store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("jobs.run")

COMPACT_EVERY: Final = 20  # steps between two looks for small files, from the first on
COMPACT_SECONDS: Final = 2.0  # after which a look begins with no further table
CLEAN_EVERY: Final = 3600.0  # seconds between two removals of what is too old
_DONE: Final = object()


class Upkeep(Protocol):
    """What is done between two steps."""

    def compact(self) -> None:
        """Put small files together."""

    def clean(self) -> Iterator[None]:
        """Remove what is older than its retention: some of it at each `next`."""


class Merging:
    """Merges. `step` for one thread; `has_reached` for another.

    Args:
        merge: makes a merge step of all that is committed.
        upkeep: see Upkeep.
        lake: the lake.
        check: raises when the lease is lost.
        mirrored: whether the config mirrors a table.
        serve: does what commands ask of the run.
        observer: told of every step.
        stops: told of tables that stop.
        clock: seconds, rising.
    """

    def __init__(
        self,
        merge: Callable[[], StepResult],
        upkeep: Upkeep,
        lake: Lake,
        *,
        check: Callable[[], None],
        mirrored: Callable[[TableState], bool],
        serve: Callable[[], None] = lambda: None,
        observer: Observer,
        stops: Stops,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._merge = merge
        self._upkeep = upkeep
        self._tables = Tables(lake)
        self._cuts = Cuts(lake)
        self._check = check
        self._mirrored = mirrored
        self._serve = serve
        self._observer = observer
        self._stops = stops
        self._clock = clock
        last = self._cuts.last()
        self.round = 0 if last is None else last.round
        self._steps = 0
        self._clean_at = clock() + CLEAN_EVERY
        self._cleaning: Iterator[None] | None = None

    def step(self) -> bool:
        """Merge what there is; whether there was anything.

        Raises:
            RetryableError: it may be done again.
            LakeError: the lake cannot be written, or the lease is lost.
        """
        self._check()
        self._serve()
        result = self._merge()
        for table, error in result.stopped.items():
            self._stops.tell(table, error.message, error.hint)
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
        return result.worked

    def has_reached(self, number: int) -> bool:
        """Whether all tables that can stream do, and hold everything up to this round."""
        states = [state for state in self._tables.list() if self._mirrored(state)]
        if any(state.phase == "catching_up" for state in states):
            return False
        cut = self._cuts.last()
        streaming = any(state.phase == "streaming" for state in states)
        return not streaming or (cut is not None and cut.round >= number)

    def _clean(self) -> None:
        """A bit of it. With many tables, all of it may take longer than until it is due again."""
        if self._cleaning is None:
            if self._clock() < self._clean_at:
                return
            self._cleaning = self._upkeep.clean()
            self._clean_at = self._clock() + CLEAN_EVERY
        if next(self._cleaning, _DONE) is _DONE:
            self._cleaning = None

    def _try(self, work: Callable[[], None]) -> None:
        self._check()
        try:
            work()
        except RetryableError as error:
            # A conflict with a reader's or another writer's commit; the next time comes by itself.
            log.warning("upkeep put off: %s", error)


@dataclass(frozen=True, slots=True)
class _Cleaned:
    """When a table was cleaned.

    Attributes:
        place: what was merged by then.
        since: when it was first cleaned with that, seconds since the epoch.
        last: when it was last cleaned.
    """

    place: object
    since: float
    last: float


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
        looked: table -> its place when it was last looked at for small files; None: there was more
            to do. The one that was looked at last stands last.
        cleaned: table -> when it was cleaned, and at which place.
    """

    spark: SparkSession
    lake: Lake
    policy: MisfitPolicy
    forget: Callable[[TableState], None]
    change_log: float
    tombstones: float
    history: float
    wall: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    looked: dict[str, object | None] = field(default_factory=dict)
    cleaned: dict[str, _Cleaned] = field(default_factory=dict)

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
                done = compact(self.spark, self.lake, state, now=int(self.wall() * 1e6))
                if done.files:
                    self.cleaned.pop(state.name, None)  # there is more that can go, once it is old
                    told = f"{done.files} small files ({size(done.bytes)})"
                    log.debug("%s: %s put together", state.name, told)
                self.looked.pop(state.name, None)
                self.looked[state.name] = None if done.left else _place(state)

    def clean(self) -> Iterator[None]:
        """Remove old rounds with their change files and old cuts; then, table by table, the rest.

        A table takes a second or two, so that a thousand of them must not be cleaned in one go. One
        that rests is left alone once everything that can go is gone.
        """
        now = int(self.wall() * 1e6)
        states = Tables(self.lake).list()
        pruned = prune_change_log(
            self.lake, RoundLog(self.lake), states, now=now, keep=self.change_log
        )
        if pruned.files:
            log.info("change log: %s in %d files removed", size(pruned.bytes), pruned.files)
        prune_cuts(Cuts(self.lake), now=now, history=self.history)
        for old in states:
            yield
            state = Tables(self.lake).load(old.keyspace, old.table)  # as it is by now
            if state is not None and state.phase == "streaming":
                self._clean_table(state)

    def _clean_table(self, state: TableState) -> None:
        now = self.wall()
        at = _place(state)
        before = self.cleaned.get(state.name)
        since = before.since if before and before.place == at else now
        if before and before.last >= since + max(self.tombstones, self.history):
            return
        try:
            purge_side(
                self.spark,
                self.lake,
                state,
                policy=self.policy,
                now=int(now * 1e6),
                keep=self.tombstones,
            )
            for path in (state.path, state.side_path):
                if table_version(self.lake, path) is not None:
                    vacuum(self.spark, self.lake, path, name=state.name, keep=self.history)
        except RetryableError as error:
            log.warning("upkeep of %s put off: %s", state.name, error)
            return
        finally:
            self.forget(state)
        self.cleaned[state.name] = _Cleaned(at, since, now)


def _place(state: TableState) -> object:
    """What a table's dump and the rounds merged into it have brought it to."""
    return state.dump and state.dump.id, state.merged_round
