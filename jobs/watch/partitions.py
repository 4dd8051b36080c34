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
from typing import Final

from ratchet.core.errors import DecodeError, RetryableError, SourceUnfitError
from ratchet.core.partitions import RangeLayout
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.snapshot.positions import is_committed
from ratchet.snapshot.records import ShardSource
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.partitionlooks import PartitionLook, PartitionLooks
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables
from ratchet.wire.decode.partitions import read_partitions
from ratchet.wire.session import Session

log: Final = logging.getLogger("ratchet.jobs.run")

EVERY: Final = 1800.0  # seconds between two looks: a partition lives for hours before it goes
_PATIENCE: Final = 0.2  # seconds that a commit under way may take; else the look is left out
_SOON: Final = 10.0  # seconds until the next look, where one was left out
_KEPT: Final = 2  # looks of a table on a shard


Layouts = tuple[Mapping[str, RangeLayout], Position]


def read_layouts(source: ShardSource, captured: Position) -> Layouts | None:
    """How a server's tables are partitioned, and where its log ends behind that.

    Args:
        source: the server.
        captured: up to where its log has been read.

    Returns:
        None: not known now.
    """
    try:
        with Session.connect(source.primary) as session:
            if session.flavor == "file":
                return {}, captured  # a place between two transactions has no name there
            if not is_committed(session, captured, patience=_PATIENCE):
                return None  # the log may tell of a statement that is not in force yet
            layouts = read_partitions(session.query, database=source.config.database)
            return layouts, session.head()
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

    def look(self) -> None:
        """Look, if it is time.

        Raises:
            LakeError: the lake cannot be read or written.
        """
        if self._clock() < self._next:
            return
        rounds, merged = RoundLog(self._lake), Cuts(self._lake).last()
        whole = True
        for shard, source in self._shards.items():
            if source.config.target:
                continue  # a vtgate's tables may be anywhere, and what it does is not computed
            number, captured = rounds.last_number(), rounds.positions().get(shard)
            found = None if captured is None else self._read(source, captured)
            if found is None:
                whole = False
            else:
                self._note(shard, number, *found, merged=0 if merged is None else merged.round)
        self._next = self._clock() + (EVERY if whole else _SOON)

    def _note(
        self,
        shard: str,
        number: int,
        layouts: Mapping[str, RangeLayout],
        position: Position,
        *,
        merged: int,
    ) -> None:
        keyspace = ShardId.parse(shard).keyspace
        unclear: dict[int, frozenset[str] | None] = {}
        for table, layout in layouts.items():
            if not self._mirrors(keyspace, table):
                continue
            known = self._looks.of(keyspace, table)
            before = tuple(known.get(shard, ()))
            if len(before) >= _KEPT:
                last = before[-1]
                if last.round not in unclear:
                    unclear[last.round] = self._altered(shard, last)
                altered = unclear[last.round]
                if altered is None or not self._has(keyspace, table, last.round, merged):
                    continue  # what happened since the older one may still need it
                before = before[:-1] if table in altered else before[1:]
            look = PartitionLook(layout=layout, round=number, position=position)
            self._looks.save(keyspace, table, {**known, shard: (*before, look)})

    def _altered(self, shard: str, look: PartitionLook) -> frozenset[str] | None:
        """Tables about which statements came during a look; None: the log is not read that far."""
        rounds, place, found = RoundLog(self._lake), look.position.executed, set[str]()
        first = max(look.round + 1, rounds.first_number())
        for one in rounds.walk(first, rounds.last_number()):
            found |= {event.table for event in one.events if event.shard == shard}
            ends = [piece.end.executed for piece in one.slices if piece.shard == shard]
            if any(end.contains_all(place) for end in ends):
                return frozenset(found)
        return None

    def _has(self, keyspace: str, table: str, number: int, merged: int) -> bool:
        """Whether a table has all of a round, or nothing at all; `merged`: that of the last cut."""
        state = self._tables.load(keyspace, table)
        if state is None:
            return True
        return number <= (merged if state.phase == "streaming" else state.merged_round)
