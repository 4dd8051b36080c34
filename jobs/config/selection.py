"""Which tables a run mirrors, as all of its loops see it: the config's word and what was found.

Lives here: `Selection`, the one thing of a run that changes while it runs. Does not live here: why
it changes (`serving`, `dumping`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from ratchet.core.patterns import TablePatterns
from ratchet.jobs.config.settings import SourceSection
from ratchet.store.tables import TableState


class Selection:
    """For several threads.

    Args:
        sources: the config's, by keyspace.
    """

    def __init__(self, sources: Mapping[str, SourceSection]) -> None:
        self._lock = threading.Lock()
        self._deciding = threading.RLock()
        self._sources = dict(sources)
        self._names: dict[str, set[str]] = {}
        self._version = 0
        self._dumping: set[str] = set()

    def deciding(self) -> AbstractContextManager[object]:
        """Hold it while states and patterns are read to decide what becomes of a table.

        The dump decides which tables it takes, and commands which ones come, go, and begin anew: a
        table that was taken by what the states said before it was dropped would come back.
        """
        return self._deciding

    @property
    def version(self) -> int:
        """Another one whenever the patterns have changed."""
        with self._lock:
            return self._version

    def begin_dumping(self, name: str) -> None:
        """The dump has taken a table (keyspace.table), though its state may not say so yet."""
        with self._lock:
            self._dumping.add(name)

    def end_dumping(self, name: str) -> None:
        """It has done with it."""
        with self._lock:
            self._dumping.discard(name)

    def is_dumping(self, name: str) -> bool:
        """Whether the dump has a table (keyspace.table) in hand, or is about to."""
        with self._lock:
            return name in self._dumping

    @property
    def sources(self) -> Mapping[str, SourceSection]:
        """The sources with the patterns of now."""
        with self._lock:
            return dict(self._sources)

    def patterns(self, keyspace: str) -> TablePatterns:
        """Which tables of a keyspace are mirrored."""
        with self._lock:
            return self._sources[keyspace].tables

    def mirrors(self, state: TableState) -> bool:
        """Whether a table is mirrored."""
        with self._lock:
            source = self._sources.get(state.keyspace)
        return source is not None and source.tables.matches(state.table)

    def follows(self, state: TableState) -> bool:
        """Whether a table is mirrored, and its source read: it is not while it is set aside."""
        return state.keyspace in self.followed and self.mirrors(state)

    @property
    def followed(self) -> Mapping[str, SourceSection]:
        """Those of `sources` that are read."""
        return {name: source for name, source in self.sources.items() if source.shards}

    def known(self, keyspace: str) -> tuple[str, ...]:
        """The tables of a keyspace that are mirrored or about to be, sorted."""
        with self._lock:
            return tuple(sorted(self._names.get(keyspace, ())))

    def add(self, keyspace: str, table: str) -> None:
        """From now on this table is known."""
        with self._lock:
            self._names.setdefault(keyspace, set()).add(table)

    def change(self, patterns: Mapping[str, TablePatterns]) -> None:
        """From now on these are the patterns.

        Args:
            patterns: by keyspace; other keyspaces keep theirs.
        """
        with self._lock:
            self._version += 1
            for keyspace, tables in patterns.items():
                self._sources[keyspace] = replace(self._sources[keyspace], tables=tables)


class RoundBarrier:
    """Lets a thread wait until what another one has in hand was begun after some change.

    Capture reads with the patterns and names of when a round began. A dump must not begin before
    the round is over that was under way when its table became known: what that round read of the
    table, or left out of it, would be neither in the rounds behind it nor in the dump.
    """

    def __init__(self) -> None:
        self._bell = threading.Condition()
        self._begun = self._ended = 0

    def __enter__(self) -> None:
        with self._bell:
            self._begun += 1

    def __exit__(self, *_: object) -> None:
        with self._bell:
            self._ended += 1
            self._bell.notify_all()

    def wait(self, give_up: Callable[[], bool]) -> None:
        """Until what is under way now has ended.

        Args:
            give_up: asked once a second; ends the waiting.
        """
        with self._bell:
            begun = self._begun
            while self._ended < begun and not give_up():
                self._bell.wait(1.0)
