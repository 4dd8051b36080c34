"""Rounds that are captured and not merged: on their way, standing still, or lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.errors import LakeError
from ratchet.core.rounds import ChangeFile, Round
from ratchet.jobs.inspect.unmerged import UnmergedRounds, look_behind
from ratchet.store.cuts import Cut
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import SegmentPart

MINUTE = 60 * 1_000_000
ALL = {"shop.orders", "shop.items"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two rounds of a minute each; the first has changes of orders, the second of items."""
    lake = open_lake(tmp_path / "lake", now=1)
    log = RoundLog(lake)
    for number, table in ((1, "orders"), (2, "items")):
        path = f"changes/{table}.parquet"
        with lake.open_output(path) as file:
            file.write(b"rows")
        change = ChangeFile(
            keyspace="shop", table=table, shard="shop/-", schema="s", path=path, rows=1, bytes=7,
            min_seq=number, max_seq=number, inserts=1, updates=0, deletes=0, misfits={},
        )  # fmt: skip
        at = number * MINUTE
        log.append(Round(number=number, committed_at=at, slices=(), files=(change,), events=()))
    return lake


def cut(number: int, *, merged_at: int = 0) -> Cut:
    return Cut(number=number, round=number, merged_at=merged_at, shards={}, tables={})


def test_all_is_merged(lake: Lake) -> None:
    assert look_behind(lake, cut(2), ALL, now=100 * MINUTE) == UnmergedRounds(0, None)


def test_what_is_on_its_way_is_no_trouble(lake: Lake) -> None:
    assert look_behind(lake, cut(0), ALL, now=10 * MINUTE) == UnmergedRounds(2, MINUTE)
    working = cut(1, merged_at=90 * MINUTE)  # far behind, and at work
    assert look_behind(lake, working, ALL, now=100 * MINUTE) == UnmergedRounds(1, 2 * MINUTE)


def test_a_merge_that_stands_still_is_told(lake: Lake) -> None:
    found = look_behind(lake, cut(1, merged_at=MINUTE), ALL, now=18 * MINUTE)
    assert (found.rounds, found.since) == (1, 2 * MINUTE)
    assert "1 captured round since 1970-01-01 00:02:00 not merged" in found.trouble
    assert "`ratchet run CONFIG` merges them" in found.trouble


def test_changes_that_are_gone_are_told_with_the_way_out(lake: Lake) -> None:
    lake.delete("changes/items.parquet")
    found = look_behind(lake, cut(0), ALL, now=3 * MINUTE)
    assert "are gone (shop.items: changes/items.parquet)" in found.trouble
    assert "`ratchet table CONFIG redump TABLE`" in found.trouble
    # Those of tables that are not compared say nothing of those that are.
    assert not look_behind(lake, cut(0), {"shop.orders"}, now=3 * MINUTE).trouble
    assert not look_behind(lake, cut(2), ALL, now=3 * MINUTE).trouble


def test_a_segment_that_is_gone_is_told_for_each_of_its_tables(lake: Lake) -> None:
    log = RoundLog(lake)
    (items,) = log.since(1)[0].files
    parts = [
        replace(items, table=table, path=str(SegmentPart("p.segment", at, 1)))
        for at, table in enumerate(("orders", "items", "other"))
    ]
    log.append(Round(number=3, committed_at=1, slices=(), files=tuple(parts), events=()))
    found = look_behind(lake, cut(2), ALL, now=3 * MINUTE)
    assert "(shop.items: p.segment; shop.orders: p.segment)" in found.trouble
    lake.create_file("p.segment", b"abc")
    assert not look_behind(lake, cut(2), ALL, now=3 * MINUTE).trouble


def test_rounds_that_cannot_be_read_are_an_error(lake: Lake) -> None:
    RoundLog(lake).prune(before_round=2)
    with pytest.raises(LakeError, match="rounds 1 to 2 are needed"):
        look_behind(lake, cut(0), ALL, now=3 * MINUTE)
