"""What deltalake raises, as errors with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from deltalake.exceptions import CommitFailedError, DeltaError

from ratchet.core.errors import LakeError
from ratchet.store.failures import (
    damage_hint,
    damage_kind,
    errno_of,
    is_passing,
    lake_errors,
    lost_file_hint,
    storage_error,
)

_GONE: Final = re.compile(r"File not found: \S")  # the kernel's words, without a number


class CommitConflictError(LakeError):
    """Another process committed between our reading and our commit."""


class TableGoneError(LakeError):
    """Another process removed the table between our reading and our commit."""


class UnreadTableError(LakeError):
    """deltalake could not read the files of a table: one is damaged, or the storage failed."""


@contextmanager
def delta_errors(operation: str, path: str) -> Iterator[None]:
    """Turn what deltalake and the storage raise into a LakeError with a remedy."""
    try:
        with lake_errors(operation, path):
            yield
    except DeltaError as error:
        if errno_of(error) or is_passing(error):
            raise storage_error(error, operation, path) from error
        if not isinstance(error, CommitFailedError):
            gone = _GONE.search(str(error)) is not None
            raise damage_kind(path)(
                f"cannot read or write the Delta table {path}",
                operation=operation,
                hint=lost_file_hint(path)
                if gone
                else f"see the cause; if its log is damaged, {damage_hint(f'{path}/_delta_log')}",
            ) from error
        raise conflict(path, operation) from error


def conflict(path: str, operation: str) -> CommitConflictError:
    """What is raised where another process was quicker."""
    return CommitConflictError(
        f"another process has changed {path} at the same moment",
        operation=operation,
        hint="start again; let only one `ratchet` work on a lake",
    )
