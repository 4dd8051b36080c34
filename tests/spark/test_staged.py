"""A table that is dumped anew stays as it was shown, until one commit puts the new dump there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.store import layout
from ratchet.store.anew import to_be_dumped
from ratchet.store.cuts import Cut, Cuts
from tests.merge_kit import Source, merger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = (
    "merge.after_merge",
    "staged.after_copies",
    "staged.after_commit",
    "merge.before_staged_removed",
    "merge.before_cut",
)


class Killed(BaseException):
    """Stands for kill -9."""


def put(key: int, value: str) -> tuple[str, dict[str, Any]]:
    return ("put", {"id": key, "v": value})


def streaming(spark: SparkSession, folder: Path, *shards: str) -> Source:
    """A table that was dumped, merged into and shown."""
    source = Source(folder, shards=shards or ("-",))
    source.round()
    for shard in shards or ("-",):
        source.tx(shard, put(1, f"old {shard}"), put(2, "old"))
    source.dump_all()
    source.round()
    with merger(spark, source) as merge:
        merge.step()
        source.tx((shards or ("-",))[0], put(3, "old"), ("del", 2))
        source.round()
        merge.step()
    source.assert_mirrored()
    return source


def shown(source: Source) -> list[tuple[int, str]]:
    """What a reader of the Delta table sees."""
    return rows_of(DeltaTable(source.lake.delta_uri(source.state.shown_path)))


def rows_of(table: DeltaTable) -> list[tuple[int, str]]:
    found = QueryBuilder().register("t", table).execute("SELECT id, v FROM t").read_all()
    return sorted((row["id"], row["v"]) for row in pa.table(found).to_pylist())


def last_cut(source: Source) -> Cut:
    cut = Cuts(source.lake).last()
    assert cut is not None
    return cut


def dump_anew(source: Source, dump: str = "d2") -> None:
    """Rows of before, in a new dump, with changes beside it."""
    source.tables.save(to_be_dumped(source.lake, source.state))
    source.dump_begin(dump, anew=True)
    for name in source.names:
        shard = name.partition("/")[2]
        source.tx(shard, put(4, f"beside {dump}"), ("del", 1))
        source.chunk(shard)
        source.tx(shard, put(1, f"new {dump}"))
    source.dump_end()


def staged_files(source: Source) -> list[str]:
    return [file.path for file in source.lake.list(layout.STAGED)]


@pytest.mark.quick_on("shards0")
@pytest.mark.parametrize("shards", [(), ("a", "b")])
def test_what_is_shown_stays_until_all_of_it_is_replaced(
    spark: SparkSession, tmp_path: Path, shards: tuple[str, ...]
) -> None:
    source = streaming(spark, tmp_path, *shards)
    before, cut = shown(source), last_cut(source)
    with merger(spark, source) as merge:
        dump_anew(source)
        assert (shown(source), source.state.is_staged) == (before, True)
        assert not merge.step().worked, "its end is not captured yet"
        source.round()
        assert shown(source) == before
        merge.step()
        source.assert_mirrored()
        assert last_cut(source).shows("shop.t")
        assert (source.state.standing, staged_files(source)) == (None, [])
        # It goes on like any other.
        source.tx((shards or ("-",))[0], put(7, "later"), ("del", 1))
        source.round()
        merge.step()
    source.assert_mirrored()
    uri = source.lake.delta_uri(source.state.path)
    assert rows_of(DeltaTable(uri, version=cut.tables["shop.t"])) == before


def test_other_columns_come_with_the_new_rows(spark: SparkSession, tmp_path: Path) -> None:
    source = streaming(spark, tmp_path)
    text = source.schema.columns[1]
    number = Column(name="w", type=ColumnType(name="bigint"))
    source.tables.save(to_be_dumped(source.lake, source.state))
    source.schema = TableSchema(
        keyspace="shop", table="t", columns=(source.schema.columns[0], number), key=("id",)
    )
    source = reopened(source)
    source.tx("-", ("put", {"id": 9, "w": 2**40}))
    source.logs["shop/-"].rows = {9: {"id": 9, "w": 2**40}}
    source.registers = {}
    source.round()
    source.dump_begin("d2", anew=True)
    source.chunk("-")
    source.dump_end()
    source.round()
    with merger(spark, source) as merge:
        merge.step()
    rows = [{name: row[name] for name in ("id", "w")} for row in source.mirror_rows()]
    assert rows == [{"id": 9, "w": 2**40}]
    assert text.name not in source.mirror_rows()[0]


def reopened(source: Source) -> Source:
    """The kit with the columns that its schema has now."""
    from ratchet.core.types import arrow_schema
    from tests.merge_kit import POLICY

    source.columns = arrow_schema(source.schema, POLICY)
    return source


@pytest.mark.quick_on("staged.after_copies")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("shards", "quiet"),
    [((), True), ((), False), (("a", "b"), False)],
    ids=["quiet", "busy", "two shards"],
)
def test_a_kill_at_any_moment(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    shards: tuple[str, ...],
    *,
    quiet: bool,
) -> None:
    """The new dump is put there once, with all rounds; `quiet`: nothing changed while it ran."""
    source = streaming(spark, tmp_path, *shards)
    if quiet:
        source.tables.save(to_be_dumped(source.lake, source.state))
        source.dump_begin("d2", anew=True)
        for name in source.names:
            source.chunk(name.partition("/")[2])
        source.dump_end()
    else:
        dump_anew(source)
    source.round()
    before = shown(source)
    reached = []

    def die(name: str) -> None:
        if name == point:
            reached.append(name)
            raise Killed

    with monkeypatch.context() as patch:
        for module in ("merge.table", "merge.direct", "merge.onetable", "merge.rounds"):
            patch.setattr(f"ratchet.{module}.reach", die)
        patch.setattr("ratchet.store.staged.reach", die)
        try:
            merger(spark, source).step()
        except Killed:
            assert reached
        else:
            assert quiet, "nothing was merged, so that point is not on the way"
            assert point == "merge.after_merge"
    if point in {"merge.after_merge", "staged.after_copies"} and reached:
        assert shown(source) == before
        assert not last_cut(source).shows("shop.t") or last_cut(source).round < 4
    first = source.names[0].partition("/")[2]
    source.tx(first, put(5, "behind the kill"), ("del", 3))
    source.round()
    with merger(spark, source) as merge:
        merge.step()
        merge.step()
        source.assert_mirrored()
        assert not merge.step().worked
    assert last_cut(source).shows("shop.t")
    assert last_cut(source).round == source.rounds.last_number()
    assert source.state.standing is None


def test_a_second_dump_anew_takes_the_place_of_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What is shown stays so through both."""
    source = streaming(spark, tmp_path)
    before = shown(source)
    dump_anew(source)
    dump_anew(source, "d3")
    assert shown(source) == before
    source.round()
    with merger(spark, source) as merge:
        merge.step()
    source.assert_mirrored()
