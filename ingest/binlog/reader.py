"""Reads a stream of indexed events into batches of transactions: the walker and its rare cases.

Lives here: `Reader`, which owns the walker's state and answers what the kernel asks. Does not live
here: transitions (`machine`), bytes of rare events (`events`), table maps (`slots`), executed sets
(`ledger`), statements (`watch`), which transaction something belongs to (`moments`), rows that are
taken back (`openrows`), sockets (`wire.binlog`), row values.

Invariant: after any call the reader stands between two events, and `position()` is the end of the
last whole transaction. A transaction that the executed set contains leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final

import numpy as np

from ratchet.core.errors import (
    BugError,
    DecodeError,
    RatchetError,
    RetryableError,
    TableStoppedError,
)
from ratchet.core.gtid import GtidSet, format_gtid
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import GtidRange
from ratchet.core.shard import ShardId
from ratchet.core.sql.statements import point_form
from ratchet.ingest.binlog import events, places, walk
from ratchet.ingest.binlog.failures import event_told, partial_json, refusal
from ratchet.ingest.binlog.ledger import GtidTracker
from ratchet.ingest.binlog.machine import (
    COMPRESSED_V2,
    GTID_TAGGED,
    KIND_OF_TYPE,
    LOAD_QUERY,
    MACHINE,
    QUERY_COMPRESSED,
    Action,
    Kind,
    State,
)
from ratchet.ingest.binlog.moments import TransactionStamps
from ratchet.ingest.binlog.notes import Bytes, Records, TransactionBatch
from ratchet.ingest.binlog.openrows import OpenRows
from ratchet.ingest.binlog.payload import DecompressionBuffer
from ratchet.ingest.binlog.slots import Catalog, TableMapCache
from ratchet.ingest.binlog.statements import KIND_OF
from ratchet.ingest.binlog.watch import StatementWatch, TransactionStamp
from ratchet.wire.failures import nameless
from ratchet.wire.framing import HEADER

NOTES: Final = 1 << 17  # transactions and row events in a batch, at most
_NEVER: Final = 1 << 62
# Looked up once: Python 3.11 takes a microsecond for each member of an enumeration.
_BETWEEN: Final = int(State.BETWEEN)
_INSIDE: Final = frozenset({int(State.OPEN), int(State.ROWS)})
_QUERY: Final = Kind.QUERY
_MAY_PREPARE: Final = frozenset({State.OPEN, State.ROWS, State.XA_ENDED, State.XA_ENDED_ROWS})


class UnfinishedError(RetryableError):
    """A transaction whose rows were handed out turns out never to have been finished.

    Attributes:
        place: binlog file and offset where it begins; see Reader's `unfinished`.
    """

    place: tuple[str, int] = ("", 0)


class Reader:
    """One stream, from one position on."""

    def __init__(
        self,
        *,
        shard: ShardId,
        database: str,
        patterns: TablePatterns,
        start: Position,
        catalog: Catalog,
        keep: Callable[[TransactionBatch], int],
        unfinished: tuple[str, int] = ("", 0),
        sidecar: tuple[str, frozenset[str]] = ("", frozenset()),
        last: str = "",
    ) -> None:
        """Begin at a position.

        Args:
            shard: for table events and messages.
            database: the database whose tables are mirrored.
            patterns: which of its tables.
            start: the position that the stream was opened at.
            catalog: what the log does not tell about tables.
            keep: gets each batch, is done with its buffers when it returns, and returns how many
                row changes its last transaction has so far.
            unfinished: file and offset of a transaction that is known never to have been finished.
            sidecar: a database and which of its tables are read as if they were mirrored.
            last: one of these: a slice ends with the transaction that holds rows of it.
        """
        self.shard = shard
        self.flavor = start.flavor
        self._keep = keep
        self._known: frozenset[str] = frozenset()
        self._slots = TableMapCache(
            shard=shard,
            database=database,
            patterns=patterns,
            flavor=start.flavor,
            catalog=catalog,
            sidecar=sidecar,
            last=last,
        )
        self._ends = False
        self._unchecked = False  # whether the file's events have no checksums
        self._left_out: set[str] = set()  # tables that this slice tells of already
        self._side = DecompressionBuffer()
        self._data: Bytes = np.zeros(0, np.uint8)
        self._server = start.server
        self._file = self._next_file = start.file
        self._unfinished = unfinished
        self._watch = StatementWatch(
            shard=shard,
            database=database,
            patterns=patterns,
            mariadb=start.flavor == "mariadb",
            hooks=catalog,
        )
        self._rows_before = 0
        self._folded = 0
        self._txns = np.zeros(NOTES, places.TXN)
        self._rows = np.zeros(NOTES, places.ROWS)
        self._state = state = np.zeros(places.SIZE, np.int64)
        state[places.KIND] = -1
        state[places.FLAVOR] = places.FLAVORS[start.flavor]
        state[places.LIMIT] = state[places.NOT_AFTER] = state[places.BELIEVED] = _NEVER
        state[places.UNFINISHED] = -1
        state[places.END_OFFSET] = start.offset if start.file else 0
        self._ledger = GtidTracker(start, state)
        self._moments = TransactionStamps(self._ledger, state, self._txns)
        self._open = OpenRows(state, self._rows, self._slots, self._watch, self._moments)
        self._enter_file(start.file, start.offset)

    # --- what capture asks ------------------------------------------------------------------------

    @property
    def between(self) -> bool:
        """Whether no transaction is open."""
        return bool(self._state[places.STATE] == _BETWEEN)

    @property
    def bytes_read(self) -> int:
        """Bytes of events since `start_slice`."""
        return int(self._state[places.BYTES])

    @property
    def runs(self) -> tuple[GtidRange, ...]:
        """The transactions since `start_slice`, in stream order."""
        self._fold()
        return tuple(self._ledger.runs)

    @property
    def side_bytes(self) -> int:
        """Bytes in the side buffer, which stand beside those received."""
        return self._side.end

    @property
    def held_ts(self) -> int | None:
        """Commit time of the transaction that `not_after` stopped the slice before, if it did."""
        return int(self._state[places.HELD]) or None

    def start_slice(
        self,
        *,
        known: frozenset[str],
        limit: int,
        not_after: int | None = None,
        believed: int | None = None,
    ) -> None:
        """Forget the counts; stop behind the transaction that brings the bytes to `limit`.

        Args:
            known: names of tables that are mirrored already: statements are searched for them.
            limit: bytes of events.
            not_after: stop before the first transaction committed later, microseconds UTC.
            believed: a commit time later than this is wrong, and stops nothing; None: any is right.
        """
        self._ledger.runs = []
        self._known = known
        self._ends = False
        self._slots.count_anew()
        self._slots.ask_for_last()
        self._slots.ask_for_unreadable()
        self._left_out.clear()
        self._state[places.BYTES] = 0
        self._state[places.LIMIT] = limit
        self._state[places.NOT_AFTER] = _NEVER if not_after is None else not_after
        self._state[places.BELIEVED] = _NEVER if believed is None else believed
        self._state[places.HELD] = 0

    def first_follows(self) -> bool | None:
        """Whether the first transaction is the one right behind the position; None: none yet.

        For streams opened by file and offset. False may be a harmless hole in the numbers.
        """
        state = self._state
        if state[places.SKIP] == 1:
            return False
        if not state[places.TXNS] or self.flavor == "file":
            return None
        txn = self._txns[0]
        return self._ledger.follows(int(txn["origin"]), int(txn["number"]))

    def position(self) -> Position:
        """Behind the last whole transaction."""
        self._fold()
        state = self._state
        offset = int(state[places.END_OFFSET])
        if self.between and offset:
            offset = int(state[places.HIGH] + state[places.LOW])
        if self.flavor == "file" and offset:
            self._ledger.at_file(self._file, offset)
        return Position(
            executed=self._ledger.executed,
            server=self._server,
            file=self._file if offset else "",
            offset=offset,
            last=self._ledger.last,
        )

    def has_reached(self, file: str, offset: int) -> bool:
        """Whether the server has read its log up to a place, or on to its end, and told all of it.

        MySQL reads in silence what a stream need not get. A heartbeat says how far it is, and while
        it reads no two of them say the same.
        """
        return bool(self._state[places.IDLE]) or self.has_passed(file, offset)

    def has_passed(self, file: str, offset: int) -> bool:
        """Whether the server has read its log up to this place, and told all of it."""
        state = self._state
        low, told = int(state[places.LOW]), int(state[places.TOLD])
        reached = int(state[places.HIGH]) + told + (1 << 32 if low - told > 1 << 31 else 0)
        return (len(self._file), self._file, reached) >= (len(file), file, offset)

    def pass_over(self, gtids: GtidSet) -> None:
        """Go on without transactions that the server has executed and that its log lacks.

        All tables are in doubt behind it. The reader must be between two transactions.
        """
        self._fold()
        before = self._moments.before()
        gtid = format_gtid(self.flavor, self._ledger.pass_over(gtids))
        seq = int(self._state[places.SEQ])
        self._miss(str(gtids), TransactionStamp(gtid=gtid, seq=seq, ts=before.ts if before else 0))

    def feed(self, data: Bytes, index: Records, first: int, count: int) -> tuple[int, bool]:
        """Walk the events `first` to `count`; (the next one, whether a limit stopped it).

        Raises:
            DecodeError, SourceUnfitError, PositionLostError: what the log holds is refused.
            UnfinishedError: rows that were handed out never came into being.
        """
        self._data = data
        return self._feed(data, index, first, count, where=0)

    def flush(self) -> None:
        """Hand out what is noted. Afterwards the buffers may be used again."""
        state = self._state
        txns, rows = int(state[places.TXNS]), int(state[places.ROW_EVENTS])
        self._fold()
        open_txn = not self.between and state[places.SKIP] == 0 and txns > 0
        if txns or self._watch.events:
            self._watch.inserted_in_bulk(self._open.bulk_of(rows))
            self._rows_before = self._keep(
                TransactionBatch(
                    flavor=self.flavor,
                    txns=self._txns[:txns],
                    rows=self._rows[:rows],
                    names=self._ledger.names(),
                    maps=self._slots.maps,
                    buffers=(self._data, self._side.data),
                    rows_before=self._rows_before,
                    ended=txns - open_txn,
                    # What is missing is seen where transactions are folded in: late.
                    events=tuple(sorted(self._watch.events, key=attrgetter("seq"))),
                )
            )
        if open_txn:
            self._open.handed_on()
            self._txns[0] = self._txns[txns - 1]
        else:
            self._rows_before = 0
            self._open.closed()
            if self.between and self._slots.is_full:
                self._slots.clear()
        state[places.TXNS] = int(open_txn)
        state[places.ROW_EVENTS] = self._folded = 0
        self._watch.events = []
        self._side.release()

    # --- walking ----------------------------------------------------------------------------------

    def _feed(
        self, data: Bytes, index: Records, first: int, count: int, *, where: int
    ) -> tuple[int, bool]:
        at = first
        while True:
            at, status, what = walk.walk(self._arrays(), data, index, at, count, where)
            if status == walk.DONE:
                return at, False
            if status in {walk.LIMITED, walk.WAIT}:
                return at, True
            if status == walk.ROOM:
                self.flush()
            elif status == walk.ABANDONED:
                self._abandon()
            elif status == walk.ASK:
                at = self._look(data, index, at, what)
                if self.between and self._state[places.BYTES] >= self._state[places.LIMIT]:
                    return at, True
            else:
                raise self._refusal(Action(what), index[at], _body(index[at], data))

    def _arrays(self) -> places.Arrays:
        slots = self._slots
        return places.Arrays(
            machine=MACHINE,
            kinds=KIND_OF_TYPE,
            state=self._state,
            txns=self._txns,
            rows=self._rows,
            origins=self._ledger.origins,
            highs=self._ledger.highs,
            ids=slots.ids,
            slots=slots.slots,
            targets=slots.targets,
            maps=slots.bodies,
            map_starts=slots.starts,
        )

    def _look(self, data: Bytes, index: Records, at: int, kind: int) -> int:
        """Deal with an event that the kernel asks about; the number of the next one to walk."""
        body = _body(index[at], data)
        try:
            if kind == Kind.PAYLOAD:
                return self._unpack(data, index, at, body)
            self._answer(index[at], body, kind)
        except RatchetError as error:
            # What reads bodies knows neither the shard nor the place.
            error.source = error.source or str(self.shard)
            error.position = error.position or self._place(index[at])
            if isinstance(error, DecodeError):
                error.hint = error.hint or "the stream may be damaged: try again"
            raise
        return at

    def _answer(self, event: np.void, body: bytes, kind: int) -> None:
        """Find out what the kernel needs to know of the event and put it into the state."""
        logged = int(event["type"])
        if kind == _QUERY:  # there may be very many
            self._state[places.KIND] = self._look_at_statement(body, event)
            return
        answer = Kind(kind)
        if kind == Kind.TABLE_MAP:
            self._register(body)
        elif kind == Kind.ROTATE:
            self._rotate(*events.parse_rotate(body))
        elif kind == Kind.FORMAT:
            self._describe(body)
        elif kind in {Kind.GTID, Kind.GTID_GROUP, Kind.GTID_SINGLE}:
            if not self._name(event, body):
                return  # there is room for another origin now: the kernel looks again
        elif kind in {Kind.ROWS, Kind.PARTIAL_ROWS}:
            answer = self._look_at_rows(body, logged)
        elif kind == Kind.XA_PREPARE and self._state[places.STATE] in _MAY_PREPARE:
            self._open.prepare(body)
        elif kind == Kind.INCIDENT:
            self._lose(event, body)
        self._state[places.KIND] = answer

    def _register(self, body: bytes) -> None:
        if self._slots.register(body) or self._slots.has_many_new:
            self._ends = True
            self._state[places.LIMIT] = 0
        for table, error in self._slots.take_unreadable():
            self._leave_out(table, error)
        if self._state[places.SKIP] == places.REPEATED:
            found = self._slots.maps[self._slots.slot_of(int.from_bytes(body[:6], "little"))]
            now = self._moment_before()
            if found is not None and now is not None:
                self._watch.repeated(found.schema.table, now)

    def _leave_out(self, table: str, error: TableStoppedError) -> None:
        """Rows of a table cannot be read: it stops here, and the others go on."""
        now = self._moments.open()
        if now is None:
            self._slots.ask_for_unreadable()  # it may come in a transaction that counts
        elif table not in self._left_out:
            self._left_out.add(table)
            self._watch.unreadable(table, error, now)

    def _look_at_rows(self, body: bytes, logged: int) -> Kind:
        """Compressed rows, or a partial update of a JSON column, which is left out."""
        if KIND_OF_TYPE[logged] == Kind.ROWS:
            self._uncompress(body, logged)
            return Kind.ROWS
        slot = self._slots.slot_of(int.from_bytes(body[:6], "little"))
        if slot < 0:
            return Kind.PARTIAL_ROWS
        found = self._slots.maps[slot]
        if found is not None:
            self._leave_out(found.table, partial_json(found.schema.name))
        return Kind.OTHER_ROWS

    # --- transactions' names ----------------------------------------------------------------------

    def _name(self, event: np.void, body: bytes) -> bool:
        """Put a transaction's name into the state; False if the kernel can do it now."""
        state = self._state
        logged = int(event["type"])
        if logged == GTID_TAGGED:
            tagged = events.parse_tagged_gtid(body)
            state[places.NUMBER], state[places.TS] = tagged.number, tagged.ts
            state[places.COMMITTED], state[places.LENGTH] = tagged.committed, tagged.length
            state[places.ORIGIN] = (
                self._ledger.origin(tagged.origin) if self.flavor == "mysql" else 0
            )
        elif self._ledger.is_full:
            self._ledger.grow()
            return False
        elif logged == 34:
            raise nameless(
                "",
                operation="follow the binlog",
                source=str(self.shard),
                position=self._place(event),
            )
        if self.flavor == "mysql":
            self._fold()
            self._moments.decide()
        return True

    def _fold(self) -> None:
        """Take whole transactions that are noted into the executed set and the runs."""
        noted = int(self._state[places.TXNS])
        open_txn = not self.between and self._state[places.SKIP] == 0 and noted > 0
        whole = self._txns[self._folded : noted - open_txn]
        if self._unchecked and self.flavor == "mariadb":
            for at, numbers in self._ledger.holes(whole):
                self._miss(numbers, self._moments.noted(self._folded + at))
        self._folded += whole.size
        self._ledger.fold(whole)
        if whole.size:
            self._ledger.witness(whole[-1], self._file)

    def _abandon(self) -> None:
        """The server died in the open transaction: take back what is noted of it."""
        state = self._state
        if self._rows_before:
            error = UnfinishedError(
                "the server died while it wrote a transaction, and never finished it",
                operation="follow the binlog",
                source=str(self.shard),
                hint="Ratchet reads this slice again without it, by itself",
            )
            error.place = self._file, int(state[places.BEGIN_OFFSET])
            raise error
        if state[places.SKIP] == 0:
            number = int(state[places.TXNS]) - 1
            origin, seq = int(self._txns[number]["origin"]), int(self._txns[number]["seq"])
            self._watch.events = [one for one in self._watch.events if one.seq != seq]
            self._open.abandoned()
            state[places.TXNS] = number
            rows = self._rows[: int(state[places.ROW_EVENTS])]
            state[places.ROW_EVENTS] = int(np.count_nonzero(rows["txn"] < number))
            state[places.SEQ] = state[places.SEQ_BEFORE]
            self._ledger.highs[origin] = state[places.HIGH_BEFORE]
        state[places.SKIP] = 0
        self._enter_file(self._next_file, None)

    # --- files ------------------------------------------------------------------------------------

    def _rotate(self, name: str, offset: int) -> None:
        # Inside a transaction the file changes only when the transaction turns out abandoned,
        # at the format description event that follows.
        self._next_file = name
        if self.between:
            self._enter_file(name, offset)

    def _describe(self, body: bytes) -> None:
        """A server begins to write a file: it numbers its tables anew."""
        self._slots.clear_ids()
        if self.between:
            self._enter_file(self._next_file, None)
        self._unchecked = events.is_unchecked(body)

    def _enter_file(self, name: str, offset: int | None) -> None:
        """From now on offsets are in this file; None: where it begins, unless it is entered."""
        state = self._state
        if offset is None:
            if name == self._file:
                return
            offset = 4
        self._fold()  # what has been read is of the file that it was read from
        self._file = name
        high = 1 << 32
        state[places.LOW], state[places.HIGH] = offset % high, offset // high * high
        state[places.TOLD], state[places.IDLE] = state[places.LOW], 0
        state[places.FILE] = self._ledger.file_number(name) if name else 0
        if state[places.END_OFFSET]:
            state[places.END_OFFSET] = offset
        unfinished_file, at = self._unfinished
        state[places.UNFINISHED] = at if name and name == unfinished_file else -1

    # --- statements and compressed events ---------------------------------------------------------

    def _look_at_statement(self, body: bytes, event: np.void) -> Kind:
        # A two-phase ALTER counts where it is committed: at its start nothing has changed yet.
        undone = int(self._state[places.ALTER]) & (places.START_ALTER | places.ROLLBACK_ALTER)
        now = None if undone else self._moments.open()
        if self.between or self._state[places.SKIP] == places.REPEATED:
            now = self._moment_before()
        if self.between and (self.flavor != "mysql" or now is None):
            raise self._refusal(Action.OUT_OF_ORDER, event, body)
        query = _query(body, event)
        inside = now if int(self._state[places.STATE]) in _INSIDE else None
        # It does nothing to any table but take rows back, so nobody needs to know of any.
        if (form := point_form(query.statement)) is not None:
            kind = KIND_OF[form]
            if inside is not None:
                self._open.mind_points(kind, query.statement, inside)
            return kind
        found = self._watch.look(query, known=self._known | self._slots.tables, now=now)
        if inside is not None:
            self._open.mind_points(found.kind, query.statement, inside)
        for table in found.tables:
            self._slots.forget(table)
        return found.kind

    def _lose(self, event: np.void, body: bytes) -> None:
        """The server says that its log lacks changes, of whatever table."""
        self._fold()
        now = self._moments.executed() if self.between else self._moments.open()
        if now is not None:
            self._watch.lost(self._known | self._slots.tables, now)
        elif (
            self.between
        ):  # the server had executed nothing before it, so there is no mirror to doubt
            raise self._refusal(Action.INCIDENT, event, body)

    def _miss(self, gtids: str, now: TransactionStamp) -> None:
        self._watch.passed_over(gtids, self._known | self._slots.tables, now)

    def _moment_before(self) -> TransactionStamp | None:
        self._fold()
        return self._moments.before()

    def _uncompress(self, body: bytes, logged: int) -> None:
        """Uncompress one of MariaDB's rows events into the side buffer."""
        version = 2 if logged in COMPRESSED_V2 else 1
        rows = events.uncompress_rows(body, version=version, update=logged in {167, 170})
        state = self._state
        state[places.ORIGIN] = self._slots.slot_of(int.from_bytes(body[:6], "little"))
        state[places.NUMBER] = self._side.append(rows)
        state[places.LENGTH] = self._side.end

    def _unpack(self, data: Bytes, index: Records, at: int, body: bytes) -> int:
        """Walk a compressed transaction's events; returns the number of the next event."""
        state = self._state
        state[places.KIND] = Kind.PAYLOAD
        following, status, what = walk.walk(self._arrays(), data, index, at, at + 1, 0)
        if status == walk.ERROR:
            raise self._refusal(Action(what), index[at], _body(index[at], data))
        if status != walk.DONE or following != at + 1:
            raise BugError("a compressed transaction was not walked", operation="follow the binlog")
        counted, limit = state[places.BYTES], state[places.LIMIT]
        state[places.INNER], state[places.LIMIT] = 1, _NEVER
        for inner, count in self._side.unpack(body, full=self.flush):
            self._feed(self._side.data, inner, 0, count, where=1)
        state[places.INNER], state[places.LIMIT] = 0, 0 if self._ends else limit
        state[places.BYTES] = counted
        if not self.between:
            raise DecodeError(
                "a compressed transaction does not end",
                operation="follow the binlog",
                source=str(self.shard),
                position=self._place(index[at]),
                hint="the stream may be damaged: try again",
            )
        return following

    # --- messages ---------------------------------------------------------------------------------

    def _refusal(self, action: Action, event: np.void, body: bytes) -> Exception:
        logged = int(event["type"])
        text = event_told(logged, State(int(self._state[places.STATE])))
        if logged in {2, QUERY_COMPRESSED} and action is not Action.TRUNCATED_EVENT:
            query = _query(body, event)
            text = f"{text}, statement {query.statement[:200]!r}"
        return refusal(action, event=text, source=str(self.shard), position=self._place(event))

    def _place(self, event: np.void) -> str:
        return f"{self._file}:{int(event['log_pos'])}"


def _body(event: np.void, data: Bytes) -> bytes:
    return bytes(data[event["start"] + HEADER : event["end"]])


def _query(body: bytes, event: np.void) -> events.Query:
    logged = int(event["type"])
    return events.parse_query(
        body,
        compressed=logged == QUERY_COMPRESSED,
        load=logged == LOAD_QUERY,
        flags=int(event["flags"]),
        seconds=int(event["timestamp"]),
    )
