"""Several shards in one table: rows that move, keys that two shards hold, dumps that meet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.merge_kit import Source, merger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B, C = "-40", "40-80", "80-"


def put(key: int, value: str) -> tuple[str, dict[str, object]]:
    return ("put", {"id": key, "v": value})


def dumped(tmp_path: Path, *, shard_in_key: bool = False) -> Source:
    source = Source(tmp_path, shards=(A, B, C), shard_in_key=shard_in_key)
    source.tx(A, put(1, "a1"), put(2, "a2"), put(3, "a3"))
    source.tx(B, put(11, "b1"))
    source.dump_all()
    source.round()
    return source


def test_a_row_moves_and_moves_back_with_skewed_arrival(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A to B to A, with B's writes captured before and after A's own."""
    source = dumped(tmp_path)
    with merger(spark, source) as merge:
        merge.step()
        source.tx(B, put(1, "at b"))
        source.tx(A, ("del", 1))
        source.round(B)  # A's delete is late: both shards have the row
        merge.step()
        source.assert_mirrored()
        assert (1, f"shop/{B}") in source.mirror()
        source.tx(A, put(1, "back at a"))
        source.tx(B, ("del", 1))
        source.round(A)
        merge.step()
        source.assert_mirrored()
        assert (1, f"shop/{A}") in source.mirror()
        source.round(B)
        merge.step()
        source.assert_mirrored()
        assert (1, f"shop/{A}") in source.mirror()


def test_a_hidden_row_comes_back_when_the_shown_one_goes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Keys that are not unique, though the config says so: still a function of the logs."""
    source = dumped(tmp_path)
    with merger(spark, source) as merge:
        merge.step()
        source.tx(B, put(2, "b's own"))
        source.tx(C, put(2, "c's own"), put(3, "c3"))
        source.round()
        merge.step()
        source.assert_mirrored()
        source.tx(B, put(2, "b changes while hidden"), ts=5)
        source.tx(C, ("del", 2))
        source.event(C, "TRUNCATE TABLE t", truncate=True)
        source.round()
        merge.step()
        source.assert_mirrored()
        assert (2, f"shop/{A}") in source.mirror()
        assert (3, f"shop/{A}") in source.mirror()
        source.tx(A, ("del", 2))
        source.round()
        merge.step()
        source.assert_mirrored()
        assert (2, f"shop/{B}") in source.mirror()


@pytest.mark.long
def test_doubled_keys_of_the_dump_collapse(spark: SparkSession, tmp_path: Path) -> None:
    """A row is read on both shards as it moves; afterwards it is shown once, and not forgotten."""
    source = Source(tmp_path, shards=(A, B))
    source.tx(A, put(1, "a"), put(2, "a"))
    source.dump_begin()
    source.chunk(A)
    source.tx(B, put(1, "b"), put(3, "b"))
    source.tx(B, put(2, "b, captured late"))
    source.chunk(B)
    source.dump_end()
    source.round()
    with merger(spark, source) as merge:
        merge.step()
        source.assert_mirrored()
        assert len(source.mirror()) == 3
        source.tx(B, ("del", 1))
        source.round()
        merge.step()
        source.assert_mirrored()
        assert (1, f"shop/{A}") in source.mirror()


def test_with_the_shard_in_the_key_rows_stand_side_by_side(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = dumped(tmp_path, shard_in_key=True)
    with merger(spark, source) as merge:
        merge.step()
        source.tx(B, put(1, "b's own"))
        source.tx(C, put(1, "c's own"))
        source.round()
        merge.step()
        source.tx(A, ("del", 1))
        source.tx(C, put(1, "changed"))
        source.round()
        merge.step()
        source.assert_mirrored()
    assert {shard for key, shard in source.mirror() if key == 1} == {f"shop/{B}", f"shop/{C}"}


def test_a_table_waits_until_every_shard_is_past_its_dump(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(tmp_path, shards=(A, B))
    source.tx(A, put(1, "a"))
    source.dump_begin()
    source.tx(B, put(2, "b"))
    source.chunk(A)
    source.chunk(B)
    source.dump_end()
    with merger(spark, source) as merge:
        source.round(A)
        assert not merge.step().worked
        assert source.state.phase == "catching_up"
        source.tx(A, put(3, "later"))
        source.round(B)
        source.round(A)
        merge.step()
        source.assert_mirrored()


@pytest.mark.long
@pytest.mark.parametrize(
    "point", [pytest.param("merge.after_side", marks=pytest.mark.long), "merge.after_merge"]
)
def test_killed_between_the_commits_of_a_contest(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Shadows are written, the MERGE is not (or is); the same contest comes again with more."""

    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == point:
            raise Killed

    source = dumped(tmp_path)
    merger(spark, source).step()
    source.tx(B, put(1, "at b"), put(2, "at b too"))
    source.tx(A, ("del", 2))
    source.round()
    with monkeypatch.context() as patch:
        patch.setattr("ratchet.merge.table.reach", die)
        patch.setattr("ratchet.merge.direct.reach", die)
        with pytest.raises(Killed):
            merger(spark, source).step()
    source.tx(B, ("del", 1))
    source.round()
    with merger(spark, source) as merge:
        merge.step()
        source.assert_mirrored()
