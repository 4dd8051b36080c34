"""Small merges where there is no Spark at all: what they write, and what they leave alone."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

import ratchet.merge.direct
import ratchet.store.commits
import ratchet.store.delta_files
from ratchet.core.change import TOKEN_COLUMN
from ratchet.core.dumps import app_id
from ratchet.core.errors import LakeError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.merge.batch import Batch
from ratchet.merge.direct import Direct, merge_directly
from ratchet.merge.shape import Shape
from ratchet.merge.side import TOMBSTONE, SideStats
from ratchet.merge.table import Merged
from ratchet.store.delta_files import DataFile, TableFiles, put_commit, replay
from ratchet.store.files import Lake
from tests.merge_kit import POLICY, Source, merger

pytestmark = pytest.mark.slow

Op = tuple[Any, ...]


def put(key: int, value: str) -> Op:
    return ("put", {"id": key, "v": value})


def streaming(
    folder: Path, *shards: str, in_key: bool = False, vectors: bool = True, **options: Any
) -> Source:
    """A table that was dumped with nothing in it, merged up to its dump."""
    source = Source(folder, shards=shards or ("-",), shard_in_key=in_key, **options)
    source.round()
    source.dump_begin(vectors=vectors)
    for name in source.names:
        source.chunk(name.partition("/")[2])
    source.dump_end()
    source.round()
    with pytest.MonkeyPatch.context() as patch, merger(None, source) as merging:
        patch.setattr("ratchet.merge.rounds.collapse", nothing_to_collapse)
        merging.step()
    return source


def nothing_to_collapse(_: Any, lake: Any, one: Batch, known: SideStats) -> Merged:
    """Of several shards' dumps, which are empty: it would start a Spark."""
    files = replay(lake, one.path)
    assert files is not None
    return Merged(version=files.version, changed=0, side=known)


def of_ours(files: TableFiles) -> dict[str, DataFile]:
    """Data files that merges have written."""
    return {path: file for path, file in files.files.items() if path.startswith("merge-")}


def batch(source: Source, number: int | None = None, **other: Any) -> Batch:
    """The changes of a round, by default the last."""
    state, number = source.state, number or source.rounds.last_number()
    files = source.rounds.since(number - 1)[0].files
    shape = Shape.of(
        source.schema,
        POLICY,
        key=state.key,
        many_shards=source.many_shards,
        shard_in_key=source.shard_in_key,
    )
    values: dict[str, Any] = {
        "shape": shape,
        "path": state.path,
        "side_path": state.side_path,
        "app_id": app_id(state),
        "round": number,
        "files": [file.path for file in files],
        "bytes": sum(file.bytes for file in files),
        "rows": sum(file.rows for file in files),
        "may_delete": any(file.deletes for file in files),
        "now": source.clock,
    }
    return Batch(**{**values, **other})


def merged(source: Source, known: TableFiles | None = None, **other: Any) -> Direct:
    """The last round, merged; its values are the mirror's."""
    done = merge_directly(source.lake, batch(source, **other), known)
    assert done is not None
    source.assert_mirrored()
    return done


def changed(source: Source, *ops: Op, **other: Any) -> Direct:
    source.tx(source.names[0], *ops)
    source.round()
    return merged(source, **other)


def side_rows(source: Source) -> list[dict[str, Any]]:
    """What the side table has; nothing, if there is none."""
    if replay(source.lake, source.state.side_path) is None:
        return []
    table = DeltaTable(source.lake.delta_uri(source.state.side_path))
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    rows: list[dict[str, Any]] = pa.table(found).to_pylist()
    return sorted(rows, key=lambda row: (row["key"]["id"], row["shard"], row["round"]))


def actions(source: Source, version: int, *, side: bool = False) -> list[dict[str, Any]]:
    table = source.state.side_path if side else source.state.path
    return list(lines(Path(source.lake.root, table, "_delta_log", f"{version:020d}.json")))


def lines(path: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, Path(str(path).removeprefix("file:")).read_text().splitlines())


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

    def late(lake: Any, where: str, version: int, what: Any) -> bool:
        if where == path and version:  # its creation is no try
            tries.append(version)
            if len(tries) <= allowed:
                assert genuine(lake, where, version, [{"commitInfo": {}}])
        return genuine(lake, where, version, what)

    monkeypatch.setattr(ratchet.store.commits, "put_commit", late)
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


# --- what is left to Spark ------------------------------------------------------------------------


def test_tables_with_rules_of_their_own(tmp_path: Path) -> None:
    source = streaming(tmp_path)
    known = changed(source, put(1, "a")).files
    source.tx("-", put(1, "b"))
    source.round()
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable(source.lake.delta_uri(source.state.path)).alter.set_table_properties(feed)
    assert merge_directly(source.lake, batch(source), known) is None
    assert merge_directly(source.lake, batch(source, path="shop/none"), None) is None


def test_side_tables_with_rules_of_their_own(tmp_path: Path) -> None:
    """Nothing is merged without its tombstones."""
    source = streaming(tmp_path)
    changed(source, put(1, "a"), put(2, "a"), put(3, "a"))
    changed(source, ("del", 1))
    source.tx("-", ("del", 2))
    source.round()
    before = replay(source.lake, source.state.path)
    other = batch(source, side_path=source.state.path)  # its columns are not a side table's
    assert merge_directly(source.lake, other, None) is None
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable(source.lake.delta_uri(source.state.side_path)).alter.set_table_properties(feed)
    assert merge_directly(source.lake, batch(source), None) is None
    assert replay(source.lake, source.state.path) == before


def test_a_table_whose_rows_cannot_be_marked_as_gone(tmp_path: Path) -> None:
    source = streaming(tmp_path, vectors=False)
    source.tx("-", put(1, "a"))
    source.round()
    assert merge_directly(source.lake, batch(source), None) is None


def test_a_table_of_other_columns(tmp_path: Path) -> None:
    source = streaming(tmp_path)
    changed(source, put(1, "a"))
    wider = TableSchema(
        keyspace="shop",
        table="t",
        columns=(*source.schema.columns, Column(name="w", type=ColumnType(name="int"))),
        key=("id",),
    )
    shape = Shape.of(wider, POLICY, key=("id",), many_shards=False, shard_in_key=False)
    assert merge_directly(source.lake, batch(source, shape=shape), None) is None


@pytest.mark.parametrize(
    "kind", [ColumnType(name="float"), ColumnType(name="double")], ids=["float", "double"]
)
def test_keys_of_floating_point(tmp_path: Path, kind: ColumnType) -> None:
    """-0 and 0, and NaN: SQL's equality is not Arrow's."""
    schema = TableSchema(
        keyspace="shop",
        table="t",
        columns=(
            Column(name="id", type=ColumnType(name="bigint"), nullable=False),
            Column(name="f", type=kind, nullable=False),
        ),
        key=("id", "f"),
    )
    source = streaming(tmp_path, schema=schema)
    source.tx("-", ("put", {"id": 1, "f": 0.5}))
    source.round()
    assert merge_directly(source.lake, batch(source), None) is None


def test_a_batch_of_too_many_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = streaming(tmp_path)
    source.tx("-", put(1, "a"))
    source.round()
    monkeypatch.setattr(ratchet.merge.direct, "MOST_ROWS", 0)
    assert merge_directly(source.lake, batch(source), None) is None
    monkeypatch.setattr(ratchet.merge.direct, "MOST_ROWS", 1)
    assert merged(source).changed == 1


@pytest.mark.parametrize("most", [1, 40, 100, 300])
@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_too_large_to_be_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    """They are read where they lie, and written piece by piece, in the order of their keys."""
    for bound in ("MOST_HELD", "MOST_ROW_BYTES", "_PIECE_BYTES"):
        monkeypatch.setattr(ratchet.merge.direct, bound, most)
    monkeypatch.setattr(ratchet.merge.direct, "_GROUP_BYTES", max(1, most // 3))
    source, rng = streaming(tmp_path), random.Random(seed)
    for number in range(6):
        for _ in range(4):
            keys = rng.sample(range(12), 3)
            there = source.logs["shop/-"].rows
            source.tx(
                "-",
                *(
                    ("del", key) if key in there and rng.random() < 0.4 else put(key, "x" * 9)
                    for key in keys
                ),
                put(20 + number, f"{rng.random()}"),
            )
        source.round()
        known = merged(source).files
    table = source.state.path
    for path in of_ours(known):
        ids = pq.read_table(Path(source.lake.root, table, path))["id"].to_pylist()
        assert ids == sorted(ids)
    assert most > 1 or len(of_ours(known)) > 9
    assert {row["key"]["id"] for row in side_rows(source)} <= set(range(12))


def test_batches_that_take_much_memory_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two tables' large batches one waits for the other; small ones wait for none."""
    monkeypatch.setattr(ratchet.merge.direct, "_MANY_ROWS", 2)
    small, large = (streaming(tmp_path / name) for name in ("small", "large"))
    small.tx("-", put(1, "a"))
    small.round()
    large.tx("-", put(1, "a"), put(2, "b"))
    large.round()
    with ThreadPoolExecutor(1) as pool:
        with ratchet.merge.direct._one_of_many:
            waiting = pool.submit(merged, large)
            assert merged(small).changed == 1
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
        assert waiting.result(timeout=60).changed == 2


def test_a_key_that_stands_there_twice(tmp_path: Path) -> None:
    """Nothing that we know of leads there; Spark's MERGE changes both."""
    source = streaming(tmp_path)
    known = changed(source, put(1, "a"), put(2, "b")).files
    (file,) = of_ours(known).values()
    twin = {**file.add, "path": "twin.parquet"}
    folder = Path(source.lake.root.removeprefix("file://"), source.state.path)
    (folder / "twin.parquet").write_bytes((folder / file.path).read_bytes())
    put_commit(
        source.lake, source.state.path, known.version + 1, [{"commitInfo": {}}, {"add": twin}]
    )
    source.tx("-", put(2, "c"))
    source.round()
    assert merge_directly(source.lake, batch(source), known) is None
    assert not replay(source.lake, source.state.side_path)


def test_a_change_file_that_is_gone(tmp_path: Path) -> None:
    source = streaming(tmp_path)
    source.tx("-", put(1, "a"))
    source.round()
    (path,) = batch(source).files
    source.lake.delete(path)
    with pytest.raises(LakeError, match=path):
        merge_directly(source.lake, batch(source), None)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said; when there is room again, the batch goes in."""
    source = streaming(tmp_path)
    known = changed(source, *(put(n, "a") for n in range(3))).files
    source.tx("-", put(1, "b"), ("del", 2))
    source.round()
    genuine, last = Lake.open_output, batch(source)
    for what in (source.state.side_path, "deletion_vector", f"{source.state.path}/merge-"):

        def full(lake: Lake, path: str, what: str = what) -> Any:
            return pa.OSFile("/dev/full", "wb") if what in path else genuine(lake, path)

        with monkeypatch.context() as patch:
            patch.setattr(Lake, "open_output", full)
            with pytest.raises(LakeError, match="No space left") as error:
                merge_directly(source.lake, last, known)
        assert "free space" in error.value.hint
    assert merged(source, known).changed == 2


def test_both_tables_logs_get_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or they would be read whole, longer and longer."""
    monkeypatch.setattr(ratchet.store.delta_files, "CHECKPOINT_EVERY", 2)
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

    monkeypatch.setattr(ratchet.store.delta_files, "write_checkpoint", fails)
    source = streaming(tmp_path)
    files = None
    for number in range(41):
        done = changed(source, put(number, "a"), known=files)
        files = done.files
    mine = [path for path in tries if path == source.state.path]
    assert len(mine) == (files.version // 20 if files else -1) == 2
    assert "no checkpoint was written" in caplog.text
