"""A shard's binlog as a feed of capture: the stream, the reader, and when a slice ends.

Lives here: `BinlogFeed`. Does not live here: events (`reader`), files, trying again (`capture`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ratchet.core.errors import PositionLostError, RatchetError, RetryableError
from ratchet.core.gtid import Flavor, GtidSet, format_gtid
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import TableEvent
from ratchet.ingest.binlog.changes import Decoders, hand_out
from ratchet.ingest.binlog.history import check_same_history
from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.ingest.binlog.payload import LIMIT as SIDE_LIMIT
from ratchet.ingest.binlog.reader import Reader
from ratchet.ingest.binlog.workflows import JOURNAL, SIDECAR, Workflows
from ratchet.ingest.changes import TableChanges
from ratchet.ingest.slices import (
    DRAINED,
    CaptureRequest,
    SliceCollector,
    SliceLimits,
    SliceSummary,
    refuse_to_wait,
)
from ratchet.wire.binlog import BinlogStream, is_drip
from ratchet.wire.continues import check_not_purged
from ratchet.wire.hints import ServerCatalog
from ratchet.wire.session import Session

HELD: Final = 256 << 20  # bytes of changes that are kept until their transaction's end, at most
_ON_ITS_WAY: Final = 10.0  # seconds that what was sent may take to come
_REWRITTEN: Final = (
    "its server's log was written anew, as when a backup is restored and the log played back into "
    "it: transactions may have been left out"
)


@dataclass(frozen=True, slots=True)
class _Promise:
    """What a server had executed when its log ended here, or before."""

    executed: GtidSet
    file: str
    offset: int


class DoubtError(RetryableError):
    """File and offset led to another place than the GTIDs say: go by GTID."""


class BinlogFeed:
    """One binlog stream and all that was learned from it; see ingest.slices.Feed.

    Args:
        request: where it begins, and what is mirrored.
        sink: gets what is read.
        by_file: begin by file and offset, where the position has them.
        unfinished: see ingest.binlog.reader.Reader.

    Raises:
        RatchetError: the stream cannot be opened.
    """

    def __init__(
        self,
        request: CaptureRequest,
        sink: SliceCollector,
        *,
        by_file: bool,
        unfinished: tuple[str, int],
    ) -> None:
        source = request.source
        self._sink = sink
        self._shard = source.shard
        self._workflows = (
            Workflows(
                shard=source.shard,
                database=source.database,
                generation=request.generation,
                seen=request.seen,
            )
            if request.vitess
            else None
        )
        self._held: list[TableChanges] = []  # of a transaction that may turn out to be a copy
        moved = False

        def accept(session: Session) -> None:
            nonlocal moved
            moved = check_same_history(session, request.start)

        self._stream = stream = BinlogStream(
            source,
            request.start,
            replace(request.dump, by_file=by_file, whole=True),
            accept=accept,
        )
        # Of the first slice. Its end forgets where that transaction was, so this is said once.
        self._doubts = _doubts_of(request) if moved else []
        start = _without_place(stream.start) if moved else stream.start
        self._decoders = Decoders(request.policy, verified=lambda: stream.is_verified)
        patterns = _patterns_of(request, stream.flavor)
        self._copies = patterns.copies
        self._reader = Reader(
            shard=source.shard,
            database=source.database,
            patterns=patterns,
            start=start,
            catalog=ServerCatalog(stream.control, keyspace=source.shard.keyspace),
            keep=self._keep,
            unfinished=unfinished,
            sidecar=(SIDECAR, self._workflows.watched()) if self._workflows else ("", frozenset()),
            last=JOURNAL,
        )
        # Opened by file and offset, a stream has to show first that it stands where it should.
        self._checked = not stream.by_file
        # Where a MySQL's log ended; None once the stream has been there. A transaction without a
        # GTID is no part of what the server has executed, so its set alone does not tell the end.
        self._end = stream.control.binlog_end() if stream.flavor == "mysql" else None
        self._promise: _Promise | None = None
        self._lacks_since = 0.0  # since when the server has purged what has not come; 0 if it has

    def read(self, *, known: frozenset[str], limits: SliceLimits) -> SliceSummary:
        """See ingest.slices.Feed."""
        self._sink.events += self._doubts
        self._doubts = []
        caught_up = self._read(known, limits)
        reader = self._reader
        return SliceSummary(
            end=reader.position(),
            runs=reader.runs,
            bytes=reader.bytes_read,
            caught_up=caught_up,
            copies=self._copies,
            held_ts=reader.held_ts,
            journal=self._workflows.journal if self._workflows else None,
            seen=self._workflows.seen if self._workflows else {},
        )

    @property
    def is_worn(self) -> bool:
        """See ingest.slices.Feed."""
        return False  # its reader begins without table maps by itself

    def close(self) -> None:
        """See ingest.slices.Feed."""
        self._stream.close()

    def _keep(self, batch: TransactionBatch) -> int:
        flows = self._workflows
        if flows is None:
            return self._hand_out(batch)
        batch = flows.look(batch)
        if not batch.txns.size:
            return self._hand_out(batch)
        if batch.ended or flows.knows(batch):
            if not flows.leaves_out(int(batch.txns["seq"][0])):
                self._sink.add(self._held)
            self._held = []
        if flows.knows(batch):
            return self._hand_out(batch)
        last = batch.rows["txn"] == len(batch.txns) - 1
        self._hand_out(replace(batch, rows=batch.rows[~last]))
        rows, left_out = self._decode(replace(batch, rows=batch.rows[last]), self._held.extend)
        self._sink.events += left_out
        if sum(one.rows.nbytes for one in self._held) > HELD:
            raise flows.too_large()
        return rows

    def _decode(
        self, batch: TransactionBatch, take: Callable[[list[TableChanges]], None]
    ) -> tuple[int, list[TableEvent]]:
        generation = self._sink.generation
        return hand_out(batch, self._decoders, take, shard=self._shard, generation=generation)

    def _hand_out(self, batch: TransactionBatch) -> int:
        rows, left_out = self._decode(batch, self._sink.add)
        self._sink.events += [*batch.events, *left_out]
        self._sink.ended(batch.ended, batch.txns["ts"].tolist())
        return rows

    def _read(self, known: frozenset[str], limits: SliceLimits) -> bool:
        """Read until a limit; whether the stream had nothing more to give."""
        stream, reader = self._stream, self._reader
        believed = int(time.time() * 1e6) + limits.clock_bound
        reader.start_slice(
            known=known,
            limit=limits.max_bytes,
            not_after=limits.not_after,
            believed=believed,
        )
        began, received = time.monotonic(), stream.received
        end = began + limits.max_seconds
        caught_up = False
        while True:
            limited = self._use()
            if reader.between:
                now = time.monotonic()
                if limited or now >= end or self._holds(limits.stop_at):
                    break
            else:
                self._refuse_drops(time.monotonic() - end, stream.received - received)
                refuse_to_wait(str(self._shard))
            if stream.is_full or reader.side_bytes > SIDE_LIMIT:
                stream.recycle_behind(reader.flush)
                continue
            if self._receive() or stream.first < stream.count:
                continue
            if reader.between and time.monotonic() - began >= limits.min_seconds:
                caught_up = self._reached_head()
                if caught_up:
                    break
                self._refuse_purged()
        caught_up = caught_up or (reader.held_ts is None and self._reached_head())
        reader.flush()
        stream.recycle()
        return caught_up

    def _refuse_drops(self, late: float, received: int) -> None:
        """A transaction that comes drop by drop holds up the round, and all other sources in it."""
        if is_drip(late, received):
            raise RetryableError(
                f"a transaction has not ended {late:.0f} s behind its slice, and comes too slowly",
                operation="capture",
                source=str(self._shard),
                hint="look at the network between, and at the server's load",
            )

    def _refuse_purged(self) -> None:
        """What was declared purged never comes; what is on its way does, within seconds."""
        if self._stream.flavor != "mysql":
            return
        try:
            check_not_purged(self._stream.control, self._reader.position())
        except PositionLostError:
            now = time.monotonic()
            self._lacks_since = self._lacks_since or now
            if now - self._lacks_since > _ON_ITS_WAY:
                raise
        else:
            self._lacks_since = 0.0

    def _receive(self) -> bool:
        try:
            return self._stream.receive(DRAINED)
        except RatchetError as error:
            if self._checked:
                raise
            # The file may be another one by now, or gone; the GTIDs will tell what is the matter.
            raise DoubtError(error.message, operation="capture") from error

    def _use(self) -> bool:
        """Walk what has been received; True if a limit of the slice was reached."""
        stream, reader = self._stream, self._reader
        while not self._checked and stream.first < stream.count:
            # Opened by file: nothing may be noted before the first transaction has been looked at.
            stream.first, limited = reader.feed(
                stream.data, stream.index, stream.first, stream.first + 1
            )
            follows = reader.first_follows()
            if follows is False:
                raise DoubtError(
                    "file and offset do not lead to where the GTIDs say", operation="capture"
                )
            self._checked = follows is True
            if limited:
                return True
        stream.first, limited = reader.feed(stream.data, stream.index, stream.first, stream.count)
        return limited

    def _holds(self, wanted: GtidSet | None) -> bool:
        return wanted is not None and self._has(wanted)

    def _reached_head(self) -> bool:
        if self._end is not None and not self._reader.has_reached(*self._end):
            return False
        self._end = None
        head = self._stream.control.head().executed
        if not self._has(head):
            self._pass_over_unlogged(head)
        return self._has(head)

    def _has(self, gtids: GtidSet) -> bool:
        return self._reader.position().executed.contains_all(gtids)

    def _pass_over_unlogged(self, head: GtidSet) -> None:
        """Do not wait for transactions that have been executed and are not in the log.

        A server that has torn its log writes on in it, and without checksums (`binlog_checksum`)
        the torn event swallows what lies behind it. What was executed before the log had its length
        of then is in front of that place, or nowhere.
        """
        control = self._stream.control
        if self._stream.flavor == "file":
            return
        if self._promise is None:
            self._promise = _Promise(head, *control.binlog_end())
        if not self._reader.has_passed(self._promise.file, self._promise.offset):
            return
        lacking = self._promise.executed.minus(self._reader.position().executed)
        self._promise = None
        # Those that count as purged are refused, see `_refuse_purged`.
        if (unlogged := lacking.minus(control.purged())).intervals:
            self._reader.pass_over(unlogged)


def _patterns_of(request: CaptureRequest, flavor: Flavor) -> TablePatterns:
    """Without GTIDs no table is taken from the changes of its copy: so they are not captured."""
    patterns = request.patterns
    return replace(patterns, copies=patterns.copies and flavor != "file")


def _without_place(start: Position) -> Position:
    """Where its last transaction lies is not known."""
    last = start.last
    return start if last is None else replace(start, last=replace(last, file="", offset=0))


def _doubts_of(request: CaptureRequest) -> list[TableEvent]:
    """Of all tables that the mirror holds, behind what it has of them."""
    start, shard = request.start, request.source.shard
    last = start.last
    if last is None:
        return []
    return [
        TableEvent(
            keyspace=shard.keyspace,
            table=table,
            shard=str(shard),
            kind="ddl",
            statement="",
            gtid=format_gtid(start.flavor, last.gtid),
            seq=start.seq,
            ts=last.committed,
            effect="restored",
            reason=_REWRITTEN,
        )
        for table in sorted(request.known)
    ]
