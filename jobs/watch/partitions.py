"""Looks from time to time how mirrored tables are partitioned, and keeps it in the lake.

Lives here: when, and which of the looks are kept. Does not live here: what is made of them
(`merge.emptied`), reading one server's (`wire.decode.partitions`).

Invariant: a look that fails changes nothing. What is not known costs a dump when a partition goes,
and nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ratchet.core.errors import DecodeError, RetryableError, SourceUnfitError
from ratchet.core.gtid import parse_gtid
from ratchet.core.partitions import RangeLayout
from ratchet.core.position import Position
from ratchet.core.rounds import TableEvent
from ratchet.core.shard import ShardId
from ratchet.snapshot.positions import is_committed
from ratchet.snapshot.records import ShardSource
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.partitionlooks import PartitionLook, PartitionLooks
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState
from ratchet.wire.decode.partitions import read_partitions
from ratchet.wire.session import Session

log: Final = logging.getLogger("ratchet.jobs.run")

EVERY: Final = 60.0  # seconds between two looks
_NOTED: Final = 1800.0  # seconds until a look is noted that has found nothing new
_PATIENCE: Final = 0.2  # seconds that a commit under way may take; else the look is left out
_SOON: Final = 10.0  # seconds until the next look, where one was left out
_KEPT: Final = 2  # looks of a table on a shard


@dataclass(frozen=True, slots=True)
class Layouts:
    """How a server's tables are partitioned.

    Attributes:
        tables: by name.
        since: what it had surely executed when it was asked.
        end: the end of its log when it had answered.
    """

    tables: Mapping[str, RangeLayout]
    since: Position
    end: Position


def read_layouts(source: ShardSource, captured: Position) -> Layouts | None:
    """How a server's tables are partitioned.

    Args:
        source: the server.
        captured: up to where its log has been read.

    Returns:
        None: not known now.
    """
    try:
        with Session.connect(source.primary) as session:
            if session.flavor == "file":
                return Layouts({}, captured, captured)  # a place has no name there
            since = session.head()
            # A log may tell of a statement that is not in force yet.
            if not all(is_committed(session, p, patience=_PATIENCE) for p in (captured, since)):
                return None
            tables = read_partitions(session.query, database=source.config.database)
            return Layouts(tables, since, session.head())
    except (RetryableError, SourceUnfitError, DecodeError) as error:
        log.debug("the partitions of %s are not known: %s", source.config.shard, error)
        return None


class PartitionWatch:
    """Of all shards of a run. For one thread.

    Args:
        lake: the lake.
        shards: ShardId as text -> where it is read from.
        mirrors: whether the config mirrors a table of a keyspace.
        read: see `read_layouts`.
        clock: seconds, rising.
    """

    def __init__(
        self,
        lake: Lake,
        shards: Mapping[str, ShardSource],
        mirrors: Callable[[str, str], bool],
        *,
        read: Callable[[ShardSource, Position], Layouts | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake, self._shards, self._mirrors = lake, shards, mirrors
        self._read = read or read_layouts
        self._tables, self._looks = Tables(lake), PartitionLooks(lake)
        self._clock = clock
        self._next = clock()
        self._noted: dict[tuple[str, str], float] = {}  # shard and table -> when
        self._having: set[str] = set()  # shards with such tables

    def look(self, *, now: bool = False) -> None:
        """Look, if it is time.

        Args:
            now: whether it is, however short ago the last look was; then only at shards that had
                such tables.

        Raises:
            LakeError: the lake cannot be read or written.
        """
        if not now and self._clock() < self._next:
            return
        rounds, merged = RoundLog(self._lake), Cuts(self._lake).last()
        whole = True
        for shard, source in self._shards.items():
            if source.config.target or (now and shard not in self._having):
                continue  # a vtgate's tables may be anywhere, and what it does is not computed
            number, captured = rounds.last_number(), rounds.positions().get(shard)
            found = None if captured is None else self._read(source, captured)
            if found is None:
                whole = False
            else:
                self._note(shard, number, found, merged=0 if merged is None else merged.round)
        self._next = self._clock() + (EVERY if whole else _SOON)

    def _note(self, shard: str, number: int, found: Layouts, *, merged: int) -> None:
        keyspace = ShardId.parse(shard).keyspace
        ends: dict[int, tuple[frozenset[str], int] | None] = {}
        for table, layout in found.tables.items():
            if not self._mirrors(keyspace, table):
                continue
            known = self._looks.of(keyspace, table)
            before = tuple(known.get(shard, ()))
            self._having.add(shard)
            state = self._tables.load(keyspace, table)
            if before and not self._is_news(shard, table, before[-1], layout, state):
                continue
            if len(before) >= _KEPT:
                last = before[-1]
                if last.round not in ends:
                    ends[last.round] = self._end(shard, last)
                end = ends[last.round]
                if end is None or not _has(state, end[1], merged):
                    continue  # what is not merged yet may still need the older one
                before = before[:-1] if table in end[0] else before[1:]
            look = PartitionLook(layout=layout, round=number, since=found.since, position=found.end)
            self._looks.save(keyspace, table, {**known, shard: (*before, look)})
            self._noted[shard, table] = self._clock()

    def _is_news(
        self,
        shard: str,
        table: str,
        last: PartitionLook,
        layout: RangeLayout,
        state: TableState | None,
    ) -> bool:
        """Whether a look tells more than the one before, or none was noted for long."""
        noted = self._noted.get((shard, table))
        begun = None if state is None or state.dump is None else state.dump.followed_from
        return (
            layout != last.layout
            or noted is None
            or self._clock() >= noted + _NOTED
            or (begun is not None and last.round < begun - 1)
        )

    def _end(self, shard: str, look: PartitionLook) -> tuple[frozenset[str], int] | None:
        """Tables about which statements came amid a look, and the round that has its end.

        None: the log is not read that far.
        """
        rounds, place, found = RoundLog(self._lake), look.position.executed, set[str]()
        first = max(look.round + 1, rounds.first_number())
        for one in rounds.walk(first, rounds.last_number()):
            mine = (event for event in one.events if event.shard == shard)
            found |= {event.table for event in mine if not _shown(look, event)}
            ends = [piece.end.executed for piece in one.slices if piece.shard == shard]
            if any(end.contains_all(place) for end in ends):
                return frozenset(found), one.number
        return None


def _shown(look: PartitionLook, event: TableEvent) -> bool:
    """Whether a server had executed an event when it was asked."""
    try:
        return look.since.executed.contains(parse_gtid(look.since.flavor, event.gtid))
    except DecodeError:
        return False


def _has(state: TableState | None, number: int, merged: int) -> bool:
    """Whether a table has all of a round, or nothing at all; `merged`: that of the last cut."""
    if state is None:
        return True
    if state.change is not None:  # it stopped in the midst of that round
        return number < state.change.first_round
    return number <= (merged if state.phase == "streaming" else state.merged_round)
