"""A Vitess keyspace read from its tablets' own MySQL servers, through reshards.

Each scenario ends with the mirror compared, row by row, with `SELECT` through vtgate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tablets_kit
from fix_e2e import Ratchet
from shop_kit import VSCHEMA, Mover, Writer, fill, finish, shards_of
from vitess_kit import stop, until

from lab.vitess import VitessCluster
from ratchet.store.files import Lake
from ratchet.store.tables import Tables

MADE: list[Ratchet] = []


@pytest.fixture
def cluster(vitess_of_its_own: VitessCluster) -> VitessCluster:
    """A cluster with one unsharded keyspace, `shop`."""
    fill(vitess_of_its_own, ["0"])
    vitess_of_its_own.apply_vschema("shop", VSCHEMA)
    return vitess_of_its_own


@pytest.fixture(autouse=True)
def _runs_ended() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().end_all()


def ratchet_on(cluster: VitessCluster, folder: Path, shards: list[str]) -> Ratchet:
    MADE.append(tablets_kit.ratchet_on(cluster, folder, shards))
    return MADE[-1]


def dumps(ratchet: Ratchet) -> dict[str, str]:
    """Table -> id of the dump that it stands on."""
    states = Tables(Lake.at(str(ratchet.lake))).list()
    return {one.table: one.dump.id for one in states if one.dump is not None}


@pytest.mark.long
def test_there_and_back_by_the_journals_in_the_binlogs(
    cluster: VitessCluster, tmp_path: Path
) -> None:
    """A split, its reversal, and the split again; nothing is dumped twice."""
    ratchet = ratchet_on(cluster, tmp_path, ["0"])
    ratchet.run("run", "--until-caught-up")
    before = dumps(ratchet)
    with Writer(cluster, moves=False) as writer:
        flow = cluster.reshard("shop", ["0"], ["-80", "80-"])
        flow.wait_until_running()
        # Copied, and not yet serving: listed already, and left alone until the journal comes.
        ratchet = ratchet_on(cluster, tmp_path, ["0", "-80", "80-"])
        assert "fit (" in ratchet.run("check").stdout
        running = ratchet.start("run")
        writer.more(100)
        for step, shards in (
            (flow.switch, {"-80", "80-"}),
            (flow.reverse, {"0"}),
            (flow.switch, {"-80", "80-"}),
        ):
            step()
            until(lambda: shards_of(ratchet) == shards, f"{shards} are followed")  # noqa: B023
            time.sleep(3)
        flow.complete()
    stop(running)
    finish(cluster, ratchet, {"-80", "80-"})
    assert dumps(ratchet) == before
    status = ratchet.run("status").stdout
    assert "shop/80-" in status
    assert "shop/0" not in status


@pytest.mark.long
def test_a_merge_of_two_that_is_missed(vitess_of_its_own: VitessCluster, tmp_path: Path) -> None:
    """Both sources are gone before they were read to their end, each at another time."""
    cluster = vitess_of_its_own
    fill(cluster, ["-80", "80-"])
    ratchet = ratchet_on(cluster, tmp_path, ["-80", "80-"])
    ratchet.run("run", "--until-caught-up")
    with Writer(cluster, moves=False) as writer:
        flow = cluster.reshard("shop", ["-80", "80-"], ["-"])
        flow.wait_until_running()
        ratchet.run("run", "--until-caught-up")
        before = dumps(ratchet)
        writer.more(200)
        flow.switch()
        writer.more(100)
        flow.complete()
    ratchet = ratchet_on(cluster, tmp_path, ["-"])
    seen = ratchet.run("run", "--until-caught-up", timeout=400).stderr
    assert "have what was written there since" in seen
    finish(cluster, ratchet, {"-"})
    assert dumps(ratchet) == before


@pytest.mark.long
def test_shards_that_the_config_lacks_are_asked_for(cluster: VitessCluster, tmp_path: Path) -> None:
    """The journal names shards whose servers are not known: said so, and then gone on with."""
    ratchet = ratchet_on(cluster, tmp_path, ["0"])
    ratchet.run("run", "--until-caught-up")
    before = dumps(ratchet)
    with Writer(cluster):
        flow = cluster.reshard("shop", ["0"], ["-80", "80-"])
        flow.wait_until_running()
        flow.switch()
        time.sleep(2)
    failed = ratchet.run("run", "--until-caught-up", expect=2)
    assert "sources.shop.shards lacks -80, 80-" in failed.stderr
    ratchet = ratchet_on(cluster, tmp_path, ["0", "-80", "80-"])
    finish(cluster, ratchet, {"-80", "80-"})
    assert dumps(ratchet) == before


@pytest.mark.long
def test_the_old_shard_is_gone_before_it_was_read_to_its_end(
    cluster: VitessCluster, tmp_path: Path
) -> None:
    """The new shards' logs hold copies of what was missed: nothing has to be dumped again."""
    ratchet = ratchet_on(cluster, tmp_path, ["0"])
    ratchet.run("run", "--until-caught-up")
    with Writer(cluster) as writer, Mover(cluster) as mover:
        flow = cluster.reshard("shop", ["0"], ["-80", "80-"])
        flow.wait_until_running()
        ratchet.run("run", "--until-caught-up")
        before = dumps(ratchet)
        writer.more(200)  # and nobody reads it
        mover.more(50)
        flow.switch()
        time.sleep(2)
        flow.complete()
    cluster.kill_tablet(next(t for t in cluster.tablets.values() if t.shard == "0"))
    ratchet = ratchet_on(cluster, tmp_path, ["-80", "80-"])
    seen = ratchet.run("run", "--until-caught-up", timeout=400).stderr
    assert "have what was written there since" in seen
    finish(cluster, ratchet, {"-80", "80-"})
    assert dumps(ratchet) == before


@pytest.mark.long
def test_the_old_shard_is_gone_and_was_copied_later(cluster: VitessCluster, tmp_path: Path) -> None:
    """What was deleted before the copy is in no log: the tables are dumped again, by itself."""
    ratchet = ratchet_on(cluster, tmp_path, ["0"])
    ratchet.run("run", "--until-caught-up")
    before = dumps(ratchet)
    with Writer(cluster):
        time.sleep(3)
        flow = cluster.reshard("shop", ["0"], ["-80", "80-"])
        flow.wait_until_running()
        flow.switch()
        flow.complete()
    ratchet = ratchet_on(cluster, tmp_path, ["-80", "80-"])
    seen = ratchet.run("run", "--until-caught-up", timeout=400).stderr
    assert "were copied here from a later position than the mirror's" in seen
    finish(cluster, ratchet, {"-80", "80-"})
    assert set(dumps(ratchet).values()).isdisjoint(before.values())
