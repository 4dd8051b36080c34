"""Delta through Spark: tuned settings, one session per commit.

The transaction id and the user metadata of a commit are settings of the session, and are not reset
by themselves: a forgotten one makes the next write a silent no-op. So each commit gets a session of
its own, made here and given up after it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ratchet.store.delta.commits import opened
from ratchet.store.files import Lake

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
    lake: Lake,
    path: str,
    app_id: str,
    version: int,
    metadata: Mapping[str, Any],
    now: int,
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session for one commit to one table; a commit with this id and version is made once.

    Args:
        spark: any session of the application.
        lake: the lake.
        path: the table's.
        app_id: who commits; Spark gets it with the lake's epoch, which a fence closes.
        version: the commit's number; must rise.
        metadata: goes into the commit's userMetadata as JSON.
        now: microseconds UTC.
        extra: further settings.

    Raises:
        LateError: another run has taken the lake over.
    """
    session = plain_session(spark, extra)
    session.conf.set(_APP_ID, opened(lake, path, app_id, now=now))
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


def append_delta(frame: DataFrame, lake: Lake, path: str, *, app_id: str, now: int) -> None:
    """Append rows, by the transaction that the frame's session carries.

    Args:
        frame: the rows.
        lake: the lake.
        path: the table's; it is there.
        app_id: whose transaction that is, without the epoch.
        now: microseconds UTC.

    Raises:
        LateError: another run has taken the lake over.
    """
    opened(lake, path, app_id, now=now)
    frame.write.format("delta").mode("append").save(lake.hadoop_uri(path))
