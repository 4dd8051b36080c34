"""A shard's VStream as a feed of capture: transactions, positions, statements, the journal.

Lives here: `VStreamFeed`. Does not live here: bytes (`backlog`), tables (`tables`), rows
(`changes`), what the shard is asked (`questions`), gRPC (`wire.vtgate`).

Invariant: a position is the end of a transaction; what a transaction brings is written only when
its end is here, with its name, `seq` and commit time. An event that is not understood ends the
slice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError as ProtobufError

from ratchet.core.errors import (
    DecodeError,
    RatchetError,
    RetryableError,
    SourceUnfitError,
    UnsendableError,
)
from ratchet.core.gtid import GtidSet, format_gtid, parse_gtid
from ratchet.core.position import Position
from ratchet.core.rounds import Journal
from ratchet.core.shard import ShardId
from ratchet.core.shell import shell_word
from ratchet.core.vitess import is_internal
from ratchet.ingest.binlog import places
from ratchet.ingest.binlog.events import Query
from ratchet.ingest.binlog.ledger import GtidTracker
from ratchet.ingest.binlog.watch import StatementWatch, TransactionStamp
from ratchet.ingest.changes import Tokens
from ratchet.ingest.slices import (
    DRAINED,
    CaptureRequest,
    SliceCollector,
    SliceLimits,
    SliceSummary,
    refuse_to_wait,
)
from ratchet.ingest.vstream.backlog import WITHIN, Backlog, BacklogEntry, is_end
from ratchet.ingest.vstream.changes import RowEvents, changes_of
from ratchet.ingest.vstream.questions import ShardQuestions
from ratchet.ingest.vstream.tables import NOT_MIRRORED, StreamTables
from ratchet.wire.decode.engine import engine
from ratchet.wire.decode.kernels import vstream as kernels
from ratchet.wire.journal import FLAVOR, executed_of, journal_of
from ratchet.wire.vstreamproto import messages
from ratchet.wire.vtgate import VStream, VtgateConfig

log: Final = logging.getLogger(__name__)

Bytes = npt.NDArray[np.uint8]
Records = npt.NDArray[np.void]

_INDEX: Final = 4 << 20  # received bytes that are indexed at once
_FLUSH: Final = 8 << 20  # bytes of whole transactions that are decoded at once
_ROWS_WITHIN: Final = 5.0  # seconds: the rows of CREATE TABLE ... SELECT follow it at once
_HEARTBEAT_BYTES: Final = 64  # what a response with nothing but a heartbeat has at most
_OPERATION: Final = "follow VStream"
_INFORMATION: Final = (
    "BEGIN", "HEARTBEAT", "VGTID", "COMMIT", "OTHER", "DDL", "FIELD", "ROW", "JOURNAL", "GTID",
    "VERSION", "SAVEPOINT", "PREVIOUS_GTIDS", "ROWS_QUERY",
)  # fmt: skip
_STATEMENTS: Final = ("INSERT", "REPLACE", "UPDATE", "DELETE", "SET")


class VStreamFeed:
    """One shard's VStream and all that was learned from it; see ingest.slices.Feed.

    Args:
        request: where it begins, and what is mirrored. Its `source` is the shard through the
            MySQL port of the same vtgate.
        sink: gets what is read.
        vtgate: where to.
        passes_over: how many transactions it may pass over where no tablet can send one.

    Raises:
        RatchetError: the stream cannot be opened.
    """

    def __init__(
        self,
        request: CaptureRequest,
        sink: SliceCollector,
        *,
        vtgate: VtgateConfig,
        passes_over: int = 1,
    ) -> None:
        source = request.source
        self._source = source
        self._shard: ShardId = source.shard
        self._sink = sink
        self._backlog = Backlog()
        self._ledger = GtidTracker(request.start, np.zeros(places.SIZE, np.int64))
        self._questions = ShardQuestions(source, lambda: self._ledger.executed)
        self._watch = StatementWatch(
            shard=source.shard, database=source.database, patterns=request.patterns
        )
        self._tables = StreamTables(
            keyspace=source.shard.keyspace,
            patterns=request.patterns,
            policy=request.policy,
            read=self._questions.declared,
        )
        self._current: dict[int, int] = {}  # hash of a table's name -> its number
        self._described: dict[str, int] = {}  # table -> when it was described, nanoseconds
        self._journal: Journal | None = None
        self._passes_over = passes_over
        self._passed_over = False  # a transaction that no tablet can send: the stream is over
        self._bytes = 0
        self._deadline = request.dump.deadline
        self._moved_at = 0.0
        self._questions.check()
        self._stream = VStream(
            vtgate,
            [(source.shard.keyspace, source.shard.shard, f"{FLAVOR}{request.start.executed}")],
            silence=request.dump.deadline,
        )

    # --- a slice ----------------------------------------------------------------------------------

    def read(self, *, known: frozenset[str], limits: SliceLimits) -> SliceSummary:
        """See ingest.slices.Feed."""
        self._ledger.runs = []
        self._bytes = 0
        caught_up = self._read(known, limits)
        return SliceSummary(
            end=Position(executed=self._ledger.executed),
            runs=tuple(self._ledger.runs),
            bytes=self._bytes,
            caught_up=caught_up,
            journal=self._journal,
            held_ts=self._backlog.held_ts,
            passed_over=self._passed_over,
        )

    @property
    def is_worn(self) -> bool:
        """See ingest.slices.Feed."""
        return self._passed_over or self._tables.is_worn

    def close(self) -> None:
        """See ingest.slices.Feed."""
        self._stream.close()
        self._backlog.close()
        self._questions.close()

    def _read(self, known: frozenset[str], limits: SliceLimits) -> bool:
        """Read until a limit; whether the stream had nothing more to give."""
        backlog = self._backlog
        began = self._moved_at = time.monotonic()
        self._flush(known, limits.not_after)  # what an earlier slice had to leave
        while not self._stops:
            quiet = not self._receive(known, limits.not_after)
            over = time.monotonic() >= began + limits.max_seconds or self._bytes >= limits.max_bytes
            if quiet or over or backlog.inbox_bytes >= _INDEX:
                backlog.index()
                if quiet or over or backlog.whole_bytes >= _FLUSH:
                    self._flush(known, limits.not_after)
            if self._stops:
                break
            if not backlog.between or backlog.inbox_bytes:
                self._wait_for_the_end()
                refuse_to_wait(str(self._shard))
            elif over or self._holds(limits.stop_at):
                return self._questions.has_given_all()
            elif (
                quiet
                and time.monotonic() - began >= limits.min_seconds
                and self._questions.has_given_all()
            ):
                return True
        return self._journal is not None

    @property
    def _stops(self) -> bool:
        """Whether the stream has ended, or its next transaction is behind the bound."""
        ended = self._journal is not None or self._passed_over
        return ended or self._backlog.held_ts is not None

    def _receive(self, known: frozenset[str], not_after: int | None) -> bool:
        """Take a response in; False if there is none."""
        try:
            response = self._stream.receive(DRAINED)
        except (RetryableError, UnsendableError) as error:
            # One shard's stream of a merge ends with an error, right behind its journal.
            self._backlog.index()
            ended = isinstance(error, UnsendableError) and self._backlog.end_statement()
            self._flush(known, not_after)
            if not self._stops and not self._pass_over(error, known, ended=ended):
                raise
            return False
        if response is None:
            return False
        self._backlog.add(response)
        self._bytes += len(response)
        if len(response) > _HEARTBEAT_BYTES:
            self._moved_at = time.monotonic()
        return True

    def _pass_over(self, error: RatchetError, known: frozenset[str], *, ended: bool) -> bool:
        """Continue behind a transaction that the tablet cannot send; False if that is another one.

        Its table was altered or dropped since. Nobody knows which other tables it has changed, so
        all are in doubt behind it, and compared.

        Args:
            error: the stream's.
            known: tables that the mirror holds.
            ended: whether a CREATE TABLE ... SELECT is the last that came, without its rows.
        """
        if not (self._passes_over and isinstance(error, UnsendableError) and error.reached):
            return False
        passed = GtidSet.parse("mysql", error.reached).minus(self._ledger.executed)
        if ended and not passed.cardinality:  # it is that one: its table is gone
            self._passed_over = True
            return True
        if passed.cardinality != 1:
            return False
        if self._passes_over > 1:
            reached = GtidSet.parse("mysql", error.reached)
            passed = passed.union(self._questions.next_to(reached, self._passes_over - 1))
        gtid = format_gtid("mysql", self._ledger.pass_over(passed))
        now = TransactionStamp(gtid=gtid, seq=self._ledger.executed.cardinality, ts=0)
        self._watch.events = []
        self._watch.passed_over(str(passed), known | self._tables.names, now)
        self._sink.events += self._watch.events
        self._watch.events = []
        log.warning("%s: %s: %s is passed over", self._shard, error.message, passed)
        self._passed_over = True
        return True

    def _wait_for_the_end(self) -> None:
        """A transaction is open: keep it, but not for ever."""
        if self._backlog.holds_statement and time.monotonic() - self._moved_at > _ROWS_WITHIN:
            # Its table is gone by now. If not, it is a new one, and is dumped with its rows.
            self._backlog.end_statement()
            return
        self._backlog.spool()
        if time.monotonic() - self._moved_at > self._deadline:
            raise RetryableError(
                f"a transaction has not continued for {self._deadline:g} s",
                operation=_OPERATION,
                source=str(self._shard),
                position=str(self._ledger.executed),
                hint="look at vtgate's log; the stream is opened again by itself",
            )

    def _holds(self, wanted: GtidSet | None) -> bool:
        return wanted is not None and self._ledger.executed.contains_all(wanted)

    # --- whole transactions -----------------------------------------------------------------------

    def _flush(self, known: frozenset[str], not_after: int | None) -> None:
        """Write the transactions that are whole, up to the first one behind the bound."""
        believed = int(time.time() * 1e6) + self._sink.clock_bound
        pieces = self._backlog.take(not_after, believed)
        if not pieces:
            return
        txns = self._named(pieces)
        tokens = Tokens(
            ts=txns["ts"],
            seq=txns["seq"],
            gtids=pa.array(self._gtids(txns), pa.string()),
            shard=self._shard,
            generation=self._sink.generation,
        )
        first, before = 0, (0, 0)
        for piece in pieces:
            self._look(piece, piece.data(), known, txns, first)
            events = self._rows(piece, piece.data(), first)
            changes, before, left_out = changes_of(events, self._tables, tokens, before=before)
            self._sink.add(changes)
            self._sink.events += left_out
            first += int(np.count_nonzero(is_end(piece.types())))
        # Vitess's own tables come and go beside the keyspace's: Online DDL, dropped tables.
        self._sink.events += [one for one in self._watch.events if not is_internal(one.table)]
        self._watch.events = []
        self._sink.ended(txns.size, txns["ts"].tolist())
        self._backlog.release()

    def _named(self, pieces: Sequence[BacklogEntry]) -> Records:
        """The transactions that end in these pieces, as places.TXN; notes them in the ledger."""
        found = [self._ends(piece) for piece in pieces if is_end(piece.types()).any()]
        txns = np.concatenate(found)
        shown = self._shown(pieces)
        before, runs = self._ledger.executed, self._ledger.runs
        txns["seq"] = before.cardinality + 1 + np.arange(txns.size)
        self._ledger.fold(txns)
        if self._ledger.executed.cardinality != before.cardinality + txns.size:
            raise self._refusal(f"transactions that it had sent before: {txns[:3]}")
        if self._ledger.executed != shown:
            # The stream passed over transactions without a word: find out where.
            self._ledger.executed, self._ledger.runs = before, runs
            self._fold_by_position(pieces, txns)
        return txns

    def _gtids(self, txns: Records) -> list[str]:
        heads = [f"{name}:" for name in self._ledger.names()]
        both = zip(txns["origin"].tolist(), txns["number"].tolist(), strict=True)
        return [f"{heads[origin]}{number}" for origin, number in both]

    def _ends(self, piece: BacklogEntry) -> Records:
        """The transactions that end in a piece, without `seq`."""
        ends = piece.places[is_end(piece.types())]
        begins, stops = (np.ascontiguousarray(ends[:, c]) for c in (kernels.GTID, kernels.GTID_END))
        hashes, numbers = np.empty((2, len(ends)), np.int64)
        data = piece.data()
        status, place = engine().vstream.split_gtids(data, begins, stops, hashes, numbers)
        if status != kernels.OK:
            raise self._refusal(f"an event without a transaction's name: {piece.places[place]}")
        txns = np.zeros(len(ends), places.TXN)
        txns["number"] = numbers
        txns["ts"] = ends[:, kernels.TIMESTAMP] * 1_000_000
        for value, at in zip(*np.unique(hashes, return_index=True), strict=True):
            name = data[begins[at] : stops[at]].tobytes().decode("utf-8", "replace")
            try:
                origin = parse_gtid("mysql", name.removeprefix(FLAVOR)).origin
            except DecodeError as error:
                raise self._refusal(f"a transaction of the name {name[:200]!r}") from error
            txns["origin"][hashes == value] = self._ledger.origin(origin)
        return txns

    def _shown(self, pieces: Sequence[BacklogEntry], upto: int | None = None) -> GtidSet:
        """The position that stands last in these pieces (before the event `upto` of the last)."""
        for piece in reversed(pieces):
            at = np.flatnonzero(piece.types()[:upto] == messages().VGTID)
            if at.size:
                begin, end = piece.places[at[-1], [kernels.START, kernels.END]]
                event = self._message(messages().Event, piece.data()[begin:end])
                return self._position(event.vgtid.shards, self._shard).executed
            upto = None
        raise self._refusal("a transaction without its position")

    def _position(self, places: Any, shard: ShardId) -> Position:
        for place in places:
            if (place.keyspace, place.shard) == (shard.keyspace, shard.shard):
                return Position(executed=executed_of(place.gtid))
        raise self._refusal(f"a position without shard {shard}")

    def _fold_by_position(self, pieces: Sequence[BacklogEntry], txns: Records) -> None:
        """Take the transactions in one by one, each by the position in front of its end.

        What stands in the position besides it was passed over before it.
        """
        ledger, number = self._ledger, 0
        for place, piece in enumerate(pieces):
            for end in np.flatnonzero(is_end(piece.types())):
                shown = self._shown(pieces[: place + 1], int(end))
                own = ledger.executed.with_interval(
                    ledger.names()[txns[number]["origin"]],
                    int(txns[number]["number"]),
                    int(txns[number]["number"]),
                )
                if not shown.contains_all(own):
                    raise self._refusal(
                        f"the position {shown}, which lacks what came before it: {own}"
                    )
                if (passed := shown.minus(own)).intervals:
                    ledger.pass_over(passed)
                txns[number]["seq"] = ledger.executed.cardinality + 1
                ledger.fold(txns[number : number + 1])
                number += 1

    # --- events -----------------------------------------------------------------------------------

    def _look(
        self,
        piece: BacklogEntry,
        data: Bytes,
        known: frozenset[str],
        txns: Records,
        first: int,
    ) -> None:
        """Everything but rows and their tables: statements, the journal, what is not understood."""
        proto = messages()
        types = piece.types()
        usual = np.isin(types, [WITHIN, *(getattr(proto, name) for name in _INFORMATION)])
        if not usual.all():
            raise self._unknown(int(types[~usual][0]))
        rare = np.flatnonzero(np.isin(types, (proto.DDL, proto.JOURNAL, WITHIN)))
        ends = np.flatnonzero(is_end(types))
        for at in rare:
            begin, end = piece.places[at, [kernels.START, kernels.END]]
            event = self._message(proto.Event, data[begin:end])
            if event.type == proto.JOURNAL:
                self._journal = journal_of(event.journal, self._shard) or self._journal
                continue
            if event.type == proto.OTHER:
                continue
            number = first + int(np.searchsorted(ends, at))
            txn = txns[number]
            now = TransactionStamp(
                gtid=self._gtids(txns[[number]])[0],
                seq=int(txn["seq"]),
                ts=int(txn["ts"]),
            )
            query = Query(database=self._source.database, statement=event.statement)
            self._watch.look(query, known=known | self._tables.names, now=now)
            self._doubt(self._described_before(piece, data, int(at)), now)
            self._tables.forget()

    def _described_before(self, piece: BacklogEntry, data: Bytes, upto: int) -> dict[str, int]:
        """Table -> when it was described last in front of an event of a piece."""
        found = dict(self._described)
        for at in np.flatnonzero(piece.types()[:upto] == messages().FIELD):
            begin, end, sent = piece.places[at, [kernels.BODY, kernels.BODY_END, kernels.SENT]]
            event = self._message(messages().FieldEvent, data[begin:end])
            found[self._tables.name_of(event)] = int(sent)
        return found

    def _doubt(self, described: Mapping[str, int], now: TransactionStamp) -> None:
        """Note that rows may have been read under columns that their table did not have yet.

        A vttablet describes a table as it is when it sends the rows, not as it was when they were
        written. Where the description is not older than the statement that comes next, the rows
        in between may have got other columns' names, without an error. (The statement's time has
        whole seconds, and is when it began: now and then this is said without need.)

        Args:
            described: table -> when it was described last, nanoseconds.
            now: the statement's transaction.
        """
        self._watch.events += [
            replace(one, kind="doubt")
            for one in self._watch.events
            if (one.gtid, one.kind) == (now.gtid, "ddl")
            and one.effect != "rebuild"
            and described.get(one.table, 0) >= one.ts * 1000
        ]

    def _rows(self, piece: BacklogEntry, data: Bytes, first: int) -> RowEvents:
        """The row events of mirrored tables, with the tables that FIELD events describe."""
        proto = messages()
        types = piece.types()
        at = np.flatnonzero((types == proto.ROW) | (types == proto.FIELD))
        starts, ends = (
            np.ascontiguousarray(piece.places[at, c]) for c in (kernels.BODY, kernels.BODY_END)
        )
        hashes, begins, stops = np.empty((3, at.size), np.int64)
        status, place = engine().vstream.find_tables(data, starts, ends, hashes, begins, stops)
        if status != kernels.OK:
            raise self._refusal(f"a row event without its table (event {place})")
        slot = np.empty(at.size, np.int64)
        describes = types[at] == proto.FIELD
        # From one FIELD event to the next, each table is what it was described as last.
        for low, high in _stretches(describes):
            if describes[low]:
                event = self._message(proto.FieldEvent, data[starts[low] : ends[low]])
                self._current[int(hashes[low])] = self._tables.describe(event)
                sent = int(piece.places[at[low], kernels.SENT])
                self._described[self._tables.name_of(event)] = sent
            for name in np.unique(hashes[low:high]).tolist():
                if name not in self._current:
                    raise self._refusal("rows of a table that no FIELD event has described")
                slot[low:high][hashes[low:high] == name] = self._current[name]
        wanted = ~describes & (slot != NOT_MIRRORED)
        txn = first + np.searchsorted(np.flatnonzero(is_end(types)), at[wanted])
        return RowEvents(
            data=data,
            starts=starts[wanted],
            ends=ends[wanted],
            txn=txn,
            slot=slot[wanted],
        )

    # --- messages ---------------------------------------------------------------------------------

    def _message(self, kind: Any, data: Bytes) -> Any:
        """A message out of its bytes."""
        try:
            return kind.FromString(data.tobytes())
        except ProtobufError as error:
            raise self._refusal(f"bytes that are not a {kind.DESCRIPTOR.name}") from error

    def _unknown(self, kind: int) -> Exception:
        proto = messages()
        names = {number: name for name, number in proto.EventType.items()}
        if names.get(kind) in _STATEMENTS:
            return self._by_statement(f"event {names[kind]}")
        return self._refusal(f"an event of type {names.get(kind, kind)}")

    def _by_statement(self, what: str) -> Exception:
        every = shell_word(f"{self._shard.keyspace}.*")
        return SourceUnfitError(
            f"rows were changed by a statement that was logged as its text: {what[:200]}",
            operation=_OPERATION,
            source=str(self._shard),
            position=str(self._ledger.executed),
            hint="let the tablets' MySQL run with binlog_format=ROW, then dump the tables of this "
            f"keyspace again: `ratchet dump CONFIG --again {every}`",
        )

    def _refusal(self, what: str) -> Exception:
        return DecodeError(
            f"VStream sent {what}",
            operation=_OPERATION,
            source=str(self._shard),
            position=str(self._ledger.executed),
            hint="nothing was skipped: use a version of Ratchet that knows it, or report it",
        )


def _stretches(describes: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """From each FIELD event (and from the first event) to before the next one."""
    bounds = np.flatnonzero(describes)
    cuts = np.unique(np.concatenate(([0], bounds, [describes.size]))).tolist()
    return list(pairwise(cuts))
