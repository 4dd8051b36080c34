"""The values of a slice: what is asked for, what came, and what a shard's stream is to capture.

Lives here: `CaptureRequest`, `CaptureResult`, `Feed`, and `SliceCollector`, where a feed puts what
it reads. Does not live here: taking a slice (`capture`), the feeds (`binlog.feed`, `vstream.feed`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from ratchet.core.committimes import CommitTimes
from ratchet.core.errors import BugError, RatchetError, RetryableError
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, GtidRange, Journal, ShardSlice, TableEvent
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.changes import TableChanges
from ratchet.ingest.files import ChangeFileWriter
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig
from ratchet.wire.vtgate import VtgateConfig

# Set when the run is over: a slice that waits for the rest of a transaction gives up.
ENDING: Final = threading.Event()
DRAINED = 0.05  # seconds without a byte after which a stream may have nothing more to give


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceLimits:
    """When a slice ends, always at the end of a transaction: at whichever comes first.

    Attributes:
        max_bytes: bytes of the log.
        max_seconds: time since the slice began.
        min_seconds: before this a slice does not end for want of changes.
        stop_at: transactions that the caller waits for; the slice ends once it holds them.
        not_after: microseconds UTC: the slice ends before the first transaction in the stream that
            was committed later, whatever follows it; None: no such bound.
        clock_bound: microseconds that clocks may be apart: a commit time further ahead of ours than
            that is not believed.
    """

    max_bytes: int = 256 << 20
    max_seconds: float = 5.0
    min_seconds: float = 0.5
    stop_at: GtidSet | None = None
    not_after: int | None = None
    clock_bound: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """All that a task needs to know to take a slice.

    Attributes:
        source: the shard's server.
        start: where the slice begins: the end of the one before.
        generation: lineage generation of the stream.
        round_number: the round that the files are for.
        lake: root of the lake, as Lake.at takes it.
        patterns: which tables are mirrored.
        known: names of the tables that the mirror holds; statements are searched for them.
        policy: what becomes of values that their lake type cannot hold.
        limits: when the slice ends.
        dump: how the binlog is asked for, and how long a stream may be silent.
        vtgate: the vtgate whose VStream is read in place of a binlog; None: `source`'s binlog.
        vitess: whether the binlog is that of a Vitess tablet, with journals in it.
        moves: whether another process may take the next slice: a stream that has more to give is
            not kept then, since the server would be stuck with it.
        since: no transaction of the slice was committed earlier, microseconds UTC; 0: unknown.
        seen: shard (ShardId as text) -> what the mirror has of it: copies of that, which the binlog
            holds where the source system copied rows between its shards, are left out.
    """

    source: SourceConfig
    start: Position
    generation: int
    round_number: int
    lake: str
    patterns: TablePatterns
    known: tuple[str, ...] = ()
    policy: InvalidValuePolicy = field(default_factory=InvalidValuePolicy)
    limits: SliceLimits = field(default_factory=SliceLimits)
    dump: DumpOptions
    vtgate: VtgateConfig | None = None
    vitess: bool = False
    moves: bool = False
    since: int = 0
    seen: Mapping[str, Position] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureResult:
    """What came of a slice: either a slice with its files and events, or an error.

    Attributes:
        shard: ShardId as text.
        slice: None if it failed.
        files: closed change files.
        events: table events in stream order.
        error: why it failed; a RetryableError was tried again for the slice's time already.
        broken: why its stream had to be opened anew meanwhile, each time.
        copies: whether the changes of tools' copies of mirrored tables are among its own.
    """

    shard: str
    slice: ShardSlice | None = None
    files: tuple[ChangeFile, ...] = ()
    events: tuple[TableEvent, ...] = ()
    error: RatchetError | None = None
    broken: tuple[str, ...] = ()
    copies: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSummary:
    """What a feed read for a slice, besides what it put into the sink.

    Attributes:
        end: behind the last whole transaction.
        runs: the transactions, in stream order.
        bytes: of the log.
        caught_up: whether there was nothing more.
        copies: see CaptureResult.
        journal: how the stream has ended; None: it goes on.
        held_ts: commit time of the transaction that `not_after` stopped it before; None: none.
        seen: what of the request's `seen` may still come.
        passed_over: whether it ends with a transaction that nobody can send any more.
    """

    end: Position
    runs: tuple[GtidRange, ...]
    bytes: int
    caught_up: bool
    copies: bool = False
    journal: Journal | None = None
    held_ts: int | None = None
    seen: Mapping[str, Position] = field(default_factory=dict)
    passed_over: bool = False


def refuse_to_wait(shard: str) -> None:
    """Call while a transaction has begun and not ended.

    Raises:
        RetryableError: the run is over; the next one reads it from its beginning.
    """
    if ENDING.is_set():
        raise RetryableError(
            "the run ends in the middle of a transaction", operation="capture", source=shard
        )


class Feed(Protocol):
    """A shard's open stream, whatever it is read through."""

    @property
    def is_worn(self) -> bool:
        """Whether so much has gathered in it that a new one is better."""

    def read(self, *, known: frozenset[str], limits: SliceLimits) -> SliceSummary:
        """Read until a limit, to the end of a transaction.

        Args:
            known: names of tables that are mirrored already: statements are searched for them.
            limits: when to end.

        Raises:
            RatchetError: nothing of the slice counts, and the feed cannot be used any more.
        """

    def close(self) -> None:
        """Let go of the connections. Harmless when repeated."""


@dataclass(slots=True)
class SliceCollector:
    """Where a feed puts what it reads, one slice after the other.

    Attributes:
        generation: of the slice's stream.
        events: table events of the slice, in stream order.
        transactions: how many have ended.
        told: what their commit times amount to.
        clock_bound: see SliceLimits.
        clock: wall clock in seconds.
    """

    generation: int = 0
    events: list[TableEvent] = field(default_factory=list)
    transactions: int = 0
    told: CommitTimes = field(default_factory=CommitTimes)
    clock_bound: int = 0
    clock: Callable[[], float] = time.time
    _files: ChangeFileWriter | None = None

    def begin(
        self, files: ChangeFileWriter, generation: int, *, since: int = 0, clock_bound: int = 0
    ) -> None:
        """A new slice, with its files.

        Args:
            files: where changes go.
            generation: of the slice's stream.
            since: see CaptureRequest.
            clock_bound: see SliceLimits.
        """
        self._files, self.generation, self.events = files, generation, []
        self.transactions, self.told, self.clock_bound = 0, CommitTimes(since=since), clock_bound

    def end(self) -> None:
        """The slice is over: nothing more may come."""
        self._files = None

    def add(self, changes: Sequence[TableChanges]) -> None:
        """Changes of some tables, behind those that came before.

        Raises:
            LakeError: they cannot be written.
        """
        if self._files is None:
            raise BugError("changes outside a slice", operation="capture")
        for one in changes:
            self._files.add(one)

    def ended(self, transactions: int, times: Sequence[int]) -> None:
        """Note so many ended transactions.

        Args:
            transactions: how many.
            times: their commit times as logged, in stream order, microseconds UTC.
        """
        self.transactions += transactions
        now = int(self.clock() * 1e6)
        self.told = self.told.and_then(times, now=now, bound=self.clock_bound)
