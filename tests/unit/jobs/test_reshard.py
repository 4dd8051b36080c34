"""Following reshards in the round log: which streams begin, end, and what they descend from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import Journal, Round, ShardSlice
from ratchet.core.schema import TableSchema
from ratchet.jobs.topology.begin import align, record_starts
from ratchet.jobs.topology.discover import DiscoveredTable
from ratchet.jobs.topology.lineage import ancestors_of
from ratchet.jobs.topology.reshard import begin_successors
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.store.tables import Phase, Tables, TableState

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


@pytest.fixture
def log(lake: Lake) -> RoundLog:
    return RoundLog(lake)


def at(number: int) -> Position:
    return Position(executed=GtidSet.parse("mysql", f"{UUID}:1-{number}"))


def journal(sources: str, targets: str) -> Journal:
    return Journal(
        sources=tuple(f"shop/{name}" for name in sources.split()),
        targets={f"shop/{name}": at(50 + n) for n, name in enumerate(targets.split())},
    )


def take(log: RoundLog, shard: str, ends_by: Journal | None = None) -> None:
    """A slice of one transaction."""
    stream = log.streams()[f"shop/{shard}"]
    piece = ShardSlice(
        shard=f"shop/{shard}", generation=stream.generation, start=stream.position,
        end=at(stream.position.seq + 1), runs=(), transactions=1, rows=0, bytes=1, min_ts=1,
        max_ts=1, observed_at=1, caught_up=True, journal=ends_by,
    )  # fmt: skip
    number = log.last_number() + 1
    log.append(Round(number=number, committed_at=1, slices=(piece,), files=(), events=()))


def reshard(log: RoundLog, sources: str, targets: str) -> None:
    for name in sources.split():
        take(log, name, journal(sources, targets))
        begin_successors(log, now=1)


def lineage(lake: Lake) -> dict[str, tuple[int, dict[str, int]]]:
    """As another process reads it."""
    streams = RoundLog(lake).streams()
    return {
        shard.partition("/")[2]: (
            one.generation,
            {name.partition("/")[2]: value for name, value in one.ancestors.items()},
        )
        for shard, one in streams.items()
    }


def test_a_split_begins_its_targets_at_the_journal(lake: Lake, log: RoundLog) -> None:
    record_starts(log, {"shop/0": at(7), "wiki/-": at(3)}, now=1)
    take(log, "0")
    begin_successors(log, now=1)
    assert log.last_number() == 2  # nothing has ended
    take(log, "0", journal("0", "-80 80-"))
    begin_successors(log, now=1)
    streams = RoundLog(lake).streams()
    assert set(streams) == {"shop/-80", "shop/80-", "wiki/-"}
    assert streams["shop/-80"].position == at(50)
    assert streams["shop/80-"].position == at(51)
    assert streams["shop/80-"].generation == 1
    assert streams["shop/80-"].ancestors == {"shop/0": 0}
    take(log, "-80")
    assert lineage(lake)["-80"] == (1, {"0": 0})  # kept by later slices
    begin_successors(log, now=1)
    assert log.last_number() == 5  # once is enough


def test_a_merge_waits_for_all_its_sources(lake: Lake, log: RoundLog) -> None:
    record_starts(log, {"shop/-80": at(7), "shop/80-": at(9)}, now=1)
    take(log, "-80", journal("-80 80-", "-"))
    begin_successors(log, now=1)
    assert set(log.streams()) == {"shop/-80", "shop/80-"}
    assert log.streams()["shop/-80"].journal is not None
    take(log, "80-")
    begin_successors(log, now=1)
    take(log, "80-", journal("-80 80-", "-"))
    begin_successors(log, now=1)
    assert lineage(lake) == {"-": (1, {"-80": 0, "80-": 0})}


def test_there_and_back_and_there_again(lake: Lake, log: RoundLog) -> None:
    """A shard that comes back is newer than those that were in its place."""
    record_starts(log, {"shop/0": at(7)}, now=1)
    reshard(log, "0", "-80 80-")
    reshard(log, "-80 80-", "0")
    assert lineage(lake) == {"0": (2, {"-80": 1, "80-": 1})}
    reshard(log, "0", "-80 80-")
    # -80 is newer than what was on 80- before, and says nothing of what is there now.
    assert lineage(lake) == {"-80": (3, {"0": 2, "80-": 1}), "80-": (3, {"0": 2, "-80": 1})}
    reshard(log, "-80", "-40 40-80")
    found = lineage(lake)
    assert found["80-"][0] == 3
    assert found["-40"] == (4, {"-80": 3, "0": 2, "80-": 1})


def test_the_newest_of_several_lives_counts() -> None:
    streams = {
        "shop/-80": StreamState(position=at(1), generation=3, ancestors={"shop/0": 0}),
        "shop/80-": StreamState(position=at(1), generation=1, ancestors={"shop/0": 2}),
    }
    assert ancestors_of(streams) == {"shop/-80": 3, "shop/80-": 1, "shop/0": 2}


@pytest.mark.parametrize(
    ("phase", "expected"),
    [("dumping", "new"), ("catching_up", "new"), ("streaming", "streaming"), ("new", "new")],
)
def test_a_dump_that_a_reshard_tore_begins_anew(lake: Lake, phase: Phase, expected: Phase) -> None:
    schema = TableSchema(keyspace="shop", table="t", columns=(), key=("id",))
    dump = DumpState(id="d", start_round=1, start={"shop/0": at(1)})
    state = TableState(
        keyspace="shop", table="t", schema=schema, key=("id",), phase=phase, dump=dump
    )
    Tables(lake).save(replace(state, merged_round=0))
    found = [DiscoveredTable(keyspace="shop", table="t", shards=("shop/-80",), rows=1)]
    (after,) = align(
        lake,
        found,
        lambda *_: True,
        set(),
        ended=lambda shard: shard == "shop/0",
    )
    assert after.phase == expected
