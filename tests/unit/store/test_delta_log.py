"""The log of a Delta table as we replay it, beside what deltalake makes of the same log."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ratchet.core.errors import LakeError, TableFileError
from ratchet.store.delta.actions import (
    AppTransaction,
    CommitInfo,
    DataFile,
    TableMetadata,
    TableProtocol,
)
from ratchet.store.delta.checkpoints import write_checkpoint
from ratchet.store.delta.commits import commit_files
from ratchet.store.delta.errors import CommitConflictError
from ratchet.store.delta.log import put_commit, replay
from ratchet.store.delta.stats import file_stats
from ratchet.store.delta.tables import create_delta_table
from ratchet.store.delta.vectors import positions_of, read_vector, vector_of, write_vectors
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string())])
INFO = CommitInfo(operation="MERGE", made_at=1)
TXN = AppTransaction(app_id="a", version=3)
PATH = "shop/t"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = open_lake(tmp_path / "lake", now=1)
    create_delta_table(made, PATH, SCHEMA, name="t", description="", now=1, stats=["`id`"])
    return made


def new_file(lake: Lake, name: str, first: int, count: int = 10) -> DataFile:
    ids = list(range(first, first + count))
    rows = pa.table([pa.array(ids, pa.int64()), pa.array([str(i) for i in ids])], schema=SCHEMA)
    footers: list[pq.FileMetaData] = []
    path = f"{PATH}/{name}"
    with lake.open_output(path) as sink:
        pq.write_table(rows, sink, metadata_collector=footers)
    return DataFile.new(
        name, size=lake.size(path), stats=file_stats(footers[0], ["id"]), now=5_000_000
    )


def ids(lake: Lake) -> list[int]:
    """By deltalake's engine, vectors and all."""
    from deltalake import QueryBuilder

    table = DeltaTable(lake.delta_uri(PATH))
    found = QueryBuilder().register("t", table).execute("SELECT id FROM t").read_all()
    return sorted(pa.table(found)["id"].to_pylist())


def test_files_come_get_vectors_and_go(lake: Lake) -> None:
    begin = replay(lake, PATH)
    assert begin is not None
    assert (begin.version, begin.writable, begin.schema) == (0, True, SCHEMA)
    actions = [INFO, TXN]
    assert put_commit(
        lake, PATH, 1, [*actions, new_file(lake, "one.parquet", 0), new_file(lake, "b.parquet", 10)]
    )
    both = replay(lake, PATH, begin)
    assert both is not None
    assert sorted(both.files) == ["b.parquet", "one.parquet"]
    assert both.apps == {"a": 3}
    (vector,) = write_vectors(lake, PATH, [vector_of(np.array([0, 9, 3]))])
    one = both.files["one.parquet"]
    assert put_commit(lake, PATH, 2, [INFO, one.removed(now=9_000_000), one.with_vector(vector)])
    assert ids(lake) == [1, 2, 4, 5, 6, 7, 8, *range(10, 20)]
    with_vector = replay(lake, PATH, both)
    assert with_vector == replay(lake, PATH)
    assert with_vector is not None
    one = with_vector.files["one.parquet"]
    assert one.stats["tightBounds"] is False
    assert list(read_vector(lake, PATH, one.vector)) == [0, 3, 9]
    # Another vector for it, in one commit with what takes it away: whatever comes first.
    (more,) = write_vectors(lake, PATH, [vector_of(np.array([0, 1, 3, 9]))])
    assert put_commit(lake, PATH, 3, [INFO, one.with_vector(more), one.removed(now=9_000_000)])
    last = replay(lake, PATH, with_vector)
    assert last is not None
    assert len(read_vector(lake, PATH, last.files["one.parquet"].vector)) == 4
    assert ids(lake) == [2, 4, 5, 6, 7, 8, *range(10, 20)]
    assert put_commit(lake, PATH, 4, [INFO, last.files["one.parquet"].removed(now=9)])
    assert ids(lake) == list(range(10, 20))
    assert sorted((replay(lake, PATH, last) or last).files) == ["b.parquet"]


def test_a_version_is_made_once(lake: Lake) -> None:
    assert put_commit(lake, PATH, 1, [INFO])
    assert not put_commit(lake, PATH, 1, [INFO])


def made_anew(lake: Lake, commits: int) -> None:
    """The table with as many commits, of another epoch than those of before."""
    lake.delete_seen(PATH, lambda: None)
    create_delta_table(lake, PATH, SCHEMA, name="t", description="", now=2)
    for version in range(1, commits):
        assert put_commit(lake, PATH, version, [INFO, replace(TXN, version=99)])


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_no_commit_comes_into_a_table_that_was_made_anew(lake: Lake, commits: int) -> None:
    """Its log ends before the version that is known, at it, or behind it."""
    assert put_commit(lake, PATH, 1, [INFO, TXN])
    known = replay(lake, PATH)
    assert known is not None
    made_anew(lake, commits)
    before = replay(lake, PATH)
    with pytest.raises(CommitConflictError):
        put_commit(lake, PATH, 2, [INFO], last=known.last)
    assert replay(lake, PATH) == before


@pytest.mark.parametrize("after", [1, 2])
def test_a_log_that_is_made_anew_while_it_is_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Not the first commits of the old one and the last of the new one."""
    for version in (1, 2):
        assert put_commit(lake, PATH, version, [INFO])
    genuine, read = Lake.read_file, []

    def read_file(self: Lake, path: str) -> bytes | None:
        if path.endswith(f"{after:020d}.json") and not read:
            read.append(path)
            made_anew(self, 4)
        return genuine(self, path)

    monkeypatch.setattr(Lake, "read_file", read_file)
    found = replay(lake, PATH)
    monkeypatch.undo()
    assert read
    assert found == replay(lake, PATH)
    assert found is not None
    assert (found.version, found.apps) == (3, {"a": 99})


def test_the_newest_commit_is_known_by_what_it_says(lake: Lake) -> None:
    """Read from the beginning, on from a version, from a checkpoint, or just made."""
    held = replace(lake, epoch=1)
    files = replay(lake, PATH)
    for _ in range(3):
        files = commit_files(held, PATH, files, [INFO])
        assert files is not None
    write_checkpoint(lake, PATH)
    read = replay(lake, PATH)
    assert read is not None
    assert read.last == files.last != b""
    assert put_commit(lake, PATH, 4, [INFO, TXN], last=read.last)
    assert (replay(lake, PATH, read) or read).last != read.last


def test_from_a_checkpoint(lake: Lake) -> None:
    """As deltalake writes it; the commits before it may be gone."""
    put_commit(lake, PATH, 1, [INFO, TXN])
    (vector,) = write_vectors(lake, PATH, [vector_of(np.array([5]))])
    file = new_file(lake, "one.parquet", 0)
    put_commit(lake, PATH, 2, [INFO, replace(file, vector=vector)])
    whole = replay(lake, PATH)
    DeltaTable(lake.delta_uri(PATH)).create_checkpoint()
    for version in range(2):
        lake.delete(f"{PATH}/_delta_log/{version:020d}.json")
    found = replay(lake, PATH)
    assert whole is not None
    assert found is not None
    assert (found.version, found.schema, found.apps, found.writable) == (
        2,
        SCHEMA,
        {"a": 3},
        True,
    )
    assert found.files["one.parquet"].stats == whole.files["one.parquet"].stats
    assert found.files == whole.files
    assert ids(lake) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "setting",
    [
        {"delta.enableChangeDataFeed": "true"},
        {"delta.columnMapping.mode": "name"},
        {"delta.constraints.positive": "id > 0"},
        {"delta.enableRowTracking": "true"},
    ],
)
def test_tables_with_other_rules_are_left_alone(lake: Lake, setting: dict[str, str]) -> None:
    lines = lake.root + f"/{PATH}/_delta_log/{0:020d}.json"
    meta = [
        json.loads(line) for line in Path(lines.removeprefix("file://")).read_text().splitlines()
    ]
    (value,) = (one["metaData"] for one in meta if "metaData" in one)
    value["configuration"] |= setting
    put_commit(lake, PATH, 1, [INFO, TableMetadata.from_json(value)])
    found = replay(lake, PATH)
    assert found is not None
    assert not found.writable


def test_whether_vectors_are_allowed(lake: Lake) -> None:
    create_delta_table(
        lake, "shop/plain", SCHEMA, name="p", description="", now=1, deletion_vectors=False
    )
    found = [replay(lake, path) for path in (PATH, "shop/plain")]
    assert [one and (one.writable, one.vectors) for one in found] == [(True, True), (True, False)]


def test_features_that_are_not_known(lake: Lake) -> None:
    protocol = TableProtocol(
        reader=3, writer=7, reader_features=(), writer_features=("rowTracking",)
    )
    put_commit(lake, PATH, 1, [INFO, protocol])
    found = replay(lake, PATH)
    assert found is not None
    assert not found.writable


def test_no_table(lake: Lake) -> None:
    assert replay(lake, "shop/none") is None


def test_a_damaged_commit_is_named(lake: Lake) -> None:
    lake.create_file(f"{PATH}/_delta_log/{1:020d}.json", b'{"add": ')
    with pytest.raises(LakeError, match="cannot be read"):
        replay(lake, PATH)


@pytest.mark.parametrize("lost", [[1], [1, 2, 3]])
def test_a_commit_that_is_missing_before_another_one_is_no_end(lake: Lake, lost: list[int]) -> None:
    """The next commit would fill the gap, and older versions would show rows without it."""
    for version in range(1, 6):
        put_commit(lake, PATH, version, [new_file(lake, f"{version}.parquet", 10 * version)])
    older = replay(lake, PATH)
    for version in lost:
        lake.delete(f"{PATH}/_delta_log/{version:020d}.json")
    with pytest.raises(TableFileError, match="is missing"):
        replay(lake, PATH)
    assert replay(lake, PATH, older) == older, "what is known already needs none of them"


def changed(lake: Lake) -> Path:
    """The log of a table of which files came, got vectors, and went."""
    files = replay(lake, PATH)
    one, two = new_file(lake, "one.parquet", 0), new_file(lake, "two.parquet", 10)
    files = commit_files(lake, PATH, files, [INFO, TXN, one, two])
    (vector,) = write_vectors(lake, PATH, [vector_of(np.array([3]))])
    marked = one.with_vector(vector)
    files = commit_files(lake, PATH, files, [INFO, one.removed(now=9), marked])
    files = commit_files(lake, PATH, files, [INFO, two.removed(now=9)])
    files = commit_files(lake, PATH, files, [INFO, marked.removed(now=9), two])
    return Path(lake.root) / PATH / "_delta_log"


def test_no_line_of_a_commit_is_lost_unseen(lake: Lake) -> None:
    """A broken disk may cut a file where a line ends: what is left would be a whole commit."""
    for commit in sorted(changed(lake).glob("*.json")):
        text = commit.read_bytes()
        lines = text.splitlines(keepends=True)
        for left in range(1, len(lines)):
            commit.write_bytes(b"".join(lines[:left]))
            with pytest.raises(TableFileError, match=f"has {left} of its {len(lines)} lines"):
                replay(lake, PATH)
        commit.write_bytes(text)
    assert ids(lake) == list(range(10, 20))


def test_a_commit_of_another_writer_may_say_nothing_of_its_lines(lake: Lake) -> None:
    """Spark's, deltalake's, and those of earlier versions."""
    commit = max(changed(lake).glob("*.json"))
    head, _, rest = commit.read_text().partition("\n")
    info = json.loads(head)
    assert info["commitInfo"].pop("ratchetLines") == 3
    commit.write_text(f"{json.dumps(info)}\n{rest}")
    found = replay(lake, PATH)
    assert found is not None
    assert [*found.files] == ["two.parquet"]


@pytest.mark.parametrize(
    ("number", "old", "new"),
    [
        (2, '"remove":{"path":"one.parquet"', '"remove":{"path":"o_e.parquet"'),
        (3, '"path":"two.parquet"', '"path":"tw0.parquet"'),
        (4, '"offset":1', '"offset":2'),
    ],
)
def test_a_removal_of_what_is_not_there(lake: Lake, number: int, old: str, new: str) -> None:
    """Readers pass it over, and show what it was to remove: here one changed byte does it."""
    commit = changed(lake) / f"{number:020d}.json"
    text = commit.read_text()
    assert old in text
    commit.write_text(text.replace(old, new, 1))
    with pytest.raises(TableFileError, match="does not fit the commits before it"):
        replay(lake, PATH)


def test_a_commit_of_another_table(lake: Lake) -> None:
    """Files of two tables have other names, so removals meet nothing."""
    log = changed(lake)
    create_delta_table(lake, "shop/u", SCHEMA, name="u", description="", now=1)
    files = replay(lake, "shop/u")
    own = DataFile.new("u.parquet", size=1, stats="", now=1)
    files = commit_files(lake, "shop/u", files, [INFO, own])
    commit_files(lake, "shop/u", files, [INFO, own.removed(now=2)])
    other = Path(lake.root) / "shop/u/_delta_log" / f"{2:020d}.json"
    (log / other.name).write_bytes(other.read_bytes())
    with pytest.raises(TableFileError, match="does not fit the commits before it"):
        replay(lake, PATH)


@pytest.mark.parametrize("damage", ["cut", "bit", "gone"])
def test_a_damaged_vector_is_named(lake: Lake, damage: str) -> None:
    (vector,) = write_vectors(lake, PATH, [vector_of(np.arange(0, 1 << 20, 3))])
    (path,) = Path(lake.root.removeprefix("file://"), PATH).glob("deletion_vector_*")
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:-100])
    elif damage == "bit":
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    else:
        path.unlink()
    with pytest.raises(LakeError):
        read_vector(lake, PATH, vector)


@pytest.mark.parametrize(
    "positions",
    [[], [0], [2**32 - 1, 2**32, 2**40], list(range(70_000)), list(range(0, 200_000, 7))],
)
def test_a_vector_is_read_as_it_was_written(lake: Lake, positions: list[int]) -> None:
    vectors = [vector_of(np.array(some, np.int64)) for some in ([1, 2], positions)]
    (first, second) = write_vectors(lake, PATH, vectors)
    found = positions_of(read_vector(lake, PATH, second))
    assert (found.dtype, found.tolist()) == (np.int64, positions)
    assert (first.rows, second.rows) == (2, len(positions))
    assert positions_of(read_vector(lake, PATH, first)).tolist() == [1, 2]


def test_what_was_parsed_goes_with_the_file() -> None:
    """A run makes files for a year: nothing may be kept of those that are gone."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(2000):
            file = DataFile.new("x", size=1, stats=f'{{"numRecords": {number}}}', now=1)
            assert file.rows == number
            assert file.stats is file.stats
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50_000  # bytes; 300 of each would be 600,000
