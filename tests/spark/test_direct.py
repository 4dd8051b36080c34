"""Small batches merged without Spark: beside Spark's own commits, and where they are left to it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import ratchet.merge.direct
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.merge.maintain import compact
from tests.merge_kit import Source, merger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def put(key: Any, value: str) -> tuple[str, dict[str, Any]]:
    return ("put", {"id": key, "v": value})


def streaming(folder: Path, *shards: str, vectors: bool = True) -> Source:
    """A table that was dumped, with nothing in it yet."""
    source = Source(folder, shards=shards or ("-",))
    source.round()
    source.dump_begin(vectors=vectors)
    for name in source.names:
        source.chunk(name.partition("/")[2])
    source.dump_end()
    source.round()
    return source


def shown_by_spark(spark: SparkSession, source: Source) -> list[tuple[Any, ...]]:
    """As a Spark sees it that has never seen the table: by the newest checkpoint."""
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    rows = spark.read.format("delta").load(source.lake.hadoop_uri(source.state.path))
    return sorted((row["id"], row["v"]) for row in rows.select("id", "v").collect())


def shown_by_deltalake(source: Source) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["v"]) for row in source.mirror_rows())


@pytest.fixture
def left(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Why batches were left to Spark, since the last look."""
    caplog.set_level(logging.DEBUG, logger="ratchet.merge.direct")

    def told() -> list[str]:
        found = [m.partition("merged by Spark: ")[2] for m in caplog.messages if "by Spark" in m]
        caplog.clear()
        return found

    return told


@pytest.mark.long
@pytest.mark.parametrize("shards", [("-",), ("-80", "80-")])
def test_both_ways_in_turn(
    spark: SparkSession, tmp_path: Path, left: Callable[[], list[str]], shards: tuple[str, ...]
) -> None:
    """Each finds what the other has left: vectors, files, tombstones, transactions."""
    rng = random.Random(len(shards))
    source = streaming(tmp_path, *shards)
    with merger(spark, source, direct=True) as ours, merger(spark, source, direct=False) as sparks:
        for number in range(10):
            for n, shard in enumerate(shards):
                rows = source.logs[f"shop/{shard}"].rows
                # Keys of their own, so that nothing is contested.
                keys = [len(shards) * k + n for k in range(40)]
                for _ in range(3):
                    key = rng.choice(keys)
                    if key in rows and rng.random() < 0.4:
                        source.tx(shard, ("del", key))
                    elif key in rows and rng.random() < 0.3:
                        free = rng.choice([k for k in keys if k not in rows])
                        moved = {"id": free, "v": f"moved {number}"}
                        source.tx(shard, ("move", key, moved))
                    else:
                        source.tx(shard, put(key, f"{shard} {number}"))
            source.round()
            way = ours if number % 2 == 0 else sparks
            way.step()
            way.forget(source.state)  # the other has written to them
            source.assert_mirrored()
        assert left() == []
        assert shown_by_spark(spark, source) == shown_by_deltalake(source)


def test_checkpoints_and_compaction(
    spark: SparkSession, tmp_path: Path, left: Callable[[], list[str]]
) -> None:
    """A log of our commits alone stays short, and is read by all; files are put together."""
    source = streaming(tmp_path)
    with merger(spark, source) as merge:
        for number in range(45):
            source.tx("-", put(number % 7, f"number {number}"), put(1000 + number, "new"))
            source.tx("-", put(-1, "comes"), ("del", -1))
            source.round()
            merge.step()
        source.assert_mirrored()
        for path in (source.state.path, source.state.side_path):
            log = Path(source.lake.root.removeprefix("file://"), path, "_delta_log")
            assert len(list(log.glob("*.checkpoint.parquet"))) >= 2, path
        assert shown_by_spark(spark, source) == shown_by_deltalake(source)
        assert compact(spark, source.lake, source.state, now=source.clock).files > 8
        source.tx("-", put(3, "behind it"), ("del", 1003))
        source.round()
        merge.step()
        source.assert_mirrored()
        assert shown_by_spark(spark, source) == shown_by_deltalake(source)
    assert left() == []


def test_another_commit_in_between(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of ours counts: the rows are looked for again, where they are now."""
    source = streaming(tmp_path)
    with merger(spark, source) as merging:
        for number in range(3):
            source.tx("-", put(number, "old"))
            source.round()
            merging.step()
        commit = ratchet.merge.direct.commit_files
        times: list[int] = []

        def late(*args: Any) -> bool:
            times.append(1)
            if len(times) == 1:
                DeltaTable(source.lake.delta_uri(source.state.path)).optimize.compact()
            return commit(*args)

        monkeypatch.setattr("ratchet.merge.direct.commit_files", late)
        source.tx("-", put(1, "new"), put(2, "new"))
        source.round()
        merging.step()
        assert len(times) == 2
        source.assert_mirrored()


@pytest.mark.long
def test_what_is_left_to_spark(
    spark: SparkSession,
    tmp_path: Path,
    left: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = streaming(tmp_path, "-80", "80-")
    with merger(spark, source) as merge:
        source.tx("-80", put(1, "a"), put(2, "a"))
        source.round()
        merge.step()
        assert left() == []
        source.tx("80-", put(1, "b"))
        source.round()
        merge.step()
        assert left() == ["another shard's row has a key of the batch"]
        source.assert_mirrored()
    source = streaming(tmp_path / "two", "-80", "80-")
    with merger(spark, source) as merge:
        merge.step()  # a catch-up, which is not asked for here
        source.tx("-80", put(1, "a"))
        source.tx("80-", put(1, "b"))
        source.round()
        merge.step()
        assert left() == ["two shards change a key"]
        source.assert_mirrored()
    source = streaming(tmp_path / "rows")
    with merger(spark, source) as merge:
        source.tx("-", put(1, "a"))
        source.round()
        merge.step()
        monkeypatch.setattr("ratchet.merge.lookup.MOST_ROWS", 0)
        source.tx("-", put(1, "b"))
        source.round()
        merge.step()
        assert left() == ["too many rows to look through"]
        source.assert_mirrored()


def test_a_table_without_vectors(
    spark: SparkSession, tmp_path: Path, left: Callable[[], list[str]]
) -> None:
    """As `merge.deletion_vectors: false` asks for: no reader is to meet one."""
    source = streaming(tmp_path, vectors=False)
    with merger(spark, source) as merge:
        merge.step()
        for value in ("a", "b"):
            source.tx("-", put(1, value))
            source.round()
            merge.step()
        assert left() == ["the table's rules"] * 2
        source.assert_mirrored()
    assert not list(Path(source.lake.root.removeprefix("file://")).rglob("deletion_vector*"))


KINDS: dict[str, tuple[ColumnType, Callable[[int], Any]]] = {
    "varchar": (ColumnType(name="varchar", length=40, charset="utf8mb4"), lambda n: f"ключ {n}"),
    "varbinary": (ColumnType(name="varbinary", length=40), lambda n: b"\x00\xff%d" % n),
    "unsigned": (ColumnType(name="bigint", unsigned=True), lambda n: Decimal(2**64 - 1 - n)),
    "decimal": (ColumnType(name="decimal", precision=10, scale=3), lambda n: Decimal(n) / 1000),
    "datetime": (
        ColumnType(name="datetime", fraction=6),
        lambda n: datetime(9900 + n, 1, 2, 3, 4, 5, n),  # noqa: DTZ001 - has none
    ),
    "timestamp": (
        ColumnType(name="timestamp", fraction=6),
        lambda n: datetime(2026, 1, 2, 3, 4, 5, n, tzinfo=UTC),
    ),
    "date": (ColumnType(name="date"), lambda n: date(1000 + 100 * n, 2, 28)),
    "tinyint": (ColumnType(name="tinyint"), lambda n: n - 50),
}


@pytest.mark.parametrize(
    "kinds", [(one,) for one in KINDS] + [("varchar", "unsigned", "tinyint"), ("datetime", "date")]
)
def test_keys_of_every_kind(
    spark: SparkSession, tmp_path: Path, left: Callable[[], list[str]], kinds: tuple[str, ...]
) -> None:
    """Rows are found in files of a dump, of ours, and of Spark's."""
    names = [f"key {n}" for n in range(len(kinds))]
    key = [Column(name=f"key {n}", type=KINDS[k][0], nullable=False) for n, k in enumerate(kinds)]
    schema = TableSchema(
        keyspace="shop",
        table="t",
        columns=(
            *key,
            Column(name="v", type=ColumnType(name="int")),
        ),
        key=tuple(names),
    )

    def row(number: int, value: int) -> dict[str, Any]:
        keys = {n: KINDS[k][1](number) for n, k in zip(names, kinds, strict=True)}
        return {**keys, "v": value}

    source = Source(tmp_path, schema=schema)
    source.tx("-", *(("put", row(n, 0)) for n in range(50)))
    source.round()
    source.dump_begin()
    source.chunk("-")
    source.dump_end()
    source.round()
    with merger(spark, source, direct=False) as merge:
        merge.step()
        source.tx("-", *(("put", row(n, 1)) for n in range(0, 50, 3)))
        source.round()
        merge.step()
    with merger(spark, source) as merge:
        for turn in range(2, 5):
            source.tx("-", *(("put", row(n, turn)) for n in range(turn, 60, 4)))
            source.tx("-", ("del", source.key(row(turn, 0))))
            source.round()
            merge.step()
            source.assert_mirrored()
    assert left() == []


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("which", "harm"),
    [
        ("{table}/merge-*.parquet", Path.unlink),
        ("{table}/merge-*.parquet", _cut),
        ("{table}/deletion_vector_*.bin", Path.unlink),
        ("{table}/deletion_vector_*.bin", _cut),
        ("_ratchet/changes/shop/*/000000000005-*", Path.unlink),
        ("_ratchet/changes/shop/*/000000000005-*", _cut),
    ],
)
def test_a_file_that_is_gone_or_damaged(
    spark: SparkSession, tmp_path: Path, which: str, harm: Callable[[Path], None]
) -> None:
    """Its table alone stops, with the remedy, and nothing is merged past it."""
    source = streaming(tmp_path)
    with merger(spark, source) as merge:
        merge.step()
        for value in "ab":
            source.tx("-", put(1, value), *([put(2, value)] if value == "a" else []))
            source.round()
            merge.step()
        source.tx("-", put(1, "c"), put(2, "c"))
        source.round()
        root = Path(source.lake.root.removeprefix("file://"))
        files = list(root.glob(which.format(table=source.state.path)))
        for file in files:
            harm(file)
        result = merge.step()
        (error,) = result.stopped.values()
        assert not result.changed
        assert any(file.name in error.message for file in files)
        assert f"`ratchet table CONFIG redump '{source.state.name}'`" in error.hint
        assert source.state.phase == "stopped"
        assert merge.step().cut is None
