"""What merges leave behind goes with its history: by small merges, Spark's, and compaction."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from ratchet.merge.compaction import compact_files
from ratchet.merge.maintain import remove_old
from ratchet.merge.purge import purge_is_due, purge_side
from ratchet.store.delta.log import replay
from ratchet.store.delta.tables import table_version
from ratchet.store.retention import remove_old_files
from tests.merge_kit import POLICY, Source, merger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 10**6


def shown(source: Source, version: int) -> list[dict[str, Any]]:
    table = DeltaTable(source.lake.delta_uri(source.state.path), version=version)
    found = QueryBuilder().register("t", table).execute("SELECT id, v FROM t").read_all()
    return sorted(pa.table(found).to_pylist(), key=lambda row: int(row["id"]))


def data_files(source: Source) -> list[str]:
    files = source.lake.list(source.state.path)
    return [one.path for one in files if "/_" not in one.path and "/." not in one.path]


def checksums(source: Source) -> set[str]:
    files = source.lake.list(source.state.path)
    found = [one.path.replace("/.", "/") for one in files if one.path.endswith(".crc")]
    return {name.removesuffix(".crc") for name in found if "/_" not in name}


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_each_version_of_the_history_can_be_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if seed == 2:
        monkeypatch.setattr("ratchet.merge.lookup.MOST_TOKENS", 0)  # Spark truncates
    rng = random.Random(seed)
    source = Source(tmp_path)
    source.tx("-", *[("put", {"id": n, "v": "base"}) for n in range(40)])
    source.dump_all()
    source.round()
    seen: dict[int, tuple[int, list[dict[str, Any]]]] = {}

    def note() -> None:
        version = table_version(source.lake, source.state.path)
        assert version is not None
        if version not in seen:
            seen[version] = (time.time_ns() // 1000, shown(source, version))

    with merger(spark, source) as merge:
        merge.step()
        note()
        for step in range(30):
            source.clock = max(source.clock, time.time_ns() // 1000)
            for _ in range(rng.randint(1, 3)):
                key = rng.randrange(60)
                if rng.random() < 0.3 and key in source.logs["shop/-"].rows:
                    source.tx("-", ("del", key))
                else:
                    source.tx("-", ("put", {"id": key, "v": f"{step}"}))
            if step % 10 == 5:
                source.event("-", "TRUNCATE t", truncate=True)
                source.logs["shop/-"].rows.clear()
            source.round()
            # Each transaction takes a second of the source's clock; Spark's commits go by ours.
            source.clock = time.time_ns() // 1000
            merge.step()
            note()
            if step % 8 == 7:
                now = time.time_ns() // 1000
                compact_files(source.lake, source.state.path, key=("id",), now=now)
                merge.forget(source.state)
                note()
    versions = sorted(seen)
    before = len(data_files(source))
    middle = versions[len(versions) // 2]
    # As if the history began when the one in the middle was the newest.
    keep = 5.0
    now = seen[middle][0] + int(keep * SECOND)
    assert sum(remove_old_files(source.lake, source.state.path, keep=keep, now=now)) > 0
    assert len(data_files(source)) < before
    for version in versions[versions.index(middle) :]:
        assert shown(source, version) == seen[version][1], version
    list(remove_old_files(source.lake, source.state.path, keep=keep, now=now + 10**12))
    live = replay(source.lake, source.state.path)
    assert live is not None
    vectors = {file.vector.place for file in live.files.values() if file.vector}
    assert len(data_files(source)) == len(live.files) + len(vectors)
    assert checksums(source) <= set(data_files(source))
    assert shown(source, versions[-1]) == seen[versions[-1]][1]
    source.assert_mirrored()


@pytest.mark.long
def test_rules_of_others_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Its VACUUM goes by the property of the table, so that is set first."""
    source = Source(tmp_path)
    source.tx("-", ("put", {"id": 1, "v": "a"}))
    source.dump_all()
    source.round()
    with merger(spark, source) as merge:
        merge.step()
    table = f"delta.`{source.lake.hadoop_uri(source.state.path)}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    now = time.time_ns() // 1000
    found = list(
        remove_old(spark, source.lake, source.state.path, name="shop.t", keep=60.0, now=now)
    )
    assert found == [0]
    rows = spark.sql(f"SHOW TBLPROPERTIES {table}").collect()
    settings = {row.key: row.value for row in rows}
    assert settings["delta.deletedFileRetentionDuration"] == "interval 1 hours"
    source.assert_mirrored()


def test_tombstones_are_looked_at_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.tx("-", ("put", {"id": 1, "v": "a"}), ("put", {"id": 2, "v": "a"}))
    source.dump_all()
    source.round()
    with merger(spark, source) as merge:
        merge.step()
        assert not purge_is_due(source.lake, source.state, now=source.clock, keep=0)
        source.tx("-", ("del", 1))
        source.round()
        merge.step()
        written = source.clock
        assert not purge_is_due(source.lake, source.state, now=written, keep=3600)
        later = written + 3601 * SECOND
        assert purge_is_due(source.lake, source.state, now=later, keep=3600)
        purge_side(spark, source.lake, source.state, policy=POLICY, now=later, keep=3600)
        assert not purge_is_due(source.lake, source.state, now=later, keep=3600)
