"""Spark reads a log that begins above another one's numbers, and goes on with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ratchet.merge.delta import append_delta
from ratchet.store.formats import open_lake
from tests.unit.store.test_log_anew import T, add, begin, damage, shown, with_rows

pytestmark = pytest.mark.spark


def test_it_reads_and_appends(spark: SparkSession, tmp_path: Path) -> None:
    lake = replace(open_lake(tmp_path / "lake", now=1), epoch=1)
    with_rows(lake)
    damage(lake)
    assert begin(lake) == 2
    add(lake, 7)
    uri = lake.hadoop_uri(T)
    frame = spark.read.format("delta").load(uri)
    assert [row.id for row in frame.collect()] == [7]
    append_delta(frame, lake, T, app_id="test", now=1)
    assert shown(lake) == [7, 7]
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id = 7")
    assert shown(lake) == []
    history = spark.sql(f"DESCRIBE HISTORY delta.`{uri}`").collect()
    assert min(row.version for row in history) == 3
