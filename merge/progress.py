"""How far each table is, from one step to the next: its version, and the round that it holds.

Lives here: `Progress`, what is remembered of the tables between steps. Does not live here: which
rounds there are (`store.rounds`), how far a table is to be brought (`rounds`).

Invariant: what is remembered goes by a table's dump: one that was dropped and came back begins
anew. A round counts as held when its merge is committed, whatever the state says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from ratchet.merge.plan import app_id
from ratchet.merge.step import LOOK_AGAIN
from ratchet.merge.table import (
    MergeResult,
    TableCache,
    collapse_id,
)
from ratchet.store.cuts import Cut
from ratchet.store.delta.commits import EPOCH
from ratchet.store.delta.log import TableFiles
from ratchet.store.delta.tables import newest_version, open_delta, version_in
from ratchet.store.files import Lake
from ratchet.store.staged import taken
from ratchet.store.tables import TableState

_LOOKS: Final = 16  # at a time, in an object store


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBeginning:
    """How far a table is by its own log.

    Attributes:
        round: of the last merge that changed it; 0 if none did since its dump.
        epoch: the newest one that it was fenced for; 0: none.
        version: its newest one; -1: there is no table.
    """

    round: int
    epoch: int
    version: int


class Progress:
    """What is known of the tables of one lake.

    Attributes:
        held: by app id: the files of a table, and what is known of them.
    """

    def __init__(self, lake: Lake) -> None:
        """Know nothing."""
        self._lake = lake
        # By app id: a table that was dropped and came back has another one, and begins at 0.
        self.held: defaultdict[str, TableCache] = defaultdict(TableCache)
        self._versions: dict[str, int] = {}
        self._looked: dict[str, int] = {}  # when a version was looked at, microseconds UTC

    def keep(self, there: Collection[str]) -> None:
        """Remember nothing but of these tables, by app id."""
        for known in (self._versions, self._looked, self.held):
            for key in known.keys() - there:
                del known[key]

    def forget(self, state: TableState) -> None:
        """Look at a table's side table anew."""
        self._looked.pop(app_id(state), None)
        held = self.held[app_id(state)]
        held.main = held.side = held.sides = None

    def note(self, key: str, merged: MergeResult, now: int) -> None:
        """A table, by app id, was merged into."""
        self.held[key].sides = merged.side
        self._versions[key] = merged.version
        self._looked[key] = now

    def placed(self, key: str, files: TableFiles, now: int) -> None:
        """A table, by app id, is where it is shown from now on."""
        self.held[key].main = files
        self._versions[key] = files.version
        self._looked[key] = now

    def shown(self, state: TableState, otherwise: int) -> int:
        """The newest version that is known of a table."""
        return self._versions.get(app_id(state), otherwise)

    def newest(self, states: Sequence[TableState], before: Cut | None, now: int) -> dict[str, int]:
        """The tables' versions that a cut names, the one behind `before`."""
        version = partial(self._version, before, now)
        if self._lake.is_local:
            return {state.name: version(state) for state in states}
        with ThreadPoolExecutor(_LOOKS, "merge-versions") as pool:
            found = pool.map(version, states)
            return {state.name: one for state, one in zip(states, found, strict=True)}

    def _version(self, before: Cut | None, now: int, state: TableState) -> int:
        """The table's newest version; in an object store, the newest that was seen lately."""
        key = app_id(state)
        known = self._versions.get(key)
        fresh = now < self._looked.get(key, 0) + LOOK_AGAIN * 10**6
        if known is not None and fresh and not self._lake.is_local:
            return known  # upkeep alone may have made one since, of the same rows
        if known is None and before is not None and self._is_of(state, before):
            known = before.tables.get(state.name)
        self._looked[key] = now
        self._versions[key] = version = newest_version(self._lake, state.path, known)
        return version

    def _is_of(self, state: TableState, cut: Cut | None) -> bool:
        """Whether what a cut says of a table is about its dump of now."""
        return cut is not None and state.dump is not None and state.dump.start_round <= cut.round

    def reached(self, state: TableState, before: Cut | None) -> int:
        """The round that a streaming table holds, whatever its state says."""
        return max(self.saved(state, before), self.committed(state))

    def saved(self, state: TableState, before: Cut | None) -> int:
        """The round up to which the state tells all that there was to tell of the table.

        The state of a table that nothing happens to lags behind the cut that it is in.
        """
        shown = before.round if before and before.shows(state.name) else 0
        return max(state.merged_round, shown)

    def committed(self, state: TableState) -> int:
        """The round of the last merge that changed the table; 0 if none did since its dump."""
        held = self.held[app_id(state)]
        return self.begun(state).round if held.merged is None else held.merged

    def begun(self, state: TableState) -> TableBeginning:
        """How far the table is by its own log; asks the table.

        A catch-up that had no changes has committed nothing but its collapse.
        """
        key = app_id(state)
        table = open_delta(self._lake, state.path)
        ids = (key, collapse_id(key), EPOCH)
        own, collapsed, epoch = (0 if table is None else version_in(table, one) or 0 for one in ids)
        placed = taken(self._lake, state.shown_path, key) if state.is_staged else None
        self.held[key].merged = merged = max(own, collapsed, placed or 0)
        version = -1 if table is None else int(table.version())
        return TableBeginning(round=merged, epoch=epoch, version=version)
