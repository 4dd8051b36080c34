"""Small merges where there is no Spark at all: what they write, and what they leave alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import ratchet.merge.direct
import ratchet.store.delta.checkpoints
import ratchet.store.delta.commits
from ratchet.core.change import TOKEN_COLUMN
from ratchet.core.dumps import app_id
from ratchet.core.errors import LakeError
from ratchet.merge.direct import merge_directly
from ratchet.merge.side import TOMBSTONE
from ratchet.store.delta.actions import CommitInfo
from ratchet.store.delta.log import put_commit, replay
from tests.direct_kit import (
    actions,
    batch,
    changed,
    merged,
    of_ours,
    put,
    side_rows,
    streaming,
)
from tests.merge_kit import Source, merger

pytestmark = pytest.mark.slow


# --- histories ------------------------------------------------------------------------------------


def some(source: Source, shard: str, keys: list[int], rng: random.Random, *, deletes: bool) -> None:
    """A transaction."""
    rows, ops = source.logs[f"shop/{shard}"].rows, []
    have, lack = [k for k in keys if k in rows], [k for k in keys if k not in rows]
    rng.shuffle(have)
    rng.shuffle(lack)
    for _ in range(rng.randint(1, 5)):
        kind = rng.choice(["put", "new", "del", "move"] if deletes else ["put", "new"])
        if kind == "new" and lack:
            ops.append(put(lack.pop(), f"{shard} {source.clock}"))
        elif kind == "put" and have:
            ops.append(put(have.pop(), f"{shard} {source.clock}"))
        elif kind == "del" and have:
            ops.append(("del", have.pop()))
        elif kind == "move" and have and lack:
            ops.append(("move", have.pop(), {"id": lack.pop(), "v": f"moved {source.clock}"}))
    source.tx(shard, *ops)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shards", ["one", "apart", "in the key"])
def test_random_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, shards: str
) -> None:
    """Rounds of several transactions; each change of a key is in the table with its own rank."""
    monkeypatch.setattr(ratchet.merge.direct, "_FILE_ROWS", 4)
    rng = random.Random(f"{seed} {shards}")
    names = ["-"] if shards == "one" else ["-80", "80-"]
    source = streaming(tmp_path, *names, in_key=shards == "in the key")
    with merger(None, source) as merging:
        for _ in range(25):
            for n, name in enumerate(names):
                keys = list(range(12)) if shards != "apart" else list(range(n, 24, 2))
                for _ in range(rng.randint(0, 3)):
                    some(source, name, keys, rng, deletes=True)
            source.round(*rng.sample(names, rng.randint(1, len(names))))
            merging.step()
            source.assert_mirrored()


@pytest.mark.parametrize("seed", range(4))
def test_changes_that_come_again(tmp_path: Path, seed: int) -> None:
    """None takes a row back; nothing was deleted, so nothing else need be asked."""
    rng = random.Random(seed)
    source = streaming(tmp_path)
    for _ in range(12):
        for _ in range(rng.randint(1, 3)):
            some(source, "-", list(range(8)), rng, deletes=False)
        have = len(source.logs["shop/-"].old)
        source.deliver_again("-", first := rng.randint(0, have), rng.randint(first, have))
        source.round()
        merged(source)


# --- what is written ------------------------------------------------------------------------------


def test_a_commit_says_what_it_is(tmp_path: Path) -> None:
    source = streaming(tmp_path)
    done = changed(source, put(1, "a"), put(2, "b"), metadata={"b": 1, "a": "ä"})
    assert (done.changed, done.tombstones, done.side) == (2, False, None)
    info, txn, add = actions(source, done.files.version)
    assert info["commitInfo"] == {
        "timestamp": source.clock // 1000,
        "operation": "MERGE",
        "operationParameters": {},
        "readVersion": done.files.version - 1,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "engineInfo": "Ratchet",
        "userMetadata": '{"a": "\\u00e4", "b": 1}',
        "ratchetLines": 3,
    }
    number = source.rounds.last_number()
    assert txn["txn"] == {
        "appId": app_id(source.state), "version": number, "lastUpdated": source.clock // 1000
    }  # fmt: skip
    stats = add["add"]["stats"]
    assert '"numRecords":2' in stats
    assert '"minValues":{"id":1},"maxValues":{"id":2}' in stats
    assert add["add"]["modificationTime"] == source.clock // 1000
    assert done.files.apps == {**done.files.apps, app_id(source.state): number}


def test_files_by_ranges_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that later merges look into few of them."""
    monkeypatch.setattr(ratchet.merge.direct, "_FILE_ROWS", 4)
    source = streaming(tmp_path)
    numbers = list(range(13))
    random.Random(1).shuffle(numbers)
    done = changed(source, *(put(n, "x") for n in numbers))
    found = []
    for file in of_ours(done.files).values():
        path = Path(source.lake.root.removeprefix("file://"), source.state.path, file.path)
        table = pq.read_table(path)
        assert table.column_names == ["id", "v", TOKEN_COLUMN]
        found.append(table["id"].to_pylist())
    assert sorted(found) == [[0, 1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    done = changed(source, *(put(n, "y") for n in numbers[:7]))
    assert len(of_ours(done.files)) == 4


def test_rows_that_make_way(tmp_path: Path) -> None:
    """By vectors, one above the other; a file with no row left goes."""
    source = streaming(tmp_path)
    first = changed(source, *(put(n, "a") for n in range(4)))
    (old,) = of_ours(first.files)
    second = changed(source, put(0, "b"), put(2, "b"), put(9, "new"))
    assert second.changed == 3
    info, _, gone, back, come = actions(source, second.files.version)
    assert info["commitInfo"]["readVersion"] == first.files.version
    assert gone["remove"]["path"] == back["add"]["path"] == old
    assert "deletionVector" not in gone["remove"]
    assert back["add"]["deletionVector"]["cardinality"] == 2
    third = changed(source, put(3, "c"), ("del", 9))
    _, _, *rest = actions(source, third.files.version)
    assert [next(iter(a)) for a in rest] == ["remove", "add", "remove", "add", "add"]
    of_old = [a for a in rest if next(iter(a.values()))["path"] == old]
    assert of_old[0]["remove"]["deletionVector"] == back["add"]["deletionVector"]
    assert of_old[1]["add"]["deletionVector"]["cardinality"] == 3
    assert third.changed == 2
    fourth = changed(source, ("del", 1))
    _, _, *rest = actions(source, fourth.files.version)
    assert [next(iter(a)) for a in rest] == ["remove"]
    assert rest[0]["remove"]["path"] == old
    assert old not in fourth.files.files
    assert come["add"]["path"] in fourth.files.files


def test_nothing_that_changes_rows(tmp_path: Path) -> None:
    """The commit says how far the table is, all the same."""
    source = streaming(tmp_path)
    changed(source, put(1, "a"))
    done = changed(source, put(5, "x"), ("del", 5))
    assert done.changed == 0
    assert done.tombstones
    assert len(actions(source, done.files.version)) == 2


def test_tombstones(tmp_path: Path) -> None:
    """Of every delete, whether a row met it or not, and of keys that were left."""
    source = streaming(tmp_path, "-80", "80-", in_key=True)
    source.tx("-80", put(1, "a"), put(2, "b"), put(3, "c"))
    source.tx("80-", put(1, "other"))
    source.round()
    assert not merged(source).tombstones
    seq = source.tx("-80", ("del", 1), ("move", 2, {"id": 7, "v": "b"}), put(9, "x"), ("del", 9))
    source.tx("80-", ("del", 1))
    source.round()
    done = merged(source)
    assert done.tombstones
    assert done.side is not None
    found = side_rows(source)
    assert [(r["key"]["id"], r["shard"], r["token"]["idx"]) for r in found] == [
        (1, "shop/-80", 0),
        (1, "shop/80-", 0),
        (2, "shop/-80", 1),
        (9, "shop/-80", 3),
    ]
    assert {r["kind"] for r in found} == {TOMBSTONE}
    assert {r["round"] for r in found} == {source.rounds.last_number()}
    assert all(r["row"] is None for r in found)
    assert [r["token"]["seq"] for r in found if r["shard"] == "shop/-80"] == [seq] * 3
    assert all(r["token"]["gtid"] and r["token"]["shard"] == r["shard"] for r in found)
    assert {int(r["written_at"].timestamp() * 1e6) for r in found} == {source.clock}
    info, txn, add = actions(source, done.side.version, side=True)
    assert info["commitInfo"]["readVersion"] == done.side.version - 1
    assert txn["txn"]["version"] == source.rounds.last_number()
    assert '"numRecords":4' in add["add"]["stats"]


class Killed(Exception):  # noqa: N818 - no error
    """At a crash point."""


@pytest.mark.parametrize(
    ("point", "buried", "shown"),
    [
        ("merge.before_side", False, False),
        ("merge.after_side", True, False),
        ("merge.before_merge", True, False),
        ("merge.after_merge", True, True),
    ],
)
def test_killed_and_merged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, *, buried: bool, shown: bool
) -> None:
    """Tombstones come first, once; all of the rest comes with one commit."""
    source = streaming(tmp_path)
    before = changed(source, put(1, "a"), put(2, "b"))
    source.tx("-", ("del", 1), put(2, "c"))
    source.round()

    def die(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ratchet.merge.direct, "reach", die)
        with pytest.raises(Killed):
            merge_directly(source.lake, batch(source), before.files)
    state = source.state
    assert bool(replay(source.lake, state.side_path)) == buried
    assert (replay(source.lake, state.path) or before.files).version == (
        before.files.version + int(shown)
    )
    done = merged(source)
    assert done.files.version == before.files.version + 1
    assert done.changed == (0 if shown else 2)
    assert len(side_rows(source)) == 1
    again = merged(source)
    assert again.files == done.files
    assert (again.changed, again.tombstones) == (0, False)


@pytest.mark.parametrize("side", [False, True])
def test_others_that_commit_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, side: bool
) -> None:
    """It is tried three times, each time from what is there by then."""
    source = streaming(tmp_path)
    known = changed(source, put(1, "a"), put(2, "b"), put(3, "b"), ("del", 3))
    path = source.state.side_path if side else source.state.path
    genuine, tries = put_commit, []

    def late(lake: Any, where: str, version: int, what: Any, *, last: bytes) -> bool:
        if where == path and version:  # its creation is no try
            tries.append(version)
            if len(tries) <= allowed:
                assert genuine(lake, where, version, [CommitInfo(operation="WRITE", made_at=1)])
        return genuine(lake, where, version, what, last=last)

    monkeypatch.setattr(ratchet.store.delta.commits, "put_commit", late)
    allowed = 2
    done = changed(source, put(1, "c"), ("del", 2), known=known.files)
    begin = tries[0]
    assert tries == [begin, begin + 1, begin + 2]
    assert done.changed == 2
    assert done.tombstones, "also where they were written at the first try"
    tries, allowed = [], 3
    source.tx("-", put(1, "d"), put(4, "d"), ("del", 4))
    source.round()
    assert merge_directly(source.lake, batch(source), done.files, side=done.side) is None
    assert len(tries) == 3


def test_both_tables_logs_get_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or they would be read whole, longer and longer."""
    monkeypatch.setattr(ratchet.store.delta.checkpoints, "CHECKPOINT_EVERY", 2)
    source = streaming(tmp_path)
    for number in range(3):
        changed(source, put(number, "a"))
        changed(source, ("del", number))
    for path in (source.state.path, source.state.side_path):
        assert source.lake.exists(f"{path}/_delta_log/_last_checkpoint")


def test_a_checkpoint_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told; what was merged is merged. One is tried every 20 commits."""
    tries: list[str] = []

    def fails(_: Any, path: str) -> None:
        tries.append(path)
        raise LakeError("the disk is full", operation="write", hint="make room")

    monkeypatch.setattr(ratchet.store.delta.checkpoints, "write_checkpoint", fails)
    source = streaming(tmp_path)
    files = None
    for number in range(41):
        done = changed(source, put(number, "a"), known=files)
        files = done.files
    mine = [path for path in tries if path == source.state.path]
    assert len(mine) == (files.version // 20 if files else -1) == 2
    assert "no checkpoint was written" in caplog.text
