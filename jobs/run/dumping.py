"""One pass of the dump for the loop: look which tables need it, and dump them.

A pass lasts until all of them are dumped, which may take days; tables that come to need it join it.

Lives here: `DumpRunner`. Does not live here: when (`loops`), how (`snapshot`), what is shown
(`progress`).

Invariant: a table is known to capture before its dump begins, and to every round that was under way
then, so no change and no statement of it is missed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ratchet.core.errors import LakeError, RetryableError, TableFileError, TableStoppedError
from ratchet.core.reshaping import NotComputableError, NotYetComputableError
from ratchet.core.schema import TableSchema
from ratchet.core.shell import redump
from ratchet.core.types import misfits_told
from ratchet.jobs.config.selection import RoundBarrier, Selection
from ratchet.jobs.preflight.unfit import UnfitReason
from ratchet.jobs.reporting.observe import StopReporter
from ratchet.jobs.reporting.progress import Display
from ratchet.jobs.reporting.text import counted, how_to_exclude
from ratchet.jobs.run.altered import AlteredTables
from ratchet.jobs.topology.discover import DiscoveredTable, needing_dump
from ratchet.snapshot.dump import Dumper
from ratchet.snapshot.errors import ShardsDifferError
from ratchet.snapshot.patience import RetryBudget
from ratchet.snapshot.records import (
    ChunkDone,
    OnProgress,
    Progress,
    TableDone,
    TableDumpRequest,
    TableFailed,
    TableRestarted,
)
from ratchet.store.stops import StopReason
from ratchet.store.tables import Tables, TableState

log: Final = logging.getLogger("ratchet.jobs.run")

_AWAY: Final = 4.0  # seconds until a table is computed whose server is away
_COMPUTING: Final = 10.0  # seconds after which tables that are to be dumped get their turn
_LATER: Final = 0.5  # seconds until the rest of those that are to be computed
_LOCKED: Final = 5.0  # seconds until a keyspace with a locked table is looked at again

MakeDumper = Callable[[OnProgress], Dumper]
ComputeTable = Callable[[TableState, threading.Event], None]


class DumpRunner:
    """Dumps what needs it. For one thread.

    Args:
        look: asks the servers for their tables.
        tables: the states in the lake.
        selection: what is mirrored; told of every table before its dump begins.
        turnstile: capture's rounds; those are waited for that were begun before a table was known.
        make_dumper: a Dumper that reports to the function given.
        check: raises when the lease is lost.
        stop: set when the run ends.
        patience: seconds that a server may be away while it is asked for its tables.
        stops: told of tables that cannot be dumped.
        refused: why a table of a keyspace must not be mirrored; None: it may be.
        look_again: asks the servers anew what `refused` goes by.
        again: tables (keyspace.table) to dump in the first pass whatever their phase.
        locked: keyspaces of which the last look does not tell, since a table is locked.
        altered: stopped tables that go on by themselves; None: none do.
        compute: computes one of them from what the mirror has; None: all are dumped again.
    """

    def __init__(
        self,
        look: Callable[[], list[DiscoveredTable]],
        tables: Tables,
        selection: Selection,
        make_dumper: MakeDumper,
        *,
        turnstile: RoundBarrier,
        check: Callable[[], None],
        stop: threading.Event,
        patience: float,
        stops: StopReporter,
        refused: Callable[[str, str], UnfitReason | None] = lambda *_: None,
        look_again: Callable[[], None] = lambda: None,
        again: Collection[str] = (),
        locked: Callable[[], Collection[str]] = tuple,
        altered: AlteredTables | None = None,
        compute: ComputeTable | None = None,
    ) -> None:
        self._look = look
        self._tables = tables
        self._selection = selection
        self._turnstile = turnstile
        self._make_dumper = make_dumper
        self._check = check
        self._stop = stop
        self._patience = RetryBudget(patience)
        self._stops = stops
        self._refused = refused
        self._look_again = look_again
        self._again = set(again)
        self._locked = locked
        self._altered = altered or AlteredTables(tables, lambda _: False)
        self._compute = compute

    def once(self, is_look_due: Callable[[], bool] = lambda: False) -> int:
        """Dump all tables that need it now; gives how many are dumped.

        Returns only when no keyspace is locked: one may have more of them.

        Args:
            is_look_due: asked about once a second whether to look for tables that have come to need
                it since: they are dumped beside the others.

        Raises:
            RatchetError: the dump as a whole cannot go on.
        """
        done = self._pass(is_look_due)
        if self._locked():
            log.info("waiting for %s: a table is locked", ", ".join(sorted(self._locked())))
        while self._locked() and not self._stop.wait(_LOCKED):
            done += self._pass(is_look_due)
        return done

    def _pass(self, is_look_due: Callable[[], bool]) -> int:
        first = self._take()
        if not first:
            return 0
        taken = {one.name: one for one in first}
        with Display(_rows(first)) as display:

            def more() -> Sequence[TableDumpRequest]:
                joining = self._take() if is_look_due() else {}
                taken.update((one.name, one) for one in joining)
                display.expect(_rows(joining))
                return list(joining)

            dumper = self._make_dumper(self._watched(display, taken))
            try:
                outcome = dumper.run(list(first), more=more)
            finally:
                for name in taken:
                    self._selection.end_dumping(name)
        return len(outcome.done)

    def _take(self) -> Mapping[TableDumpRequest, int]:
        """The tables that need a dump and that nobody dumps, and the rows of each, about."""
        self._compute_altered()
        if any(self._refused(state.keyspace, state.table) for state in self._waiting()):
            self._look_again()  # it may be mended by now: somebody asked for the dump
        wanted = self._decided()
        if not wanted:
            return {}
        self._turnstile.wait(self._stop.is_set)
        self._check()
        log.info(
            "to dump: %s, about %s",
            counted(len(wanted), "table"),
            counted(sum(wanted.values()), "row"),
            extra={"fields": {"event": "dump_started", "tables": [one.name for one in wanted]}},
        )
        return wanted

    def _decided(self) -> Mapping[TableDumpRequest, int]:
        """The tables that are taken now; see Selection.deciding."""
        while True:
            version = self._selection.version
            found = self._looked()
            with self._selection.deciding():
                if self._stop.is_set():
                    return {}
                if self._selection.version != version:
                    continue  # what was found goes by other patterns than the states
                rows = {one.name: one.rows for one in found}
                self._stop_missing(rows)
                states, sources = self._tables.list(), self._selection.sources
                altered = self._altered.due(states)
                left = {state.name for state in states if self._altered.computes(state)}
                wanted = [
                    one
                    for one in needing_dump(found, states, sources, self._again | altered)
                    if not self._selection.is_dumping(one.name)
                    and (one.name not in left or one.name in self._again)
                ]
                for one in wanted:
                    self._selection.add(one.keyspace, one.table)
                    self._selection.begin_dumping(one.name)
                    self._again.discard(one.name)
                # Once they are in hand: a run with an end waits for what is due or in hand.
                for name in altered:
                    self._altered.tried(name)  # also of one that is gone, or that nothing mirrors
                return {one: rows[one.name] for one in wanted}

    def _compute_altered(self) -> None:
        """Compute the tables that can be: one after the other, as each has all of the lake.

        Some of them, if they are very many: others wait for their dump.
        """
        if self._compute is None:
            return
        end = time.monotonic() + _COMPUTING
        with self._selection.deciding():
            due = [
                state
                for state in self._altered.to_compute(self._tables.list())
                if state.name not in self._again and not self._selection.is_dumping(state.name)
            ]
            for state in due:
                self._selection.begin_dumping(state.name)
        try:
            for number, state in enumerate(due):
                if number and time.monotonic() >= end:
                    self._altered.put_off(state.name, _LATER)
                elif not self._stop.is_set():
                    self._compute_one(state, self._compute)
        finally:
            for state in due:
                self._selection.end_dumping(state.name)

    def _compute_one(self, state: TableState, compute: ComputeTable) -> None:
        self._check()
        began = time.monotonic()
        try:
            compute(state, self._stop)
        except NotYetComputableError as error:
            log.debug("%s is computed later: %s", state.name, error)
            self._altered.tried_to_compute(state.name, error.seconds, soon=error.soon)
        except NotComputableError as error:
            log.info("%s is dumped again: %s", state.name, error)
            self._altered.refuse(state)
        except (TableStoppedError, TableFileError) as error:
            log.warning("%s is dumped again: %s", state.name, error.message)
            self._altered.refuse(state)
        except RetryableError as error:
            if not self._stop.is_set():
                log.warning("%s; %s is computed later", error, state.name)
            self._altered.tried_to_compute(state.name, _AWAY)
        except LakeError:
            self._check()  # a run that took over has removed what this one was making
            raise
        else:
            self._altered.computed(state.name, time.monotonic() - began)

    def _stop_missing(self, found: Collection[str]) -> None:
        """Tables that wait for their dump and cannot have it are stopped: none must wait for good.

        Args:
            found: the tables that can be dumped (keyspace.table).
        """
        for state in self._waiting():
            refused = self._refused(state.keyspace, state.table)
            if state.name in found or not (refused or self._selection.follows(state)):
                continue
            if state.keyspace in self._locked():
                continue
            message = refused.message if refused else "the source no longer has it"
            mend = (
                "fix that"
                if refused
                else "create it (if it is there, the account may not see it: `ratchet check "
                "CONFIG` names the GRANT)"
            )
            hint = f"{how_to_exclude(state.table)}; or {mend}, then {redump(state.name)}"
            stopped = StopReason(message=message, hint=hint, round=0)
            self._tables.save(replace(state, phase="stopped", stopped=stopped))
            self._stops.tell(state.name, message, hint)

    def _waiting(self) -> list[TableState]:
        """Tables that wait for their dump."""
        return [
            state
            for state in self._tables.list()
            if state.phase == "new"
            and self._selection.mirrors(state)
            and not self._selection.is_dumping(state.name)
        ]

    def _watched(self, display: Display, taken: Mapping[str, TableDumpRequest]) -> OnProgress:
        misfits: defaultdict[str, Counter[str]] = defaultdict(Counter)
        read: set[str] = set()

        def on_progress(record: Progress) -> None:
            display.show(record)
            if isinstance(record, ChunkDone):
                read.add(record.table)
                misfits[record.table].update(record.misfits)
            if isinstance(record, TableRestarted):
                misfits.pop(record.table, None)
            if isinstance(record, TableDone) and misfits[record.table]:
                log.warning(misfits_told(record.table, misfits.pop(record.table)))
            if isinstance(record, TableFailed):
                note_failure(self._tables, taken[record.table], record)
                self._stops.tell(record.table, record.error.message, record.error.hint)
                if record.table not in read:
                    self._altered.not_begun(record.table)
            if isinstance(record, TableDone | TableFailed):
                self._selection.end_dumping(record.table)

        return on_progress

    def _looked(self) -> list[DiscoveredTable]:
        while not self._stop.is_set():
            try:
                found = self._look()
            except RetryableError as error:
                pause = self._patience.failed("servers", error)
                log.warning("%s; trying again in %.1f s", error, pause)
                self._stop.wait(pause)
            else:
                self._patience.succeeded("servers")
                return found
        return []


def _rows(taken: Mapping[TableDumpRequest, int]) -> list[tuple[str, int]]:
    return [(one.name, rows) for one, rows in taken.items()]


def note_failure(tables: Tables, wanted: TableDumpRequest, failure: TableFailed) -> None:
    """See to it that `ratchet status` tells why a table's dump could not begin, or has ended."""
    state = tables.load(wanted.keyspace, wanted.table)
    why = StopReason(message=failure.error.message, hint=failure.error.hint, round=0)
    if state is None:
        schema = TableSchema(keyspace=wanted.keyspace, table=wanted.table, columns=(), key=())
        state = TableState(keyspace=wanted.keyspace, table=wanted.table, schema=schema, key=())
    if state.phase == "stopped" and state.stopped is not None and state.stopped.altered:
        # It is tried again; the statement that stopped it is in the log.
        why = replace(why, round=state.stopped.round, altered=True)
    elif state.phase == "stopped":
        return
    elif isinstance(failure.error, ShardsDifferError):
        why = replace(why, altered=True)  # of a new table: it is tried again likewise
    tables.save(replace(state, phase="stopped", stopped=why))
