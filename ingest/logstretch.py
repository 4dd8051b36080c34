"""Some rounds of one shard, read again from its server and compared: from rounds to a result.

Lives here: `check_stretch`, and which rows of the rounds can be compared at all. Does not live
here: the comparison (`logcheck`), which rounds (`jobs.inspect.logverify`, `jobs.watch.logsample`).

Invariant: only reads, on both sides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ratchet.core.rounds import ChangeFile, Round, ShardSlice
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.logcheck import LakeChange, LogCheck, LogResult
from ratchet.ingest.logfiles import changes_in
from ratchet.store.files import Lake
from ratchet.store.segments import missing
from ratchet.wire.connect import SourceConfig
from ratchet.wire.secondlog import SecondLog, SecondTransaction

_UNREADABLE: Final = "rows that the mirror cannot take (`ratchet status` says why)"
_UNTOLD: Final = "rows that a doubt stands for"
_GONE: Final = "change files that are gone from the lake"
_NOT_THEN: Final = "it is not mirrored, or was not then"


@dataclass(frozen=True, slots=True)
class RoundPart:
    """What a round took from the shard.

    Attributes:
        round: its number.
        slice: the slice.
        files: its change files.
        unreadable: table -> `seq` from which its rows were left out.
        untold: table and `seq` of transactions of which rows of it may have been left out.
        copies: whether changes of tools' copies of mirrored tables were captured (Round.copies);
            None: nothing was, as there was none.
    """

    round: int
    slice: ShardSlice
    files: tuple[ChangeFile, ...]
    unreadable: Mapping[str, int]
    untold: frozenset[tuple[str, int]] = frozenset()
    copies: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchBounds:
    """How much of a stretch is compared.

    Attributes:
        after: transactions up to this `seq` are passed over.
        rows: behind so many rows nothing more is begun; None: no such bound.
        bytes: likewise of the log, uncompressed.
        largest: see wire.secondlog.SecondLog.
    """

    after: int = 0
    rows: int | None = None
    bytes: int | None = None
    largest: int = 0


@dataclass(slots=True)
class Stretch:
    """Rounds that follow each other in one stream.

    Attributes:
        parts: one per round, in order.
    """

    parts: list[RoundPart] = field(default_factory=list)

    @property
    def rounds(self) -> tuple[int, int]:
        """The first and the last one."""
        return self.parts[0].round, self.parts[-1].round

    @property
    def copies(self) -> bool | None:
        """Whether changes of copies were captured, in all of it; None: see RoundPart."""
        return next((part.copies for part in self.parts if part.copies is not None), None)

    def goes_on_with(self, part: RoundPart) -> bool:
        """Whether a part goes on where the stretch ends, with changes of the same tables."""
        last, piece = self.parts[-1].slice, part.slice
        apart = None not in {self.copies, part.copies} and self.copies != part.copies
        same = last.generation == piece.generation and not apart
        return same and last.end.executed == piece.start.executed


def stretches(rounds: Sequence[Round], shard: str) -> list[Stretch]:
    """The rounds of a shard, in stretches without a gap.

    Args:
        rounds: in order.
        shard: ShardId as text.
    """
    found: list[Stretch] = []
    for one in rounds:
        for piece in one.slices:
            if piece.shard != shard:
                continue
            part = _part(one, piece)
            if not found or not found[-1].goes_on_with(part):
                found.append(Stretch())
            found[-1].parts.append(part)
    return found


def _part(one: Round, piece: ShardSlice) -> RoundPart:
    unreadable: dict[str, int] = {}
    for event in one.events:
        if event.shard == piece.shard and event.kind == "unreadable":
            unreadable[event.table] = min(event.seq, unreadable.get(event.table, event.seq))
    files = tuple(file for file in one.files if file.shard == piece.shard)
    untold = {
        (event.table, event.seq)
        for event in one.events
        if event.shard == piece.shard and event.effect == "untold"
    }
    copies = piece.shard in one.copies if piece.transactions else None
    return RoundPart(one.number, piece, files, unreadable, frozenset(untold), copies)


def check_stretch(
    lake: Lake,
    source: SourceConfig,
    stretch: Stretch,
    *,
    policy: InvalidValuePolicy,
    since: Mapping[str, int] | None = None,
    wants: Callable[[str], bool] = lambda _: True,
    bounds: StretchBounds | None = None,
) -> tuple[LogResult, int]:
    """Compare a stretch with the server's log.

    Args:
        lake: the lake.
        source: the shard's server.
        stretch: what is compared.
        policy: the config's.
        since: table -> the round from which on all its rows must have been captured; of other
            tables only the rounds that hold rows of them are compared. None: all of all tables.
        wants: which tables of the server are looked at.
        bounds: how much of it; None: all.

    Returns:
        What was found, and how many bytes were read from the server.

    Raises:
        PositionLostError: the server has purged the stretch.
        RetryableError: it cannot be reached.
        LakeError: a change file cannot be read.
        DecodeError: mysql-replication cannot read the log.
    """
    bounds = bounds or StretchBounds()
    parts = stretch.parts
    ends = [part.slice.end.seq for part in parts]
    gone = set(missing(lake, (file.path for part in parts for file in part.files)))
    left_out = _left_out(parts, gone, since)

    def round_of(seq: int) -> int:
        return parts[min(bisect_left(ends, seq), len(parts) - 1)].round

    check = LogCheck(
        shard=parts[0].slice.shard,
        generation=parts[0].slice.generation,
        policy=policy,
        left_out=left_out,
    )
    # Of a table that is dropped and no longer mirrored its captured rows are no concern any more.
    files = [
        (part.round, file)
        for part in parts
        for file in part.files
        if file.path not in gone and wants(file.table)
    ]
    ours = changes_in(lake, files, differ=check.result.differ)
    with SecondLog(
        source,
        parts[0].slice.start,
        parts[-1].slice.end,
        wants=wants,
        largest=bounds.largest,
        tables={*(since or ()), *(file.table for _, file in files)},
    ) as log:
        theirs = _TransactionFilter(log.transactions(), bounds, check.result)
        check.compare(
            _behind(ours, bounds.after), theirs, round_of=round_of, whole=lambda: not theirs.cut
        )
        return check.result, log.bytes


def _left_out(
    parts: Sequence[RoundPart], gone: set[str], since: Mapping[str, int] | None
) -> Callable[[str, int, int], str]:
    """Why rows of a table, round and `seq` are not compared; see LogCheck."""
    without = {
        (file.table, part.round) for part in parts for file in part.files if file.path in gone
    }
    having = {(file.table, part.round) for part in parts for file in part.files}
    unreadable: dict[str, int] = {}
    for part in parts:
        unreadable = {**part.unreadable, **unreadable}
    untold = {one for part in parts for one in part.untold}

    def why(table: str, number: int, seq: int) -> str:
        if seq >= unreadable.get(table, seq + 1):
            return _UNREADABLE
        if (table, seq) in untold:
            return _UNTOLD
        if (table, number) in without:
            return _GONE
        if since is None or (table, number) in having or since.get(table, number + 1) <= number:
            return ""
        return _NOT_THEN

    return why


def _behind(changes: Iterator[LakeChange], seq: int) -> Iterator[LakeChange]:
    return (change for change in changes if change.token["seq"] > seq)


class _TransactionFilter:
    """Transactions within bounds.

    Attributes:
        cut: whether there may be more than were handed out.
    """

    def __init__(
        self, transactions: Iterator[SecondTransaction], bounds: StretchBounds, result: LogResult
    ) -> None:
        self.cut = False
        self._transactions, self._bounds, self._result = transactions, bounds, result

    def __iter__(self) -> Iterator[SecondTransaction]:
        size, bounds = 0, self._bounds
        for one in self._transactions:
            if one.seq <= bounds.after:
                continue
            yield one
            size += one.bytes
            full = bounds.rows is not None and self._result.rows >= bounds.rows
            if full or (bounds.bytes is not None and size >= bounds.bytes):
                self.cut = True
                return
