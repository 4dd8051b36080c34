"""Makes a table that a tool has swapped in from the change log of its copy.

Lives here: what is asked of the source for that. Does not live here: whether the log has all of the
copy (`merge.swap`), making the table (`merge.fromlog`), what is told of it (`computing`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ratchet.core.errors import SourceUnfitError, TableStoppedError
from ratchet.core.position import Position
from ratchet.core.reshaping import NotComputableError, NotYetComputableError
from ratchet.jobs.preflight.restarts import ROUNDED, started_at
from ratchet.jobs.run.sourcetables import source_table
from ratchet.merge.fromlog import events_since_swap, make_from_log, swapped_table
from ratchet.merge.swap import CopyLog, is_moved, refuse_untold
from ratchet.snapshot.records import DumpSettings, ShardSource
from ratchet.store.files import Lake
from ratchet.store.stops import ShapeChange
from ratchet.store.tables import TableState
from ratchet.wire.session import Session, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CopyTaker:
    """For one thread.

    Args:
        spark: any session of the application; hardly ever used.
        lake: the lake.
        shards: ShardId as text -> where it is read from.
        settings: the dump's.
        now: microseconds UTC.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        shards: Mapping[str, ShardSource],
        settings: DumpSettings,
        *,
        now: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._shards = shards
        self._settings = settings
        self._now = now
        # Table -> its swap, and a position behind which its server had no copy of it any more.
        self._gone: dict[str, tuple[Position, Position]] = {}

    def take(self, state: TableState, copy: str, stop: threading.Event) -> TableState | None:
        """Make the table.

        Args:
            state: the table.
            copy: the name that the copy had.
            stop: set when the run ends.

        Returns:
            As it was saved; None: told to stop.

        Raises:
            NotComputableError: its rows have to be read from the source.
            NotYetComputableError: it is to be tried again in a moment.
            RetryableError: the server does not answer, or a failure of Spark.
            TableStoppedError: its columns have no place in the lake, or change files are gone.
            TableFileError: a file of the table is gone or damaged.
            LakeError: the lake cannot be read or written.
        """
        if state.change is not None and state.change.position.flavor != "mysql":
            self._refuse_unmoved(state, copy, state.change)
        found = swapped_table(self._lake, state, copy)
        self._refuse_restarted(found.log)
        now = source_table(self._shards, state)
        if found.change.position.flavor == "mariadb":
            refuse_untold(found.schema, None if now is None else now.schema)
        if now is not None and now.schema == found.schema:
            primary = now.plan.index == "PRIMARY"
            found = replace(found, primary=primary)
        return make_from_log(
            self._spark,
            self._lake,
            state,
            found,
            policy=self._settings.policy,
            deletion_vectors=self._settings.deletion_vectors,
            now=self._now(),
            stop=stop.is_set,
        )

    def _refuse_unmoved(self, state: TableState, copy: str, change: ShapeChange) -> None:
        """A MariaDB logs a RENAME of temporary tables of these names as one of the tables.

        Raises:
            NotComputableError: the copy is still there, or that cannot be told.
            NotYetComputableError: the log is not read to where the server was without it.
            RetryableError: the server does not answer.
        """
        events, read = events_since_swap(self._lake, state, copy, change)
        if is_moved(events, copy):
            return
        swap, gone = self._gone.get(state.name, (None, None))
        if gone is None or swap != change.position:
            gone = self._gone_at(copy, change.shard)
            self._gone[state.name] = change.position, gone
        if read is None or not read.executed.contains_all(gone.executed):
            raise NotYetComputableError(f"its server has no {copy}: its log is read up to that")

    def _gone_at(self, copy: str, shard: str) -> Position:
        """A position at which the server has no such table, or behind it."""
        if shard not in self._shards:
            raise NotComputableError(f"its server cannot be asked whether {copy} is gone")
        with Session.connect(self._shards[shard].primary) as session:
            try:
                session.query(f"SELECT 1 FROM {quoted(copy)} LIMIT 0")
            except TableStoppedError:
                return session.head()
            except SourceUnfitError as error:
                why = f"its server does not tell whether {copy} is gone"
                raise NotComputableError(why) from error
        raise NotComputableError(f"its server still has {copy}")

    def _refuse_restarted(self, copy: CopyLog) -> None:
        """A server's start can take rows that its log has: all of MEMORY, some after a crash.

        Raises:
            NotComputableError: it was started since the copy was made, or cannot be asked.
            RetryableError: it does not answer.
        """
        if copy.shard not in self._shards:
            raise NotComputableError("its server cannot be asked when it was started")
        with Session.connect(self._shards[copy.shard].primary) as session:
            started = started_at(session)
        if started + ROUNDED >= copy.made_at / 1e6:
            raise NotComputableError(f"its server was started since {copy.copy} was made")
