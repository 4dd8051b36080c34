"""Shards that are gone before their streams were read: their heirs are dumped, and no others.

After the catch-up, and after each step behind it, the mirror is held against the registers.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ratchet.merge.keep import keep_rows
from ratchet.store.cuts import Cuts
from tests.merge_kit import POLICY, Source, merger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ratchet.merge.rounds import Merger

LEFT, RIGHT, A, B = "-80", "80-", "80-c0", "c0-"


def put(key: int, value: str) -> tuple[str, dict[str, object]]:
    return ("put", {"id": key, "v": value})


def settle(source: Source, merge: Merger) -> None:
    source.round()
    while merge.step().worked:
        pass
    source.assert_mirrored()


def owner(key: int) -> str:
    return A if key % 2 else B


def dump_heirs(spark: SparkSession, source: Source) -> None:
    """What the dump does of those tables, with a kill between keeping and reading."""
    for _ in range(2):
        keep_rows(spark, source.lake, source.state, policy=POLICY)
    dump = source.state.dump
    assert dump is not None
    for shard in dump.read:
        source.chunk(shard)


@pytest.mark.long
def test_only_the_heirs_are_dumped(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path, shards=(LEFT, RIGHT))
    source.tx(LEFT, *(put(n, "left") for n in range(1, 9)))
    source.tx(RIGHT, *(put(n, "right") for n in range(101, 109)))
    source.dump_all()
    with merger(spark, source) as merge:
        settle(source, merge)
        # Hidden behind the row of the shard that will be gone; and one that hides the other's.
        source.tx(LEFT, put(20, "hidden"), ts=5)
        source.tx(RIGHT, put(20, "shown"), put(21, "hidden"))
        source.tx(LEFT, put(21, "shown"))
        settle(source, merge)
        source.tx(LEFT, put(1, "captured, and not merged yet"), ("del", 2))
        source.tx(RIGHT, put(101, "the same"))
        source.round()
        source.tx(RIGHT, ("del", 102), put(103, "lost"), ("del", 20), put(109, "lost"))
        source.lose([RIGHT], [A, B], owner=owner)
        state = source.state
        assert (state.phase, set(state.dump.read)) == ("dumping", {f"shop/{A}", f"shop/{B}"})  # type: ignore[union-attr]
        source.tx(A, put(105, "before its chunk"))
        dump_heirs(spark, source)
        source.tx(A, put(103, "behind its chunk"), ("del", 107))
        source.tx(LEFT, ("del", 3), put(4, "meanwhile"), ("del", 21))
        source.dump_end()
        settle(source, merge)
        kept = {place: rank for place, (rank, _) in source.mirror().items() if LEFT in place[1]}
        assert {rank[2] >= 1 << 40 for rank in kept.values()} == {True, False}  # dumped long ago
        assert source.mirror()[20, f"shop/{LEFT}"][1] == (("id", 20), ("v", "hidden"))
        source.tx(LEFT, ("del", 20), put(5, "on"))
        source.tx(B, put(104, "on"), put(5, "moves"))
        settle(source, merge)
        source.tx(LEFT, ("del", 5))
        settle(source, merge)


def test_a_cut_behind_a_new_beginning_is_as_late_as_that(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also where all tables are dumped anew, and no step takes the round that began the stream."""
    source = Source(tmp_path)
    source.tx("-", put(1, "old"))
    source.dump_all()
    with merger(spark, source) as merge:
        settle(source, merge)
        before = Cuts(source.lake).last()
        source.tx("-", put(2, "lost"))
        source.lose(["-"], ["-"], owner=lambda _: "-")
        began = source.clock
        source.dump_begin("d2")
        source.chunk("-")
        source.dump_end()
        assert merge.step().worked  # no round is committed since
        cut = Cuts(source.lake).last()
    assert before is not None
    assert cut is not None
    assert before.latest_ts < began <= cut.latest_ts
    assert cut.shards["shop/-"].generation == 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 9))
def test_random_histories(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Keys on both shards, rows that move, and changes at any time around the gap."""
    rng = random.Random(seed)
    source = Source(tmp_path, shards=(LEFT, RIGHT))

    heirs = [A, B] if seed % 2 else [RIGHT]  # or the shard itself, begun anew

    def write(shard: str, count: int) -> None:
        for _ in range(count):
            key, rows = rng.randrange(12), source.logs[f"shop/{shard}"].rows
            ts = rng.choice([None, 5, 900])
            if key in rows and rng.random() < 0.4:
                source.tx(shard, ("del", key), ts=ts)
            else:
                source.tx(shard, put(key, f"{shard} {rng.randrange(100)}"), ts=ts)

    def anywhere(count: int) -> None:
        for _ in range(count):
            write(rng.choice([name.partition("/")[2] for name in source.names]), 1)

    anywhere(10)
    source.dump_all()
    with merger(spark, source) as merge:
        settle(source, merge)
        anywhere(15)
        settle(source, merge)
        anywhere(6)
        source.round()
        write(RIGHT, 5)
        source.lose([RIGHT], heirs, owner=owner if seed % 2 else lambda _: RIGHT)
        if not seed % 2:  # a failover that lost some of what was mirrored
            for key in rng.sample(sorted(source.logs[f"shop/{RIGHT}"].rows), 2):
                del source.logs[f"shop/{RIGHT}"].rows[key]
        anywhere(6)
        if rng.random() < 0.5:
            source.round()
        dump_heirs(spark, source)
        anywhere(8)
        source.dump_end()
        anywhere(4)
        settle(source, merge)
        for _ in range(2):
            anywhere(6)
            settle(source, merge)
