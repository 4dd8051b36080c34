"""Fresh reads: a table and what is captured but not merged show what the merge will make of them.

Each look is held against the registers, as the merged table is (`Source.expected`).
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ratchet.core.schema import Column, ColumnType
from ratchet.merge.delta import plain_session
from ratchet.merge.fresh import MergeOnReadTables, read_fresh
from tests.merge_kit import POLICY, Source, freeze, merger
from tests.spark.test_random import SCHEMA, of_part, transaction
from tests.spark.test_reshard import LEFT, RIGHT, put, streaming

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """Stands for kill -9."""


def look(spark: SparkSession, source: Source) -> MergeOnReadTables:
    found = read_fresh(plain_session(spark), source.lake, policy=POLICY)
    assert found is not None
    return found


def assert_shows_both_ways(
    spark: SparkSession, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it comes, and ranked by Spark, whatever the changes are."""
    assert_shows(look(spark, source), source)
    with monkeypatch.context() as patch:
        patch.setattr("ratchet.merge.fresh.patch", lambda *_, **__: None)
        assert_shows(look(spark, source), source)


def assert_shows(found: MergeOnReadTables, source: Source) -> None:
    """The frame is what the mirror must be once all rounds are merged."""
    assert (found.round, found.reason) == (source.rounds.last_number(), "")
    shown = {}
    for row in (r.asDict(recursive=True) for r in found.frames["shop.t"].collect()):
        token = row.pop("_token")
        place = (source.key(row), token["shard"])
        assert place not in shown, f"{place} twice"
        shown[place] = ((token["generation"], token["seq"], token["idx"]), freeze(row))
    assert shown == source.expected()


@pytest.mark.parametrize(
    ("seed", "shards", "shard_in_key"),
    [
        (1, ("-",), False),
        (2, (LEFT, RIGHT), False),
        (3, ("-40", "40-80", "80-"), False),
        (4, (LEFT, RIGHT), True),
    ],
)
@pytest.mark.long
def test_random_histories(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    shards: tuple[str, ...],
    *,
    shard_in_key: bool,
) -> None:
    """Several rounds ahead of the merge, rounds of some shards, old changes that come again."""
    rng = random.Random(seed)
    source = Source(tmp_path, schema=SCHEMA, shards=shards, shard_in_key=shard_in_key)

    def write(count: int) -> None:
        for _ in range(count):
            transaction(source, rng.choice(shards), rng, source.clock)

    write(8)
    source.dump_begin()
    for part in range(2):
        for shard in shards:
            source.chunk(shard, only=partial(of_part, part))
            write(2)
    source.dump_end()
    source.round()
    with merger(spark, source) as merge:
        merge.step()
        for number in range(3):
            for _ in range(2):
                write(5)
                if number == 2:
                    source.deliver_again(shards[-1], rng.randrange(50), 400)
                source.round(*rng.sample(shards, rng.randint(1, len(shards))))
            assert_shows_both_ways(spark, source, monkeypatch)
            merge.step()
            source.assert_mirrored()
            assert_shows(look(spark, source), source)


@pytest.mark.parametrize("point", ["merge.after_side", "merge.after_merge"])
@pytest.mark.long
def test_a_step_is_under_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The side table and the table are ahead of the newest cut; rounds come meanwhile."""
    source = Source(tmp_path, shards=(LEFT, RIGHT))
    for shard in (LEFT, RIGHT):
        source.tx(shard, *(put(n, f"base {shard}") for n in range(1, 6)))
    with streaming(spark, source):
        source.tx(RIGHT, put(7, "right has it"), ("del", 3))
        source.tx(LEFT, put(7, "left has it too"), ("del", 3), ("del", 4))
        source.round()

    def die(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("ratchet.merge.table.reach", die)
        patch.setattr("ratchet.merge.direct.reach", die)
        with pytest.raises(Killed):
            merger(spark, source).step()
    assert_shows(look(spark, source), source)
    source.tx(LEFT, ("del", 7), put(4, "back"))
    source.tx(RIGHT, put(3, "back"))
    source.round()
    assert_shows(look(spark, source), source)
    with merger(spark, source) as merge:
        merge.step()
        source.assert_mirrored()


@pytest.mark.long
def test_what_only_the_merge_can_bring_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """A TRUNCATE, a column that comes, a reshard: shown is the round before; then all again."""
    source = Source(tmp_path, shards=("0",))
    source.tx("0", *(put(n, "base") for n in range(4)))
    with streaming(spark, source) as merge:
        source.tx("0", put(1, "x"))
        calm = source.round()
        before = source.expected()
        source.event("0", "TRUNCATE TABLE t", truncate=True)
        source.tx("0", put(2, "y"))
        source.round()
        found = look(spark, source)
        assert (found.round, found.cut.round) == (calm, calm - 1)
        assert found.reason == f"a TRUNCATE of shop.t in round {calm + 1}"
        assert {r["id"]: r["v"] for r in found.frames["shop.t"].collect()} == {
            key: dict(row)["v"] for (key, _), (_, row) in before.items()
        }
        merge.step()
        source.tx("0", put(5, "behind it"))
        source.round()
        assert_shows(look(spark, source), source)
        merge.step()
        more = Column(name="more", type=ColumnType(name="int"))
        source.event("0", "ALTER TABLE t ADD COLUMN more INT")
        schema = replace(source.schema, columns=(*source.schema.columns, more))
        source.tx("0", ("put", {"id": 9, "v": "wide", "more": 7}))
        number = source.round(schema=schema)
        found = look(spark, source)
        assert found.reason == f"columns of shop.t that change in round {number}"
        assert found.round == number - 1
        merge.step()
        found = look(spark, source)
        assert not found.reason
        assert {(r["id"], r["more"]) for r in found.frames["shop.t"].collect()} == {
            (2, None),
            (5, None),
            (9, 7),
        }


@pytest.mark.long
def test_a_reshard_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path, shards=("0",))
    source.tx("0", *(put(n, "base") for n in (1, 2, 101)))
    with streaming(spark, source) as merge:
        number = source.reshard(["0"], [LEFT, RIGHT], owner=lambda k: LEFT if k < 100 else RIGHT)
        source.tx(LEFT, put(1, "x"))
        source.round()
        found = look(spark, source)
        assert found.round < number
        assert "reshard" in found.reason
        while merge.step().worked:
            pass
        source.tx(LEFT, put(2, "y"), ("del", 1))
        source.tx(RIGHT, put(1, "moved here"), ("del", 101))
        source.round()
        assert_shows(look(spark, source), source)


def test_a_row_without_a_token_makes_way(spark: SparkSession, tmp_path: Path) -> None:
    """Somebody has written into the table by hand: any change of the key counts as newer."""
    source = Source(tmp_path)
    source.tx("-", *(put(n, "base") for n in range(4)))
    with streaming(spark, source) as merge:
        target = f"delta.`{source.lake.hadoop_uri(source.state.path)}`"
        spark.sql(f"UPDATE {target} SET _token = NULL, v = 'by hand' WHERE id IN (1, 2, 3)")
        source.tx("-", put(9, "makes a cut of the version with it"))
        source.round()
        merge.step()
        source.tx("-", put(1, "x"), ("del", 2))
        source.round()
        found = look(spark, source).frames["shop.t"]
        rows = sorted((r["id"], r["v"]) for r in found.collect())
        assert rows == [
            (0, "base"),
            (1, "x"),
            (3, "by hand"),
            (9, "makes a cut of the version with it"),
        ]
        merge.step()
        merged = spark.read.format("delta").load(source.lake.hadoop_uri(source.state.path))
        assert sorted((r["id"], r["v"]) for r in merged.collect()) == rows


def test_frames_are_pinned(spark: SparkSession, tmp_path: Path) -> None:
    """What was asked for does not change under the reader, whatever is merged meanwhile."""
    source = Source(tmp_path)
    source.tx("-", *(put(n, "base") for n in range(4)))
    with streaming(spark, source) as merge:
        source.tx("-", put(1, "x"))
        source.round()
        found = look(spark, source)
        source.tx("-", put(1, "later"), ("del", 2))
        source.round()
        merge.step()
        rows = sorted((r["id"], r["v"]) for r in found.frames["shop.t"].collect())
        assert rows == [(0, "base"), (1, "x"), (2, "base"), (3, "base")]


def test_no_cut_yet(spark: SparkSession, tmp_path: Path) -> None:
    assert read_fresh(plain_session(spark), Source(tmp_path).lake) is None
