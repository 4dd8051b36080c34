"""Tables that a schema change has stopped, and that go on without a person.

Lives here: which of them are computed from what the mirror has, which are dumped again, and how
often. Does not live here: doing it (`dumping`, `merge.remake`), what stops a table
(`merge.gather`), what stays readable meanwhile (`store.anew`).

Invariant: of a table that stops again and again each new dump comes later: a source must not be
read all the time. What is computed reads no source, so it only has to leave time for others.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ratchet.store.tables import Tables, TableState

_FIRST: Final = 60.0  # seconds from the first dump of this kind to the second
_LONGEST: Final = 3600.0
_SHARE: Final = 4.0  # rest behind a table that was computed, by the time that it took


class AlteredTables:
    """The tables of one run. For several threads.

    Args:
        tables: the states.
        follows: whether a table is mirrored and its source's config says `follow`.
        is_dumping: whether the dump has a table (keyspace.table) in hand.
        clock: seconds, rising.
    """

    def __init__(
        self,
        tables: Tables,
        follows: Callable[[TableState], bool],
        *,
        is_dumping: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tables = tables
        self._follows = follows
        self._is_dumping = is_dumping
        self._clock = clock
        self._lock = threading.Lock()
        self._next: dict[str, float] = {}  # not dumped before
        self._rest: dict[str, float] = {}  # not computed before
        self._pause: dict[str, float] = {}
        self._soon: set[str] = set()
        self._refused: dict[str, int] = {}  # the round of a change that cannot be computed

    def due(self, states: Iterable[TableState]) -> set[str]:
        """Those (keyspace.table) that are to be dumped again now."""
        return {
            state.name
            for state in states
            if self.takes(state) and not self.computes(state) and self._is_due(state, self._next)
        }

    def to_compute(self, states: Iterable[TableState]) -> list[TableState]:
        """Those that are to be computed now."""
        return [
            state for state in states if self.computes(state) and self._is_due(state, self._rest)
        ]

    def computes(self, state: TableState) -> bool:
        """Whether a table is computed from what the mirror has, now or later."""
        halfway = state.phase == "dumping" and state.is_computed
        mine = self.takes(state) or (halfway and self._follows(state))
        with self._lock:
            refused = self._refused.get(state.name)
        return mine and state.change is not None and refused != state.change.round

    def refuse(self, state: TableState) -> None:
        """A change cannot be computed: its table is to be dumped again."""
        if state.change is not None:
            with self._lock:
                self._refused[state.name] = state.change.round

    def computed(self, name: str, seconds: float) -> None:
        """A table was computed, which took so long."""
        self.tried_to_compute(name, _SHARE * seconds)

    def tried_to_compute(self, name: str, rest: float, *, soon: bool = False) -> None:
        """A table is not computed again before so many seconds.

        Args:
            name: keyspace.table.
            rest: the seconds.
            soon: whether it is sure to be known then what becomes of it, also if it awaits shards.
        """
        with self._lock:
            self._rest[name] = self._clock() + rest
            (self._soon.add if soon else self._soon.discard)(name)

    def put_off(self, name: str, rest: float) -> None:
        """A table is not computed before so many seconds; nothing has been found out about it."""
        with self._lock:
            self._rest[name] = self._clock() + rest

    def _is_due(self, state: TableState, times: Mapping[str, float]) -> bool:
        now = self._clock()
        with self._lock:
            return times.get(state.name, now) <= now

    def rests(self) -> float:
        """Seconds until the next table that rests may be computed or dumped again; inf: none."""
        now = self._clock()
        with self._lock:
            times = (*self._rest.values(), *self._next.values())
        return min((time - now for time in times if time > now), default=math.inf)

    def takes(self, state: TableState) -> bool:
        """Whether a stopped table is dumped again by itself, now or later."""
        altered = state.stopped is not None and state.stopped.altered
        return altered and state.phase == "stopped" and self._follows(state)

    def _is_waited_for(self, state: TableState) -> bool:
        with self._lock:
            return not state.awaits_shards or state.name in self._soon

    def tried(self, name: str) -> None:
        """Such a dump has begun, or cannot be made: the next try of this table comes later."""
        with self._lock:
            pause = self._pause.get(name, _FIRST)
            self._next[name] = self._clock() + pause
            self._pause[name] = min(2 * pause, _LONGEST)

    def not_begun(self, name: str) -> None:
        """Such a dump has ended before it read a row: nothing was asked of the source.

        As while a statement goes from shard to shard: until the last one the columns differ.
        """
        with self._lock:
            self._next[name] = self._clock() + _FIRST
            self._pause[name] = max(self._pause.get(name, _FIRST) / 2, _FIRST)

    @property
    def any_waits(self) -> bool:
        """Whether a run that has caught up has to wait for one."""
        with self._lock:
            tried = list(self._pause)
        states = self._tables.list()
        behind = (s for s in states if s.standing is not None and s.phase != "stopped")
        return (
            bool(self.due(states))
            or any(map(self._is_dumping, tried))  # though its state may not say so yet
            or any(self.computes(state) and self._is_waited_for(state) for state in states)
            or any(self._follows(state) for state in behind)
        )
