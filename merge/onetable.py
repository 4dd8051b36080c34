"""Brings one table through a step: its batch, its commits, its state.

Lives here: `OneTable`. Does not live here: which tables take part, and how far they go (`rounds`),
what is written for a batch (`table`).

Invariant: a table's state is saved behind its commits, so it never tells of what is not there.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ratchet.core.errors import BugError, TableStoppedError
from ratchet.core.types import misfits_told
from ratchet.merge import floors, plan
from ratchet.merge.ancestry import Ancestry
from ratchet.merge.attempts import Attempts
from ratchet.merge.batch import MergeBatch
from ratchet.merge.failures import spark_errors
from ratchet.merge.gather import TableBacklog
from ratchet.merge.plan import app_id
from ratchet.merge.progress import Progress
from ratchet.merge.sidestats import read_side_stats
from ratchet.merge.step import MergeOptions, Step, TableOutcome, TableTask
from ratchet.merge.table import (
    MergeResult,
    collapse,
    merge_table,
)
from ratchet.store.crashpoints import reach
from ratchet.store.delta.tables import add_columns, mirrored_schema
from ratchet.store.files import Lake
from ratchet.store.staged import take_place, taken
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("ratchet.jobs.run")


class OneTable:
    """Merges a table at a time; several threads may call it, each for a table of its own."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        options: MergeOptions,
        *,
        turns: threading.Semaphore,
        tables: Tables,
        progress: Progress,
        attempts: Attempts,
    ) -> None:
        """Prepare.

        Args:
            spark: any session of the application; each commit gets one of its own.
            lake: the lake.
            options: see MergeOptions.
            turns: who may use Spark.
            tables: the tables' states.
            progress: how far the tables are.
            attempts: which batches have ended a run.
        """
        self._spark = spark
        self._lake = lake
        self._options = options
        self._turns = turns
        self._tables = tables
        self._progress = progress
        self._attempts = attempts
        self._misfits: defaultdict[str, set[str]] = defaultdict(set)

    def keep(self, there: Collection[str]) -> None:
        """Remember nothing but of these tables, by app id."""
        for key in self._misfits.keys() - there:
            del self._misfits[key]

    def bring(self, step: Step, work: TableTask) -> TableOutcome:
        """Merge what there is for it; its state is saved.

        Raises:
            TableStoppedError: it stops, and was never shown as a consistent cut.
        """
        state, found = work.state, work.found
        stopped = _stopped_error(state, found)
        if work.catches_up and stopped and not state.is_of_one_place:
            raise stopped  # nothing of it was ever shown as a consistent cut
        changed = 0
        if work.catches_up or not found.is_empty:
            batch = self._batch(step, work)
            self._attempts.begin(batch.app_id, work.above, batch)
            if found.added != state.added:
                self._add_columns(work, batch)
            with spark_errors(f"merge round {batch.round}", table=state.name):
                for merged in self._apply(batch, work):
                    self._progress.note(batch.app_id, merged, step.now)
                    changed += merged.changed
            self._progress.held[batch.app_id].merged = batch.round
            self._attempts.went_well(batch.app_id)
            self._tell_misfits(work)
        if work.catches_up and state.is_staged:
            self._show(state, found.round, step.now)
        return TableOutcome(state=self._saved(work, found.round), changed=changed, error=stopped)

    def _saved(self, work: TableTask, number: int) -> TableState:
        """Save what a table is behind its commits: it streams, or it stops."""
        state, found = work.state, work.found
        after = replace(found.learned(state), phase="streaming", merged_round=number, standing=None)
        held = self._progress.held[app_id(state)]
        if held.sides is not None and (held.sides.highest or held.sides.shadows):
            dump = "" if after.dump is None else after.dump.id
            known = state.side_version if state.sided == dump else 0
            newest = 0 if held.side is None else held.side.version
            after = replace(after, sided=dump, side_version=max(known, newest))
        if found.stopped is not None:
            after = replace(after, phase="stopped", stopped=found.stopped)
        self._tables.save(after)
        self._forget_staged(state)
        return after

    def settle(self, step: Step, work: TableTask) -> TableState:
        """Finish a catch-up that is committed, but for its collapse, and save that it streams."""
        state = work.state
        known = read_side_stats(self._lake, state.side_path)
        # Whoever has shown it may have removed the staged table, too, and be late with that.
        if not (state.is_staged and taken(self._lake, state.shown_path, app_id(state))):
            batch = self._batch(step, work)
            if batch.collapse:
                with spark_errors(f"merge round {step.round}", table=state.name):
                    known = collapse(self._spark, self._lake, batch, known).side
            if state.is_staged:
                self._show(state, step.round, step.now)
        self._progress.held[app_id(state)].sides = known
        return self._saved(work, step.round)

    def _show(self, state: TableState, number: int, now: int) -> None:
        """Put the staged table in the place of the one that is shown."""
        key = app_id(state)
        files = take_place(
            self._lake, state.path, state.shown_path, app_id=key, version=number, now=now
        )
        self._progress.placed(key, files, now)
        log.info("%s: its new dump is shown", state.name)

    def _forget_staged(self, state: TableState) -> None:
        """Remove a staged table that has had its time; upkeep removes what a kill leaves."""
        if state.is_staged:
            reach("merge.before_staged_removed")
            self._lake.delete_folder(state.path)

    def _tell_misfits(self, work: TableTask) -> None:
        """Once for each column: a source that writes such values does so all the time."""
        told = self._misfits[app_id(work.state)]
        come: Counter[str] = Counter()
        for file in work.found.files:
            come.update(file.misfits)
        new = {column: count for column, count in come.items() if column not in told}
        if new:
            told.update(new)
            log.warning(misfits_told(work.state.name, new))

    def _add_columns(self, work: TableTask, batch: MergeBatch) -> None:
        state, come = work.state, work.found.added[len(work.state.added) :]
        names = ", ".join(column.name for column in come)
        log.info("%s: the source has new columns: %s", state.name, names)
        shape = batch.shape
        mirrored = mirrored_schema(shape.columns, table=state.name)
        add_columns(self._lake, batch.path, mirrored, now=batch.now)
        add_columns(self._lake, batch.side_path, shape.side_schema, now=batch.now)
        reach("merge.columns_added")

    def _apply(self, batch: MergeBatch, work: TableTask) -> Iterable[MergeResult]:
        held = self._progress.held[batch.app_id]
        known = held.sides
        if known is None:
            known = read_side_stats(self._lake, batch.side_path)
        if not work.found.is_empty:
            files = held if self._options.direct else None
            merged = merge_table(self._spark, self._lake, batch, known, files, turn=self._turns)
            known = merged.side
            yield merged
        if batch.collapse:
            with self._turns:
                collapsed = collapse(self._spark, self._lake, batch, known)
            yield collapsed

    def _batch(self, step: Step, work: TableTask) -> MergeBatch:
        state, found = work.state, work.found
        dump = state.dump
        if dump is None:
            raise BugError("a table past its dump has none", table=state.name)
        ancestry = Ancestry.of(state, step.streams)
        shape = plan.shape_of(found.learned(state), self._options.policy, ancestry)
        paths = [file.path for file in found.files]
        overrides: floors.Overrides = {}
        if work.catches_up and found.files:
            chunks = floors.dumped_chunks(self._lake, state.path, dump)
            overrides = floors.floor_overrides(chunks, work.rounds, dump.start)
        return MergeBatch(
            shape=shape,
            path=state.path,
            side_path=state.side_path,
            app_id=app_id(state),
            round=found.round,
            files=paths,
            bytes=sum(file.bytes for file in found.files),
            rows=sum(file.rows for file in found.files),
            may_delete=found.may_delete,
            since=found.since,
            until=found.until,
            truncated=found.truncated,
            lowest=found.lowest,
            highest=found.highest,
            floors=floors.as_arrays(overrides),
            # What is computed has one row of each key from the start.
            collapse=work.catches_up and shape.contested and not state.is_computed,
            ancestry=ancestry,
            wide=work.catches_up or bool(found.truncated),
            metadata=step.metadata(),
            now=step.now,
        )


def _stopped_error(state: TableState, found: TableBacklog) -> TableStoppedError | None:
    if found.stopped is None:
        return None
    return TableStoppedError(
        found.stopped.message,
        operation=f"merge round {found.stopped.round}",
        table=state.name,
        hint=found.stopped.hint,
    )
