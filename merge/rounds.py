"""The merge step: all tables to one round, side by side, then one cut.

Lives here: which tables a step takes how far, the order of its commits, and where it goes on after
a kill. Does not live here: what a batch is (`plan`), one table's part (`onetable`), what is
remembered of the tables between steps (`progress`), what foreign keys did (`cascades.unlogged`).

Invariant: a cut is written only when every streaming table holds exactly what its round says. A
table's own Delta transaction version says how far it is, so a step that was killed is done again:
tables that are ahead make no commit, and no step ends below a table that is ahead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from ratchet.core.errors import BugError, TableStoppedError
from ratchet.core.position import Position
from ratchet.core.rounds import Round
from ratchet.core.schema import TableSchema
from ratchet.merge import plan
from ratchet.merge.ages import refuse_other_ages
from ratchet.merge.attempts import Attempts
from ratchet.merge.cascades.unlogged import Unlogged
from ratchet.merge.failures import lost_changes, merge_failure
from ratchet.merge.gather import TableBacklog, gather
from ratchet.merge.lostparts import lost_parts
from ratchet.merge.onetable import OneTable
from ratchet.merge.plan import app_id
from ratchet.merge.progress import Progress
from ratchet.merge.step import MergeOptions, Step, StepResult, TableOutcome, TableTask, step_to
from ratchet.store.crashpoints import reach
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.files import Lake
from ratchet.store.lazyspark import use_pool
from ratchet.store.rounds import RoundLog
from ratchet.store.schemas import get_schema
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FAR_TABLES: Final = 8
_COLUMNS: Final = 100_000  # of shapes that are remembered; some 0.6 KB each
_SMALLER: Final = 16  # of a step's bounds, while a batch is suspected of having ended a run

log: Final = logging.getLogger("ratchet.jobs.run")


class Merger:
    """Merges the tables of one lake, step by step. One thread calls it; close it after use."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        options: MergeOptions,
        *,
        wanted: Callable[[TableState], bool] = lambda _: True,
        waits: Callable[[TableState], bool] = lambda _: False,
        computes: Callable[[TableState], bool] = lambda _: True,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Prepare.

        Args:
            spark: any session of the application; each commit gets one of its own.
            lake: the lake.
            options: see MergeOptions.
            wanted: whether a table takes part.
            waits: whether a table whose dump has ended is not to be caught up yet. Cuts go on to
                show what is shown of it.
            computes: whether a table is to be computed behind the statement that stopped it.
            clock: microseconds UTC.
        """
        self._spark = spark
        self._lake = lake
        self._options = options
        self._wanted = wanted
        self._waits = waits
        self._computes = computes
        self._clock = clock
        self._log = RoundLog(lake)
        self._cuts = Cuts(lake)
        self._tables = Tables(lake)
        # A small merge into an object store waits most of its time. Spark has slots for so many.
        threads = options.parallel if lake.is_local else max(options.parallel, _FAR_TABLES)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="merge")
        self._rounds: list[Round] = []
        # Of tables that await shards, by app id: up to where was looked; the version that shows
        # them as they were stopped (in later ones their shards are at places of their own).
        self._looked: dict[str, int] = {}
        self._standing: dict[str, int] = {}
        self._progress = Progress(lake)
        self._schemas: dict[tuple[str, str, str], TableSchema] = {}
        self._unlogged = Unlogged(lake, options.policy, self._progress)
        self._attempts = Attempts(lake)
        self._one_table = OneTable(
            spark,
            lake,
            options,
            turns=threading.Semaphore(options.parallel),
            tables=self._tables,
            progress=self._progress,
            attempts=self._attempts,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def refuse_other_ages(self) -> None:
        """Stop tables that hold rounds which the log has not; to be called before a run captures.

        Raises:
            LakeError: a table knows a later take-over; or the lake cannot be read.
        """
        refuse_other_ages(self._lake, self._progress)

    def close(self) -> None:
        """Give the threads back."""
        self._threads.shutdown(wait=True)

    def forget(self, state: TableState) -> None:
        """Look at a table's side table anew: to be called when it was cleaned up (merge.purge)."""
        self._progress.forget(state)

    def step(self, upto: int | None = None) -> StepResult:
        """Merge what there is, up to a round.

        Args:
            upto: the last round that may be merged; None for all that are committed.

        Raises:
            RetryableError: a conflict or a failure of Spark; the same call goes on from there.
            LakeError: the lake cannot be read or written.
        """
        began = time.monotonic()
        every = self._tables.list()
        states = [state for state in every if self._wanted(state)]
        self._unlogged.look_at(every)
        self._forget_gone(every)
        works = self._works(states, upto)
        if works is None:
            return StepResult(cut=None, changed={}, stopped={}, seconds=time.monotonic() - began)
        step, todo, idle = works
        try:
            done = self._side_by_side(step, todo)
        finally:
            self._unlogged.delete_files()
        failed = [one.error for one in done if one.error is not None]
        hopeless = [error for error in failed if not isinstance(error, TableStoppedError)]
        if hopeless:
            raise hopeless[0]
        cut = self._cut(step, [*idle, *(one.state for one in done)])
        return StepResult(
            cut=cut,
            changed={one.state.name: one.changed for one in done if one.changed},
            stopped={
                one.state.name: one.error
                for one in done
                if isinstance(one.error, TableStoppedError)
            },
            seconds=time.monotonic() - began,
            left=step.left,
        )

    def _forget_gone(self, states: Iterable[TableState]) -> None:
        """Remember nothing of tables, and of dumps, that there are no more."""
        there = {app_id(state) for state in states}
        self._attempts.keep(there)
        self._progress.keep(there)
        self._one_table.keep(there)
        for known in (self._looked, self._standing):
            for key in known.keys() - there:
                del known[key]

    def _works(
        self, states: Sequence[TableState], upto: int | None
    ) -> tuple[Step, list[TableTask], list[TableState]] | None:
        """What there is to do: the step, tables with work, tables without; None if nothing."""
        ended = [s for s in states if s.phase == "catching_up" and s.dump and s.dump.end]
        ready = [s for s in ended if not self._waits(s)]
        last = self._log.last_number() if upto is None else min(upto, self._log.last_number())
        if not last or not (ready or any(map(self._takes_rounds, states))):
            return None
        before = self._cuts.last()
        killed = [s for s in ready if self._progress.committed(s)]
        past = [self._caught_up_with_itself(s, before) for s in states if self._takes_rounds(s)]
        past += [self._settled(s) for s in killed]
        merged = [s for s in past if s.phase == "streaming"]
        halted = [s for s in past if s.awaits_shards]
        stopped = [s for s in past if not self._takes_rounds(s)]
        ready = [s for s in ready if s not in killed]
        if not (merged or ready or halted):
            return None
        base = before.round if before else 0
        begins = {s.name: self._progress.reached(s, before) for s in merged}
        begins |= {s.name: s.dump.start_round - 1 for s in ready if s.dump}
        begins |= {s.name: self._looked_upto(s) for s in halted}
        first = min(begins.values())
        share = self._share(begins, (*merged, *ready, *halted), base)
        # From the last cut on at least: what the cut says of the shards is about all rounds since.
        rounds = self._since(min(first, base, last), last)
        above = [r for r in rounds if r.number > base]
        number = plan.choose_round(
            above,
            begin=max(base, first) if not above else above[0].number - 1,
            at_least=max(self._progress.committed(s) for s in (*merged, *ready, *halted)),
            upto=last,
            max_bytes=self._options.max_bytes // share,
            max_rows=self._options.max_rows // share,
        )
        if number > last:
            raise BugError(f"a table holds round {number}, the log ends at {last}")
        positions = self._log.positions_at(number)
        if not merged and not any(_covered(state, positions) for state in ready):
            # Such a step would leave no cut, and the next one would end there again. Catch-ups
            # take all their rounds at once anyway.
            number = last
        step = step_to(number, self._log.streams_at(number), above, before, self._clock())
        step = replace(step, left=last - number)
        every = []
        for state in (*merged, *ready):
            catches_up = state.phase == "catching_up"
            mine = [r for r in rounds if begins[state.name] < r.number <= number]
            reached = _covered(state, step.positions) or plan.loses_shards(state, mine)
            if catches_up and not reached:
                continue
            found = self._gathered(state, mine)
            work = TableTask(
                state=state,
                found=found,
                rounds=mine,
                above=begins[state.name],
                catches_up=catches_up,
            )
            every.append(work)
        every += self._come(halted, before, number)
        self._unlogged.add(step, every, rounds, states)
        told = [(work, work.catches_up or _has_news(work)) for work in every]
        works = [work for work, has_news in told if has_news]
        idle = [work.state for work, has_news in told if not has_news]
        # One that streams and that no cut shows: a run was killed between its catch-up and the cut.
        hidden = any(not (before and before.shows(state.name)) for state in merged)
        if not works and not hidden and not (merged and number > base):
            return None
        others = [s for s in states if s.phase == "stopped" or s.standing is not None]
        return step, works, [*idle, *stopped, *others]

    def _come(
        self, states: Sequence[TableState], before: Cut | None, number: int
    ) -> list[TableTask]:
        """What is to be merged of tables all of whose shards have come to a statement.

        Nothing of the others is merged yet: a row that moves to a shard that was altered would be
        nowhere.

        Args:
            states: of tables that await shards.
            before: the last cut.
            number: the round up to which they may have come.
        """
        for state in states:
            if before is not None and state.name in before.tables:
                self._standing.setdefault(app_id(state), before.tables[state.name])
        found = [self._come_to(state, number) for state in states]
        return [work for work in found if work is not None]

    def _come_to(self, state: TableState, number: int) -> TableTask | None:
        new = self._since(self._looked_upto(state), number)
        reaches_back = self._log.first_number() <= state.merged_round + 1
        if reaches_back and any(_is_about(state, one) for one in new):
            mine = [one for one in self._log.since(state.merged_round) if one.number <= number]
            found = self._gathered(state, mine)
            if found.stopped is not None and found.change is None:
                # It is not to be computed any more, so it stands as it is until it is dumped.
                log.warning("%s: %s", state.name, found.stopped.message)
                self._tables.save(replace(state, change=None, stopped=found.stopped))
            elif found.stopped is not None and not found.learned(state).awaits_shards:
                above = state.merged_round
                return TableTask(
                    state=state, found=found, rounds=mine, above=above, catches_up=False
                )
        self._looked[app_id(state)] = number
        return None

    def _looked_upto(self, state: TableState) -> int:
        return self._looked.get(app_id(state), state.merged_round)

    def has_looked(self, number: int) -> bool:
        """Whether tables that await shards are known to do so still, up to this round."""
        states = [s for s in self._tables.list() if s.awaits_shards and self._wanted(s)]
        return all(self._looked_upto(s) >= number for s in states if self._computes(s))

    def _takes_rounds(self, state: TableState) -> bool:
        """Whether a table's dump is behind it, and rounds are merged into it, now or later."""
        return state.phase == "streaming" or (state.awaits_shards and self._computes(state))

    def _share(self, begins: Mapping[str, int], states: Sequence[TableState], base: int) -> int:
        """By what a step's bounds are divided: it is smaller where a batch has ended a run."""
        suspects = False
        for state in states:
            key, above = app_id(state), begins[state.name]
            if state.phase == "streaming" and base < above:
                self._attempts.went_well(key)  # a run that ended before its cut has merged it
            suspects |= self._attempts.is_suspect(key, above)
        return _SMALLER if suspects else 1

    def _caught_up_with_itself(self, state: TableState, before: Cut | None) -> TableState:
        """The state with what the rounds told that are in the table, and a kill kept from it.

        A merge that is committed is not made again, but what its rounds said of the table's shape,
        or that it stops there, may not have been saved. Rounds up to the cut have nothing to tell:
        the state of a table that they concern was saved before the cut was written.
        """
        committed, saved = self._progress.committed(state), self._progress.saved(state, before)
        if committed <= saved:
            return state
        rounds = self._since(saved, committed)
        found = self._gathered(state, rounds)
        after = replace(found.learned(state), merged_round=committed)
        if found.stopped is not None:
            after = replace(after, phase="stopped", stopped=found.stopped)
        return self._tables.save(after)

    def _settled(self, state: TableState) -> TableState:
        """A table whose catch-up was committed and then killed: it streams from there on.

        It must not be caught up once more, even with more rounds: rows that the collapse has hidden
        are in the side table by now, where a catch-up does not look.
        """
        number, dump = self._progress.committed(state), state.dump
        begin = dump.start_round - 1 if dump else 0
        rounds = self._since(begin, self._log.last_number())
        mine = [r for r in rounds if begin < r.number <= number]
        found = self._gathered(state, mine)
        step = step_to(number, self._log.streams_at(number), [], None, self._clock())
        work = TableTask(state=state, found=found, rounds=mine, above=begin, catches_up=True)
        return self._one_table.settle(step, work)

    def _side_by_side(self, step: Step, works: Sequence[TableTask]) -> list[TableOutcome]:
        """All tables; when this returns or raises, none is being merged any more.

        One whose batch is suspected of having ended a run is merged alone, behind all others.
        """
        suspects = [work for work in works if self._is_suspect(work)]
        others = [work for work in works if work not in suspects]
        done = self._at_once(step, others)
        for work in suspects:
            done += self._at_once(step, [work], alone=len(works) == 1)
        return done

    def _is_suspect(self, work: TableTask) -> bool:
        return self._attempts.is_suspect(app_id(work.state), work.above)

    def _at_once(
        self, step: Step, works: Sequence[TableTask], *, alone: bool = False
    ) -> list[TableOutcome]:
        guarded = partial(self._guarded, step, alone=alone)
        futures = [self._threads.submit(guarded, work) for work in works]
        try:
            return [future.result() for future in futures]
        finally:
            # Behind an error that is no result, others still read what followed for them.
            for future in futures:
                future.cancel()
            wait(futures)

    def _guarded(self, step: Step, work: TableTask, *, alone: bool) -> TableOutcome:
        """One table, on one of our threads; its errors are results."""
        if self._options.pool is not None:
            use_pool(self._spark, self._options.pool)
        state, key = work.state, app_id(work.state)
        exhausted = self._attempts.exhausted(key, work.above, table=state.name, alone=alone)
        if exhausted is not None:
            return self._set_aside(work, exhausted)
        try:
            return self._one_table.bring(step, work)
        except TableStoppedError as error:
            why = work.found.stopped  # of a table that catches up
            stopped = self._tables.stop(
                state,
                message=error.message,
                hint=error.hint,
                at_round=work.found.round,
                altered=why is not None and why.altered,
            )
            return TableOutcome(state=stopped, error=error)
        except Exception as error:  # noqa: BLE001 - it is told, with what it was
            failure = merge_failure(error, self._spark, table=state.name)
            self._attempts.failed(key, work.above, failure)
            # What is remembered of the table may be wrong now: it is read again next time.
            self._progress.held.pop(key, None)
            files = [file.path for file in work.found.files]
            gone = lost_changes(self._lake, state.name, files) or lost_parts(
                self._lake, state, error, files
            )
            return (
                TableOutcome(state=state, error=failure)
                if gone is None
                else self._set_aside(work, gone)
            )

    def _set_aside(self, work: TableTask, why: TableStoppedError) -> TableOutcome:
        """Stop a table before the first of the rounds that it was to be brought through."""
        stopped = self._tables.stop(
            work.state, message=why.message, hint=why.hint, at_round=work.above + 1
        )
        return TableOutcome(state=stopped, error=why)

    def _cut(self, step: Step, states: Iterable[TableState]) -> Cut:
        before = step.before
        old = before.tables if before else {}
        tables, stopped, streaming = {}, [], []
        for state in {state.name: state for state in states}.values():
            if state.standing is not None:
                tables[state.name] = state.standing  # a dump is made behind it
                stopped.append(state.name)
            elif state.phase == "stopped" and state.name in old:
                # It belongs to another moment from now on: keep what it showed when it did.
                stands = self._standing.get(app_id(state)) if state.marks else None
                newest = self._progress.shown(state, old[state.name])
                tables[state.name] = newest if stands is None else stands
                stopped.append(state.name)
            elif state.phase == "streaming":
                streaming.append(state)
        tables |= self._progress.newest(streaming, before, step.now)
        cut = Cut(
            number=before.number + 1 if before else 1,
            round=step.round,
            merged_at=step.now,
            shards=dict(step.shards),
            tables=tables,
            stopped=tuple(sorted(stopped)),
        )
        reach("merge.before_cut")
        self._cuts.append(cut)
        reach("merge.after_cut")
        self._rounds = [r for r in self._rounds if r.number > step.round]
        return cut

    def _since(self, number: int, last: int) -> list[Round]:
        """The rounds above `number` up to `last`; the newest ones are remembered."""
        held = self._rounds
        if not held or held[0].number > number + 1:
            self._rounds = held = self._log.since(number)
        elif held[-1].number < last:
            held.extend(self._log.since(held[-1].number))
        return [r for r in held if number < r.number <= last]

    def _gathered(self, state: TableState, rounds: Sequence[Round]) -> TableBacklog:
        """What rounds hold for a table."""
        return gather(
            state,
            rounds,
            partial(self._schema, state),
            self._options.policy,
            above=self._unlogged.above(state.name),
        )

    def _schema(self, state: TableState, fingerprint: str) -> TableSchema:
        key = (state.keyspace, state.table, fingerprint)
        found = self._schemas.get(key)
        if found is None:
            if sum(len(one.columns) for one in self._schemas.values()) > _COLUMNS:
                self._schemas.clear()  # of tables that are altered all the time
            found = self._schemas[key] = get_schema(self._lake, *key)
        return found


def _is_about(state: TableState, value: Round) -> bool:
    """Whether a round may bring a shard of a table to a statement, or tells another shape of it."""
    mine = state.keyspace, state.table
    shape = state.schema.fingerprint
    return any((event.keyspace, event.table) == mine for event in value.events) or any(
        (file.keyspace, file.table) == mine and file.schema != state.logged.get(file.shard, shape)
        for file in value.files
    )


def _has_news(work: TableTask) -> bool:
    """Whether its rounds say anything of a table."""
    state, found = work.state, work.found
    return bool(found.stopped) or not found.is_empty or found.learned(state) != state


def _covered(state: TableState, positions: Mapping[str, Position]) -> bool:
    return bool(
        state.dump and state.dump.end is not None and plan.covers(positions, state.dump.end)
    )
