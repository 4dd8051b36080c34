"""Where to begin in a binlog that is not followed yet: at a time, and whether nothing is missing.

Lives here: `position_at`, and `check_follows` for a shard that took over from others. Does not live
here: following a log (`feed`), what Vitess notes in it (`workflows`).

Invariant: only reads; a stream that is opened here is closed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Self

from core.errors import PositionLostError, SourceUnfitError
from core.gtid import GtidSet
from core.patterns import TablePatterns
from core.position import Position
from ingest.binlog.notes import Batch
from ingest.binlog.payload import LIMIT as SIDE_LIMIT
from ingest.binlog.reader import Reader
from ingest.binlog.workflows import SIDECAR, Workflows
from ingest.slices import DRAINED
from wire.binlog import BinlogStream, DumpOptions
from wire.connect import SourceConfig
from wire.failures import REDUMP_HINT
from wire.hints import ServerCatalog
from wire.session import Session

_OPERATION: Final = "find a position by its time"
_NOTHING: Final = TablePatterns(("!*",))


def position_at(source: SourceConfig, ts: int, options: DumpOptions) -> Position:
    """The last position at which nothing was committed later than a time, by the server's clock.

    Its binlog files are tried from the newest one on, until one begins before that time.

    Args:
        source: a MySQL with GTIDs.
        ts: microseconds UTC.
        options: how the binlog is asked for.

    Raises:
        PositionLostError: its binlogs do not reach back so far.
        SourceUnfitError: it has no GTIDs.
        RetryableError: it cannot be reached.
    """
    with Session.connect(source) as session:
        if session.flavor != "mysql":
            raise SourceUnfitError(
                f"a time is looked up in MySQL's binlog with GTIDs only, not in {session.flavor}",
                operation=_OPERATION,
                source=str(source.shard),
            )
        for file, *_ in reversed(session.query("SHOW BINARY LOGS")):
            before = _before(session, str(file))
            with _Walk(source, before, options) as walk:
                found = walk.read(not_after=ts)
            if found.executed != before.executed or not before.executed.intervals:
                return found
    raise PositionLostError(
        f"the binlogs reach back to {file} only, which begins later than the time that is needed",
        operation=_OPERATION,
        source=str(source.shard),
        hint=REDUMP_HINT,
    )


def check_follows(
    source: SourceConfig,
    start: Position,
    seen: Mapping[str, Position],
    options: DumpOptions,
    *,
    generation: int,
) -> None:
    """Whether a shard's log, from a position on, holds all that its sources' streams lack.

    Reads on until the copies go further than what is mirrored of their sources, or to the end.

    Args:
        source: the shard that took over.
        start: where its stream shall begin.
        seen: shard -> what the mirror has of it.
        options: how the binlog is asked for.
        generation: of the stream.

    Raises:
        PositionLostError: it does not, or it cannot be told.
        RetryableError: the server cannot be reached.
    """
    workflows = Workflows(
        shard=source.shard, database=source.database, generation=generation, seen=seen
    )

    def keep(batch: Batch) -> int:
        workflows.look(batch)
        return 0

    with _Walk(source, start, options, watched=workflows.watched(), keep=keep) as walk:
        walk.read(enough=lambda: not workflows.seen)


class _Walk:
    """A stream that is read through, and left out but for what it says of itself."""

    def __init__(
        self,
        source: SourceConfig,
        start: Position,
        options: DumpOptions,
        *,
        watched: frozenset[str] = frozenset(),
        keep: Callable[[Batch], int] = lambda _: 0,
    ) -> None:
        self._stream = BinlogStream(source, start, options)
        self._reader = Reader(
            shard=source.shard,
            database=source.database,
            patterns=_NOTHING,
            start=start,
            catalog=ServerCatalog(self._stream.control, keyspace=source.shard.keyspace),
            keep=keep,
            sidecar=(SIDECAR, watched),
        )
        self._head: GtidSet = self._stream.control.head().executed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(
        self, *, not_after: int | None = None, enough: Callable[[], bool] = lambda: False
    ) -> Position:
        """Up to a time, to the end that the log had at the beginning, or until it is enough."""
        stream, reader = self._stream, self._reader
        reader.start_slice(known=frozenset(), limit=1 << 62, not_after=not_after)
        while not enough():
            stream.first, limited = reader.feed(
                stream.data, stream.index, stream.first, stream.count
            )
            if limited:
                break
            if reader.between and reader.position().executed.contains_all(self._head):
                break
            if stream.is_full or reader.side_bytes > SIDE_LIMIT or stream.first == stream.count:
                reader.flush()
                stream.recycle()
            stream.receive(DRAINED)
        reader.flush()
        return Position(executed=reader.position().executed)


def _before(session: Session, file: str) -> Position:
    """What had been executed when a binlog file began."""
    for row in session.query("SHOW BINLOG EVENTS IN %s LIMIT 5", (file,)):
        if str(row[2]) == "Previous_gtids":
            return Position(executed=GtidSet.parse("mysql", str(row[5])))
    raise PositionLostError(
        f"the binlog file {file} does not say what was executed before it",
        operation=_OPERATION,
        source=session.source,
        hint=REDUMP_HINT,
    )
