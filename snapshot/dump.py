"""The dump of tables: chunks of many tables and shards, read side by side, committed in order.

Lives here: what is read next and by whom, retries, throttling, progress. Does not live here:
reading a chunk (`reader`), the books of a table (`ledger`), what is written down before and after
(`start`), where tasks run (`tasks`), capture.

Invariant: before a table's first chunk is read, its state holds each shard's position and the first
round that may have changes which the chunks lack; capture of these shards must be running by then
from a position inside. After its last chunk the state holds positions that contain everything any
chunk may have shown. A kill at any moment loses at most the chunks in the making.

Some threads (`parallel`) each take the next piece of work: begin a table, read a chunk, end a
table. A thread that finds fewer chunks than threads splits its range first, and leaves the other
half to the next one. So a table is read in parallel from the start, and so is its last range.

A table that somebody keeps locked holds a thread for as long as the session waits for a lock. So
that it holds up nobody else, a thread that is free goes to the keyspace with the fewest threads at
work, there to a table that was not found locked, and tables may come while others are dumped.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from ratchet.core.errors import (
    DecodeError,
    LockedError,
    RatchetError,
    RetryableError,
    TableStoppedError,
)
from ratchet.core.position import Position
from ratchet.snapshot import chunks
from ratchet.snapshot.errors import ShapeChangedError
from ratchet.snapshot.ledger import Claim, file_prefix
from ratchet.snapshot.patience import RetryBudget
from ratchet.snapshot.reader import FIRST_BYTES, ChunkRequest, ChunkResult, ReadLimits
from ratchet.snapshot.records import (
    ChunkDone,
    DumpSettings,
    Meter,
    OnProgress,
    Progress,
    ShardSource,
    TableDone,
    TableDumpRequest,
    TableFailed,
    TableRestarted,
    TableStarted,
    Waiting,
)
from ratchet.snapshot.sessions import close_sessions, open_session
from ratchet.snapshot.source import SourceCatalog
from ratchet.snapshot.start import KeepRows, TableDump, finish_table, start_table, stop_table
from ratchet.snapshot.tasks import ReadChunk
from ratchet.store import crashpoints
from ratchet.store.files import Lake
from ratchet.wire.session import SourceConfig

Phase = Literal["waiting", "starting", "reading", "finishing", "done", "failed"]
Piece = Callable[[], None]

_IDLE: Final = 0.1  # seconds between looks for work that depends on the clock
_MORE: Final = 1.0  # seconds between two questions for more tables
_THROTTLED: Final = 0.5  # seconds until a throttled shard is looked at again
_RESTARTS: Final = 3  # of a table whose columns change while it is dumped
_STRIKES: Final = 1  # times that a chunk is read again after an error that may be gone by then
_FIRST_ROWS: Final = 50_000  # of a chunk's first SELECT


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOutcome:
    """What became of the tables.

    Attributes:
        done: tables that are dumped now (also those that were before).
        failed: table -> the error that stopped it.
        left: tables that are not finished, because the dump was told to stop.
    """

    done: tuple[str, ...]
    failed: Mapping[str, RatchetError]
    left: tuple[str, ...]


class _Table:
    """One table's dump in this run. Everything in it is guarded by the dumper's lock."""

    def __init__(self, wanted: TableDumpRequest) -> None:
        self.wanted = wanted
        self.again = wanted.again
        self.phase: Phase = "waiting"
        self.started: TableDump | None = None
        self.error: RatchetError | None = None
        self.restarts = 0
        self.strikes = 0
        self.locked = False  # when it was last to be read
        self.not_before = 0.0
        self.committing = False
        self.last_commit = 0.0
        self.begun = 0.0
        self.meter = Meter(0.0)

    def is_current(self, started: TableDump) -> bool:
        """Whether work on `started` still counts: it does not after a restart or a failure."""
        return self.started is started and self.phase in {"reading", "finishing"}


class Dumper:
    """Dumps tables. Made for one run; `run` once."""

    def __init__(
        self,
        lake: Lake,
        shards: Mapping[str, ShardSource],
        read: ReadChunk,
        *,
        settings: DumpSettings | None = None,
        keep: KeepRows = lambda _: None,
        on_progress: OnProgress = lambda _: None,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Prepare a dump.

        Args:
            lake: where to.
            shards: ShardId as text -> where it is read from.
            read: reads a chunk (snapshot.tasks).
            settings: how to go about it.
            keep: see snapshot.start.
            on_progress: called with each record, by one thread at a time.
            stop: when set, no chunk is begun any more, and what was read is committed.
            clock: seconds, for rates and waiting.
            now: microseconds UTC, for what is written down.
        """
        self._lake = lake
        self._shards = shards
        self._catalog = SourceCatalog({shard: source.primary for shard, source in shards.items()})
        self._read = read
        self._settings = settings or DumpSettings()
        self._keep = keep
        self._on_progress = on_progress
        self._reporting = threading.Lock()
        self._stop = stop or threading.Event()
        self._clock = clock
        self._now = now
        self._throttle = self._settings.throttle
        self._patience = RetryBudget(self._settings.patience, clock=clock)
        self._tables: list[_Table] = []
        self._changed = threading.Condition()
        self._reading = 0  # chunks being read
        self._busy: Counter[str] = Counter()  # keyspace -> threads at work on it
        self._resume_at: dict[str, float] = {}  # shard -> no chunk before
        self._fatal: BaseException | None = None

    def run(
        self,
        tables: Sequence[TableDumpRequest],
        *,
        more: Callable[[], Sequence[TableDumpRequest]] = tuple,
    ) -> DumpOutcome:
        """Dump tables that are not dumped yet, and go on with those that are half done.

        Args:
            tables: these.
            more: asked about once a second, by the caller's thread, for tables to be dumped as
                well; none that is being dumped.

        Raises:
            RatchetError: the dump as a whole cannot go on: a server stays away, the lake fails.
                What was read until then is committed.
        """
        self._take(tables)
        while self._goes_on:
            self._work_off(more)
        for table in self._tables:
            try:
                self._commit(table)
            except RatchetError as error:
                self._fatal = self._fatal or error
        if self._fatal is not None:
            raise self._fatal
        names: dict[str, list[str]] = {"done": [], "failed": [], "left": []}
        for table in self._tables:
            names[table.phase if table.phase in names else "left"].append(table.wanted.name)
        return DumpOutcome(
            done=tuple(names["done"]),
            left=tuple(names["left"]),
            failed={t.wanted.name: t.error for t in self._tables if t.error is not None},
        )

    # --- which piece of work is next --------------------------------------------------------------

    @property
    def _goes_on(self) -> bool:
        """Whether there is work, and nothing has ended the dump."""
        with self._changed:
            left = any(table.phase not in {"done", "failed"} for table in self._tables)
            return left and self._fatal is None and not self._stop.is_set()

    def _take(self, tables: Sequence[TableDumpRequest]) -> None:
        with self._changed:
            self._tables += [_Table(wanted) for wanted in tables]
            self._changed.notify_all()

    def _work_off(self, more: Callable[[], Sequence[TableDumpRequest]]) -> None:
        workers = [
            threading.Thread(target=self._work, name=f"dump-{n}", daemon=True)
            for n in range(self._settings.parallel)
        ]
        for worker in workers:
            worker.start()
        try:
            while alive := [worker for worker in workers if worker.is_alive()]:
                alive[0].join(_MORE)
                if coming := more():
                    self._catalog.forget()  # they may have come since it was read
                    self._take(coming)
        except BaseException as error:  # noqa: BLE001 - raised again by run()
            self._end(error)
        for worker in workers:
            worker.join()

    def _work(self) -> None:
        try:
            while (piece := self._next()) is not None:
                keyspace, do = piece
                try:
                    do()
                finally:
                    with self._changed:
                        self._busy[keyspace] -= 1
        except BaseException as error:  # noqa: BLE001 - raised again by run()
            self._end(error)
        finally:
            close_sessions()

    def _end(self, error: BaseException) -> None:
        with self._changed:
            self._fatal = self._fatal or error
            self._changed.notify_all()

    def _next(self) -> tuple[str, Piece] | None:
        """A keyspace that is busier by one, and what to do for it."""
        with self._changed:
            while self._goes_on:
                for keyspace in self._keyspaces():
                    if (piece := self._pick(keyspace)) is not None:
                        self._busy[keyspace] += 1
                        return keyspace, piece
                self._changed.wait(_IDLE)
        return None

    def _keyspaces(self) -> list[str]:
        """Those that have the fewest threads at work first."""
        there = dict.fromkeys(table.wanted.keyspace for table in self._tables)
        return sorted(there, key=lambda keyspace: self._busy[keyspace])

    def _pick(self, keyspace: str) -> Piece | None:
        now = self._clock()
        barred = {shard for shard, when in self._resume_at.items() if when > now}
        mine = [t for t in self._tables if t.wanted.keyspace == keyspace and t.not_before <= now]
        mine.sort(key=lambda table: table.locked)
        ready = [table for table in mine if not table.committing]
        for table in ready:
            if table.phase == "reading" and table.started and table.started.ledger.all_read:
                table.phase = "finishing"
                return partial(self._finish, table, table.started)
        for table in mine:
            if table.phase == "reading" and table.started:
                claim = table.started.ledger.claim(barred)
                if claim is not None:
                    self._reading += 1
                    return partial(self._chunk, table, table.started, claim)
        for table in ready:
            if table.phase == "waiting":
                table.phase = "starting"
                return partial(self._start, table)
        return None

    # --- the pieces -------------------------------------------------------------------------------

    def _start(self, table: _Table) -> None:
        try:
            started = start_table(
                self._lake,
                table.wanted,
                again=table.again,
                shards=self._shards,
                catalog=self._catalog,
                settings=self._settings,
                keep=self._keep,
                now=self._now(),
            )
        except TableStoppedError as error:
            if isinstance(error, ShapeChangedError) and table.restarts < _RESTARTS:
                self._restart(table, error)
            else:
                self._fail(table, error)
            return
        except RetryableError as error:
            self._delay(table, error, phase="waiting")
            return
        self._patience.succeeded(table.wanted.name)
        with self._changed:
            table.again = table.locked = False
            table.started = started
            table.phase = "done" if started is None else "reading"
            table.begun = table.last_commit = self._clock()
            table.meter = Meter(table.begun)
            self._changed.notify_all()
        if started is not None:
            rows = started.ledger.rows
            expected = max(started.estimated_rows, rows)
            self._report(TableStarted(table=table.wanted.name, estimated_rows=expected, rows=rows))

    def _chunk(self, table: _Table, started: TableDump, claim: Claim) -> None:
        mine: Claim | None = claim
        try:
            mine = self._prepare(started, claim)
            if mine is None:
                return
            crashpoints.reach("dump.before_chunk")
            result = self._read(self._request(started, mine))
            crashpoints.reach("dump.after_read")
        except RatchetError as error:
            self._chunk_failed(table, started, mine or claim, error)
            return
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()
        self._chunk_read(table, started, mine, result)

    def _prepare(self, started: TableDump, claim: Claim) -> Claim | None:
        """What of a claimed range is to be read now; None if nothing is."""
        source = self._shards[claim.shard]
        reason = self._throttle.reason_on(source)
        if reason:
            with self._changed:
                started.ledger.give_back(claim)
                self._resume_at[claim.shard] = self._clock() + _THROTTLED
            self._report(Waiting(shard=claim.shard, reason=reason, throttled=True))
            return None
        with self._changed:
            queued = sum(t.started.ledger.queued for t in self._tables if t.started)
            enough = self._reading + queued >= self._settings.parallel
        if enough or claim.whole:
            return claim
        with open_session(source.primary, table=started.state.name) as session:
            parts = chunks.split(session.query, started.sources[claim.shard].plan, claim.keys)
        with self._changed:
            kept = started.ledger.narrow(claim, parts)
            self._changed.notify_all()
        return kept

    def _request(self, started: TableDump, claim: Claim) -> ChunkRequest:
        settings, source = self._settings, started.sources[claim.shard]
        shard, fixed = self._shards[claim.shard], settings.chunk_rows
        limits = ReadLimits(
            seconds=settings.chunk_seconds if fixed is None else math.inf,
            rows=self._throttle.most_rows(fixed or ReadLimits().rows),
            bytes=settings.chunk_bytes,
            first_rows=max(1, min(_FIRST_ROWS, FIRST_BYTES // max(1, source.size.row_bytes))),
        )
        return ChunkRequest(
            number=claim.number,
            config=shard.config,
            schema=source.schema,
            shape=source.shape,
            plan=source.plan,
            keys=claim.keys,
            generation=shard.generation,
            lake=self._lake,
            folder=started.state.path,
            name=file_prefix(started.ledger.dump),
            policy=settings.policy,
            key=started.state.key,
            limits=limits,
            columns=started.columns,
            since=_since(shard.config, started, claim.shard),
        )

    def _finish(self, table: _Table, started: TableDump) -> None:
        self._commit(table)
        try:
            finish_table(self._lake, started, self._shards)
        except RetryableError as error:
            self._delay(table, error, phase="reading")
            return
        with self._changed:
            table.phase = "done"
            seconds = self._clock() - table.begun
            self._changed.notify_all()
        ledger = started.ledger
        self._report(
            TableDone(
                table=table.wanted.name, rows=ledger.rows, bytes=ledger.bytes, seconds=seconds
            )
        )

    # --- what comes of them -----------------------------------------------------------------------

    def _chunk_read(
        self, table: _Table, started: TableDump, claim: Claim, result: ChunkResult
    ) -> None:
        self._patience.succeeded(claim.shard)
        self._patience.succeeded(table.wanted.name)
        self._throttle.count(result.rows)
        ledger, now = started.ledger, self._clock()
        with self._changed:
            table.locked = False
            current = table.is_current(started)
            if current:
                ledger.finish(claim, result)
                rate = table.meter.count(now, result.rows)
                rows, read, all_read = ledger.rows, ledger.bytes, ledger.all_read
            self._changed.notify_all()
        if not current:
            if result.file:
                self._lake.delete(f"{started.state.path}/{result.file}")
            return
        expected = max(started.estimated_rows, rows)
        self._report(
            ChunkDone(
                table=table.wanted.name,
                shard=result.shard,
                number=result.number,
                chunk_rows=result.rows,
                seconds=result.seconds,
                misfits=result.misfits,
                rows=rows,
                estimated_rows=rows if all_read else expected,
                bytes=read,
                rows_per_second=rate,
                eta=0.0 if all_read else (expected - rows) / rate if rate > 0 else None,
            )
        )
        if now - table.last_commit >= self._settings.commit_seconds:
            self._commit(table)

    def _commit(self, table: _Table) -> None:
        with self._changed:
            started = table.started
            if started is None or table.committing or not table.is_current(started):
                return
            draft = started.ledger.draft()
            if draft is None:
                return
            table.committing = True
        try:
            crashpoints.reach("dump.before_commit")
            started.ledger.write(draft)
            crashpoints.reach("dump.after_commit")
            with self._changed:
                started.ledger.committed(draft)
                table.last_commit = self._clock()
        finally:
            with self._changed:
                table.committing = False
                self._changed.notify_all()

    def _chunk_failed(
        self, table: _Table, started: TableDump, claim: Claim, error: RatchetError
    ) -> None:
        with self._changed:
            started.ledger.give_back(claim)
            if not table.is_current(started):
                return
            # A table that is altered under a read makes that read fail; the next one tells more.
            second_look = isinstance(error, TableStoppedError | DecodeError)
            if second_look and not isinstance(error, ShapeChangedError):
                table.strikes += 1
                if table.strikes <= _STRIKES:
                    return
        if isinstance(error, ShapeChangedError) and table.restarts < _RESTARTS:
            self._restart(table, error)
        elif isinstance(error, TableStoppedError):
            self._fail(table, error)
        elif isinstance(error, LockedError):  # its shard's other tables may not be
            self._delay(table, error, phase="reading")
        elif isinstance(error, RetryableError):
            delay = self._patience.failed(claim.shard, error)
            with self._changed:
                self._resume_at[claim.shard] = self._clock() + delay
            self._report(Waiting(shard=claim.shard, reason=str(error)))
        else:
            raise error

    def _restart(self, table: _Table, error: ShapeChangedError) -> None:
        self._catalog.forget()
        with self._changed:
            table.restarts += 1
            table.again = True
            table.started = None
            table.phase = "waiting"
            self._changed.notify_all()
        self._report(TableRestarted(table=table.wanted.name, reason=error.message))

    def _fail(self, table: _Table, error: TableStoppedError) -> None:
        with self._changed:
            table.phase = "failed"
            table.error = error
            self._changed.notify_all()
        stop_table(self._lake, table.wanted, error)
        self._report(TableFailed(table=table.wanted.name, error=error))

    def _delay(self, table: _Table, error: RetryableError, *, phase: Phase) -> None:
        delay = self._patience.failed(table.wanted.name, error)
        with self._changed:
            table.phase = phase
            table.locked = isinstance(error, LockedError)
            table.not_before = self._clock() + delay
        self._report(Waiting(shard=error.source, reason=str(error)))

    def _report(self, record: Progress) -> None:
        with self._reporting:
            self._on_progress(record)


def _since(config: SourceConfig, started: TableDump, shard: str) -> Position | None:
    """What a chunk must contain: a vtgate's replicas may still be behind the dump's start."""
    dump = started.state.dump
    return dump.start[shard] if config.target and dump is not None else None
