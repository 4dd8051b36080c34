"""Makes a table that a schema change has stopped from what the lake has, without the source.

Either its columns have changed: then its rows come from those that the mirror had, and what only
its server knows of them is read, by their keys. Or a tool has swapped in a copy of it: then they
come from the change log of that copy.

Lives here: which of the two, what is asked of the source where columns have changed, and what is
told of it. Does not live here: the other one (`copies`), making the table (`merge.remake`), which
tables and when (`altered`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ratchet.core.errors import TableStoppedError
from ratchet.core.position import Position
from ratchet.core.reshaping import (
    MisfitError,
    NotComputableError,
    NotYetComputableError,
    Reshaping,
)
from ratchet.core.rounds import StatementTime
from ratchet.core.schema import TableSchema
from ratchet.core.sql.logged import table_changes
from ratchet.core.types import misfits_told
from ratchet.jobs.preflight.restarts import ROUNDED, started_at
from ratchet.jobs.reporting.text import one_line
from ratchet.jobs.run.copies import CopyTaker
from ratchet.jobs.run.sourcetables import log_head, source_table
from ratchet.merge.askedvalues import AskedValues
from ratchet.merge.asking import AskedColumns, refuse_asking
from ratchet.merge.fromlog import copy_of
from ratchet.merge.remake import refuse_unlogged, remake, reshaping_of
from ratchet.snapshot.columnscan import ColumnScan, read_columns
from ratchet.snapshot.records import DumpSettings, ShardSource
from ratchet.snapshot.source import SourceCatalog, SourceTable, common_columns
from ratchet.store.files import Lake
from ratchet.store.stops import ShapeChange
from ratchet.store.tables import TableState
from ratchet.wire.decode.answers import as_text, single_value
from ratchet.wire.decode.unfit import unfit_tables
from ratchet.wire.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("ratchet.jobs.run")

_OTHERS: Final = 5.0  # seconds until other shards of an altered table are looked at again
# Seconds after which shards count as altered whose columns are the same but for what the lake does
# not show, as whether NULL may be in them. A statement that swaps two of a kind has so much time.
_PATIENCE: Final = 60.0


@dataclass(slots=True)
class _Watch:
    """A table of which some shards have not come to a statement.

    Attributes:
        change: the statement, and who has come to it.
        since: when that was first seen, by `time.monotonic`.
        heads: where the others stood when they had all columns that it brings.
    """

    change: ShapeChange
    since: float
    heads: dict[str, Position] = field(default_factory=dict)


class TableComputer:
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
        self._copies = CopyTaker(spark, lake, shards, settings, now=now)
        self._lake = lake
        self._shards = shards
        self._settings = settings
        self._now = now
        self._watched: dict[str, _Watch] = {}

    def __call__(self, state: TableState, stop: threading.Event) -> None:
        """Make a table, so that it catches up; told to stop, it is left for the next run.

        Args:
            state: the table.
            stop: set when the run ends.

        Raises:
            NotComputableError: its rows have to be read from the source.
            NotYetComputableError: it is to be tried again in a moment.
            RetryableError: the server does not answer, or a failure of Spark.
            TableStoppedError: its columns have no place in the lake, or change files are gone.
            TableFileError: a file of the table is gone or damaged.
            LakeError: the lake cannot be read or written.
        """
        copy = copy_of(state)
        if copy is None:
            self._reshape(state, stop)
            return
        began = time.monotonic()
        done = self._copies.take(state, copy, stop)
        if done is not None and state.change is not None:
            seconds = time.monotonic() - began
            text = f"taken from the change log of {copy} in {seconds:.1f} s, 0 rows read"
            _tell(state, state.change, f"{text} from the source")

    def _reshape(self, state: TableState, stop: threading.Event) -> None:
        began = time.monotonic()
        try:
            reshaping = reshaping_of(
                self._lake, state, self._settings.policy, self._described, self._zone
            )
        except NotYetComputableError as error:
            soon = self._refuse_unlogged(state)
            raise NotYetComputableError(str(error), seconds=_OTHERS, soon=soon) from error
        done, read = self._remade(state, reshaping, stop)
        if done is not None and state.change is not None:
            seconds = time.monotonic() - began
            _tell(state, state.change, f"computed in {seconds:.1f} s, {read}")

    def _remade(
        self, state: TableState, reshaping: Reshaping, stop: threading.Event
    ) -> tuple[TableState | None, str]:
        """The table as it was saved, and what was read for that, in words."""
        if not reshaping.asked:
            try:
                made = self._computed(state, reshaping, None, stop)
            except MisfitError as error:
                reshaping = reshaping.asking(reshaping.retyped)
                log.info("%s: %s", state.name, error)
            else:
                return made, "without reading the source"
        scan, generated = self._asked(state, reshaping, stop)
        if scan.misfits:
            log.warning(misfits_told(state.name, scan.misfits))
        try:
            names = (*reshaping.schema.key, *reshaping.asked)
            kinds = pa.schema([reshaping.columns.field(name) for name in names])
            values = AskedValues.load(self._lake, scan.files, kinds, reshaping.schema.key)
            asked = AskedColumns(values=values, end=scan.end, generated=generated)
            made = self._computed(state, reshaping, asked, stop)
        finally:
            scan.remove(self._lake)
        return made, f"{', '.join(reshaping.asked)} of {scan.rows:,} rows read from the source"

    def _computed(
        self,
        state: TableState,
        reshaping: Reshaping,
        asked: AskedColumns | None,
        stop: threading.Event,
    ) -> TableState | None:
        return remake(
            self._lake,
            state,
            reshaping,
            deletion_vectors=self._settings.deletion_vectors,
            now=self._now(),
            asked=asked,
            stop=stop.is_set,
        )

    def _asked(
        self, state: TableState, reshaping: Reshaping, stop: threading.Event
    ) -> tuple[ColumnScan, bool]:
        """The columns that only the server knows; and whether the table has generated ones now."""
        change = state.change
        if change is None:
            raise NotComputableError("nothing tells what the change does")
        tables = {shard: self._fit_table(state, shard) for shard in change.positions}
        refuse_asking(
            self._lake,
            state,
            change,
            reshaping,
            shapes={shard: table.schema for shard, table in tables.items()},
            policy=self._settings.policy,
        )
        names = ", ".join(reshaping.asked)
        rows = sum(table.size.rows for table in tables.values())
        log.info("%s: reading %s again, of about %d rows", state.name, names, rows)
        scan = read_columns(
            self._lake,
            tables,
            self._shards,
            columns=reshaping.asked,
            places=change.positions,
            settings=self._settings,
            now=self._now(),
            stop=stop,
        )
        return scan, any(table.generated for table in tables.values())

    def _fit_table(self, state: TableState, shard: str) -> SourceTable:
        """The table on a shard now, if columns of it can be read."""
        table, source = source_table(self._shards, state, shard), self._shards.get(shard)
        if table is None or source is None:
            raise NotComputableError(f"{shard} does not tell what its columns are now")
        if source.config.target:
            raise NotComputableError("a vtgate's tablets are not asked for single columns")
        with Session.connect(source.primary) as session:
            odd = unfit_tables(
                session.query,
                database=source.config.database,
                trusts_virtual=source.config.trusts_virtual,
                table=state.table,
            )
        if state.table in odd:
            raise NotComputableError(odd[state.table])
        return table

    def _refuse_unlogged(self, state: TableState) -> bool:
        """A shard may have got the columns of the others without a word in its log.

        Returns:
            Whether it will be known soon: it has these columns, and its log has yet to be read up
            to that moment; or no column tells, and it is only waited for.

        Raises:
            NotComputableError: its log has been read behind a moment at which it had them.
            RetryableError: a server does not answer.
        """
        change, dump = state.change, state.dump
        if change is None or dump is None or not dump.start.keys() <= self._shards.keys():
            return False
        watch = self._watched.get(state.name)
        if watch is None or watch.change != change:
            watch = self._watched[state.name] = _Watch(change=change, since=time.monotonic())
        if not watch.heads:
            shapes = self._shapes(state, dump.start)
            if shapes is None:
                return False
            # What empties partitions changes no column by which one could see who has had it.
            seen = len(shapes) == 1 and not _is_unseen(state, change)
            if seen or time.monotonic() > watch.since + _PATIENCE:
                left = dump.start.keys() - change.positions.keys()
                watch.heads = {shard: log_head(self._shards[shard]) for shard in left}
        refuse_unlogged(self._lake, state, watch.heads, self._settings.policy)
        return bool(watch.heads) or _is_unseen(state, change)

    def _shapes(self, state: TableState, shards: Iterable[str]) -> set[TableSchema] | None:
        """A table's shapes on its shards now; None: they are not even the same in the lake.

        Raises:
            RetryableError: a server does not answer.
        """
        there = {shard: self._shards[shard].primary for shard in shards}
        catalog = SourceCatalog(there, only=state.table)
        try:
            found = [catalog.table(shard, state.table) for shard in shards]
            common_columns(found, self._settings.policy)
        except TableStoppedError:
            return None  # or one has no such table
        return {table.schema for table in found}

    def _zone(self, state: TableState, time: StatementTime) -> str:
        """The zone of a table's server, if it cannot have been another one when a statement began.

        Raises:
            RetryableError: the server does not answer.
        """
        shard = "" if state.change is None else state.change.shard
        if shard not in self._shards or self._shards[shard].config.target:
            return ""  # a vtgate's is not its tablets'
        with Session.connect(self._shards[shard].primary) as session:
            zone = single_value(session.query("SELECT @@system_time_zone"), as_text)
            started = started_at(session)
        # Others have summer time, or share their name with one that has.
        sure = zone == "UTC" and started + ROUNDED < time.seconds <= self._now() / 1e6 + ROUNDED
        return "+00:00" if sure else ""

    def _described(self, state: TableState) -> TableSchema | None:
        """The table as its server describes it now; None: it does not."""
        found = source_table(self._shards, state)
        return None if found is None else found.schema


def _is_unseen(state: TableState, change: ShapeChange) -> bool:
    """Whether a statement leaves the columns as they are."""
    told = table_changes(change.statement, state.table)
    return told is not None and bool(told.emptied)


def _tell(state: TableState, change: ShapeChange, what: str) -> None:
    log.info(
        "%s: %s: %s",
        state.name,
        one_line(change.statement or "its columns have other types")[:200],
        what,
        extra={"fields": {"event": "schema_change_computed", "table": state.name}},
    )
