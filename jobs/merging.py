"""One merge step for the loop, and the upkeep between steps.

Lives here: when upkeep is due, what is told of a step, what `--until-caught-up` asks. Does not live
here: when a step is made (`loops`), merging and upkeep themselves (`merge`).

Invariant: nothing is merged or removed without the lease; upkeep never meets a merge, because one
thread does both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
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
from store.files import Lake
from store.rounds import RoundLog
from store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("jobs.run")

COMPACT_EVERY: Final = 20  # steps between two looks for small files
CLEAN_EVERY: Final = 3600.0  # seconds between two removals of what is too old


class Upkeep(Protocol):
    """What is done between two steps."""

    def compact(self) -> None:
        """Put small files together."""

    def clean(self) -> None:
        """Remove what is older than its retention."""


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
            self._steps += 1
            if self._steps % COMPACT_EVERY == 0:
                self._try(self._upkeep.compact)
        elif self._clock() >= self._clean_at:
            # Only when there is nothing to merge, so that it delays nobody; a run that never
            # rests cleans after twice the time.
            self._clean()
        if self._clock() >= self._clean_at + CLEAN_EVERY:
            self._clean()
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
        self._try(self._upkeep.clean)
        self._clean_at = self._clock() + CLEAN_EVERY

    def _try(self, work: Callable[[], None]) -> None:
        self._check()
        try:
            work()
        except RetryableError as error:
            # A conflict with a reader's or another writer's commit; the next time comes by itself.
            log.warning("upkeep put off: %s", error)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeUpkeep:
    """The upkeep of one lake; see Upkeep.

    Attributes:
        spark: the session.
        lake: the lake.
        policy: decides about the lake's types.
        forget_sides: tells the merger that side tables have been purged.
        change_log: seconds that the change log is kept.
        tombstones: seconds that tombstones are kept.
        history: seconds that old versions of the tables are kept.
        wall: seconds since the epoch.
        looked: table -> its dump and round when it was last looked at for small files.
    """

    spark: SparkSession
    lake: Lake
    policy: MisfitPolicy
    forget_sides: Callable[[], None]
    change_log: float
    tombstones: float
    history: float
    wall: Callable[[], float] = time.time
    looked: dict[str, object] = field(default_factory=dict)

    def compact(self) -> None:
        """Put small files of streaming tables together, of those that have changed."""
        for state in Tables(self.lake).list():
            now = (state.dump and state.dump.id, state.merged_round)
            if state.phase == "streaming" and self.looked.get(state.name) != now:
                if compact(self.spark, self.lake, state):
                    log.debug("%s: small files put together", state.name)
                self.looked[state.name] = now

    def clean(self) -> None:
        """Remove old rounds with their change files, old cuts, and files of old versions."""
        now = int(self.wall() * 1e6)
        states = Tables(self.lake).list()
        pruned = prune_change_log(
            self.lake, RoundLog(self.lake), states, now=now, keep=self.change_log
        )
        if pruned.files:
            log.info("change log: %s in %d files removed", size(pruned.bytes), pruned.files)
        prune_cuts(Cuts(self.lake), now=now, history=self.history)
        try:
            for state in states:
                if state.phase == "streaming":
                    purge_side(
                        self.spark,
                        self.lake,
                        state,
                        policy=self.policy,
                        now=now,
                        keep=self.tombstones,
                    )
                    vacuum(self.spark, self.lake, state.path, name=state.name, keep=self.history)
        finally:
            self.forget_sides()
