"""One shard's slice: from the socket to closed change files. What a Spark task of a round does.

Lives here: the request and result of a slice, when a slice ends, reconnecting, and the streams
that a worker process keeps open between rounds. Does not live here: events (`binlog`), files
(`files`), committing (`rounds`).

Invariant: a slice begins where its request says and ends at the end of a transaction; a slice that
failed completed nothing, and its files are removed or stay behind as orphans that no round names.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from core.errors import BugError, RatchetError, RetryableError
from core.gtid import GtidSet
from core.patterns import TablePatterns
from core.position import Position
from core.rounds import ChangeFile, ShardSlice, TableEvent
from core.shard import ShardId
from core.types import MisfitPolicy
from ingest.binlog.notes import Batch
from ingest.binlog.payload import LIMIT as SIDE_LIMIT
from ingest.binlog.reader import Reader, UnfinishedError
from ingest.changes import Decoders, changes_of
from ingest.files import ChangeFiles
from store.crashpoints import reach
from store.files import Lake
from wire.binlog import BinlogStream, DumpOptions
from wire.connect import SourceConfig
from wire.hints import ServerCatalog

_DRAINED: Final = 0.05  # seconds without a byte after which a stream may have nothing more to give
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_OPEN_STREAMS: Final = 64  # kept by a worker process between rounds
_IDLE_SECONDS: Final = 60.0  # an unused stream is closed after this: its server holds a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceLimits:
    """When a slice ends, always at the end of a transaction: at whichever comes first.

    Attributes:
        max_bytes: bytes of binlog.
        max_seconds: time since the slice began.
        min_seconds: before this a slice does not end for want of changes.
        stop_at: transactions that the caller waits for; the slice ends once it holds them.
    """

    max_bytes: int = 256 << 20
    max_seconds: float = 5.0
    min_seconds: float = 0.5
    stop_at: GtidSet | None = None


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
        dump: how the stream is asked for.
    """

    source: SourceConfig
    start: Position
    generation: int
    round_number: int
    lake: str
    patterns: TablePatterns
    known: tuple[str, ...] = ()
    policy: MisfitPolicy = field(default_factory=MisfitPolicy)
    limits: SliceLimits = field(default_factory=SliceLimits)
    dump: DumpOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureResult:
    """What came of a slice: either a slice with its files and events, or an error.

    Attributes:
        shard: ShardId as text.
        slice: None if it failed.
        files: closed change files.
        events: table events in stream order.
        error: why it failed; a RetryableError was tried again for the slice's time already.
    """

    shard: str
    slice: ShardSlice | None = None
    files: tuple[ChangeFile, ...] = ()
    events: tuple[TableEvent, ...] = ()
    error: RatchetError | None = None


@dataclass(slots=True)
class _Open:
    """A stream that stands at `position`, with all that was learned from it."""

    settings: str
    stream: BinlogStream
    reader: Reader
    decoders: Decoders
    sink: _Sink
    position: Position
    checked: bool
    used_at: float = 0.0


@dataclass(slots=True)
class _Sink:
    """Where the reader's batches go during one slice."""

    decoders: Decoders
    shard: ShardId
    generation: int = 0
    files: ChangeFiles | None = None
    events: list[TableEvent] = field(default_factory=list)
    transactions: int = 0
    min_ts: int | None = None
    max_ts: int | None = None

    def keep(self, batch: Batch) -> int:
        """Write a batch; see Reader."""
        if self.files is None:
            raise BugError("a batch outside a slice", operation="capture")
        changes, rows = changes_of(
            batch, self.decoders, shard=self.shard, generation=self.generation
        )
        for one in changes:
            self.files.add(one)
        self.events += batch.events
        self.transactions += batch.ended
        ts = batch.txns["ts"]
        low, high = int(ts.min()), int(ts.max())
        self.min_ts = low if self.min_ts is None else min(self.min_ts, low)
        self.max_ts = high if self.max_ts is None else max(self.max_ts, high)
        return rows


class _DoubtError(RetryableError):
    """File and offset led to another place than the GTIDs say: go by GTID."""


class _StaleError(RetryableError):
    """A stream kept from an earlier round is of no use any more: open a new one."""


_streams: Final[dict[tuple[str, str], _Open]] = {}


def capture_slice(
    request: CaptureRequest, *, clock: Callable[[], float] = time.time
) -> CaptureResult:
    """Take one slice; never raises for what goes wrong with the source or the lake.

    Args:
        request: see CaptureRequest.
        clock: wall clock in seconds.
    """
    shard = str(request.source.shard)
    try:
        return _with_retries(request, clock)
    except RatchetError as error:
        error.source = error.source or shard  # decoders do not know it
        return CaptureResult(shard=shard, error=_portable(error))
    except Exception as error:  # noqa: BLE001 - a task must answer; as a bug it stops the run
        bug = BugError(f"{type(error).__name__}: {error}", operation="capture", source=shard)
        bug.__cause__ = error
        return CaptureResult(shard=shard, error=_portable(bug))


def close_streams(*, idle_for: float = 0.0) -> None:
    """Close the streams that this process keeps and that were not used for so many seconds."""
    now = time.monotonic()
    for key, one in list(_streams.items()):
        if now - one.used_at >= idle_for:
            _streams.pop(key).stream.close()


def _with_retries(request: CaptureRequest, clock: Callable[[], float]) -> CaptureResult:
    deadline = time.monotonic() + request.limits.max_seconds
    pause = _FIRST_PAUSE
    by_file, unfinished = request.dump.by_file, ("", 0)
    while True:
        try:
            return _attempt(request, clock, by_file=by_file, unfinished=unfinished)
        except UnfinishedError as error:
            unfinished = error.place
        except _DoubtError:
            by_file = False
        except _StaleError:
            continue  # it is not kept any more
        except RetryableError:
            wait = pause * (0.5 + random.random() / 2)  # noqa: S311 - spreads reconnections
            if time.monotonic() + wait >= deadline:
                raise
            time.sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _attempt(
    request: CaptureRequest,
    clock: Callable[[], float],
    *,
    by_file: bool,
    unfinished: tuple[str, int],
) -> CaptureResult:
    close_streams(idle_for=_IDLE_SECONDS)
    kept = _take(request)
    found = kept or _connect(request, by_file=by_file, unfinished=unfinished)
    files = ChangeFiles(
        Lake.at(request.lake), shard=request.source.shard, round_number=request.round_number
    )
    sink = found.sink
    sink.files, sink.generation, sink.events = files, request.generation, []
    sink.transactions, sink.min_ts, sink.max_ts = 0, None, None
    try:
        caught_up = _read(found, request)
        reach("capture.slice_read")
        written = files.finish()
        reach("capture.files_written")
    except BaseException as error:
        found.stream.close()
        files.abandon()
        if kept is not None and isinstance(error, RatchetError):
            # Whatever became of it meanwhile (another worker took the stream over, the server was
            # restarted), a new one will tell what is the matter, if anything still is.
            raise _StaleError(error.message, operation="capture") from error
        raise
    end = found.reader.position()
    taken = ShardSlice(
        shard=str(request.source.shard),
        generation=request.generation,
        start=request.start,
        end=end,
        runs=found.reader.runs,
        transactions=sink.transactions,
        rows=files.rows,
        bytes=found.reader.bytes_read,
        min_ts=sink.min_ts,
        max_ts=sink.max_ts,
        observed_at=int(clock() * 1e6),
        caught_up=caught_up,
    )
    events = tuple(sink.events)
    sink.files = None
    _keep(request, found, end)
    return CaptureResult(shard=taken.shard, slice=taken, files=written, events=events)


def _connect(request: CaptureRequest, *, by_file: bool, unfinished: tuple[str, int]) -> _Open:
    source = request.source
    stream = BinlogStream(source, request.start, replace(request.dump, by_file=by_file))
    decoders = Decoders(request.policy)
    sink = _Sink(decoders, source.shard)
    reader = Reader(
        shard=source.shard,
        database=source.database,
        patterns=request.patterns,
        start=replace(request.start, server=stream.control.server_identity)
        if stream.by_file or stream.flavor == "file"
        else Position(executed=request.start.executed, server=stream.control.server_identity),
        catalog=ServerCatalog(stream.control, keyspace=source.shard.keyspace),
        keep=sink.keep,
        unfinished=unfinished,
    )
    return _Open(
        _settings(request),
        stream,
        reader,
        decoders,
        sink,
        request.start,
        checked=not stream.by_file,
    )


def _take(request: CaptureRequest) -> _Open | None:
    """The kept stream, if it stands where the request begins."""
    found = _streams.pop(_key(request), None)
    if found is None:
        return None
    same_place = str(found.position.executed) == str(request.start.executed)
    if same_place and found.settings == _settings(request):
        return found
    found.stream.close()
    return None


def _keep(request: CaptureRequest, found: _Open, position: Position) -> None:
    found.position, found.used_at = position, time.monotonic()
    _streams[_key(request)] = found
    while len(_streams) > _OPEN_STREAMS:
        oldest = min(_streams, key=lambda key: _streams[key].used_at)
        _streams.pop(oldest).stream.close()


def _key(request: CaptureRequest) -> tuple[str, str]:
    return request.lake, str(request.source.shard)


def _settings(request: CaptureRequest) -> str:
    """What a kept stream was opened with; requests differ in position, round and limits only."""
    dump = replace(request.dump, by_file=True)
    return repr((request.source, request.patterns, request.policy, dump))


def _read(found: _Open, request: CaptureRequest) -> bool:
    """Read until a limit; whether the stream had nothing more to give."""
    stream, reader, limits = found.stream, found.reader, request.limits
    reader.start_slice(known=frozenset(request.known), limit=limits.max_bytes)
    began = time.monotonic()
    end = began + limits.max_seconds
    caught_up = False
    while True:
        limited = _use(found)
        if reader.between:
            now = time.monotonic()
            if limited or now >= end or _holds(reader, limits.stop_at):
                break
        if stream.is_full or reader.side_bytes > SIDE_LIMIT:
            reader.flush()
            stream.recycle()
            continue
        if _receive(found) or stream.first < stream.count:
            continue
        if reader.between and time.monotonic() - began >= limits.min_seconds:
            caught_up = _reached_head(found)
            if caught_up:
                break
    reader.flush()
    stream.recycle()
    return caught_up or _reached_head(found)


def _receive(found: _Open) -> bool:
    try:
        return found.stream.receive(_DRAINED)
    except RatchetError as error:
        if found.checked:
            raise
        # The file may be another one by now, or gone; the GTIDs will tell what is the matter.
        raise _DoubtError(error.message, operation="capture") from error


def _use(found: _Open) -> bool:
    """Walk what has been received; True if the limit of bytes was reached."""
    stream, reader = found.stream, found.reader
    while not found.checked and stream.first < stream.count:
        # Opened by file: nothing may be noted before the first transaction has been looked at.
        stream.first, limited = reader.feed(
            stream.data, stream.index, stream.first, stream.first + 1
        )
        follows = reader.first_follows()
        if follows is False:
            raise _DoubtError(
                "file and offset do not lead to where the GTIDs say", operation="capture"
            )
        found.checked = follows is True
        if limited:
            return True
    stream.first, limited = reader.feed(stream.data, stream.index, stream.first, stream.count)
    return limited


def _holds(reader: Reader, wanted: GtidSet | None) -> bool:
    return wanted is not None and reader.position().executed.contains_all(wanted)


def _reached_head(found: _Open) -> bool:
    head = found.stream.control.head().executed
    return found.reader.position().executed.contains_all(head)


def _portable(error: RatchetError) -> RatchetError:
    """The error as it survives pickling: causes do not, so the text takes them in."""
    cause = error.__cause__
    if cause is not None:
        error.message = f"{error.message}; cause: {type(cause).__name__}: {cause}"
        error.__cause__ = None
    return error
