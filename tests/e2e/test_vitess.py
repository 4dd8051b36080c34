"""A Vitess keyspace from end to end: dump, stream, and reshards under a writer, as users run it.

Each scenario ends with the mirror compared, row by row, with `SELECT` through vtgate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import vitess_kit
from deltalake import DeltaTable, QueryBuilder
from fix_e2e import Ratchet
from shop_kit import TABLES, VSCHEMA, Mover, Writer, assert_same, fill, finish, shards_of
from vitess_kit import is_same, stop, until

from lab.vitess import VitessCluster

MADE: list[Ratchet] = []


@pytest.fixture
def cluster(vitess_of_its_own: VitessCluster) -> Iterator[VitessCluster]:
    yield vitess_of_its_own
    while MADE:
        MADE.pop().end_all()


def ratchet_on(cluster: VitessCluster, folder: Path, **more: Any) -> Ratchet:
    MADE.append(vitess_kit.ratchet_on(cluster, folder, **more))
    return MADE[-1]


def test_two_shards_under_a_writer(cluster: VitessCluster, tmp_path: Path) -> None:
    """Dump and stream through vtgate alone, while rows change and move between the shards."""
    fill(cluster, ["-80", "80-"])
    ratchet = ratchet_on(cluster, tmp_path)
    assert "fit (" in ratchet.run("check").stdout
    with Writer(cluster) as writer:
        running = ratchet.start("run")
        until((ratchet.lake / "shop" / "still").exists, "it dumps")
        writer.more(300)
    until(lambda: is_same(cluster, ratchet, {"shop": TABLES}), "the mirror is what vtgate shows")
    stop(running)
    assert assert_same(cluster, ratchet) > 2000
    status = ratchet.run("status").stdout
    assert "shop/-80" in status
    assert "shop/80-" in status


@pytest.mark.long
def test_a_split_and_a_merge_while_streaming(cluster: VitessCluster, tmp_path: Path) -> None:
    fill(cluster, ["0"])
    cluster.apply_vschema("shop", VSCHEMA)
    ratchet = ratchet_on(cluster, tmp_path)
    ratchet.run("run", "--until-caught-up")
    running = ratchet.start("run")
    with Writer(cluster) as writer, Mover(cluster) as mover:
        for sources, targets in ((["0"], ["-80", "80-"]), (["-80", "80-"], ["-"])):
            writer.moves = len(targets) > 1
            flow = cluster.reshard("shop", sources, targets)
            flow.wait_until_running()
            flow.switch()
            until(lambda: shards_of(ratchet) == set(targets), f"{targets} are followed")  # noqa: B023
            flow.complete()
        assert writer.done > 100
        assert mover.done > 50
    stop(running)
    finish(cluster, ratchet, {"-"})


@pytest.mark.long
def test_there_and_back_and_there_again(cluster: VitessCluster, tmp_path: Path) -> None:
    """Traffic is switched, reversed and switched again; then one shard of two into two."""
    fill(cluster, ["0"])
    cluster.apply_vschema("shop", VSCHEMA)
    ratchet = ratchet_on(cluster, tmp_path)
    ratchet.run("run", "--until-caught-up")
    running = ratchet.start("run")
    with Writer(cluster, moves=False):
        flow = cluster.reshard("shop", ["0"], ["-80", "80-"])
        flow.wait_until_running()
        for step, shards in (
            (flow.switch, {"-80", "80-"}),
            (flow.reverse, {"0"}),
            (flow.switch, {"-80", "80-"}),
        ):
            step()
            until(lambda: shards_of(ratchet) == shards, f"{shards} are followed")  # noqa: B023
            time.sleep(3)
        flow.complete()
        half = cluster.reshard("shop", ["-80"], ["-40", "40-80"])
        half.wait_until_running()
        half.switch()
        until(lambda: shards_of(ratchet) == {"-40", "40-80", "80-"}, "half of it is followed")
    stop(running)
    finish(cluster, ratchet, {"-40", "40-80", "80-"})


@pytest.mark.long
def test_a_split_into_four_while_dumping(cluster: VitessCluster, tmp_path: Path) -> None:
    """The dump begins anew on the new shards, by itself."""
    fill(cluster, ["0"])
    cluster.apply_vschema("shop", VSCHEMA)
    ratchet = ratchet_on(cluster, tmp_path, snapshot={"chunk_rows": 20, "max_rows_per_second": 40})
    running = ratchet.start("run")
    until(lambda: (ratchet.lake / "shop").exists() and shards_of(ratchet) == {"0"}, "it dumps")
    targets = ["-40", "40-80", "80-c0", "c0-"]
    with Writer(cluster):
        flow = cluster.reshard("shop", ["0"], targets)
        flow.wait_until_running()
        flow.switch()
        until(lambda: shards_of(ratchet) == set(targets), "the four are followed")
        flow.complete()
    log = stop(running)
    assert "a reshard ended one of its shards meanwhile" in log
    quick = ratchet_on(cluster, tmp_path)
    finish(cluster, quick, set(targets))


@pytest.mark.long
def test_a_reshard_while_nobody_follows(cluster: VitessCluster, tmp_path: Path) -> None:
    """Back before `Reshard complete`, nothing is lost; back after it, the tables are dumped."""
    fill(cluster, ["0"])
    cluster.apply_vschema("shop", VSCHEMA)
    ratchet = ratchet_on(cluster, tmp_path)
    ratchet.run("run", "--until-caught-up")
    with Writer(cluster), Mover(cluster) as mover:
        split = cluster.reshard("shop", ["0"], ["-80", "80-"])
        split.wait_until_running()
        split.switch()
        time.sleep(3)
    assert mover.done > 50
    seen = ratchet.run("run", "--until-caught-up", timeout=400).stderr
    assert "shop/0: the stream continues at shop/-80, shop/80-" in seen
    assert "to dump" not in seen
    split.complete()
    finish(cluster, ratchet, {"-80", "80-"})
    with Writer(cluster, seed=2, moves=False):
        merge = cluster.reshard("shop", ["-80", "80-"], ["-"])
        merge.wait_until_running()
        merge.switch()
        time.sleep(2)
        merge.complete()
    seen = ratchet.run("run", "--until-caught-up", timeout=400).stderr
    assert "-80, 80- were ended by a reshard" in seen
    assert "to dump: 3 tables" in seen
    finish(cluster, ratchet, {"-"})


@pytest.mark.long
def test_a_reshard_of_one_of_two_that_is_missed(cluster: VitessCluster, tmp_path: Path) -> None:
    """Only its heirs are dumped; the other shard's rows stand as they are, its stream goes on."""
    fill(cluster, ["-80", "80-"])
    ratchet = ratchet_on(cluster, tmp_path)
    ratchet.run("run", "--until-caught-up")
    before = {row["id"]: row["_token"] for row in mirrored(ratchet, "still")}
    with Writer(cluster) as writer:
        writer.more(50)
        flow = cluster.reshard("shop", ["80-"], ["80-c0", "c0-"])
        flow.wait_until_running()
        writer.more(50)
        flow.switch()
        writer.more(50)
        flow.complete()
    seen = ratchet.run("run", "--until-caught-up", timeout=400).stderr
    assert "80- were ended by a reshard" in seen
    for table in TABLES:
        assert f"shop.{table} needs a new dump, only shop/80-c0, shop/c0-" in seen
    finish(cluster, ratchet, {"-80", "80-c0", "c0-"})
    after = {row["id"]: row["_token"] for row in mirrored(ratchet, "still")}
    assert {token["shard"] for token in after.values()} == {"shop/-80", "shop/80-c0", "shop/c0-"}
    kept = {key: token for key, token in after.items() if token["shard"] == "shop/-80"}
    assert kept == {key: before[key] for key in kept}
    with Writer(cluster, seed=3) as writer:
        writer.more(100)
    finish(cluster, ratchet, {"-80", "80-c0", "c0-"})


def mirrored(ratchet: Ratchet, table: str) -> list[dict[str, Any]]:
    """The rows of a mirrored table, with their tokens."""
    reader = QueryBuilder().register("t", DeltaTable(str(ratchet.lake / "shop" / table)))
    rows: list[dict[str, Any]] = pa.table(reader.execute("SELECT * FROM t").read_all()).to_pylist()
    return rows
