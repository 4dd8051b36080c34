"""A small Delta table used as a log: rows are appended by one process, and read back by number.

Written with `deltalake`, without Spark and without deletion vectors. Every append carries a Delta
transaction version, and fails rather than retries when another process committed in between.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import write_deltalake as write_delta
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from core.errors import LakeError
from store.files import Lake, errno_of, lake_errors, storage_error

_PROPERTIES = {"delta.logRetentionDuration": "interval 1 days", "delta.checkpointInterval": "20"}
_VACUUM_HOURS = 1  # a reader of the log holds a snapshot for seconds


class CommitConflictError(LakeError):
    """Another process committed between our reading and our commit."""


@contextmanager
def delta_errors(operation: str, path: str) -> Iterator[None]:
    """Turn what deltalake and the storage raise into a LakeError with a remedy."""
    try:
        with lake_errors(operation, path):
            yield
    except DeltaError as error:
        if errno_of(error):
            raise storage_error(error, operation, path) from error
        if not isinstance(error, CommitFailedError):
            raise LakeError(
                f"cannot read or write the Delta table {path}",
                operation=operation,
                hint="see the cause: missing rights, or a damaged _delta_log",
            ) from error
        raise CommitConflictError(
            f"another process has changed {path} at the same moment",
            operation=operation,
            hint="start again; let only one `ratchet` work on a lake",
        ) from error


class DeltaLogTable:
    """One such table. Not shared between threads."""

    def __init__(self, lake: Lake, path: str, schema: pa.Schema) -> None:
        self._lake = lake
        self._path = path
        self._schema = schema
        self._table: DeltaTable | None = None

    def version_of(self, app_id: str) -> int:
        """The newest transaction version of `app_id`, 0 if there is none; looks for new commits."""
        table = self._open()
        return (table.transaction_version(app_id) or 0) if table else 0

    def read(
        self, *, columns: list[str], where: pc.Expression | None = None
    ) -> list[dict[str, Any]]:
        """Rows of the table as last opened by `version_of`, in no order.

        Args:
            columns: which columns.
            where: only these rows; files that have none are not opened.
        """
        table = self._table or self._open()
        if table is None:
            return []
        with delta_errors("read", self._path):
            # Arrow's own file system: with deltalake's, which is written in Python, threads of
            # Arrow's may still hold Python objects when the interpreter ends, and then abort it.
            home = pa.fs.SubTreeFileSystem(self._lake.absolute(self._path), self._lake.filesystem)
            dataset = table.to_pyarrow_dataset(filesystem=home)
            found: list[dict[str, Any]] = dataset.to_table(
                columns=columns, filter=where
            ).to_pylist()
        return found

    def append(self, rows: pa.Table, *, app_id: str, version: int, operation: str) -> None:
        """Commit rows with a transaction version.

        Raises:
            LakeError: another process committed since the table was last looked at.
        """
        table = self._open() or self._create()
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
            table.optimize.compact()
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
