"""Files of old versions go when their history is over, and not a moment before."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from lease_kit import Passing

from ratchet.store import layout, retention
from ratchet.store.delta.actions import Action, DataFile, rewrite_info
from ratchet.store.delta.checkpoints import write_checkpoint
from ratchet.store.delta.commits import LateError, commit_files
from ratchet.store.delta.datafiles import write_data_file
from ratchet.store.delta.log import (
    TableFiles,
    replay,
    replay_to,
)
from ratchet.store.delta.tables import create_delta_table, open_delta
from ratchet.store.delta.vectors import vector_of, write_vectors
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lease import Lease
from ratchet.store.retention import UNNAMED_SECONDS, keep_history, remove_old_files

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int64())])
SECOND = 10**6
DAY = 86_400
BEGIN = 1_800_000_000 * SECOND


@dataclass
class Story:
    """A table, and what each of its versions shows."""

    lake: Lake
    now: int = BEGIN
    rows: dict[int, set[int]] = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)
    next_id: int = 0

    @property
    def table(self) -> TableFiles:
        found = replay(self.lake, "t")
        assert found is not None
        return found

    def create(self) -> None:
        create_delta_table(
            self.lake, "t", SCHEMA, name="t", description="", now=self.now, stats=["id"]
        )
        self.note(0, set())

    def note(self, version: int, rows: set[int]) -> None:
        self.rows[version], self.since[version] = rows, self.now

    def file(self, ids: set[int]) -> DataFile:
        rows = pa.table({"id": sorted(ids)}, schema=SCHEMA)
        return write_data_file(
            self.lake, "t", [rows], SCHEMA, kind="part", described=["id"], now=self.now
        )

    def commit(self, rows: set[int], *actions: Action) -> None:
        table = self.table
        info = rewrite_info("WRITE", read=table.version, now=self.now)
        assert commit_files(self.lake, "t", table, [info, *actions]) is not None
        self.note(table.version + 1, rows)

    def insert(self, count: int) -> None:
        new = set(range(self.next_id, self.next_id + count))
        self.next_id += count
        self.commit(self.rows[self.table.version] | new, self.file(new))

    def delete_one(self, rng: random.Random) -> None:
        """By a deletion vector, which another takes the place of next time."""
        table = self.table
        here = self.rows[table.version]
        for file in table.files.values():
            path = Path(self.lake.absolute(f"t/{file.path}"))
            ids = pa.parquet.read_table(path).column("id").to_pylist()
            alive = [number for number in ids if number in here]
            if alive:
                gone = rng.choice(alive)
                places = [n for n, number in enumerate(ids) if number not in here - {gone}]
                (vector,) = write_vectors(self.lake, "t", [vector_of(np.array(places))])
                self.commit(here - {gone}, file.removed(now=self.now), file.with_vector(vector))
                return

    def compact(self) -> None:
        table = self.table
        here = self.rows[table.version]
        gone = [file.removed(now=self.now) for file in table.files.values()]
        self.commit(here, *gone, self.file(here))

    def shown(self, version: int) -> set[int]:
        delta = DeltaTable(self.lake.delta_uri("t"), version=version)
        found = QueryBuilder().register("t", delta).execute("SELECT id FROM t").read_all()
        return set(pa.table(found).column("id").to_pylist())

    def data_files(self) -> set[str]:
        names = {file.path[2:] for file in self.lake.list("t")}
        return {name for name in names if not name.startswith("_")}

    def last_shown(self, version: int) -> int:
        """Until when a version was the newest."""
        return self.since.get(version + 1, self.now)

    def remove(self, keep: float) -> int:
        return sum(remove_old_files(self.lake, "t", keep=keep, now=self.now))


@pytest.fixture
def story(tmp_path: Path) -> Story:
    found = Story(open_lake(tmp_path, now=1))
    found.create()
    return found


def test_vectors_and_files_go_with_the_versions_that_name_them(story: Story) -> None:
    rng = random.Random(1)
    story.insert(3)
    story.now += 100 * SECOND
    story.delete_one(rng)
    story.now += 100 * SECOND
    story.delete_one(rng)
    story.now += 100 * SECOND
    story.compact()
    assert len(story.data_files()) == 4  # two files, two vectors
    assert story.remove(keep=1000) == 0
    story.now += 850 * SECOND  # version 2 was the newest until 950 seconds ago
    assert story.remove(keep=1000) == 0
    story.now += 100 * SECOND
    assert story.remove(keep=1000) == 1  # the first vector
    assert story.shown(3) == story.rows[3]
    story.now += 100 * SECOND
    assert story.remove(keep=1000) == 2
    assert story.shown(4) == story.rows[4]
    assert story.remove(keep=1000) == 0


@pytest.mark.parametrize("seed", range(12))
def test_each_version_of_the_history_can_be_read(story: Story, seed: int) -> None:
    """Random commits with checkpoints and removals between; what is older goes, all of it."""
    rng = random.Random(seed)
    keep = rng.choice([60, 600, 3600])
    for step in range(60):
        story.now += int(rng.expovariate(20 / keep) * SECOND)
        rng.choice([lambda: story.insert(rng.randint(1, 4)), lambda: story.delete_one(rng),
                    lambda: story.delete_one(rng), story.compact])()  # fmt: skip
        if step % 20 == 7:
            write_checkpoint(story.lake, "t")
        if rng.random() < 0.2:
            story.remove(keep)
            for version in story.rows:
                if story.last_shown(version) >= story.now - keep * SECOND:
                    assert story.shown(version) == story.rows[version], version
    story.now += keep * SECOND + 1
    story.remove(keep)
    live = story.table
    vectors = sum(file.vector is not None for file in live.files.values())
    assert len(story.data_files()) == len(live.files) + vectors
    assert story.shown(live.version) == story.rows[live.version]


def test_what_nothing_names_stays_for_a_day(story: Story) -> None:
    """It may be about to be committed; and other people's files are as old as they look."""
    story.insert(1)
    story.now = BEGIN + 10 * DAY * SECOND
    for name, age in (("new.parquet", UNNAMED_SECONDS - 10), ("old.parquet", UNNAMED_SECONDS + 10)):
        path = Path(story.lake.absolute(f"t/{name}"))
        path.write_bytes(b"x")
        moment = story.now / SECOND - age
        os.utime(path, (moment, moment))
    hidden = Path(story.lake.absolute("t/_change_data/x.parquet"))
    hidden.parent.mkdir()
    hidden.write_bytes(b"x")
    os.utime(hidden, (1, 1))
    assert story.remove(keep=60) == 1
    assert "new.parquet" in story.data_files()
    assert "old.parquet" not in story.data_files()
    assert hidden.exists()


def test_many_files_go_a_bite_at_a_time(story: Story) -> None:
    for number in range(450):
        path = Path(story.lake.absolute(f"t/{number}.parquet"))
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    clock = iter(range(100))
    found = remove_old_files(story.lake, "t", keep=60, now=story.now, clock=lambda: next(clock))
    assert list(found) == [200, 200, 50, 0]


def hold(lake: Lake) -> Lake:
    """The lake as somebody holds it who is then heard of no more."""
    lease = Lease.acquire(lake, "ratchet run", passing=Passing().time)
    lake.write_json(layout.LEASE_FILE, asdict(replace(lease.holder, machine="elsewhere")))
    return lease.lake


def test_a_late_holder_leaves_the_history_that_its_successor_keeps(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has listed what is older than a minute, and stands still; the successor keeps ten days."""
    story.insert(3)
    story.compact()
    story.now += 100 * SECOND
    root = story.lake
    story.lake = hold(root)
    genuine = retention.replay_with_removals

    def replayed(lake: Lake, path: str) -> object:
        found = genuine(lake, path)
        hold(root)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(retention, "replay_with_removals", replayed)
        with pytest.raises(LateError, match="taken this lake over"):
            story.remove(keep=60)
    assert story.shown(1) == {0, 1, 2}
    story.lake = hold(root)
    assert story.remove(keep=10 * DAY) == 0
    assert story.remove(keep=60) == 1


def test_a_holder_that_becomes_late_between_two_bites_removes_no_more(story: Story) -> None:
    for number in range(450):
        path = Path(story.lake.absolute(f"t/{number}.parquet"))
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    held = hold(story.lake)
    clock: Iterator[int] = iter(range(100))
    bites = remove_old_files(held, "t", keep=60, now=story.now, clock=lambda: next(clock))
    assert next(bites) == 200
    hold(story.lake)
    with pytest.raises(LateError):
        next(bites)
    assert len(story.data_files()) == 250


def test_the_log_is_told_to_remember(story: Story) -> None:
    """Longer than the config's history, whatever the table was made with."""
    story.insert(1)
    for keep, hours in ((3600.0, 25), (30.0 * DAY, 31 * 24)):
        assert keep_history(story.lake, "t", keep=keep, now=story.now)
        assert not keep_history(story.lake, "t", keep=keep, now=story.now)
        table = open_delta(story.lake, "t")
        assert table is not None
        settings = table.metadata().configuration
        assert settings["delta.logRetentionDuration"] == f"interval {hours} hours"
        assert settings["delta.deletedFileRetentionDuration"] == f"interval {hours} hours"
        assert settings["delta.dataSkippingStatsColumns"] == "id"
    assert story.shown(story.table.version) == {0}
    assert not keep_history(story.lake, "none", keep=1.0, now=story.now)


def test_tombstones_outlive_checkpoints_of_their_time(story: Story) -> None:
    """A checkpoint forgets removals older than the property says, as seen by the clock on the wall:
    a history of 30 days was lost after seven."""
    story.now = time.time_ns() // 1000 - 20 * DAY * SECOND
    keep_history(story.lake, "t", keep=30.0 * DAY, now=story.now)
    story.note(1, set())
    story.insert(2)
    story.now += DAY * SECOND
    story.compact()
    story.now += 19 * DAY * SECOND
    write_checkpoint(story.lake, "t")
    assert story.remove(keep=30 * DAY) == 0
    assert story.shown(2) == story.rows[2]
    assert replay_to(story.lake, "t", 2) is not None
    assert story.remove(keep=10 * DAY) == 1
