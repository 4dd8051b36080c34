"""Beginning at a time, over shards that overlap: what comes twice, with and without its source.

A mirror has followed shard 0 for a while, when it is split; nobody reads it to its end. The new
shards' streams then begin at the time up to which it was read, so they bring copies of what the
mirror has. This is done twice, from the same lake: once the copies' coordinates on their source
are used, and once they are not.
"""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
import pytest
from deltalake import DeltaTable, QueryBuilder
from fix_e2e import Ratchet
from shop_kit import VSCHEMA, fill
from tablets_kit import ratchet_on
from vitess_kit import source_rows
from worker_kit import Worker

from lab.vitess import VitessCluster
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.binlog.seek import check_follows, position_at
from ratchet.ingest.capture import close_streams
from ratchet.ingest.rounds import RoundTaker, local_runner
from ratchet.ingest.slices import CaptureRequest, SliceLimits
from ratchet.jobs.config.config import load_config
from ratchet.jobs.config.sources import source_configs
from ratchet.jobs.topology.begin import begin_streams
from ratchet.jobs.topology.lineage import heir
from ratchet.merge.rounds import Merger
from ratchet.merge.step import MergeOptions
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.wire.binlog import DumpOptions, replica_server_id
from ratchet.wire.connect import SourceConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("tests")
SHARDS = ["-80", "80-"]
EARLIER = 4_000_000  # microseconds that the streams begin before what was read last
SLICE = 64 << 10  # bytes of log in a slice: several versions, so that steps back show


class Counter(Worker):
    """Writes ever higher numbers into the rows of `still`, until told to stop."""

    def __init__(self, cluster: VitessCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._random = random.Random(7)

    def step(self) -> None:
        try:
            with self._cluster.connect("shop", autocommit=True) as connection:
                while not self.told.wait(0.01):
                    # Few rows, so that each is written often.
                    row, number = self._random.randrange(1, 40), 10_000 + self.done
                    with connection.cursor() as cursor:
                        cursor.execute(f"UPDATE still SET v = {number} WHERE id = {row}")
                    self.done += 1
        except pymysql.err.Error:
            time.sleep(0.1)  # traffic is being switched


@pytest.fixture
def split(
    vitess_of_its_own: VitessCluster, tmp_path: Path
) -> Iterator[tuple[VitessCluster, Ratchet]]:
    """A keyspace that was split under a writer, and a mirror of before the switch."""
    cluster = vitess_of_its_own
    fill(cluster, ["0"])
    cluster.apply_vschema("shop", VSCHEMA)
    ratchet = ratchet_on(cluster, tmp_path, ["0"])
    with Counter(cluster):
        ratchet.run("run", "--until-caught-up")
        flow = cluster.reshard("shop", ["0"], SHARDS)
        flow.wait_until_running()
        time.sleep(2 * EARLIER / 1e6)
        ratchet.run("run", "--until-caught-up")
        time.sleep(3)
        flow.switch()
        time.sleep(3)
    flow.complete()
    yield cluster, ratchet_on(cluster, tmp_path, SHARDS)
    close_streams()


def versions(lake: Path) -> Iterator[dict[int, int]]:
    """What each version of `still` shows, from the newest one that is there on: call `next`."""
    while True:
        table = QueryBuilder().register("t", DeltaTable(str(lake / "shop" / "still")))
        rows = table.execute("SELECT id, v FROM t").read_all()
        yield dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


def take_over(
    spark: SparkSession,
    lake: Path,
    sources: Mapping[ShardId, SourceConfig],
    seen: Mapping[str, Position],
) -> tuple[int, int, dict[int, int]]:
    """Begin the new shards' streams, capture and merge all of them in small steps.

    Returns:
        How many rows went back, in how many versions, and what the last version shows.
    """
    rounds = RoundLog(Lake.at(str(lake)))
    old: dict[str, StreamState] = rounds.streams()
    since = min(stream.ts for stream in old.values()) - EARLIER
    options = {s: DumpOptions(server_id=replica_server_id(str(lake), s)) for s in sources}
    begun = []
    for shard, source in sources.items():
        place = position_at(source, since, options[shard])
        check_follows(source, place, seen, options[shard], generation=1)
        begun.append(heir(str(shard), place, old, now=1, seen=seen))
    begin_streams(rounds, begun, now=1)
    taker = RoundTaker(rounds, local_runner, heartbeat_commit_seconds=0.0)
    shown = versions(lake)
    before, back, number = next(shown), 0, 0
    open_streams = set(sources)
    merging = Merger(spark, Lake.at(str(lake)), MergeOptions(policy=InvalidValuePolicy()))
    with merging as merger:
        while open_streams:
            states = rounds.streams()
            outcome = taker.take(
                [
                    CaptureRequest(
                        source=sources[shard],
                        start=taker.position(str(shard)) or states[str(shard)].position,
                        generation=1,
                        round_number=taker.next_number,
                        lake=str(lake),
                        patterns=TablePatterns(),
                        limits=SliceLimits(max_bytes=SLICE, max_seconds=5, min_seconds=0.1),
                        dump=options[shard],
                        vitess=True,
                        seen=states[str(shard)].seen,
                    )
                    for shard in sorted(open_streams)
                ]
            )
            assert not outcome.errors
            open_streams -= {ShardId.parse(shard) for shard in outcome.caught_up}
            merger.step()
            after = next(shown)
            back += sum(after.get(key, -1) < value for key, value in before.items())
            number += 1
            before = after
    close_streams()
    return back, number, before


@pytest.mark.long
def test_copies_take_no_row_back(
    split: tuple[VitessCluster, Ratchet],
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, ratchet = split
    for name, value in ratchet.env.items():
        monkeypatch.setenv(name, value)
    sources = source_configs(load_config(ratchet.config))
    found = {}
    for way in ("with", "without"):
        lake = tmp_path / way / "lake"
        shutil.copytree(ratchet.lake, lake)
        mirrored = RoundLog(Lake.at(str(lake))).positions()
        seen = mirrored if way == "with" else {}
        back, number, last = take_over(spark, lake, sources, seen)
        found[way] = back
        log.info("%s coordinates: %d rows went back in %d steps", way, back, number)
        assert last == {row[0]: row[1] for row in source_rows(cluster, "shop", "still")}
    assert found["with"] == 0
    assert found["without"] > 0
