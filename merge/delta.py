"""Delta through Spark: tuned settings, one session per commit, named errors.

The transaction id and the user metadata of a commit are settings of the session, and are not reset
by themselves: a forgotten one makes the next write a silent no-op. So each commit gets a session of
its own, made here and given up after it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

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
from pyspark.errors import AnalysisException, PySparkException

from core.errors import BugError, LakeError, RatchetError, RetryableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Measured on a table of 10.5 million rows (docs/decisions): 2 to 2.4 times the defaults' speed.
SETTINGS: Final[Mapping[str, str]] = {
    "spark.databricks.delta.snapshotPartitions": "2",
    # The source is immutable files and an expression without chance in it: no copy is needed.
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.merge.enableLowShuffle": "true",
    "spark.sql.session.timeZone": "UTC",
    # Values come decoded from the source; a cast of ours that fails must fail loudly.
    "spark.sql.ansi.enabled": "true",
    # Files are named one by one, so there is nothing to find out about folders.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.parquet.mergeSchema": "false",
}
_APP_ID: Final = "spark.databricks.delta.write.txnAppId"
_APP_VERSION: Final = "spark.databricks.delta.write.txnVersion"
_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"

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
_numbers = itertools.count()
_FULL: Final = ("No space left on device", "Disk quota exceeded")


def plain_session(spark: SparkSession, extra: Mapping[str, str] | None = None) -> SparkSession:
    """A session of its own with the tuned settings, for reading."""
    session = spark.newSession()
    for name, value in {**SETTINGS, **(extra or {})}.items():
        session.conf.set(name, value)
    return session


def commit_session(
    spark: SparkSession,
    *,
    app_id: str,
    version: int,
    metadata: Mapping[str, Any],
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session for one commit to one table; a commit with this id and version is made once.

    Args:
        spark: any session of the application.
        app_id: who commits.
        version: the commit's number; must rise.
        metadata: goes into the commit's userMetadata as JSON.
        extra: further settings.
    """
    session = plain_session(spark, extra)
    session.conf.set(_APP_ID, app_id)
    session.conf.set(_APP_VERSION, str(version))
    session.conf.set(_METADATA, json.dumps(metadata, sort_keys=True))
    return session


def view(frame: DataFrame) -> str:
    """A name for a frame in SQL text, known to its own session only."""
    name = f"ratchet_{next(_numbers)}"
    frame.createTempView(name)
    return name


def read_delta(session: SparkSession, uri: str) -> DataFrame:
    """A Delta table's newest version."""
    return session.read.format("delta").load(uri)


def append_delta(frame: DataFrame, uri: str) -> None:
    """Append rows, by the transaction that the frame's session carries."""
    frame.write.format("delta").mode("append").save(uri)


@contextmanager
def spark_errors(operation: str, *, table: str) -> Iterator[None]:
    """Turn what Spark and Delta raise into named errors: conflicts may be tried again."""
    try:
        yield
    except RatchetError:
        raise
    except CONFLICTS as error:
        raise RetryableError(
            "another commit to the table came in between",
            operation=operation,
            table=table,
            hint="it is tried again; if it persists, something else writes to this table",
        ) from error
    except (PySparkException, Py4JError) as error:
        raise _named(error, operation, table) from error


def _named(error: Exception, operation: str, table: str) -> RatchetError:
    message = str(error)
    if isinstance(error, AnalysisException):
        return BugError(
            f"Spark refuses our query: {message[:500]}", operation=operation, table=table
        )
    if any(sign in message for sign in _FULL):
        return LakeError(
            "no space left where the lake or Spark's temporary files lie",
            operation=operation,
            table=table,
            hint="free space, then start again: nothing was lost",
        )
    return RetryableError(
        f"Spark failed: {message.splitlines()[0][:300] if message else type(error).__name__}",
        operation=operation,
        table=table,
        hint="it is tried again; the log of Spark says more",
    )
