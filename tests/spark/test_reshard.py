"""The merge across reshards: splits, merges, and back again; what was written before stays right.

After each step the mirror is held against the registers (`assert_mirrored`: rows, shards, ranks)
and, where no key is on two shards, against the servers' rows (`assert_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ratchet.merge.ancestry import Ancestry
from ratchet.merge.delta import plain_session, read_delta
from ratchet.merge.overlay import overlay
from ratchet.merge.plan import shape_of
from ratchet.merge.purge import purge_side
from ratchet.merge.reduce import read_changes
from tests.merge_kit import POLICY, Source, assert_side_stats, merger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ratchet.merge.rounds import Merger

WHOLE, LEFT, RIGHT = "0", "-80", "80-"


def put(key: int, value: str) -> tuple[str, dict[str, object]]:
    return ("put", {"id": key, "v": value})


def move(old: int, new: int, value: str) -> tuple[str, int, dict[str, object]]:
    return ("move", old, {"id": new, "v": value})


def half(key: int) -> str:
    return LEFT if key < 100 else RIGHT


def whole(_: int) -> str:
    return WHOLE


@contextmanager
def streaming(spark: SparkSession, source: Source) -> Iterator[Merger]:
    """Dumped and caught up."""
    source.dump_all()
    source.round()
    with merger(spark, source) as merge:
        merge.step()
        yield merge


def advance(source: Source, merge: Merger, *shards: str) -> None:
    """A round of those shards (all, if none is named), merged."""
    source.round(*shards)
    while merge.step().worked:
        pass
    source.assert_mirrored()


def settle(source: Source, merge: Merger) -> None:
    """A round of all shards, merged; the mirror is what the servers have."""
    advance(source, merge)
    source.assert_rows()


@pytest.mark.long
def test_a_shard_is_split_and_merged_and_split_again(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path, shards=(WHOLE,))
    source.tx(WHOLE, *(put(n, "base") for n in (*range(1, 13), *range(101, 113))))
    with streaming(spark, source) as merge:
        source.tx(WHOLE, put(1, "before the split"), ("del", 2), put(13, "new"))
        source.reshard([WHOLE], [LEFT, RIGHT], owner=half)
        settle(source, merge)
        source.tx(LEFT, put(1, "updated"), ("del", 3), move(4, 5004, "key"), put(2, "put again"))
        source.tx(LEFT, ("del", 5), put(5, "deleted and put"))
        source.tx(RIGHT, put(101, "updated"), ("del", 102))
        settle(source, merge)
        source.tx(LEFT, ("del", 6))
        source.tx(RIGHT, put(6, "moved to the sibling"), ("del", 103))
        source.tx(LEFT, put(103, "moved to the sibling"), ("del", 5004))
        settle(source, merge)
        source.reshard([LEFT, RIGHT], [WHOLE], owner=whole)
        source.tx(WHOLE, put(1, "one again"), ("del", 6), put(7, "old for two lives"), ("del", 8))
        source.tx(WHOLE, move(101, 5101, "key"), put(3, "deleted in the second life"))
        settle(source, merge)
        source.reshard([WHOLE], [LEFT, RIGHT], owner=half)
        source.tx(LEFT, put(1, "third"), ("del", 7), ("del", 9), put(10, "old for three lives"))
        source.tx(RIGHT, ("del", 5101), ("del", 104), put(105, "untouched so far"))
        settle(source, merge)
        assert {shard for _, shard in source.mirror()} == {
            f"shop/{n}" for n in (WHOLE, LEFT, RIGHT)
        }


@pytest.mark.long
def test_one_of_two_shards_is_split(spark: SparkSession, tmp_path: Path) -> None:
    """Its sibling goes on: keys move from it and to it; late rounds of either do not matter."""
    a, b = "-40", "40-80"
    source = Source(tmp_path, shards=(LEFT, RIGHT))
    source.tx(LEFT, *(put(n, "left") for n in range(1, 9)))
    source.tx(RIGHT, *(put(n, "right") for n in range(101, 109)))
    with streaming(spark, source) as merge:
        source.reshard([LEFT], [a, b], owner=lambda key: a if key % 2 else b)
        source.tx(a, put(1, "updated"), ("del", 3))
        source.tx(b, ("del", 2))
        source.tx(RIGHT, put(2, "moved here"), ("del", 101))
        source.tx(a, put(101, "moved here"))
        source.tx(RIGHT, put(5, "moved here, deleted there later"))
        advance(source, merge, RIGHT)
        source.tx(a, ("del", 5))
        settle(source, merge)
        source.tx(b, put(4, "left's old row"), put(1, "moved again"))
        advance(source, merge, b)
        source.tx(a, ("del", 1))
        settle(source, merge)


def test_two_siblings_write_one_key(spark: SparkSession, tmp_path: Path) -> None:
    """Shown once on the way; an update of the shard that inherited the row doubles nothing."""
    source = Source(tmp_path, shards=(WHOLE,))
    source.tx(WHOLE, put(1, "base"), put(2, "base"))
    with streaming(spark, source) as merge:
        source.reshard([WHOLE], [LEFT, RIGHT], owner=half)
        source.tx(RIGHT, put(1, "on its way"))
        source.tx(RIGHT, put(2, "on its way"), ts=5)
        advance(source, merge, RIGHT)
        source.tx(LEFT, put(1, "updated there"), put(2, "updated there"))
        advance(source, merge, LEFT)
        assert [key for key, _ in sorted(source.mirror())] == [1, 2]
        source.tx(LEFT, ("del", 1), ("del", 2))
        settle(source, merge)


@pytest.mark.long
def test_a_hidden_row_of_an_ended_shard_does_not_come_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its tombstone is implied only, and must outlive it in the side table; then both may go."""
    a, b = "-40", "40-80"
    source = Source(tmp_path, shards=(LEFT, RIGHT))
    source.tx(LEFT, *(put(n, "left") for n in (1, 2, 3)))
    with streaming(spark, source) as merge:
        source.tx(RIGHT, *(put(n, "hides left's") for n in (1, 2, 3)))
        advance(source, merge)
        source.reshard([LEFT], [a, b], owner=lambda _: a)
        source.tx(a, ("del", 1))
        source.tx(a, put(2, "the heir's"), ts=5)
        advance(source, merge)
        now = source.clock + 1
        purge_side(spark, source.lake, source.state, policy=POLICY, now=now, keep=0)
        merge.forget(source.state)
        assert_side_stats(spark, source)
        source.tx(RIGHT, ("del", 1), ("del", 2), ("del", 3))
        settle(source, merge)
        assert source.mirror().keys() == {(2, f"shop/{a}"), (3, f"shop/{LEFT}")}


def test_overlay_is_the_table_after_the_merge(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path, shards=(WHOLE,))
    source.tx(WHOLE, *(put(n, "base") for n in (1, 2, 3, 4, 101)))
    with streaming(spark, source) as merge:
        number = source.reshard([WHOLE], [LEFT, RIGHT], owner=half)
        while merge.step(number).worked:
            pass
        source.tx(LEFT, put(1, "x"), ("del", 2), move(3, 7, "y"))
        source.tx(RIGHT, put(2, "moved here"), ("del", 101))
        source.round()
        session = plain_session(spark)
        ancestry = Ancestry.of(source.state, source.rounds.streams())
        shape = shape_of(source.state, POLICY, ancestry)
        (last,) = source.rounds.since(number)
        paths = [file.path for file in last.files]
        found = overlay(
            session,
            read_delta(session, source.lake.hadoop_uri(source.state.path)),
            read_changes(session, source.lake, paths, shape),
            shape,
            ancestry=ancestry,
        )
        rows = [row.asDict(recursive=True) for row in found.collect()]
        places = {(r["id"], r["_token"]["shard"], r["v"]) for r in rows}
        assert len(rows) == len(places)
        expected = source.expected().items()
        assert places == {(key, shard, dict(row)["v"]) for (key, shard), (_, row) in expected}


@pytest.mark.long
def test_what_an_ended_stream_said_may_come_again(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path, shards=(WHOLE,))
    source.tx(WHOLE, *(put(n, "base") for n in range(1, 5)))
    with streaming(spark, source) as merge:
        source.tx(WHOLE, *(put(n, "last") for n in range(1, 9)))
        source.reshard([WHOLE], [LEFT, RIGHT], owner=half)
        source.tx(LEFT, ("del", 1), put(2, "x"), move(3, 9, "y"))
        settle(source, merge)
        source.deliver_again(LEFT, of=WHOLE)
        source.deliver_again(LEFT)
        settle(source, merge)


@pytest.mark.parametrize("steps", [pytest.param(1, marks=pytest.mark.long), 2])
def test_truncated_on_all_siblings(spark: SparkSession, tmp_path: Path, steps: int) -> None:
    """Rows under the old name go with the last of them, in one step or in two."""
    source = Source(tmp_path, shards=(WHOLE,))
    source.tx(WHOLE, *(put(n, "base") for n in (1, 2, 3, 101, 102)))
    with streaming(spark, source) as merge:
        source.reshard([WHOLE], [LEFT, RIGHT], owner=half)
        source.tx(LEFT, put(1, "just before"))
        source.event(LEFT, "TRUNCATE TABLE t", truncate=True)
        source.tx(LEFT, put(2, "just behind"))
        if steps == 2:
            advance(source, merge)
            assert source.mirror().keys() == {
                (2, "shop/-80"), (3, "shop/0"), (101, "shop/0"), (102, "shop/0")
            }  # fmt: skip
            merge.forget(source.state)
        source.event(RIGHT, "TRUNCATE TABLE t", truncate=True)
        source.tx(RIGHT, put(102, "new"))
        settle(source, merge)
        assert source.mirror().keys() == {(2, "shop/-80"), (102, "shop/80-")}


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("merge.after_side", id="behind the side table", marks=pytest.mark.long),
        pytest.param("merge.after_merge", id="behind the merge"),
    ],
)
def test_killed_in_the_step_of_a_split(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The same step is made again, with a truncation in it, and with more rounds."""

    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == point:
            raise Killed

    source = Source(tmp_path, shards=(WHOLE,))
    source.tx(WHOLE, *(put(n, "base") for n in (1, 2, 3, 101, 102)))
    with streaming(spark, source) as merge:
        source.reshard([WHOLE], [LEFT, RIGHT], owner=half)
        merge.step()
    source.tx(LEFT, ("del", 1), move(2, 7, "x"), put(3, "y"))
    source.tx(RIGHT, put(1, "moved here"), ("del", 101))
    for shard in (LEFT, RIGHT):
        source.event(shard, "TRUNCATE TABLE t", truncate=True)
    source.tx(LEFT, put(3, "new"))
    source.round()
    with monkeypatch.context() as patch:
        patch.setattr("ratchet.merge.table.reach", die)
        patch.setattr("ratchet.merge.direct.reach", die)
        with pytest.raises(Killed):
            merger(spark, source).step()
    source.tx(LEFT, ("del", 3), put(4, "z"))
    with merger(spark, source) as merge:
        settle(source, merge)


def test_with_the_shard_in_the_key_the_table_stops(spark: SparkSession, tmp_path: Path) -> None:
    """Rows cannot be followed from one shard's name to another's; a new dump mirrors on."""
    source = Source(tmp_path, shards=(WHOLE,), shard_in_key=True)
    source.tx(WHOLE, put(1, "base"))
    with streaming(spark, source) as merge:
        source.tx(WHOLE, put(1, "last"))
        number = source.reshard([WHOLE], [LEFT, RIGHT], owner=half)
        source.tx(LEFT, put(1, "of the heir"))
        source.round()
        merge.step()
        stopped = merge.step().stopped["shop.t"]
        assert "names are part of its key" in str(stopped)
        assert "redump 'shop.t'" in (stopped.hint or "")
        assert source.state.stopped is not None
        assert source.state.stopped.round == number
        assert [dict(row)["v"] for _, row in source.mirror().values()] == ["last"]


def test_a_catch_up_across_a_reshard_stops(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the shard that its dump waits for is not there any more."""
    source = Source(tmp_path, shards=(WHOLE,))
    source.tx(WHOLE, put(1, "base"))
    source.dump_all()
    state = source.state
    assert state.dump is not None
    unseen = {"shop/0": source.position(WHOLE, 99)}
    source.tables.save(replace(state, dump=replace(state.dump, end=unseen)))
    source.reshard([WHOLE], [LEFT, RIGHT], owner=half)
    with merger(spark, source) as merge:
        stopped = merge.step().stopped["shop.t"]
    assert "resharded before it was merged" in str(stopped)


def test_a_dump_of_the_heirs_leaves_out_what_ended_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Read from a replica that lags, its rounds begin before the reshard: all of that is in it."""
    source = Source(tmp_path, shards=(WHOLE,))
    source.tx(WHOLE, put(1, "base"), put(2, "base"), put(101, "base"))
    first = source.round()
    source.reshard([WHOLE], [LEFT, RIGHT], owner=half)
    source.tx(LEFT, ("del", 1), put(2, "before the dump"))
    source.round()
    source.registers.clear()
    source.dump_all()
    state = source.state
    assert state.dump is not None
    source.tables.save(replace(state, dump=replace(state.dump, start_round=first)))
    source.tx(RIGHT, ("del", 101))
    with merger(spark, source) as merge:
        settle(source, merge)
        assert source.mirror().keys() == {(2, "shop/-80")}
