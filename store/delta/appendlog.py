"""A small Delta table used as a log: rows are appended by one process, and read back by number.

Written without Spark and without deletion vectors, all by commits of ours (`commits`). Every
append carries a Delta transaction version, and fails when another process has committed that one or
a later one. It makes two requests of an object store, and reading what is new three.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from ratchet.core.errors import BugError, DecodeError
from ratchet.store.delta.actions import Action, AppTransaction, DataFile, rewrite_info
from ratchet.store.delta.checkpoints import checkpoint_if_due, clean_log
from ratchet.store.delta.commits import EPOCH, check_epoch, commit_files, epoch_of, fence
from ratchet.store.delta.datafiles import write_data_file
from ratchet.store.delta.errors import CommitConflictError, conflict, delta_errors
from ratchet.store.delta.log import TableFiles, replay
from ratchet.store.delta.parquet import parquet_file
from ratchet.store.delta.tables import set_properties
from ratchet.store.failures import content_errors
from ratchet.store.files import Lake

# A checkpoint names all files that were removed within the second of these: by Delta's default, a
# week's, in each of two thousand checkpoints a day. Nobody reads an old version of a log.
_PROPERTIES = {
    "delta.logRetentionDuration": "interval 2 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.checkpointInterval": "20",
}
_FILE_BYTES = 1 << 20  # a file of that size is left alone: what compacting costs does not grow
_READERS = 16  # of an object store: they wait most of their time
_VACUUM_HOURS = 1  # a reader of the log holds a snapshot for seconds


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Rows whose number lies in a range.

    Attributes:
        column: the number's.
        first: the lowest.
        last: the highest; None: there is no limit.
    """

    column: str
    first: int
    last: int | None = None

    @property
    def expression(self) -> pc.Expression:
        """For Arrow."""
        found = pc.field(self.column) >= self.first
        return found if self.last is None else found & (pc.field(self.column) <= self.last)

    def in_file(self, file: DataFile) -> bool:
        """Whether a file may have such rows, by its statistics."""
        low = (file.stats.get("minValues") or {}).get(self.column)
        high = (file.stats.get("maxValues") or {}).get(self.column)
        if low is None or high is None:
            return True
        return bool(self.first <= high and (self.last is None or low <= self.last))


class DeltaLogTable:
    """One such table. Not shared between threads."""

    def __init__(
        self,
        lake: Lake,
        path: str,
        schema: pa.Schema,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Nothing is read yet.

        Args:
            lake: the lake.
            path: the table's folder.
            schema: of its rows; integers get statistics.
            clock: microseconds UTC.
        """
        self._lake = lake
        self._path = path
        self._schema = schema
        self._clock = clock
        self._table: DeltaTable | None = None
        self._files: TableFiles | None = None

    def version_of(self, app_id: str) -> int:
        """The newest transaction version of `app_id`, 0 if there is none; looks for new commits."""
        self._files = replay(self._lake, self._path, self._files)
        return self._files.apps.get(app_id, 0) if self._files else 0

    def read(self, *, columns: list[str], where: NumberRange | None = None) -> list[dict[str, Any]]:
        """Rows of the table as last looked at by `version_of`, in no order.

        Args:
            columns: which columns.
            where: only these rows; files that have none are not opened.
        """
        rows: list[dict[str, Any]] = self.read_columns(columns=columns, where=where).to_pylist()
        return rows

    def read_columns(self, *, columns: list[str], where: NumberRange | None = None) -> pa.Table:
        """As `read`, as Arrow has it: a log of a fortnight has hundreds of thousands of rows."""
        table = self._files or replay(self._lake, self._path)
        files = table.files.values() if table else []
        chosen = [file for file in files if where is None or where.in_file(file)]
        read = partial(self._columns, columns=columns, where=where)
        if self._lake.is_local or len(chosen) == 1:
            parts = [read(file) for file in chosen]
        else:
            with ThreadPoolExecutor(_READERS, "log-read") as pool:
                parts = list(pool.map(read, chosen))
        schema = pa.schema([self._schema.field(name) for name in columns])
        return pa.concat_tables([schema.empty_table(), *parts])

    def lowest(self, column: str) -> int | None:
        """The lowest number of the log as last looked at, by its files' statistics; None: no rows.

        Args:
            column: a number's.
        """
        table = self._files or replay(self._lake, self._path)
        files = list(table.files.values()) if table else []
        stated = [(file.stats.get("minValues") or {}).get(column) for file in files]
        known = [int(one) for one in stated if one is not None]
        if len(known) < len(files):  # a file of deltalake's, of an earlier version
            known = self.read_columns(columns=[column])[column].to_pylist()
        return min(known, default=None)

    def first_since(self, column: str, time: str, moment: int) -> int | None:
        """The lowest number of the rows of a moment or later, as last looked at; None: none are.

        Args:
            column: the number's.
            time: the column of the rows' times.
            moment: microseconds UTC.
        """
        found = self.read_columns(columns=[column, time])
        since = pa.scalar(moment, self._schema.field(time).type)
        lowest = pc.min(found.filter(pc.field(time) >= since)[column]).as_py()
        return None if lowest is None else int(lowest)

    def _columns(
        self, file: DataFile, *, columns: list[str], where: NumberRange | None = None
    ) -> pa.Table:
        path = f"{self._path}/{file.path}"
        needed = dict.fromkeys([*columns, *([where.column] if where else [])])
        with (
            content_errors(self._lake, path, "read"),
            self._lake.open_input(path, size=file.size) as stream,
        ):
            found = parquet_file(self._lake, stream).read(columns=list(needed))
            # What deltalake has written again comes back in types of its own.
            schema = pa.schema([self._schema.field(name) for name in needed])
            found = found.select(schema.names).cast(schema)
            found.validate(full=True)  # that texts are UTF-8, for one
            _need_own_rows(file, found)
            if where is not None:
                found = found.filter(where.expression)
            return found.select(columns)

    def append(self, rows: pa.Table, *, app_id: str, version: int, operation: str) -> None:
        """Commit rows with a transaction version.

        Raises:
            LakeError: another process has committed that version, or a later one.
        """
        files = self._files or self._created()
        self._refuse_taken(files, app_id, version, operation)
        moment = self._clock()
        added = self._written(rows, moment)
        while True:
            actions: list[Action] = [
                rewrite_info("WRITE", read=files.version, now=moment),
                AppTransaction(app_id=app_id, version=version, updated_at=moment),
                added,
            ]
            after = commit_files(self._lake, self._path, files, actions)
            if after is not None:
                break
            # Upkeep may have been faster, which moves rows only; but nobody with our number.
            found = replay(self._lake, self._path, files)
            self._files = found
            if found is None or found is files:
                raise conflict(self._path, operation)
            self._refuse_taken(found, app_id, version, operation)
            files = found
        self._files = after
        checkpoint_if_due(self._lake, self._path, self._files.version)

    def _refuse_taken(self, files: TableFiles, app_id: str, version: int, operation: str) -> None:
        """A number that somebody else has committed: whoever is late is told so."""
        if files.apps.get(app_id, 0) >= version:
            check_epoch(self._lake, epoch_of(files), self._path, operation)
            raise conflict(self._path, operation)

    def refuse_late(self, operation: str) -> None:
        """Call before an error that would say less.

        Raises:
            LateError: a later epoch stands here.
        """
        check_epoch(self._lake, epoch_of(self._files), self._path, operation)

    def epoch(self) -> int:
        """The newest epoch that was fenced here; looks for new commits."""
        return self.version_of(EPOCH)

    def fence(self, owner: str = "") -> None:
        """Refuse appends of all epochs before the lake's from here on.

        Args:
            owner: whose the epoch is to be alone; nobody may have it.

        Raises:
            LateError: a later epoch stands here, or the very one that was to be somebody's.
        """
        self._created()
        self._files = fence(self._lake, self._path, now=self._clock(), owner=owner)

    def compact(self) -> None:
        """Make many small files into one and remove those nobody reads any more.

        Raises:
            LateError: another run has taken the lake over.
        """
        files = self._files = replay(self._lake, self._path, self._files)
        small = [f for f in files.files.values() if f.size < _FILE_BYTES] if files else []
        if files is not None and len(small) > 1:
            rows = [self._columns(file, columns=self._schema.names) for file in small]
            self._replace(files, small, rows, "OPTIMIZE")
        self._clean("compact")

    def delete_below(self, column: str, number: int) -> None:
        """Remove the rows whose column is below the number.

        Raises:
            LateError: another run has taken the lake over.
        """
        files = self._files = replay(self._lake, self._path, self._files)
        below, kept = NumberRange(column, 0, number - 1), NumberRange(column, number)
        touched = [f for f in files.files.values() if below.in_file(f)] if files else []
        if files is not None and touched:
            rows = [self._columns(file, columns=self._schema.names, where=kept) for file in touched]
            self._replace(files, touched, rows, "DELETE")
        self._clean("prune")

    def rewrite(self, where: NumberRange, change: Callable[[pa.Table], pa.Table]) -> None:
        """Put other rows in the place of those of a range, in one commit.

        Each file is written again by itself. Two that were put together would be one file of both
        ranges, which the next range has to write again: the larger the later.

        What others commit meanwhile stays (rounds are appended all the time).

        Args:
            where: which rows.
            change: a file's rows of the range -> the rows in their place.

        Raises:
            LateError: another run has taken the lake over.
        """
        written: dict[str, DataFile | None] = {}  # file -> what takes its place, if anything does
        files = self._files = replay(self._lake, self._path, self._files)
        while files is not None:
            moment = self._clock()
            touched = [file for file in files.files.values() if where.in_file(file)]
            for file in touched:
                if file.path not in written:
                    written[file.path] = self._changed(file, where, change, moment)
            gone = [f.removed(now=moment) for f in touched if written[f.path] is not None]
            new = [one for f in touched if (one := written[f.path]) is not None]
            if not new:
                return
            info = rewrite_info("UPDATE", read=files.version, now=moment)
            after = commit_files(self._lake, self._path, files, [info, *gone, *new])
            if after is not None:
                self._files = after
                checkpoint_if_due(self._lake, self._path, after.version)
                return
            found = self._files = replay(self._lake, self._path, files)
            if found is files:
                raise conflict(self._path, "change rows of a log")
            files = found

    def _changed(
        self,
        file: DataFile,
        where: NumberRange,
        change: Callable[[pa.Table], pa.Table],
        moment: int,
    ) -> DataFile | None:
        """A file with other rows in a range; None if it has none there."""
        rows = self._columns(file, columns=self._schema.names)
        inside = rows.filter(where.expression)
        if not len(inside):
            return None
        both = pa.concat_tables([rows.filter(~where.expression), change(inside)])
        return self._written(both.sort_by(where.column), moment)

    def _replace(
        self,
        files: TableFiles,
        old: Sequence[DataFile],
        rows: Sequence[pa.Table],
        operation: str,
    ) -> None:
        """Put rows in the place of files; nothing happens if somebody else commits just now.

        By a commit of ours: deltalake would put a late one on top of a successor's.
        """
        moment = self._clock()
        table = pa.concat_tables(rows)
        new = [self._written(table, moment)] if len(table) else []
        gone = [file.removed(now=moment) for file in old]
        info = rewrite_info(operation, read=files.version, now=moment)
        after = commit_files(self._lake, self._path, files, [info, *gone, *new])
        if after is not None:
            self._files = after
            checkpoint_if_due(self._lake, self._path, after.version)

    def _written(self, rows: pa.Table, moment: int) -> DataFile:
        return write_data_file(
            self._lake,
            self._path,
            [rows],
            self._schema,
            kind="rows",
            described=[one.name for one in self._schema if pa.types.is_integer(one.type)],
            now=moment,
        )

    def _clean(self, operation: str) -> None:
        """Remove what no version of the last hour names, and what of the log is old."""
        table = self._open()
        if table is None:
            return
        with delta_errors(operation, self._path):
            have = table.metadata().configuration
        if any(have.get(name) != value for name, value in _PROPERTIES.items()):
            # Of an earlier version of Ratchet. If somebody commits just now, the next time does it;
            # and the next time removes what is old, as deltalake finds its table changed now.
            with suppress(CommitConflictError):
                set_properties(self._lake, self._path, _PROPERTIES, now=self._clock())
            return
        with delta_errors(operation, self._path):
            # By a list of all files: of what was removed an hour ago the log may know nothing more.
            table.vacuum(_VACUUM_HOURS, dry_run=False, enforce_retention_duration=False, full=True)
        clean_log(self._lake, self._path, now=self._clock())

    def _open(self) -> DeltaTable | None:
        with delta_errors("open", self._path):
            if self._table is None:
                try:
                    self._table = DeltaTable(
                        self._lake.delta_uri(self._path),
                        storage_options=self._lake.storage_options,
                    )
                except TableNotFoundError:
                    return None
            else:
                self._table.update_incremental()
        return self._table

    def _created(self) -> TableFiles:
        found = replay(self._lake, self._path)
        if found is None:
            with delta_errors("create", self._path):
                self._table = DeltaTable.create(
                    self._lake.delta_uri(self._path),
                    self._schema,
                    mode="error",
                    configuration=_PROPERTIES,
                    storage_options=self._lake.storage_options,
                )
            found = replay(self._lake, self._path)
        if found is None:
            raise BugError(f"{self._path} was created and is not there", operation="create a log")
        return found


def _need_own_rows(file: DataFile, found: pa.Table) -> None:
    """That a file has the rows that its log says: whole, it may be another one of the same log.

    Raises:
        DecodeError: it has others.
    """
    if file.rows not in {None, found.num_rows}:
        raise DecodeError(f"its log says {file.rows} rows, and it has {found.num_rows}")
    low, high = file.stats.get("minValues") or {}, file.stats.get("maxValues") or {}
    for field in found.schema:
        if pa.types.is_integer(field.type) and field.name in low and field.name in high:
            least, most = pc.min_max(found[field.name]).as_py().values()
            if (least, most) != (low[field.name], high[field.name]):
                raise DecodeError(
                    f"by its log its column {field.name} holds {low[field.name]} to "
                    f"{high[field.name]}, and it holds {least} to {most}"
                )


def microseconds(moment: datetime.datetime) -> int:
    """A time as `DeltaLogTable.read` gives it, in microseconds since the epoch."""
    return int(pa.scalar(moment, pa.timestamp("us", tz="UTC")).value)
