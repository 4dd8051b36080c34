"""Looking again at rows that seem to differ, until it is known of each whether it does.

Lives here: how often, at which cuts, and what counts as a change meanwhile. Does not live here: the
verdict on one look (`snapshot.confirm`), which rows (`background`).

Invariant: a row differs only if two looks in a row of a table that is what it was say so; one that
changes whenever it is looked at gets no verdict.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from ratchet.core.position import Position
from ratchet.jobs.inspect.changelog import covering_cut
from ratchet.jobs.inspect.reading import ReadOptions
from ratchet.jobs.inspect.verify import newest_at
from ratchet.jobs.watch.subject import Subject
from ratchet.merge.cascades.graph import read_graph
from ratchet.snapshot.confirm import KeyConfirmation, findings, floors_of, moved_keys, rounds_behind
from ratchet.snapshot.mirror import MirrorAt, MirrorReader
from ratchet.snapshot.reread import read_keys
from ratchet.snapshot.rows import frozen_row
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState

_LOOKS: Final = 6  # at a row, until it counts as too busy to tell
_PAUSE: Final = 1.0  # seconds between two of them


class NewsError(Exception):
    """The table is not any more what it was when a pass began: another pass will look at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLookResult:
    """What came of some rows.

    Attributes:
        wrong: those that differ.
        moving: how many changed whenever they were looked at.
        waited: seconds that were spent waiting.
    """

    wrong: list[KeyConfirmation] = field(default_factory=list)
    moving: int = 0
    waited: float = 0.0


class SecondLook:
    """Looks again. For one thread.

    Args:
        lake: the lake.
        reading: how sources are read.
        streams: whether a table streams, is mirrored and not in doubt.
        stop: set when the run ends.
        patience: seconds that the merge may take until it has come as far as was read.
        hurry: asks for a merge, while it is waited for.
        clock: seconds, rising.
    """

    def __init__(
        self,
        lake: Lake,
        reading: ReadOptions,
        *,
        streams: Callable[[TableState], bool],
        stop: threading.Event,
        patience: float,
        hurry: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake, self._reading, self._streams, self._hurry = lake, reading, streams, hurry
        self._stop, self._patience, self._clock = stop, patience, clock
        self._tables, self._cuts, self._log = Tables(lake), Cuts(lake), RoundLog(lake)

    def cut(self, ends: Mapping[str, Position]) -> Cut:
        """The newest cut, as soon as it holds these positions.

        Raises:
            RetryableError: it does not come so far, or the run ends.
        """
        return covering_cut(
            self._cuts, ends, stop=self._stop, patience=self._patience, hurry=self._hurry,
            clock=self._clock,
        )  # fmt: skip

    def mirror(self, table: Subject, cut: Cut) -> MirrorReader:
        """The mirror at a cut.

        Raises:
            NewsError: the table is not any more what it was.
        """
        before = table.state
        # Behind the cut: what it shows of a table, the state tells of.
        state = self._tables.load(before.keyspace, before.table)
        if state is None or not self._streams(state) or not cut.shows(state.name):
            raise NewsError(f"{before.name} no longer streams, or is in doubt")
        if state.whole != before.whole or state.dump != before.dump:
            raise NewsError(f"{before.name} has other columns, or was dumped again")
        version = newest_at(self._lake, cut, state, cut.tables[state.name])
        return MirrorReader(self._lake, MirrorAt(path=state.path, version=version))

    def at(self, table: Subject, keys: pa.Table) -> SecondLookResult:
        """Look at the rows of some keys until it is known whether they differ.

        Raises:
            NewsError: the table is not any more what it was.
            RetryableError: a server stays away, the merge does, or the run ends.
        """
        once: set[Any] = set()
        decided: set[Any] = set()
        wrong: list[KeyConfirmation] = []
        left, moving, waited = keys, 0, 0.0
        for look in range(_LOOKS):
            if look:
                began = self._clock()
                self._stop.wait(_PAUSE)
                waited += self._clock() - began
            found, rested = self._look(table, left)
            waited += rested
            places = {(frozen_row(one.key, table.compared.key), one.shard): one for one in found}
            news = {place: one for place, one in places.items() if place not in decided}
            sure = {p: one for p, one in news.items() if one.kind == "same" or p in once}
            sure = {p: one for p, one in sure.items() if one.kind != "moving"}
            wrong += [one for one in sure.values() if one.kind != "same"]
            decided |= sure.keys()
            open_ = {place: one for place, one in news.items() if place not in sure}
            once |= {place for place, one in open_.items() if one.kind != "moving"}
            once -= {place for place, one in open_.items() if one.kind == "moving"}
            moving = len(open_)
            if not moving:
                break
            rows = {place[0]: dict(one.key) for place, one in open_.items()}
            left = pa.Table.from_pylist(list(rows.values()), schema=keys.schema)
        return SecondLookResult(wrong=wrong, moving=moving, waited=waited)

    def _look(self, table: Subject, keys: pa.Table) -> tuple[list[KeyConfirmation], float]:
        """One look at the rows of some keys; and seconds that were spent waiting."""
        again = read_keys(
            keys.to_pylist(),
            tables=table.sources,
            shards=self._reading.shards,
            columns=table.compared.names,
            settings=self._reading.settings,
            stop=self._stop,
        )
        began = self._clock()
        cut = self.cut(again.end)
        waited = self._clock() - began
        mirror = self.mirror(table, cut)
        moved = moved_keys(
            self._lake,
            rounds_behind(self._log, floors_of(again), cut.round),
            (table.state.keyspace, table.state.table),
            self._parents(table.state),
            table.compared,
        )
        return findings(keys, again, mirror, table.compared, moved=moved), waited

    def _parents(self, state: TableState) -> set[tuple[str, str]]:
        """The tables by whose changes a server may change this one without a word in its log."""
        above = read_graph(self._lake, self._tables.list()).above(state.name)
        return {(state.keyspace, name.removeprefix(f"{state.keyspace}.")) for name in above}
