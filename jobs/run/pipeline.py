"""A run: three loops over one lake, from their start to their end.

Lives here: starting and watching the loops, the regular look at the whole, deciding that everything
has been caught up. Does not live here: what a loop does in one step (`capturing`, `dumping`,
`merging`), when it does (`loops`), what comes before (`begin`), making all of these (`wiring`).

Invariant: when `run` returns, all loops have ended, each between two of its steps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from ratchet.core.errors import RatchetError, TableDifferentError, TableStoppedError
from ratchet.core.shell import shell_word
from ratchet.jobs.capture.capturing import CatchUpTarget
from ratchet.jobs.capture.loops import (
    CaptureLoop,
    Control,
    DumpLoop,
    MergeLoop,
    VerifyLoop,
    WatchLoop,
)
from ratchet.jobs.capture.skew import Skew
from ratchet.jobs.reporting.observe import Observer, Pulse, StopReporter
from ratchet.jobs.reporting.terminal import visible
from ratchet.jobs.reporting.text import counted, one_line
from ratchet.jobs.topology.lag import tables_lag
from ratchet.store.comparisons import Comparison, Comparisons
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState

log: Final = logging.getLogger("ratchet.jobs.run")

PULSE_SECONDS: Final = 30.0
CAPTURE_SECONDS: Final = 15.0  # that a run which ends waits for capture alone
SPARK_SECONDS: Final = 5.0  # between two looks whether Spark moves
SHARE_SECONDS: Final = 15.0  # that a run which has caught up gives what verifies, at most
_SHOWN: Final = 50  # stopped tables that an error names


class CaptureProgress(Protocol):
    """What is asked of `CaptureRunner`."""

    @property
    def rows(self) -> int:
        """Changes captured so far."""

    @property
    def seen_until(self) -> Mapping[str, int]:
        """Shard -> everything committed before this moment has been read; microseconds UTC."""

    @property
    def skew(self) -> Skew:
        """Which shards are held back, and which the others do not wait for."""


class MergeProgress(Protocol):
    """What is asked of `MergeRunner`."""

    @property
    def round(self) -> int:
        """The newest cut's round; 0 before the first one."""

    def has_reached(self, number: int) -> bool:
        """Whether all tables that can stream hold everything up to this round."""


class Undecided(Protocol):
    """What is asked of `Verdicts` and of `ForeignKeyWatch`."""

    @property
    def any_waits(self) -> bool:
        """Whether anything is still to be found out about tables, or to be applied to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComponents:
    """What a run is made of.

    Attributes:
        control: see Control.
        stop: set when the run ends: the dump begins no chunk any more.
        capturing: takes the rounds.
        capture: its loop.
        dump: the dump's loop, if the command dumps.
        merging: merges, if the command does.
        merge: its loop.
        verify: the loop that finds out whether tables are right, if the command merges.
        watch: looks whether the sources stay fit, if the command merges.
        watch_spark: looks whether Spark moves, to the end of all loops.
        undecided: what a run that has caught up waits for besides.
        target: what the run waits for, if it does.
        finish: called when all loops have ended: stops tables that must not be followed.
        following: whether the run goes on until a reshard's sources have ended.
        cut_short: ends a slice of capture's that waits for the rest of a transaction.
    """

    control: Control
    stop: threading.Event
    capturing: CaptureProgress
    capture: CaptureLoop
    dump: DumpLoop | None = None
    merging: MergeProgress | None = None
    merge: MergeLoop | None = None
    verify: VerifyLoop | None = None
    watch: WatchLoop | None = None
    watch_spark: Callable[[], None] = lambda: None
    undecided: Sequence[Undecided] = ()
    target: CatchUpTarget | None = None
    finish: Callable[[], None] = lambda: None
    following: bool = False
    cut_short: Callable[[], None] = lambda: None


class MirrorRun:
    """One run. Use `run` once.

    Args:
        parts: see RunComponents.
        rounds: the round log, for this thread alone.
        tables: the states.
        comparisons: what the tables' last comparisons with their sources came to.
        mirrored: whether the config mirrors a table.
        followed: whether its source is read, too.
        observer: told of pulses.
        stops: told of tables that stop.
        goes_on: whether a table that stopped goes on by itself: that was told when it stopped.
        silent: source that is set aside -> up to when it was read, microseconds UTC; 0: unknown.
        clock: seconds, rising.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        parts: RunComponents,
        *,
        rounds: RoundLog,
        tables: Tables,
        comparisons: Comparisons,
        mirrored: Callable[[TableState], bool],
        followed: Callable[[TableState], bool],
        observer: Observer,
        stops: StopReporter,
        goes_on: Callable[[TableState], bool] = lambda _: False,
        silent: Mapping[str, int] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._parts = parts
        self._rounds = rounds
        self._tables = tables
        self._comparisons = comparisons
        self._mirrored = mirrored
        self._followed = followed
        self._observer = observer
        self._clock = clock
        self._wall = wall
        self._stops = stops
        self._goes_on = goes_on
        self._silent = silent
        self._last_rows = (clock(), 0)
        self._waits_since = 0.0
        self._alone_since = 0.0  # since when capture alone is at work, though told to stop

    def run(self) -> None:
        """Start the loops and wait for their end.

        Raises:
            RatchetError: what ended the run.
            TableStoppedError: the command came to its end, but some tables are stopped.
        """
        parts, control = self._parts, self._parts.control
        wanted = (parts.capture, parts.dump, parts.merge, parts.verify, parts.watch)
        loops = [loop for loop in wanted if loop is not None]
        for loop in loops:
            loop.start()
        came_to_its_end = False
        pulse_at = spark_at = self._clock() + PULSE_SECONDS
        while left := [loop for loop in loops if loop.is_alive()]:
            seen = control.rings
            if control.draining:
                parts.stop.set()
            elif self._is_done():
                came_to_its_end = True
                control.end()
                parts.stop.set()
            if self._clock() >= spark_at:
                self._look(parts.watch_spark)
                spark_at = self._clock() + SPARK_SECONDS
            if self._clock() >= pulse_at:
                self._look(self._pulse)
                pulse_at = self._clock() + PULSE_SECONDS
            if control.is_stopped and left == [parts.capture]:
                self._cut_short()
            control.wait(1.0, seen)
        self._look(parts.finish)
        self._look(self._tell_stopped)
        if control.error is not None:
            raise control.error
        self._tell_end(came_to_its_end=came_to_its_end)
        if came_to_its_end:
            refuse_stopped(
                [s for s in self._states() if s.phase == "stopped"],
                others="loaded" if parts.merging is None else "up to date",
            )
            self._refuse_different()

    def _cut_short(self) -> None:
        """Wait no longer for a transaction that may never end; it is read anew by the next run."""
        now = self._clock()
        self._alone_since = self._alone_since or now
        if now - self._alone_since >= CAPTURE_SECONDS:
            self._alone_since = now
            self._parts.cut_short()

    def _look(self, look: Callable[[], None]) -> None:
        """Look at the lake on the side: if it fails, that is one more error that ends the run.

        Raised from here it would leave the loops at work while Spark is stopped under them, and
        hide what failed first.
        """
        try:
            look()
        except RatchetError as error:
            self._parts.control.fail(error)

    def _refuse_different(self) -> None:
        found = [self._comparisons.of(state) for state in self._states()]
        refuse_different([one for one in found if one is not None and not one.equal])

    def _tell_end(self, *, came_to_its_end: bool) -> None:
        merging = self._parts.merging
        if self._parts.control.turning:
            log.info("continuing with the current shards")
        elif not came_to_its_end:
            log.info("stopped; the next run continues from here")
        elif merging is None:
            log.info("done: all tables that can be dumped are loaded")
        else:
            streaming = sum(s.phase == "streaming" for s in self._states() if self._followed(s))
            tables = counted(streaming, "table")
            log.info("caught up: %s at round %d", tables, merging.round)

    def _is_done(self) -> bool:
        """Whether the command has come to its own end."""
        parts = self._parts
        if parts.following:
            return False
        if parts.dump is not None and not parts.dump.finished:
            return False
        if parts.merging is None:
            return True  # `dump`: the tables are loaded
        if parts.target is None or parts.target.round is None:
            return False
        return parts.merging.has_reached(parts.target.round) and self._is_verified()

    def _is_verified(self) -> bool:
        """Whether no table is in doubt, and what is due has had its share of a short run."""
        verify = self._parts.verify
        if verify is None:
            return True
        # Behind what was merged: by then the states tell of every doubt.
        followed = filter(self._followed, self._tables.list())
        if any(state.is_doubtful and not self._was_compared(state) for state in followed):
            return False
        if any(one.any_waits for one in self._parts.undecided):
            return False
        self._waits_since = self._waits_since or self._clock()
        return verify.rested or self._clock() - self._waits_since > SHARE_SECONDS

    def _was_compared(self, state: TableState) -> bool:
        """Whether a table was found equal at what the run waits for, and is in doubt by later news.

        Else a run would never end where something puts tables in doubt each second.
        """
        target = self._parts.target
        if target is None or target.round is None:
            return False
        found = self._comparisons.of(state)
        equal = found is not None and found.equal and not found.unsettled
        reached = found is not None and found.round >= target.round
        return equal and reached and all(d.round > target.round for d in state.doubts.values())

    def _states(self) -> list[TableState]:
        return [state for state in self._tables.list() if self._mirrored(state)]

    def _pulse(self) -> None:
        states = self._states()
        self._tell_stopped()
        phases = [state.phase for state in states]
        merging = self._parts.merging
        now, rows = self._clock(), self._parts.capturing.rows
        before, rows_before = self._last_rows
        self._last_rows = (now, rows)
        lag = self._lag()
        self._observer(
            Pulse(
                round=self._rounds.last_number(),
                merged=0 if merging is None else merging.round,
                streaming=phases.count("streaming"),
                stopped=phases.count("stopped"),
                doubtful=sum(state.is_doubtful for state in states),
                others=sum(phase not in {"streaming", "stopped"} for phase in phases),
                rows_per_second=round((rows - rows_before) / max(now - before, 1e-3), 1),
                lag=lag,
                tables_lag=self._tables_lag(lag),
                troubled=tuple(sorted(self._parts.capture.troubled)),
                held=tuple(sorted(self._parts.capturing.skew.held)),
                ignored=tuple(sorted(self._parts.capturing.skew.ignored)),
                aside=tuple(sorted(self._silent)),
            )
        )

    def _lag(self) -> float | None:
        seen = [*self._parts.capturing.seen_until.values(), *self._silent.values()]
        if not seen or not all(seen):
            return None
        return round(max(0.0, self._wall() - min(seen) / 1e6), 1)

    def _tables_lag(self, log_lag: float | None) -> float | None:
        merging = self._parts.merging
        if merging is None or not merging.round:
            return None
        waiting = self._rounds.earliest_above(merging.round)
        found = tables_lag(log_lag, waiting, now=self._wall())
        return None if found is None else round(found, 1)

    def _tell_stopped(self) -> None:
        for state in self._states():
            if state.phase == "stopped" and state.stopped is not None and not self._goes_on(state):
                self._stops.tell(state.name, state.stopped.message, state.stopped.hint)


def refuse_stopped(stopped: Sequence[TableState], *, others: str = "up to date") -> None:
    """End with the stopped tables' own exit code, if there are any.

    Args:
        stopped: the tables.
        others: what all others are.

    Raises:
        TableStoppedError: naming each with its reason, on a line of its own, and their remedies.
    """
    if not stopped:
        return
    by_hint: dict[str, list[str]] = {}
    for state in stopped[:_SHOWN]:
        hint, why = (state.stopped.hint, state.stopped.message) if state.stopped else ("", "")
        by_hint.setdefault(visible(hint), []).append(f"{state.name}: {one_line(why)}")
    lines = [line for hint, tables in by_hint.items() for line in (*tables, f"  -> {hint}")]
    if len(stopped) > _SHOWN:
        lines.append(f"and {len(stopped) - _SHOWN} more: `ratchet status CONFIG` names them all")
    raise TableStoppedError(
        f"all other tables are {others}, but {len(stopped)} "
        f"{'is' if len(stopped) == 1 else 'are'} stopped",
        hint="\n".join(lines),
    )


def refuse_different(found: Sequence[Comparison]) -> None:
    """End with the exit code of a difference, if rows differ and were only told of.

    Args:
        found: the comparisons that found differences.

    Raises:
        TableDifferentError: naming each table.
    """
    if not found:
        return
    tables = "; ".join(f"{one.name}: {counted(one.differences, 'row')}" for one in found)
    names = " ".join(f"--table {shell_word(one.name)}" for one in found)
    raise TableDifferentError(
        f"all tables are up to date, but rows differ from the source: {tables}",
        hint=f"stop the run, then `ratchet repair CONFIG {names}`; or set verify.on_difference",
    )
