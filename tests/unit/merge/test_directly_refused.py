"""Small merges that are left to Spark, or fail, and what they leave behind."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import ratchet.merge.direct
import ratchet.store.delta.commits
import ratchet.store.delta.log
from ratchet.core.errors import LakeError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.merge.direct import merge_directly
from ratchet.merge.shape import Shape
from ratchet.store.delta.actions import CommitInfo
from ratchet.store.delta.log import put_commit, replay
from ratchet.store.files import Lake
from tests.direct_kit import (
    batch,
    changed,
    merged,
    of_ours,
    put,
    side_rows,
    streaming,
)
from tests.merge_kit import POLICY

pytestmark = pytest.mark.slow


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
    twin = replace(file, uri="twin.parquet")
    folder = Path(source.lake.root.removeprefix("file://"), source.state.path)
    (folder / "twin.parquet").write_bytes((folder / file.path).read_bytes())
    info = CommitInfo(operation="WRITE", made_at=1)
    put_commit(source.lake, source.state.path, known.version + 1, [info, twin])
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
