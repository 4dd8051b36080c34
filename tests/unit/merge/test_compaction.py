"""Files that are put together: which, and that the table stays what it was."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

import ratchet.merge.compaction
import ratchet.merge.direct
import ratchet.store.delta.commits
from ratchet.core.errors import LakeError
from ratchet.merge.compaction import (
    BUDGET,
    FAN,
    MOST_AT_ONCE,
    SMALL_FILE,
    CompactionResult,
    compact_files,
    groups,
)
from ratchet.store.delta.actions import Action, CommitInfo, DataFile, VectorDescriptor
from ratchet.store.delta.log import put_commit, replay
from ratchet.store.delta.tables import create_delta_table
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from tests.merge_kit import merger
from tests.unit.merge.test_directly import actions, changed, of_ours, put, side_rows, streaming

pytestmark = pytest.mark.slow

KB, MB = 1 << 10, 1 << 20


INFO = CommitInfo(operation="WRITE", made_at=1)


def vector(gone: int) -> VectorDescriptor:
    return VectorDescriptor(storage="u", place="", offset=1, size=1, rows=gone)


def file(size: int, *, rows: int = 100, gone: int = 0, name: str = "", at: int = 1) -> DataFile:
    return DataFile(
        uri=name or f"{size}-{rows}-{gone}",
        size=size,
        modified_at=at,
        stats_text=f'{{"numRecords":{rows}}}',
        vector=vector(gone) if gone else None,
    )


def sizes(found: list[list[DataFile]]) -> list[list[int]]:
    return [sorted(one.size for one in group) for group in found]


# --- which files ----------------------------------------------------------------------------------


def test_files_of_about_one_size_go_together() -> None:
    few = [file(1000 * n) for n in range(1, FAN)]
    assert groups(few) == []
    assert sizes(groups([*few, file(64 * KB)])) == [[*(1000 * n for n in range(1, FAN)), 64 * KB]]
    assert groups([*few, file(64 * KB + 1)]) == []
    assert sizes(groups([*few, file(0)])) == [[0, *(1000 * n for n in range(1, FAN))]]
    larger = [file(200 * KB + n) for n in range(FAN)]
    both = groups([*larger, *few, file(1)])
    assert [len(group) for group in both] == [FAN, FAN]
    assert both[0][0].size < both[1][0].size


def test_each_size_has_its_limits() -> None:
    """From the limit of one to four times it."""
    for power in range(1, 5):
        low, high = 64 * KB * 4 ** (power - 1) + 1, 64 * KB * 4**power
        high = min(high, SMALL_FILE - 1)
        assert len(groups([file(low)] * (FAN // 2) + [file(high)] * (FAN // 2))) >= 1
        assert groups([file(low - 1)] * (FAN // 2) + [file(high)] * (FAN // 2)) == []


def test_large_files_are_left_alone() -> None:
    assert groups([file(SMALL_FILE)] * 100) == []
    assert groups([]) == []


def test_so_many_as_fit_into_one_the_oldest_first() -> None:
    size = 15 * MB
    assert FAN * size <= MOST_AT_ONCE < (FAN + 1) * size
    found = groups([file(size, at=99 - n, name=str(n)) for n in range(3 * FAN)])
    names = [str(n) for n in reversed(range(3 * FAN))]
    assert [one.path for group in found for one in group] == names
    assert [len(group) for group in found] == [FAN] * 3
    # One that is left over is not put together with others.
    assert [len(g) for g in groups([file(size, at=n) for n in range(FAN + 1)])] == [FAN]
    assert [len(g) for g in groups([file(size, at=n) for n in range(FAN + 2)])] == [FAN, 2]


@pytest.mark.parametrize("size", [KB, 100 * MB, SMALL_FILE])
def test_files_with_many_rows_that_are_gone(size: int) -> None:
    assert groups([file(size, gone=24)]) == []
    assert sizes(groups([file(size, gone=25)])) == [[size]]
    nothing_known = DataFile(uri="x", size=size, modified_at=1, vector=vector(9))
    assert groups([nothing_known]) == []


# --- what becomes of them -------------------------------------------------------------------------


def compacted(source: Any) -> CompactionResult:
    done = compact_files(source.lake, source.state.path, key=("id",), now=7_000_000)
    assert done is not None
    return done


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("sort", [True, False])
def test_the_table_stays_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, *, sort: bool
) -> None:
    """Merges and compactions in turn, of both tables; groups of few rows, vectors in them."""
    monkeypatch.setattr("ratchet.store.delta.datafiles.GROUP_ROWS", 3)
    if not sort:
        monkeypatch.setattr(ratchet.merge.compaction, "MOST_SORTED", 0)
    rng = random.Random(seed)
    source = streaming(tmp_path)
    rows, most = source.logs["shop/-"].rows, 0
    with merger(None, source) as merging:
        for number in range(40):
            for key in rng.sample(range(30), 4):
                if key in rows and rng.random() < 0.3:
                    source.tx("-", ("del", key))
                else:
                    source.tx("-", put(key, f"{number}"))
            source.round()
            merging.step()
            if number % 7 == 6:
                buried = side_rows(source)
                done = compacted(source)
                sides = compact_files(source.lake, source.state.side_path, key=(), now=1)
                assert sides is None or sides.files == 0 or sides.files >= FAN
                assert done.files > 1
                assert side_rows(source) == buried
                source.assert_mirrored()
            files = replay(source.lake, source.state.path)
            assert files is not None
            most = max(most, len(files.files))
    assert most <= 2 * FAN
    files = replay(source.lake, source.state.path)
    assert files == replay(source.lake, source.state.path, files)


def test_what_a_commit_says(tmp_path: Path) -> None:
    """That no row of the table changes; and rows stand in the order of their keys."""
    source = streaming(tmp_path)
    for number in range(FAN + 1):
        before = changed(source, put(20 - number, "a"), put(100, f"{number}")).files
    done = compacted(source)
    info, *rest = actions(source, before.version + 1)
    assert info["commitInfo"] == {
        "timestamp": 7000,
        "operation": "OPTIMIZE",
        "operationParameters": {},
        "readVersion": before.version,
        "isolationLevel": "SnapshotIsolation",
        "isBlindAppend": False,
        "engineInfo": "Ratchet",
        "ratchetLines": 1 + len(rest),
    }
    kinds = [next(iter(action)) for action in rest]
    assert kinds == ["remove"] * done.files + ["add"]
    assert all(next(iter(action.values()))["dataChange"] is False for action in rest)
    gone = {action["remove"]["path"] for action in rest[:-1]}
    assert gone == set(before.files)
    assert done.bytes == sum(one.size for one in before.files.values())
    add = rest[-1]["add"]
    assert '"numRecords":10,"minValues":{"id":12},"maxValues":{"id":100}' in add["stats"]
    assert add["modificationTime"] == 7000
    path = Path(source.lake.root.removeprefix("file://"), source.state.path, add["path"])
    assert path.name.startswith("compact-")
    assert path.stat().st_size == add["size"]
    assert pq.read_table(path)["id"].to_pylist() == [*range(12, 21), 100]
    source.assert_mirrored()


def test_rows_that_memory_cannot_hold_stay_file_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ratchet.merge.compaction, "MOST_SORTED", 0)
    source = streaming(tmp_path)
    for number in range(FAN):
        changed(source, put(90 - number, "a"), put(10 + number, "a"))
    compacted(source)
    table = replay(source.lake, source.state.path)
    assert table is not None
    (name,) = table.files
    ids = pq.read_table(Path(source.lake.root, source.state.path, name))["id"].to_pylist()
    assert [ids[ids.index(10 + number) + 1] for number in range(FAN)] == list(range(90, 82, -1))
    source.assert_mirrored()


def test_merges_go_on_behind_it(tmp_path: Path) -> None:
    """Also one that knows the table as it was before."""
    source = streaming(tmp_path)
    for number in range(FAN):
        known = changed(source, put(number, "a"), put(50 + number, "a")).files
    compacted(source)
    done = changed(source, put(3, "b"), ("del", 4), known=known)
    assert done.changed == 2
    assert len(of_ours(done.files)) == 1


def test_files_that_note_views(tmp_path: Path) -> None:
    """As delta-rs writes them: pyarrow reads views, of which it can pick no rows."""
    source = streaming(tmp_path)
    for number in range(FAN):
        known = changed(source, put(number, "a"), put(50 + number, "a")).files
    folder = Path(source.lake.root.removeprefix("file://"), source.state.path)
    instead: list[Action] = [INFO]
    for path, one in of_ours(known).items():
        rows = pq.read_table(folder / path)
        pq.write_table(rows.cast(with_views(rows.schema)), folder / f"viewed-{path}")
        assert pq.read_schema(folder / f"viewed-{path}").field("v").type == pa.string_view()
        size = (folder / f"viewed-{path}").stat().st_size
        instead += [one.removed(now=1), replace(one, uri=f"viewed-{path}", size=size)]
    assert put_commit(source.lake, source.state.path, known.version + 1, instead)
    done = changed(source, put(3, "b"), ("del", 4))
    assert done.changed == 2
    assert compacted(source).files > FAN
    source.assert_mirrored()


def with_views(schema: pa.Schema) -> pa.Schema:
    def viewed(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([field.with_type(viewed(field.type)) for field in kind])
        return {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}.get(kind, kind)

    return pa.schema([field.with_type(viewed(field.type)) for field in schema])


def test_a_file_of_which_a_quarter_is_gone(tmp_path: Path) -> None:
    source = streaming(tmp_path)
    changed(source, *(put(n, "a") for n in range(8)))
    known = changed(source, ("del", 3)).files
    assert compacted(source).files == 0
    assert [one.gone for one in of_ours(known).values()] == [1]
    known = changed(source, ("del", 5)).files
    assert compacted(source).files == 1
    after = replay(source.lake, source.state.path, known)
    assert after is not None
    (one,) = (f for f in after.files.values() if f.rows)
    assert (one.rows, one.gone) == (6, 0)
    source.assert_mirrored()


def test_files_whose_rows_are_all_gone(tmp_path: Path) -> None:
    """Whoever has left them: no empty file takes their place."""
    source = streaming(tmp_path)
    changed(source, put(1, "a"))
    known = changed(source, put(2, "a")).files
    vectored = []
    for one in of_ours(known).values():
        from ratchet.store.delta.vectors import vector_of, write_vectors

        (first,) = write_vectors(source.lake, source.state.path, [vector_of(np.array([0]))])
        vectored += [one.removed(now=1), one.with_vector(first)]
    put_commit(source.lake, source.state.path, known.version + 1, [INFO, *vectored])
    assert compacted(source).files == 2
    assert source.mirror() == {}
    after = replay(source.lake, source.state.path)
    assert after is not None
    assert of_ours(after) == {}
    assert not [path for path in after.files if path.startswith("compact")]


def test_a_table_with_rules_of_its_own(tmp_path: Path) -> None:
    """Those are Spark's to keep."""
    source = streaming(tmp_path)
    changed(source, put(1, "a"))
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable(source.lake.delta_uri(source.state.path)).alter.set_table_properties(feed)
    assert compact_files(source.lake, source.state.path, key=("id",), now=1) is None
    assert compact_files(source.lake, "shop/none", key=("id",), now=1) is None


def test_somebody_else_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it counts."""
    source = streaming(tmp_path)
    for number in range(FAN):
        known = changed(source, put(number, "a")).files
    genuine = put_commit

    def late(lake: Lake, path: str, version: int, what: Any, *, last: bytes) -> bool:
        assert genuine(lake, path, version, [INFO])
        return genuine(lake, path, version, what, last=last)

    monkeypatch.setattr(ratchet.store.delta.commits, "put_commit", late)
    assert compacted(source) == CompactionResult(files=0, bytes=0, left=False)
    after = replay(source.lake, source.state.path)
    assert after is not None
    assert after.files == known.files


def test_no_more_than_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is said, and done by the next call."""
    source = streaming(tmp_path)
    for number in range(2 * FAN):
        known = changed(source, put(number, "a")).files
    (size,) = {one.size for one in of_ours(known).values()}
    monkeypatch.setattr(ratchet.merge.compaction, "MOST_AT_ONCE", FAN * size)
    monkeypatch.setattr(ratchet.merge.compaction, "BUDGET", 1)
    first = compacted(source)
    assert first.left
    assert first.files <= FAN
    second = compacted(source)
    assert not second.left or compacted(source)
    source.assert_mirrored()
    assert BUDGET >= MOST_AT_ONCE


@pytest.mark.parametrize("point", ["upkeep.before_compact", "upkeep.after_compact"])
def test_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    class Killed(Exception):  # noqa: N818 - no error
        pass

    source = streaming(tmp_path)
    for number in range(FAN):
        known = changed(source, put(number, "a")).files

    def die(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ratchet.merge.compaction, "reach", die)
        with pytest.raises(Killed):
            compacted(source)
    after = replay(source.lake, source.state.path, known)
    assert after is not None
    assert after.version == known.version + (point == "upkeep.after_compact")
    source.assert_mirrored()
    compacted(source)
    source.assert_mirrored()
    changed(source, put(1, "b"), ("del", 2))


@pytest.mark.parametrize("how", ["gone", "cut"])
def test_a_file_that_is_gone_or_damaged(tmp_path: Path, how: str) -> None:
    """It is named, with the remedy."""
    source = streaming(tmp_path)
    for number in range(FAN):
        known = changed(source, put(number, "a")).files
    name = next(iter(of_ours(known)))
    path = Path(source.lake.root.removeprefix("file://"), source.state.path, name)
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LakeError) as error:
        compacted(source)
    assert name in str(error.value)
    assert "dump" in error.value.hint
    after = replay(source.lake, source.state.path, known)
    assert after == known


# --- files of others ------------------------------------------------------------------------------

WIDE = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("n", pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])),
        pa.field("late", pa.decimal128(10, 2)),
    ]
)


def test_columns_that_came_later_and_old_timestamps(tmp_path: Path) -> None:
    """A file keeps what it had; of a column that it lacks its rows are NULL. Spark's timestamps."""
    lake = open_lake(tmp_path / "lake", now=1)
    create_delta_table(lake, "t", WIDE, name="t", description="", now=1, stats=["`id`"])
    folder, adds = tmp_path / "lake" / "t", []
    times = pa.array([-62_135_596_800_000_000, 0, 253_402_300_799_999_999], pa.int64())
    for number in range(FAN):
        names = ["id", "at", "n"] if number % 2 else ["id", "at", "n", "late"]
        first = number * 3
        values = {
            "id": pa.array(range(first, first + 3), pa.int64()),
            "at": times.cast(pa.timestamp("us", tz="UTC")),
            "n": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}], WIDE.field("n").type),
            "late": pa.array([Decimal(1), None, Decimal(3)], pa.decimal128(10, 2)),
        }
        table = pa.table({name: values[name] for name in names})
        if number % 3 == 0:
            # Of 96 bits, as Spark's are by default; those reach from 1678 to 2262 only in Arrow.
            table = table.set_column(
                1, "at", pa.array([0, 1, 2]).cast(pa.timestamp("us", tz="UTC"))
            )
            pq.write_table(table, folder / f"{number}", use_deprecated_int96_timestamps=True)
        else:
            pq.write_table(table, folder / f"{number}")
        size = (folder / f"{number}").stat().st_size
        adds.append(DataFile(uri=f"{number}", size=size, modified_at=1))
    assert put_commit(lake, "t", 1, [INFO, *adds])

    def rows() -> list[dict[str, Any]]:
        table = DeltaTable(lake.delta_uri("t"))
        text = "SELECT id, CAST(at AS BIGINT) AS at, n, late FROM t ORDER BY id"
        found = QueryBuilder().register("t", table).execute(text).read_all()
        return list(pa.table(found).to_pylist())

    before = rows()
    done = compact_files(lake, "t", key=("id",), now=1)
    assert done is not None
    assert done.files == FAN
    assert rows() == before
    assert len(before) == 3 * FAN
