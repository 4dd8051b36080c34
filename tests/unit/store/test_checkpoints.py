"""Checkpoints come as seldom as their size asks for, and few of them stay."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from ratchet.core.errors import LakeError, TableFileError
from ratchet.store.delta import checkpoints, log
from ratchet.store.delta.actions import DataFile, RemovedFile, rewrite_info
from ratchet.store.delta.appendlog import DeltaLogTable
from ratchet.store.delta.checkpoints import (
    checkpoint_if_due,
    clean_log,
    needless_checkpoints,
    write_checkpoint,
)
from ratchet.store.delta.commits import commit_files
from ratchet.store.delta.log import replay, replay_to
from ratchet.store.delta.tables import create_delta_table, set_properties
from ratchet.store.files import Lake, LakeFile
from ratchet.store.formats import open_lake

SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False)])
HOUR = 3_600_000_000
NOW = 1_800_000_000_000_000


def file(version: int, age: int = 2 * HOUR, end: str = "checkpoint.parquet") -> LakeFile:
    return LakeFile(f"t/_delta_log/{version:020d}.{end}", 1, NOW - age)


@pytest.mark.parametrize("seed", range(20))
def test_each_version_is_read_with_a_thousand_commits_at_most(seed: int) -> None:
    rng = random.Random(seed)
    versions = sorted(rng.sample(range(20, 12_000, 20), rng.randint(1, 300)))
    listed = [file(version) for version in versions] + [file(v, end="json") for v in range(9)]
    rng.shuffle(listed)
    gone = set(needless_checkpoints(listed, now=NOW))
    kept = [version for version in versions if file(version).path not in gone]
    assert kept[0] == versions[0]
    assert kept[-1] == versions[-1]
    for version in versions:  # where a checkpoint stood, one that stays is near
        assert version - max(one for one in kept if one <= version) < 1000
    assert len(kept) <= 2 + 12_000 // 1000
    assert all(path.endswith("checkpoint.parquet") for path in gone)


def test_young_checkpoints_stay_and_those_of_an_unknown_age() -> None:
    listed = [file(20), file(40), file(60, HOUR // 2), LakeFile(file(80).path, 1, 0), file(100)]
    assert needless_checkpoints(listed, now=NOW) == [file(40).path]
    assert needless_checkpoints([], now=NOW) == []


def busy(lake: Lake, removed: int, commits: int) -> list[int]:
    """A table whose log remembers so many files; the checkpoints that further commits bring."""
    create_delta_table(lake, "t", SCHEMA, name="t", description="", now=NOW, stats=["number"])
    names = [f"{number}.parquet" for number in range(removed)]
    there = [DataFile.new(name, size=1, stats="", now=NOW) for name in names]
    gone = [RemovedFile(uri=name, vector=None, removed_at=time.time_ns() // 1000) for name in names]
    info = rewrite_info("DELETE", read=0, now=NOW)
    files = commit_files(lake, "t", replay(lake, "t"), [info, *there])
    files = commit_files(lake, "t", files, [info, *gone])
    found = []
    for _ in range(commits - 1):
        files = commit_files(lake, "t", files, [info])
        assert files is not None
        checkpoint_if_due(lake, "t", files.version)
        if lake.exists(f"t/_delta_log/{files.version:020d}.checkpoint.parquet"):
            found.append(files.version)
    return found


def test_a_large_checkpoint_comes_less_often(tmp_path: Path) -> None:
    """What it costs a commit stays bounded, however many files the log remembers."""
    for removed, expected in ((0, [20, 40, 60, 80]), (6_000, [20, 80]), (30_000, [20])):
        lake = open_lake(tmp_path / str(removed), now=1)
        assert busy(lake, removed, 90) == expected


def test_one_comes_at_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_SELDOM", 60)
    assert busy(open_lake(tmp_path, now=1), 8_000, 150) == [20, 80, 140]


def test_old_versions_are_read_without_the_checkpoints_that_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_APART", 60)
    lake = open_lake(tmp_path, now=1)
    assert len(busy(lake, 0, 130)) == 6
    now = time.time_ns() // 1000
    clean_log(lake, "t", now=now)
    folder = tmp_path / "t/_delta_log"
    assert len(list(folder.glob("*.checkpoint.parquet"))) == 6  # young ones stay
    for one in folder.glob("*.checkpoint.parquet"):
        os.utime(one, (now / 1e6 - 7200, now / 1e6 - 7200))
    clean_log(lake, "t", now=now)
    kept = sorted(int(one.name.partition(".")[0]) for one in folder.glob("*.checkpoint.parquet"))
    assert kept == [20, 80, 120]
    for version in (0, 19, 20, 41, 79, 100, 119, 131):
        found = replay_to(lake, "t", version)
        assert found is not None
        assert found.version == version
        delta = DeltaTable(lake.delta_uri("t"), version=version)
        assert (
            QueryBuilder().register("t", delta).execute("SELECT * FROM t").read_all().num_rows == 0
        )
    newest = replay(lake, "t")
    assert newest is not None
    assert newest.version == 131


def test_a_log_of_an_earlier_version_forgets_what_was_removed(tmp_path: Path) -> None:
    """Its checkpoints named a week of files that had been removed within hours."""
    lake = open_lake(tmp_path, now=1)
    moment = [time.time_ns() // 1000 - 3 * HOUR]
    table = DeltaLogTable(lake, "log", SCHEMA, lambda: moment[0])

    def append(first: int, count: int) -> None:
        for number in range(first, first + count):
            rows = pa.table({"number": [number]}, schema=SCHEMA)
            table.append(rows, app_id="a", version=number, operation="write")

    append(1, 30)
    lacked = {"delta.deletedFileRetentionDuration": "interval 1 weeks"}
    assert set_properties(lake, "log", lacked, now=moment[0])
    table.version_of("a")
    table.compact()
    append(31, 1)
    moment[0] += 3 * HOUR
    append(32, 20)
    write_checkpoint(lake, "log")
    named = DeltaTable(lake.delta_uri("log")).metadata().configuration
    assert named["delta.deletedFileRetentionDuration"] == "interval 1 hours"
    last = lake.read_json("log/_delta_log/_last_checkpoint")
    assert last["size"] < 30  # the 30 that were removed are not named any more
    assert sorted(row["number"] for row in table.read(columns=["number"])) == list(range(1, 52))
    # The files themselves go although no name of them is left.
    old = time.time() - 7200
    files = set((tmp_path / "log").glob("*.parquet"))
    for file in files:
        os.utime(file, (old, old))
    fresh = DeltaLogTable(lake, "log", SCHEMA, lambda: moment[0])
    fresh.compact()
    assert len(files) > 50
    assert len(set((tmp_path / "log").glob("*.parquet")) & files) <= 22  # removed just now
    assert sorted(row["number"] for row in fresh.read(columns=["number"])) == list(range(1, 52))


def test_a_version_of_long_ago_is_not_taken_for_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commits behind it may be gone, and who stood still would write below the log's end."""
    lake = open_lake(tmp_path, now=1)
    create_delta_table(lake, "t", SCHEMA, name="t", description="", now=NOW, stats=["number"])
    known = replay(lake, "t")
    assert known is not None
    info = rewrite_info("WRITE", read=0, now=NOW)
    for _ in range(5):
        assert commit_files(lake, "t", replay(lake, "t"), [info]) is not None
    write_checkpoint(lake, "t")
    for version in range(5):
        lake.delete(f"t/_delta_log/{version:020d}.json")
    assert replay(lake, "t", known) is known  # a young one: no request more than needed
    with monkeypatch.context() as later:
        later.setattr(log, "_uptime", lambda: known.read_at + 601)
        found = replay(lake, "t", known)
    assert found is not None
    assert found.version == 5
    assert replay(lake, "t", found) is found
    monkeypatch.setattr(log, "_uptime", lambda: found.read_at + 601)
    again = replay(lake, "t", found)
    assert again is not None
    assert again == found
    assert again.read_at == found.read_at + 601


def test_a_checkpoint_list_that_says_nothing_of_sizes(tmp_path: Path) -> None:
    """Another writer's: a checkpoint is written as ever."""
    lake = open_lake(tmp_path, now=1)
    busy(lake, 0, 10)
    lake.write_json("t/_delta_log/_last_checkpoint", {"version": 2})
    with pytest.raises(LakeError):
        lake.read_range("t/_delta_log/none", 0, 1)
    checkpoint_if_due(lake, "t", 20)
    assert lake.read_json("t/_delta_log/_last_checkpoint")["version"] == 11


@pytest.mark.parametrize("torn", [b"", b'{"version":', b'{"version":"x"}', b"\0\0\0", None])
def test_the_name_of_the_newest_checkpoint_is_torn_or_gone(
    tmp_path: Path, torn: bytes | None
) -> None:
    """As behind a power loss. The log does not go back to its first commit any more."""
    lake = open_lake(tmp_path, now=1)
    assert busy(lake, 30, 45) == [20, 40]
    name = tmp_path / "t/_delta_log/_last_checkpoint"
    for version in range(40):
        lake.delete(f"t/_delta_log/{version:020d}.json")
    whole = replay(lake, "t")
    assert whole is not None
    if torn is None:
        name.unlink()
    else:
        name.write_bytes(torn)
    found = replay(lake, "t")
    assert found == whole
    info = rewrite_info("WRITE", read=46, now=NOW)
    while found is not None and found.version < 60:
        found = commit_files(lake, "t", found, [info])
        assert found is not None
        checkpoint_if_due(lake, "t", found.version)
    assert lake.read_json("t/_delta_log/_last_checkpoint")["version"] == 60
    assert replay(lake, "t") == found
    delta = DeltaTable(lake.delta_uri("t"))
    assert delta.version() == 60


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    lake = open_lake(tmp_path, now=1)
    assert replay(lake, "none") is None
    (tmp_path / "bare/_delta_log").mkdir(parents=True)
    assert replay(lake, "bare") is None


def test_a_byte_of_a_checkpoint_is_another_one(lake: Lake) -> None:
    """It is read, or it is damaged by name; nothing else is raised."""
    files = busy(lake, 3, 2)
    assert files == []
    write_checkpoint(lake, "t")
    (path,) = Path(lake.absolute("t/_delta_log")).glob("*.checkpoint.parquet")
    raw = path.read_bytes()
    found = []
    for at in range(0, len(raw), 13):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 255]) + raw[at + 1 :])
        try:
            replay(lake, "t")
        except TableFileError as error:
            found.append(error)
    assert all(path.name in str(error) and "redump" in error.hint for error in found)
    assert len(found) > len(raw) // 13 // 5
