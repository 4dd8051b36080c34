"""Change files: one for each table and schema, in order, bounded in memory, gone when abandoned."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from change_kit import TOKEN, read_file, whole_numbers
from event_kit import SHARD

from ratchet.core.change import TOKEN_TYPE, change_schema
from ratchet.core.errors import LakeError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.ingest import files as files_module
from ratchet.ingest import segment as segment_module
from ratchet.ingest.changes import TableChanges
from ratchet.ingest.files import ChangeFileWriter
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.schemas import get_schema
from ratchet.store.segments import SegmentPart, open_changes, part_of, read_changes


def changes(table: str, first: int, count: int, *, wide: bool = False) -> TableChanges:
    columns = (Column(name="id", type=ColumnType(name="bigint")),)
    if wide:
        columns += (Column(name="x", type=ColumnType(name="int")),)
    schema = TableSchema(keyspace="shop", table=table, columns=columns, key=("id",))
    arrow = pa.schema([pa.field("id", pa.int64())] + [pa.field("x", pa.int32())] * wide)
    rows = [
        {"op": 1, "token": {**TOKEN, "seq": n}, "before": None, "after": {"id": n}}
        for n in range(first, first + count)
    ]
    return TableChanges(
        schema=schema,
        rows=pa.Table.from_pylist(rows, schema=change_schema(arrow)),
        min_seq=first,
        max_seq=first + count - 1,
        counts=(count, 0, 0),
        misfits={"id": 1},
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


def test_one_file_for_each_table_and_schema(lake: Lake) -> None:
    files = ChangeFileWriter(lake, shard=SHARD, round_number=7)
    for one in (changes("a", 1, 3), changes("b", 4, 1), changes("a", 5, 2),
                changes("a", 7, 1, wide=True)):  # fmt: skip
        files.add(one)
    assert files.rows == 7
    written = files.finish()
    assert [(f.table, f.rows, f.min_seq, f.max_seq) for f in written] == [
        ("a", 5, 1, 6), ("b", 1, 4, 4), ("a", 1, 7, 7),
    ]  # fmt: skip
    first = read_file(lake, written[0])
    assert [row["id"] for row in first["after"].to_pylist()] == [1, 2, 3, 5, 6]
    assert first.schema.field("token").type == TOKEN_TYPE
    assert written[0].misfits == {"id": 2}
    (segment,) = lake.list("_ratchet/changes")
    assert segment.path.startswith("_ratchet/changes/shop/@segments/000000000007---")
    at = 0
    for file in written:  # nothing else is in it
        assert part_of(file.path) == SegmentPart(segment.path, at, file.bytes)
        at += file.bytes
    assert segment.size == at
    assert get_schema(lake, "shop", "a", written[2].schema).columns[1].name == "x"


def test_memory_is_bounded_by_row_groups(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_GROUP_BYTES", 20_000)
    monkeypatch.setattr(files_module, "_HELD_BYTES", 30_000)
    files = ChangeFileWriter(lake, shard=SHARD, round_number=1)
    for n in range(20):
        files.add(changes(f"t{n % 4}", n * 100, 100))
        assert files._held < 30_000
    written = files.finish()
    assert sum(f.rows for f in written) == 2000
    groups = [pq.ParquetFile(open_changes(lake, f.path)).num_row_groups for f in written]
    assert max(groups) > 1


def test_one_table_has_a_file_of_its_own(lake: Lake) -> None:
    files = ChangeFileWriter(lake, shard=SHARD, round_number=7)
    files.add(changes("a", 1, 3))
    (written,) = files.finish()
    (file,) = lake.list("_ratchet/changes")
    assert (written.path, written.bytes) == (file.path, file.size)
    assert written.path.startswith("_ratchet/changes/shop/a/000000000007---")


def test_no_changes_leave_no_file(lake: Lake) -> None:
    assert ChangeFileWriter(lake, shard=SHARD, round_number=7).finish() == ()
    assert not lake.list("_ratchet/changes")


def test_large_files_stay_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of which a row group was written meanwhile, and those that came out large."""
    monkeypatch.setattr(files_module, "_GROUP_BYTES", 200_000)
    monkeypatch.setattr(segment_module, "LARGEST", 2_800)
    files = ChangeFileWriter(lake, shard=SHARD, round_number=7)
    given = {"a": 2, "b": 5000, "c": 3, "d": 2500, "e": 4}
    for table, count in given.items():
        files.add(changes(table, 1, count))
    written = files.finish()
    assert {f.table: f.rows for f in written} == given
    # One row takes 2,781 bytes, most of them the footer; ids in a row take next to none.
    alone = {f.table for f in written if part_of(f.path) is None}
    assert alone == {"b", "d"}
    assert len(lake.list("_ratchet/changes")) == 3
    for file in written:
        rows = read_file(lake, file)["after"].to_pylist()
        assert [row["id"] for row in rows] == list(range(1, given[file.table] + 1))
        assert file.bytes == read_changes(lake, file.path).size


@pytest.mark.parametrize("tables", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("group", [1, 1 << 30])
def test_what_is_abandoned_is_gone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tables: str, *, finished: bool, group: int
) -> None:
    monkeypatch.setattr(files_module, "_GROUP_BYTES", group)
    files = ChangeFileWriter(lake, shard=SHARD, round_number=1)
    for table in tables:
        files.add(changes(table, 1, 3))
    if finished:
        files.finish()
    files.abandon()
    assert not lake.list("_ratchet/changes")


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_segment_that_cannot_be_written_is_gone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    files = ChangeFileWriter(lake, shard=SHARD, round_number=1)
    for table in "abc":
        files.add(changes(table, 1, 3))
    encode, calls = files_module._encoded, []

    def on_a_full_disk(*args: object) -> object:
        calls.append(1)
        if len(calls) == fails_at:
            raise LakeError("no space left", operation="write")
        return encode(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(files_module, "_encoded", on_a_full_disk)
    with pytest.raises(LakeError, match="no space left"):
        files.finish()
    files.abandon()
    assert not lake.list("_ratchet/changes")


def test_abandoned_files_are_gone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_GROUP_BYTES", 1)
    files = ChangeFileWriter(lake, shard=SHARD, round_number=1)
    files.add(changes("a", 1, 3))
    assert lake.list("_ratchet/changes")
    files.abandon()
    assert not lake.list("_ratchet/changes")


def test_a_row_group_that_could_not_be_written_behind_is_told(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "_GROUP_BYTES", 1)
    write, full = files_module._write, True

    def on_a_full_disk(writer: pq.ParquetWriter, rows: list[pa.Table], path: str) -> None:
        if full:
            raise LakeError("no space left", operation=f"write {path}")
        write(writer, rows, path)

    monkeypatch.setattr(files_module, "_write", on_a_full_disk)
    for told_by in ("add", "finish"):
        files = ChangeFileWriter(lake, shard=SHARD, round_number=1)
        files.add(changes("a", 1, 3))
        with pytest.raises(LakeError, match="no space left"):
            files.add(changes("b", 4, 3)) if told_by == "add" else files.finish()
        files.abandon()
        assert not lake.list("_ratchet/changes")

    full = False  # what is written once there is room has lost nothing
    files = ChangeFileWriter(lake, shard=SHARD, round_number=1)
    files.add(changes("a", 1, 3))
    files.add(changes("a", 4, 3))
    rows = pq.read_table(lake.absolute(files.finish()[0].path))["after"].to_pylist()
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("count", [1, 2, 127, 5000])
def test_whole_numbers_survive_whatever_follows_whatever(lake: Lake, count: int) -> None:
    """They are written as differences: the largest there can be, none, NULLs, many and few."""
    files = ChangeFileWriter(lake, shard=SHARD, round_number=1)
    given = whole_numbers(count)
    files.add(given)
    (written,) = files.finish()
    assert pq.read_table(lake.absolute(written.path)).equals(given.rows)


def test_statistics_tell_of_keys_and_tokens(lake: Lake) -> None:
    """What merges and readers leave row groups out by."""
    files = ChangeFileWriter(lake, shard=SHARD, round_number=1)
    files.add(changes("a", 5, 3, wide=True))
    footer = pq.read_metadata(lake.absolute(files.finish()[0].path))
    chunks = [footer.row_group(0).column(n) for n in range(footer.num_columns)]
    told = {c.path_in_schema: c.statistics for c in chunks if c.is_stats_set}
    assert (told["after.id"].min, told["after.id"].max) == (5, 7)
    assert told["before.id"].null_count == 3
    assert {name for name in told if not name.startswith("token.")} == {
        "op", "before.id", "after.id",
    }  # fmt: skip
    assert {f"token.{field.name}" for field in TOKEN_TYPE} <= set(told)


def test_names_are_never_used_again(lake: Lake) -> None:
    paths = set()
    for _ in range(3):
        files = ChangeFileWriter(lake, shard=SHARD, round_number=1)
        files.add(changes("a", 1, 1))
        paths.add(files.finish()[0].path)
    assert len(paths) == 3


def test_a_lake_that_cannot_be_written_is_named(lake: Lake) -> None:
    (Path(lake.absolute("_ratchet")) / "changes").write_text("in the way")
    files = ChangeFileWriter(lake, shard=SHARD, round_number=1)
    files.add(changes("a", 1, 1))
    with pytest.raises(LakeError):
        files.finish()
