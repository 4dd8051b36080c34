"""Spark's commits and a fence that closes their transaction ids: late ones make no commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ratchet.merge.delta import commit_session, view
from ratchet.store.delta.commits import LateError, fence, opened
from ratchet.store.delta.tables import app_version, create_delta_table, open_delta, query
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake

pytestmark = pytest.mark.spark

APP = "ratchet.merge/one"
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])


@pytest.fixture
def old(tmp_path: Path) -> Lake:
    """As the run has it that is taken over."""
    lake = replace(open_lake(tmp_path / "lake", now=1), epoch=3)
    create_delta_table(lake, "t", SCHEMA, name="t", description="", now=1)
    return lake


@pytest.fixture
def new(old: Lake) -> Lake:
    """As its successor has it."""
    return Lake(old.root, epoch=4)


def session_of(spark: SparkSession, lake: Lake, version: int) -> SparkSession:
    return commit_session(
        spark, lake=lake, path="t", app_id=APP, version=version, metadata={}, now=1
    )


def merge(session: SparkSession, lake: Lake, number: int, rows: object = None) -> None:
    frame = session.sql(f"SELECT {number}L AS id, 'new' AS text")
    if rows is not None:
        frame = frame.mapInArrow(rows, "id long, text string")
    session.sql(
        f"MERGE INTO delta.`{lake.hadoop_uri('t')}` t USING {view(frame)} s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()


def held_up(folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows of a source that come when a file is there; another one says that they are asked for."""
    begun, go = str(folder / "begun"), str(folder / "go")

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pathlib
        import time

        pathlib.Path(begun).touch()
        while not pathlib.Path(go).exists():
            time.sleep(0.05)
        yield from batches

    return rows


def ids(lake: Lake) -> list[int]:
    table = open_delta(lake, "t")
    assert table is not None
    found = query(table, "t", "SELECT id FROM t ORDER BY id")
    return [value for batch in found for value in batch.column("id").to_pylist()]


def test_a_write_that_starts_behind_the_fence_makes_no_commit(
    spark: SparkSession, old: Lake, new: Lake
) -> None:
    """What has no transaction id makes one: that the id is what stops the others is shown so."""
    merge(session_of(spark, old, 5), old, 5)
    assert ids(old) == [5]
    assert app_version(old, "t", APP) == 5
    late = session_of(spark, old, 6)
    fence(new, "t", now=2)
    assert app_version(new, "t", APP) == 5, "how far it is merged is carried over"
    merge(late, old, 6)
    late.sql("SELECT 60L AS id, 'new' AS text").write.format("delta").mode("append").save(
        old.hadoop_uri("t")
    )
    assert ids(old) == [5]
    with pytest.raises(LateError, match="taken this lake over"):
        session_of(spark, old, 7)
    merge(spark, old, 99)
    merge(session_of(spark, new, 6), new, 8)
    assert ids(old) == [5, 8, 99]
    assert app_version(new, "t", APP) == 6


@pytest.mark.parametrize("fenced", [True, False])
def test_a_merge_in_flight_is_refused_by_the_fence(
    spark: SparkSession, old: Lake, new: Lake, tmp_path: Path, *, fenced: bool
) -> None:
    """A foreign commit that is no fence does not end it: Delta puts the merge on top."""
    merge(session_of(spark, old, 5), old, 5)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            merge(session_of(spark, old, 6), old, 6, held_up(tmp_path))
        except PySparkException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not (tmp_path / "begun").exists():
        thread.join(0.05)
        assert thread.is_alive()
    if fenced:
        fence(new, "t", now=2)
    else:
        opened(old, "t", "somebody", now=2)
    (tmp_path / "go").touch()
    thread.join(120)
    assert not thread.is_alive()
    if fenced:
        assert "ConcurrentTransaction" in str(errors[0])
        assert ids(old) == [5]
    else:
        assert not errors
        assert ids(old) == [5, 6]
