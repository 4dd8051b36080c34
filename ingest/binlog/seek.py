"""Where to begin in a binlog that is not followed yet: at a time, and whether nothing is missing.

Lives here: `position_at`, and `check_follows` for a shard that took over from others. Does not live
here: following a log (`feed`), what Vitess notes in it (`workflows`).

Invariant: only reads; a stream that is opened here is closed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ratchet.core.errors import PositionLostError, SourceUnfitError
from ratchet.core.position import Position
from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.ingest.binlog.skim import LogScanner
from ratchet.ingest.binlog.workflows import Workflows
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig
from ratchet.wire.failures import HEAL_HINT
from ratchet.wire.logstart import executed_before
from ratchet.wire.session import Session

_OPERATION: Final = "find a position by its time"


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
                "a time can be looked up only in MySQL's binlog with GTIDs, not in "
                f"{session.flavor}",
                operation=_OPERATION,
                source=str(source.shard),
            )
        for file in reversed(session.binlog_files()):
            before = Position(executed=executed_before(session, file))
            with LogScanner(source, before, options) as walk:
                found = walk.read(not_after=ts)
            if found.executed != before.executed or not before.executed.intervals:
                return found
    raise PositionLostError(
        f"the binlogs reach back only to {file}, which begins after the time that is needed",
        operation=_OPERATION,
        source=str(source.shard),
        hint=HEAL_HINT,
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

    def keep(batch: TransactionBatch) -> int:
        workflows.look(batch)
        return 0

    with LogScanner(source, start, options, watched=workflows.watched(), keep=keep) as walk:
        walk.read(enough=lambda: not workflows.seen)
