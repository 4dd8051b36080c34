"""One shard: the merge from dump to stream, and what may happen on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from ratchet.core.schema import Column, ColumnType
from ratchet.merge.plan import app_id
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.tables import app_version, table_version
from tests.merge_kit import DIRECT, Source, merger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True, params=["direct", "spark"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything twice: small batches merged in this process, and all of them by Spark."""
    token = DIRECT.set(request.param == "direct")
    yield
    DIRECT.reset(token)


def put(key: int, value: str) -> tuple[str, dict[str, object]]:
    return ("put", {"id": key, "v": value})


def test_from_the_dump_to_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    """A chunk older than some changes and newer than others; inserts, deletes, moves and swaps."""
    source = Source(tmp_path)
    source.tx("-", *[put(n, "base") for n in range(10)])
    source.round()
    source.dump_begin()
    floor = source.position("-")
    source.tx("-", put(1, "inside the read, not the floor"))
    source.tx("-", ("del", 2), put(100, "new"))
    source.chunk("-", floor=floor, only=lambda row: row["id"] < 5)
    source.tx("-", ("move", 3, {"id": 7000, "v": "moved behind the other chunk"}))
    source.tx("-", put(8, "in floor"), ("del", 9))
    source.chunk("-", only=lambda row: row["id"] >= 5)
    source.tx("-", put(8, "after"), ("del", 4))
    source.dump_end()
    with merger(spark, source) as merge:
        assert not merge.step().worked  # nothing is captured yet
        source.round()
        result = merge.step()
        assert result.cut is not None
        assert set(result.cut.tables) == {"shop.t"}
        source.assert_mirrored()
        assert source.state.phase == "streaming"
        # rows swap their keys over a third in one transaction
        source.tx(
            "-",
            ("move", 0, {"id": -1, "v": "a"}),
            ("move", 1, {"id": 0, "v": "b"}),
            ("move", -1, {"id": 1, "v": "a"}),
        )
        source.round()
        source.tx("-", ("del", 5), put(5, "again"), put(5, "and again"))
        source.round()
        assert merge.step().changed == {"shop.t": 3}
        source.assert_mirrored()
        assert not merge.step().worked


def streaming(tmp_path: Path, *keys: int) -> Source:
    """A table that was dumped with those keys; its first step is still to come."""
    source = Source(tmp_path)
    source.tx("-", *[put(n, "base") for n in keys])
    source.dump_all()
    source.round()
    return source


def test_a_round_delivered_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Late, doubled, behind tombstones: no row goes back, no deleted row returns."""
    source = streaming(tmp_path, 1, 2, 3)
    with merger(spark, source) as merge:
        merge.step()
        source.tx("-", put(1, "x"), ("del", 2), put(4, "y"))
        source.tx("-", ("del", 4), put(1, "z"))
        source.round()
        merge.step()
        source.assert_mirrored()
        source.deliver_again("-")
        source.round()
        assert merge.step().changed.get("shop.t", 0) == 0
        source.assert_mirrored()
        source.deliver_again("-", 3, 6)
        source.tx("-", put(2, "back again"))
        source.round()
        merge.step()
        source.assert_mirrored()


def test_truncate_removes_what_came_before(spark: SparkSession, tmp_path: Path) -> None:
    source = streaming(tmp_path, 1, 2, 3)
    with merger(spark, source) as merge:
        merge.step()
        source.tx("-", put(1, "x"), put(9, "gone with the others"))
        source.event("-", "TRUNCATE TABLE t", truncate=True)
        source.tx("-", put(2, "new"))
        source.round()
        merge.step()
        source.assert_mirrored()
        source.deliver_again("-", 0, 5)
        source.round()
        merge.step()
        source.assert_mirrored()
        source.event("-", "TRUNCATE TABLE t", truncate=True)
        source.round()
        merge.step()
        assert source.mirror() == {}


def test_each_commit_says_what_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    source = streaming(tmp_path, 1)
    with merger(spark, source) as merge:
        merge.step()
        source.tx("-", put(1, "x"), ("del", 1))
        number = source.round()
        cut = merge.step().cut
    assert cut is not None
    assert (cut.number, cut.round, cut.stopped) == (2, number, ())
    assert cut.shards["shop/-"].position == source.position("-")
    assert Cuts(source.lake).last() == cut
    last = DeltaTable(source.lake.delta_uri(source.state.path)).history(1)[0]
    said = json.loads(last["userMetadata"])
    assert said["round"] == number
    assert said["positions"] == {"shop/-": str(source.position("-").executed)}
    assert said["min_ts"] == said["max_ts"] == cut.latest_ts
    state = source.state
    assert app_version(source.lake, state.path, app_id(state)) == number
    assert app_version(source.lake, state.side_path, app_id(state)) == number


def test_idle_rounds_make_cuts_but_no_commits(spark: SparkSession, tmp_path: Path) -> None:
    source = streaming(tmp_path, 1)
    with merger(spark, source) as merge:
        first = merge.step().cut
        source.event("-", "ANALYZE TABLE t")
        source.round()
        second = merge.step().cut
    assert first is not None
    assert second is not None
    assert (first.tables, first.round + 1) == (second.tables, second.round)


def test_several_rounds_in_one_merge_bounded_by_bytes(spark: SparkSession, tmp_path: Path) -> None:
    source = streaming(tmp_path, 1)
    for n in range(4):
        source.tx("-", put(n, "x"))
        source.round()
    size = sum(f.bytes for r in source.rounds.since(1) for f in r.files)
    with merger(spark, source, max_bytes=size - 1) as merge:
        cuts = [merge.step().cut, merge.step().cut]
        assert merge.step().cut is None
    assert [cut.round for cut in cuts if cut] == [3, 5]
    source.assert_mirrored()


class Killed(BaseException):
    """Stands for kill -9; tests/e2e does it for real."""


@pytest.mark.quick_on("direct", "spark-merge.after_merge-True")
@pytest.mark.parametrize(
    ("point", "more"),
    [
        pytest.param("merge.before_side", False, marks=pytest.mark.long),
        pytest.param("merge.after_side", False, marks=pytest.mark.long),
        ("merge.after_side", True),
        pytest.param("merge.after_merge", False, marks=pytest.mark.long),
        ("merge.after_merge", True),
        ("merge.before_cut", True),
        ("merge.after_cut", False),
    ],
)
def test_killed_and_done_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, *, more: bool
) -> None:
    """Between two commits of a step; then the same rounds are merged again, or more."""
    source = streaming(tmp_path, 1, 2, 3)
    merger(spark, source).step()
    source.tx("-", put(1, "x"), ("del", 2), ("move", 3, {"id": 4, "v": "m"}))
    source.round()

    def die(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("ratchet.merge.table.reach", die)
        patch.setattr("ratchet.merge.direct.reach", die)
        patch.setattr("ratchet.merge.rounds.reach", die)
        with pytest.raises(Killed):
            merger(spark, source).step()
    if more:
        source.tx("-", put(2, "again"), ("del", 4))
        source.round()
    with merger(spark, source) as merge:
        merge.step()
        source.assert_mirrored()
        assert not merge.step().worked
    last = Cuts(source.lake).last()
    assert last is not None
    assert last.round == source.rounds.last_number()
    assert last.tables == {"shop.t": table_version(source.lake, source.state.path)}


def test_a_catch_up_killed_before_its_cut_is_shown_without_new_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = streaming(tmp_path, 1)
    last = source.rounds.last_number()
    others = Cut(number=1, round=last, merged_at=1, shards={}, tables={}, stopped=())
    Cuts(source.lake).append(others)  # as if other tables had been merged up to there

    def die(name: str) -> None:
        if name == "merge.before_cut":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("ratchet.merge.rounds.reach", die)
        with pytest.raises(Killed):
            merger(spark, source).step()
    assert source.state.phase == "streaming"
    assert Cuts(source.lake).last() == others
    with merger(spark, source) as merge:
        cut = merge.step().cut
        assert cut is not None
        assert cut.shows("shop.t")
        assert not merge.step().worked
    source.assert_mirrored()


def test_changed_columns_stop_the_table_where_they_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What stands before is merged, the cut says so, and the error says what to do."""
    source = streaming(tmp_path, 1)
    with merger(spark, source) as merge:
        merge.step()
        source.tx("-", put(1, "before"))
        source.round()
        wide = replace(source.schema.columns[1].type, length=80)
        wider = replace(
            source.schema, columns=(source.schema.columns[0], Column(name="v", type=wide))
        )
        source.event("-", "ALTER TABLE t MODIFY v VARCHAR(20)")
        source.tx("-", put(2, "wider is fine"))
        source.round(schema=wider)
        assert not merge.step().stopped
        source.assert_mirrored()
        expected = source.expected()
        added = replace(
            wider, columns=(*wider.columns, Column(name="n", type=ColumnType(name="int")))
        )
        source.tx("-", ("put", {"id": 3, "v": "c", "n": 1}))
        source.round(schema=added)
        result = merge.step()
    error = result.stopped["shop.t"]
    assert "added n" in error.message
    assert "redump 'shop.t'" in error.hint
    assert source.state.phase == "stopped"
    assert result.cut is not None
    assert result.cut.stopped == ("shop.t",)
    assert source.mirror() == expected


def test_a_statement_that_changes_rows_stops_the_table_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = streaming(tmp_path, 1)
    with merger(spark, source) as merge:
        merge.step()
        source.tx("-", put(1, "still merged"))
        done = source.logs["shop/-"].said.copy()
        source.event("-", "ALTER TABLE t DROP PARTITION p")
        source.tx("-", put(1, "no longer"))
        source.logs["shop/-"].said = done
        source.round()
        result = merge.step()
    assert "DROP PARTITION" in result.stopped["shop.t"].message
    source.assert_mirrored()


def test_the_only_table_stops_in_a_step_that_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merge before the stop is committed, and nothing else was: there is nothing left to do."""
    source = streaming(tmp_path, 1)
    merger(spark, source).step()
    source.tx("-", put(1, "still merged"))
    source.event("-", "ALTER TABLE t DROP PARTITION p")
    source.round()

    def die(name: str) -> None:
        if name == "merge.after_merge":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("ratchet.merge.table.reach", die)
        patch.setattr("ratchet.merge.direct.reach", die)
        with pytest.raises(Killed):
            merger(spark, source).step()
    assert source.state.phase == "streaming"
    with merger(spark, source) as merge:
        assert not merge.step().worked
        assert source.state.stopped is not None
        assert "DROP PARTITION" in source.state.stopped.message
        source.assert_mirrored()


def test_a_table_that_changes_while_it_is_dumped_is_never_shown(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(tmp_path)
    source.tx("-", put(1, "x"))
    source.event("-", "RENAME TABLE t TO u, v TO t")  # before the dump: not its business
    source.dump_begin()
    source.chunk("-")
    source.event("-", "RENAME TABLE t TO u, v TO t")
    source.dump_end()
    source.round()
    with merger(spark, source) as merge:
        result = merge.step()
    assert set(result.stopped) == {"shop.t"}
    assert source.state.phase == "stopped"
    assert result.cut is None or result.cut.tables == {}
