"""One shard's slice: from the socket to closed change files. What a Spark task of a round does.

Lives here: reconnecting, and the streams that a worker process keeps open between rounds. Does not
live here: reading a stream (`binlog.feed`, `vstream.feed`), files (`files`), committing (`rounds`).

Invariant: a slice begins where its request says and ends at the end of a transaction; a slice that
failed completed nothing, and its files are removed or stay behind as orphans that no round names.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ratchet.core.errors import BugError, RatchetError, RetryableError
from ratchet.core.position import Position
from ratchet.core.rounds import ShardSlice
from ratchet.ingest.binlog.feed import BinlogFeed, DoubtError
from ratchet.ingest.binlog.reader import UnfinishedError
from ratchet.ingest.files import ChangeFileWriter
from ratchet.ingest.slices import ENDING, CaptureRequest, CaptureResult, Feed, SliceCollector
from ratchet.ingest.vstream.feed import VStreamFeed
from ratchet.store.crashpoints import reach
from ratchet.store.files import Lake

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_OPEN_STREAMS: Final = 64  # kept by a worker process between rounds
# Slices one behind the other that each end with a transaction passed over: then somebody has to say
# whether to continue so or to have the shard dumped.
_MOST_PASSED_OVER: Final = 100
_ONE_BY_ONE: Final = 4  # of them; then each passes over twice as many as the one before
_MOST_AT_ONCE: Final = 4096
_IDLE_SECONDS: Final = 60.0  # an unused stream is closed after this: its server holds a thread


@dataclass(slots=True)
class _Open:
    """A stream that stands at `position`, and where it puts what it reads."""

    settings: str
    feed: Feed
    sink: SliceCollector
    position: Position
    used_at: float = 0.0


class _StaleError(RetryableError):
    """A stream kept from an earlier round is of no use any more: open a new one."""


_streams: Final[dict[tuple[str, str], _Open]] = {}
_passed_over: Final[dict[tuple[str, str], int]] = {}


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
        if now - one.used_at >= idle_for and _streams.pop(key, None) is not None:
            one.feed.close()


def _with_retries(request: CaptureRequest, clock: Callable[[], float]) -> CaptureResult:
    deadline = time.monotonic() + request.limits.max_seconds
    pause = _FIRST_PAUSE
    by_file, unfinished = request.dump.by_file, ("", 0)
    broken: list[str] = []
    while True:
        try:
            found = _attempt(request, clock, by_file=by_file, unfinished=unfinished)
            return replace(found, broken=tuple(broken))
        except UnfinishedError as error:
            unfinished = error.place
        except DoubtError:
            by_file = False
        except _StaleError as error:
            broken.append(error.message)  # it is not kept any more
        except RetryableError as error:
            broken.append(error.message)
            wait = pause * (0.5 + random.random() / 2)  # noqa: S311 - spreads reconnections
            if ENDING.is_set() or time.monotonic() + wait >= deadline:
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
    found = kept or _open(request, by_file=by_file, unfinished=unfinished)
    files = ChangeFileWriter(
        Lake.at(request.lake), shard=request.source.shard, round_number=request.round_number
    )
    sink = found.sink
    bound = request.limits.clock_bound
    sink.begin(files, request.generation, since=request.since, clock_bound=bound)
    try:
        taken = found.feed.read(known=frozenset(request.known), limits=request.limits)
        read_at = clock()  # not when its files are closed: the source writes on meanwhile
        reach("capture.slice_read")
        written = files.finish()
        reach("capture.files_written")
    except BaseException as error:
        _passed_over.pop(_key(request), None)
        found.feed.close()
        files.abandon()
        if kept is not None and isinstance(error, RatchetError):
            # Whatever became of it meanwhile (another worker took the stream over, the server was
            # restarted), a new one will tell what is the matter, if anything still is.
            raise _StaleError(error.message, operation="capture") from error
        raise
    piece = ShardSlice(
        shard=str(request.source.shard),
        generation=request.generation,
        start=request.start,
        end=taken.end,
        runs=taken.runs,
        transactions=sink.transactions,
        rows=files.rows,
        bytes=taken.bytes,
        min_ts=sink.told.first,
        max_ts=sink.told.last,
        odd_ts=sink.told.odd,
        observed_at=int(read_at * 1e6),
        caught_up=taken.caught_up,
        journal=taken.journal,
        held_ts=taken.held_ts,
        seen=dict(taken.seen),
    )
    events = tuple(sink.events)
    sink.end()
    _count_passed_over(_key(request), passed=taken.passed_over)
    lasts = taken.journal is None and not found.feed.is_worn
    if lasts and (taken.caught_up or not request.moves):
        _keep(request, found, taken.end)
    else:
        found.feed.close()
    return CaptureResult(
        shard=piece.shard, slice=piece, files=written, events=events, copies=taken.copies
    )


def may_pass_over(before: int) -> int:
    """How many transactions a slice may pass over, of those that no tablet may be able to send.

    All tables are in doubt behind the first one, so more of them cost nothing but what the change
    log would tell. One by one, a thousand of them would take half an hour.

    >>> [may_pass_over(before) for before in (0, 4, 5, 6, 99, 100)]
    [1, 1, 2, 4, 4096, 0]

    Args:
        before: slices directly before it that ended so.
    """
    if before >= _MOST_PASSED_OVER:
        return 0
    return min(1 << max(0, before - _ONE_BY_ONE), _MOST_AT_ONCE)


def _count_passed_over(key: tuple[str, str], *, passed: bool) -> None:
    if passed:
        _passed_over[key] = _passed_over.get(key, 0) + 1
    else:
        _passed_over.pop(key, None)


def _open(request: CaptureRequest, *, by_file: bool, unfinished: tuple[str, int]) -> _Open:
    sink = SliceCollector()
    feed: Feed
    if request.vtgate is None:
        feed = BinlogFeed(request, sink, by_file=by_file, unfinished=unfinished)
    else:
        passes_over = may_pass_over(_passed_over.get(_key(request), 0))
        feed = VStreamFeed(request, sink, vtgate=request.vtgate, passes_over=passes_over)
    return _Open(_settings(request), feed, sink, request.start)


def _take(request: CaptureRequest) -> _Open | None:
    """The kept stream, if it stands where the request begins."""
    found = _streams.pop(_key(request), None)
    if found is None:
        return None
    same_place = str(found.position.executed) == str(request.start.executed)
    if same_place and found.settings == _settings(request):
        return found
    found.feed.close()
    return None


def _keep(request: CaptureRequest, found: _Open, position: Position) -> None:
    found.position, found.used_at = position, time.monotonic()
    _streams[_key(request)] = found
    while len(_streams) > _OPEN_STREAMS:
        _, oldest = min((one.used_at, key) for key, one in list(_streams.items()))
        if (closed := _streams.pop(oldest, None)) is not None:
            closed.feed.close()


def _key(request: CaptureRequest) -> tuple[str, str]:
    return request.lake, str(request.source.shard)


def _settings(request: CaptureRequest) -> str:
    """What a kept stream was opened with; requests differ in position, round and limits only."""
    dump = replace(request.dump, by_file=True)
    parts = (request.source, request.patterns, request.policy, request.vtgate, request.vitess)
    return repr((*parts, dump))


def _portable(error: RatchetError) -> RatchetError:
    """The error as it survives pickling: causes do not, so the text takes them in."""
    cause = error.__cause__
    if cause is not None:
        error.message = f"{error.message}; cause: {type(cause).__name__}: {cause}"
        error.__cause__ = None
    return error
