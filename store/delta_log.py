"""A small Delta table used as a log: rows are appended by one process, and read back by number.

Written with `deltalake`, without Spark and without deletion vectors. Every append carries a Delta
transaction version, and fails rather than retries when another process committed in between.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import write_deltalake as write_delta
from deltalake.exceptions import TableNotFoundError

from store.delta_errors import conflict, delta_errors
from store.delta_files import DataFile, TableFiles, replay
from store.files import Lake, lake_errors

_PROPERTIES = {"delta.logRetentionDuration": "interval 1 days", "delta.checkpointInterval": "20"}
_FILE_BYTES = 1 << 20  # a file of that size is left alone: what compacting costs does not grow
_VACUUM_HOURS = 1  # a reader of the log holds a snapshot for seconds


@dataclass(frozen=True, slots=True)
class Where:
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

    def __init__(self, lake: Lake, path: str, schema: pa.Schema) -> None:
        self._lake = lake
        self._path = path
        self._schema = schema
        self._table: DeltaTable | None = None
        self._files: TableFiles | None = None

    def version_of(self, app_id: str) -> int:
        """The newest transaction version of `app_id`, 0 if there is none; looks for new commits."""
        self._files = replay(self._lake, self._path, self._files)
        return self._files.apps.get(app_id, 0) if self._files else 0

    def read(self, *, columns: list[str], where: Where | None = None) -> list[dict[str, Any]]:
        """Rows of the table as last looked at by `version_of`, in no order.

        Args:
            columns: which columns.
            where: only these rows; files that have none are not opened.
        """
        table = self._files or replay(self._lake, self._path)
        files = table.files.values() if table else []
        paths = [file.path for file in files if where is None or where.in_file(file)]
        if not paths:
            return []
        with lake_errors("read", self._path):
            chosen = pa.dataset.dataset(
                [f"{self._lake.absolute(self._path)}/{path}" for path in paths],
                schema=self._schema,
                filesystem=self._lake.filesystem,
                format="parquet",
            )
            rows: list[dict[str, Any]] = chosen.to_table(
                columns=columns, filter=where.expression if where else None
            ).to_pylist()
        return rows

    def append(self, rows: pa.Table, *, app_id: str, version: int, operation: str) -> None:
        """Commit rows with a transaction version.

        Raises:
            LakeError: another process committed since the table was last looked at.
        """
        table = self._open() or self._create()
        if (table.transaction_version(app_id) or 0) >= version:
            raise conflict(self._path, operation)  # since `version_of` was asked
        properties = CommitProperties(
            app_transactions=[Transaction(app_id, version)], max_commit_retries=0
        )
        with delta_errors(operation, self._path):
            write_delta(table, rows, mode="append", commit_properties=properties)

    def compact(self) -> None:
        """Make many small files into one and remove those nobody reads any more."""
        table = self._open()
        if table is None:
            return
        with delta_errors("compact", self._path):
            table.optimize.compact(target_size=_FILE_BYTES)
            table.vacuum(_VACUUM_HOURS, dry_run=False, enforce_retention_duration=False)

    def delete_below(self, column: str, number: int) -> None:
        """Remove the rows whose column is below the number."""
        table = self._open()
        if table is None:
            return
        with delta_errors("prune", self._path):
            table.delete(f"{column} < {number}")
            table.vacuum(_VACUUM_HOURS, dry_run=False, enforce_retention_duration=False)

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

    def _create(self) -> DeltaTable:
        with delta_errors("create", self._path):
            self._table = DeltaTable.create(
                self._lake.delta_uri(self._path),
                self._schema,
                mode="error",
                configuration=_PROPERTIES,
                storage_options=self._lake.storage_options,
            )
        return self._table


def microseconds(moment: datetime.datetime) -> int:
    """A time as `DeltaLogTable.read` gives it, in microseconds since the epoch."""
    return int(pa.scalar(moment, pa.timestamp("us", tz="UTC")).value)
