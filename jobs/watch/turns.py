"""Whose turn it is to be compared with its source: each table once in a while, in its turn.

Lives here: when a table was compared last, and which one has waited longest. Does not live here:
comparing it (`background`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ratchet.store.comparisons import Comparisons
from ratchet.store.passes import Passes
from ratchet.store.tables import TableState


class Turns:
    """The tables' turns. For one thread.

    Args:
        passes: where it is kept when a table was first seen.
        comparisons: what was compared last, for whatever reason.
        every: seconds between two comparisons of a table; the first one comes so long after it was
            first seen.
        wall: microseconds UTC.
    """

    def __init__(
        self,
        passes: Passes,
        comparisons: Comparisons,
        *,
        every: float,
        wall: Callable[[], int],
    ) -> None:
        self._passes, self._comparisons = passes, comparisons
        self._every, self._wall = int(every * 1e6), wall
        self._first: dict[str, int] | None = None
        self._last: dict[str, int] = {}
        self._computed: dict[str, str] = {}  # table -> the computed dump for which it had its turn

    def due(self, states: Sequence[TableState]) -> TableState | None:
        """The one that has waited longest, if it has waited long enough.

        One whose rows were computed, as its columns had changed, comes first and need not wait:
        nothing but a comparison proves that the server has made the same of them.

        Args:
            states: the tables that can be compared.
        """
        now, named = self._wall(), {state.name: state for state in states}
        self._see(named)
        for state in states:
            dump = state.dump.id if state.dump is not None and state.is_computed else ""
            if dump and self._computed.get(state.name) != dump:
                self._computed[state.name] = dump
                if self._comparisons.of(state) is None:
                    return state
        for name in sorted(named, key=self._since):
            if self._since(name) + self._every > now:
                return None
            known = self._comparisons.of(named[name])  # perhaps for a doubt, or by a command
            self._last[name] = max(self._last.get(name, 0), known.until if known else 0)
            if self._since(name) + self._every <= now:
                return named[name]
        return None

    def put_off(self, name: str) -> None:
        """A table (keyspace.table) has had its turn."""
        self._last[name] = self._wall()

    def _see(self, named: dict[str, TableState]) -> None:
        before = self._passes.schedule() if self._first is None else self._first
        self._first = {name: before.get(name, self._wall()) for name in named}
        if self._first != before:
            self._passes.save_schedule(self._first)

    def _since(self, name: str) -> int:
        return max(self._last.get(name, 0), (self._first or {}).get(name, 0))
