"""What the exceptions of Spark and Delta mean: named errors with a remedy.

Lives here: telling them apart, and what lies behind one that says too little. Does not live here:
trying again (`jobs.capture.loops`).

Invariant: an error that leaves this module holds none of theirs as its cause: their text is asked
of the JVM when it is printed, and by then the JVM may be gone.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from ratchet.core.errors import (
    BugError,
    EngineGoneError,
    LakeAwayError,
    LakeError,
    OperatorError,
    RatchetError,
    RetryableError,
    TableStoppedError,
)
from ratchet.core.shell import redump
from ratchet.store import layout
from ratchet.store.failures import redump_hint, storage_hint
from ratchet.store.files import Lake
from ratchet.store.lazyspark import is_started
from ratchet.store.segments import missing, object_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Delta's DeltaConcurrentModificationException is not their base class, whatever its docstring says.
CONFLICTS: Final = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
_NO_SPACE: Final = (
    "no space left on the device",
    (
        "free space where the lake and spark.local.dir lie (remove nothing of the lake's own), "
        "then start again: nothing was lost"
    ),
)
# What the operating system says of a disk, in Java's words -> our error, message and hint.
_DISK: Final[dict[str, tuple[type[LakeError], str, str]]] = {
    "No space left on device": (LakeAwayError, *_NO_SPACE),
    "Disk quota exceeded": (LakeAwayError, *_NO_SPACE),
    "Input/output error": (LakeError, "input/output error", storage_hint(errno.EIO)),
    "Read-only file system": (LakeError, "read-only file system", storage_hint(errno.EROFS)),
}
# A data file, or the deletion vectors of one, that its table's log names and that is not there.
_GONE: Final = re.compile(
    r"FILE_NOT_EXIST\] Encountered error while reading file (\S+?)\.? File does not exist"
    r"|FileNotFoundException: (?:File )?(\S*deletion_vector_\S+?\.bin)"
)
# The folder of a whole table, or its log.
_NO_TABLE: Final = re.compile(
    r"PATH_NOT_FOUND\] Path does not exist: (\S+?)\.? SQLSTATE"
    r"|DELTA_(?:TABLE|PATH)_\w+\] (?:Delta table )?(\S+) doesn't exist"
    r"|File (\S+/_delta_log) does not exist"
)
_JAVA: Final = re.compile(r"^: (?:[\w.$]+: )?(?=\S)")  # how Py4J puts Java's own words
# A file that is there, and that Spark, or a worker of ours, could not read. Why, `contents` finds.
_UNREAD: Final = re.compile(r"FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER|\bTableFileError\b")
_SHOWN: Final = 300  # characters of Spark's own text


class UnreadFileError(RetryableError):
    """Spark could not read a file of rows: it is damaged, or the storage failed."""


@contextmanager
def spark_errors(operation: str, *, table: str) -> Iterator[None]:
    """Turn what Spark and Delta raise into named errors. To be left while the JVM lives.

    Raises:
        RetryableError: a conflict, or a failure that may not come again.
        OperatorError: the disk is full or fails, a file is gone, or memory is too small.
    """
    try:
        yield
    except Exception as error:
        known = spark_failure(error, operation, table=table)
        if known is None:
            raise
        raise known from None


def spark_failure(
    error: Exception, operation: str, *, table: str = "", log: str = "its log file"
) -> RatchetError | None:
    """What an exception of Spark's means; None if it is none of Spark's.

    Args:
        error: the exception; its text is asked of the JVM here.
        operation: what was being done.
        table: keyspace.table, if it was about one.
        log: where Spark's log is.
    """
    if isinstance(error, CONFLICTS):
        return RetryableError(
            "another commit to the table came in between",
            operation=operation,
            table=table,
            hint="it is tried again; if it persists, something else writes to this table",
        )
    if not isinstance(error, Py4JError | PySparkException):
        return None
    text = _text(error)
    if gone := _NO_TABLE.search(text):
        return _lost(
            f"a Delta table is gone: {next(filter(None, gone.groups()))}", operation, table
        )
    if isinstance(error, AnalysisException | ParseException):
        return BugError(
            f"Spark does not accept a query of ours: {text}", operation=operation, table=table
        )
    lasting = _lasting(text, operation, table)
    if lasting is not None:
        return lasting
    kind = UnreadFileError if _UNREAD.search(text) else RetryableError
    return kind(
        f"Spark failed: {_said(text) or type(error).__name__}",
        operation=operation,
        table=table,
        hint=f"Spark's log is {log}",
    )


def _lost(message: str, operation: str, table: str) -> LakeError:
    return LakeError(message, operation=operation, table=table, hint=redump_hint(table))


def _lasting(text: str, operation: str, table: str) -> OperatorError | None:
    """What trying the step again does not mend; None if it is nothing of that kind."""
    for sign, (kind, message, hint) in _DISK.items():
        if sign in text:
            return kind(message, operation=operation, table=table, hint=hint)
    if gone := _GONE.search(text):
        return _lost(f"a data file is gone: {gone[1] or gone[2]}", operation, table)
    if "OutOfMemoryError" in text:
        return OperatorError(
            "Spark's memory is too small for this",
            operation=operation,
            table=table,
            hint="raise spark.driver_memory in the config",
        )
    return None


def merge_failure(error: Exception, session: SparkSession, *, table: str) -> RatchetError:
    """What ended the merge of a table, as an error of ours; `error` is the cause of a new one.

    Args:
        error: whatever it raised.
        session: the session that it may have used.
        table: keyspace.table.
    """
    where = {"operation": "merge a table", "table": table}
    if isinstance(error, RetryableError) and engine_has_ended(session):
        named: RatchetError = EngineGoneError(
            "Spark's JVM has ended", hint="start again: nothing was lost", **where
        )
    elif isinstance(error, RatchetError):
        return error
    elif isinstance(error, MemoryError):
        named = OperatorError(
            "the memory is too small for its changes",
            hint="give the run more memory than it has, or fewer tables at a time",
            **where,
        )
    else:
        named = BugError("a merge failed", **where)
    named.__cause__ = error
    return named


def engine_has_ended(session: SparkSession) -> bool:
    """Whether Spark was started, and its JVM is there no more."""
    if not is_started(session):
        return False
    try:
        return bool(session.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 - no public way
    except (Py4JError, OSError, AttributeError):
        return True


def _said(text: str) -> str:
    """The first line that says something: Py4J's own only names a method of ours."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    java = next((line for line in lines[:2] if _JAVA.match(line)), "")
    return (_JAVA.sub("", java) or (lines[0] if lines else ""))[:_SHOWN]


def _text(error: Exception) -> str:
    try:
        return str(error)
    except (OSError, Py4JError, AssertionError):
        return f"{type(error).__name__} (the JVM is gone)"


def lost_changes(lake: Lake, table: str, files: Sequence[str]) -> TableStoppedError | None:
    """Why a table cannot be merged any more: change files that its rounds name are gone.

    To be asked when its merge has failed: a merge that works needs no such look.

    Args:
        lake: the lake.
        table: keyspace.table.
        files: those that it was to read.

    Raises:
        LakeError: the lake cannot be read.
    """
    # What followed by foreign keys is no loss: the next step finds it anew.
    captured = [path for path in files if not path.startswith(layout.DERIVED)]
    lost = missing(lake, captured)
    if not lost:
        return None
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return TableStoppedError(
        f"captured changes are gone: {object_of(lost[0])}{more}",
        operation="merge a table",
        table=table,
        hint=f"{redump(table)} dumps it again, while the others continue; "
        "only `ratchet` may remove files of a lake",
    )
