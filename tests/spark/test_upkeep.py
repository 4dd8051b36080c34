"""Tombstones and shadows go when they can no longer matter, and not before; the overlay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable, QueryBuilder

from ratchet.merge.delta import plain_session, read_delta
from ratchet.merge.overlay import overlay
from ratchet.merge.purge import purge_side
from ratchet.merge.reduce import read_changes
from ratchet.merge.shape import Shape
from ratchet.merge.side import registers
from tests.merge_kit import POLICY, Source, assert_side_stats, freeze, merger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B = "-80", "80-"


def put(key: int, value: str) -> tuple[str, dict[str, object]]:
    return ("put", {"id": key, "v": value})


def side_rows(source: Source) -> list[tuple[str, Any, int]]:
    """Shard, key and kind of each row of the side table."""
    table = DeltaTable(source.lake.delta_uri(source.state.side_path))
    found = QueryBuilder().register("t", table).execute("SELECT shard, key, kind FROM t").read_all()
    rows = pa.table(found).to_pylist()
    return sorted((r["shard"], r["key"] and r["key"]["id"], r["kind"]) for r in rows)


def shape(source: Source) -> Shape:
    many = len(source.names) > 1
    return Shape.of(
        source.schema, POLICY, key=source.schema.key, many_shards=many, shard_in_key=False
    )


@pytest.mark.long
def test_purge(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path, shards=(A, B))
    source.tx(A, put(1, "a"), put(2, "a"), put(3, "a"))
    source.dump_all()
    source.round()
    old = tmp_path / "_ratchet/side/shop/t/of-an-old-dump"
    old.mkdir(parents=True)
    (old / "x").write_text("")
    with merger(spark, source) as merge:
        merge.step()
        source.tx(B, put(1, "b"), put(2, "b"))  # both hide a's rows
        source.tx(A, ("del", 3))
        source.round()
        merge.step()
        source.tx(B, ("del", 1))  # a's row is shown again
        source.round()
        merge.step()
        source.assert_mirrored()
        young = source.clock
        source.tx(A, put(3, "again"))
        source.tx(A, ("del", 3))
        source.round()
        source.clock += 10
        merge.step()

        def purge(keep: float) -> None:
            purge_side(spark, source.lake, source.state, policy=POLICY, now=source.clock, keep=keep)
            merge.forget(source.state)
            assert_side_stats(spark, source)  # files with deletion vectors, or without rows

        a, b = "shop/-80", "shop/80-"
        before = [(a, 1, 2), (a, 2, 2), (a, 3, 1), (a, 3, 1), (b, 1, 1)]
        assert side_rows(source) == before
        purge(3600)
        assert side_rows(source) == [(a, 2, 2), (a, 3, 1), (a, 3, 1), (b, 1, 1)]
        assert not old.exists()
        purge((source.clock - young - 1) / 1e6)
        assert side_rows(source) == [(a, 2, 2), (a, 3, 1)]
        source.clock += 10_000_000
        purge(1)
        assert side_rows(source) == [(a, 2, 2)]
        source.tx(B, ("del", 2))
        source.round()
        merge.step()
        source.assert_mirrored()
        assert (2, a) in source.mirror()


def test_nothing_is_purged_during_a_dump(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.dump_begin()
    assert not purge_side(spark, source.lake, source.state, policy=POLICY, now=0, keep=0)


@pytest.mark.parametrize("shards", [("-",), pytest.param((A, B), marks=pytest.mark.long)])
def test_overlay_is_the_table_after_the_merge(
    spark: SparkSession, tmp_path: Path, shards: tuple[str, ...]
) -> None:
    source = Source(tmp_path, shards=shards)
    source.tx(shards[0], *[put(n, "base") for n in range(6)])
    source.dump_all()
    source.round()
    with merger(spark, source) as merge:
        merge.step()
        if len(shards) > 1:
            source.tx(B, put(1, "b hides a"))
            source.round()
            merge.step()
        source.tx(shards[0], put(0, "x"), ("del", 3), ("move", 4, {"id": 7, "v": "m"}))
        source.tx(shards[-1], put(2, "z"), put(9, "n"))
        if len(shards) > 1:
            source.tx(B, ("del", 1))
        number = source.round()
        session = plain_session(spark)
        (last,) = source.rounds.since(number - 1)
        paths = [file.path for file in last.files]
        side = None
        if len(shards) > 1:
            recorded = read_delta(session, source.lake.hadoop_uri(source.state.side_path))
            side = registers(session, recorded, shape(source))
        found = overlay(
            session,
            read_delta(session, source.lake.hadoop_uri(source.state.path)),
            read_changes(session, source.lake, paths, shape(source)),
            shape(source),
            side=side,
        )
        rows = {
            (r["id"], r["_token"]["shard"], freeze({"id": r["id"], "v": r["v"]}))
            for r in (row.asDict(recursive=True) for row in found.collect())
        }
        assert rows == {(key, shard, row) for (key, shard), (_, row) in source.expected().items()}
        before = session.createDataFrame(found.collect(), found.schema)
        merge.step()
        source.assert_mirrored()
        after = read_delta(session, source.lake.hadoop_uri(source.state.path))
        assert_df_equality(before, after, ignore_row_order=True, ignore_nullable=True)
