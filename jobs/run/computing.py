"""Computes a table that a schema change has stopped, from the rows that the mirror has.

Lives here: what is asked of the source for that, and what is told of it. Does not live here: the
pass over the table (`merge.remake`), which tables and when (`altered`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from ratchet.core.errors import TableStoppedError
from ratchet.core.schema import TableSchema
from ratchet.jobs.reporting.text import one_line
from ratchet.merge.remake import remake, reshaping_of
from ratchet.snapshot.records import DumpSettings, ShardSource
from ratchet.snapshot.source import SourceCatalog
from ratchet.store.files import Lake
from ratchet.store.tables import TableState

log: Final = logging.getLogger("ratchet.jobs.run")


class TableComputer:
    """For one thread.

    Args:
        lake: the lake.
        shards: ShardId as text -> where it is read from.
        settings: the dump's.
        now: microseconds UTC.
    """

    def __init__(
        self,
        lake: Lake,
        shards: Mapping[str, ShardSource],
        settings: DumpSettings,
        *,
        now: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._lake = lake
        self._shards = shards
        self._settings = settings
        self._now = now

    def __call__(self, state: TableState, stop: Callable[[], bool]) -> None:
        """Compute a table, so that it catches up; told to stop, it is left for the next run.

        Args:
            state: the table.
            stop: whether the run ends.

        Raises:
            NotComputableError: its rows have to be read from the source.
            RetryableError: the server does not answer.
            TableStoppedError: its columns have no place in the lake.
            TableFileError: a file of the table is gone or damaged.
            LakeError: the lake cannot be read or written.
        """
        began = time.monotonic()
        reshaping = reshaping_of(self._lake, state, self._settings.policy, self._described)
        done = remake(
            self._lake,
            state,
            reshaping,
            deletion_vectors=self._settings.deletion_vectors,
            now=self._now(),
            stop=stop,
        )
        if done is None or state.change is None:
            return
        what = state.change.statement or "its columns are wider"
        log.info(
            "%s: %s: computed in %.1f s, without reading the source",
            state.name,
            one_line(what)[:200],
            time.monotonic() - began,
            extra={"fields": {"event": "schema_change_computed", "table": state.name}},
        )

    def _described(self, state: TableState) -> TableSchema | None:
        """The table as its server describes it now; None: it does not."""
        shard = "" if state.change is None else state.change.shard
        if shard not in self._shards:
            return None
        catalog = SourceCatalog({shard: self._shards[shard].primary})
        try:
            return catalog.table(shard, state.table).schema
        except TableStoppedError:
            return None  # it is gone, or has no key any more
