"""Rows of changed keys in data files, beside a plain look at every row."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ratchet.merge.lookup
from ratchet.core.change import DELETE, INSERT, TOKEN_COLUMN, change_schema
from ratchet.core.errors import LakeError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.merge.lookup import Hits, look
from ratchet.merge.newest import ChangeFiles, NeedsSpark, NewestChanges, newest
from ratchet.merge.shape import Shape
from ratchet.store.delta.actions import CommitInfo, DataFile
from ratchet.store.delta.log import put_commit, replay
from ratchet.store.delta.stats import file_stats
from ratchet.store.delta.tables import create_mirrored_table, mirrored_schema
from ratchet.store.delta.vectors import vector_of, write_vectors
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake

INFO = CommitInfo(operation="WRITE", made_at=1)
SCHEMA = TableSchema(
    keyspace="shop",
    table="t",
    columns=(
        Column(name="a", type=ColumnType(name="bigint"), nullable=False),
        Column(name="b.c", type=ColumnType(name="varchar", length=40, charset="utf8mb4")),
        Column(name="d", type=ColumnType(name="decimal", precision=10, scale=2)),
        Column(name="v", type=ColumnType(name="int")),
    ),
    key=("a",),
)
COLUMNS = arrow_schema(SCHEMA, InvalidValuePolicy())
PATH = "shop/t"
Key = tuple[Any, ...]


def values(number: int) -> dict[str, Any]:
    """A row's columns, all of them ascending with the number."""
    return {"a": number, "b.c": f"ä{number:05d}", "d": Decimal(number) / 4, "v": 0}


@dataclass
class Table:
    """A table whose files are known row by row.

    Attributes:
        rows: for each file, for each of its rows: number, shard, rank; number and None: no token.
        gone: for each file the positions in its vector.
    """

    lake: Lake
    shape: Shape
    rows: list[list[tuple[int, Any, Any]]] = field(default_factory=list)
    gone: list[set[int]] = field(default_factory=list)

    def add(
        self,
        rows: Sequence[tuple[int, Any, Any]],
        *,
        gone: Sequence[int] = (),
        stats: bool = True,
        group: int = 2,
    ) -> None:
        """Commit a data file."""
        number = len(self.rows)
        name, footers = f"{number:03d}.parquet", []
        schema = mirrored_schema(COLUMNS, table="t")
        table = pa.Table.from_pylist([self._row(*row) for row in rows], schema=schema)
        with self.lake.open_output(f"{PATH}/{name}") as sink:
            pq.write_table(
                table,
                sink,
                row_group_size=group,
                write_statistics=stats,
                metadata_collector=footers,
            )
        described = self.shape.key if stats else []
        text = file_stats(footers[0], described)
        action = DataFile.new(name, size=self.lake.size(f"{PATH}/{name}"), stats=text, now=1)
        if gone:
            (vector,) = write_vectors(self.lake, PATH, [vector_of(np.array(gone))])
            action = replace(action, vector=vector)
        assert put_commit(self.lake, PATH, number + 1, [INFO, action])
        self.rows.append(list(rows))
        self.gone.append(set(gone))

    @staticmethod
    def _row(number: int, shard: Any, rank: Any) -> dict[str, Any]:
        token = None
        if rank is not None:
            parts = dict(zip(("generation", "seq", "idx"), rank, strict=True))
            token = {"ts": 1, "shard": shard, "gtid": None, **parts}
        return {**values(number), TOKEN_COLUMN: token}

    def look(self, changed: NewestChanges) -> set[tuple[int, int, Key, bool]]:
        """File, position, key, whether the change is newer: of each row that has its key."""
        files = replay(self.lake, PATH)
        assert files is not None
        return {
            hit for one in look(self.lake, PATH, changed, files) for hit in self._told(one, changed)
        }

    def _told(self, hits: Hits, changed: NewestChanges) -> list[tuple[int, int, Key, bool]]:
        file = int(hits.file.path.partition(".")[0])
        assert set(hits.gone) == self.gone[file]
        keys = [tuple(row.values()) for row in changed.keys.to_pylist()]
        found = zip(hits.at.tolist(), hits.number.tolist(), hits.newer.tolist(), strict=True)
        return [(file, at, keys[number], newer) for at, number, newer in found]

    def expected(self, changes: dict[Key, tuple[int, int, int]]) -> set[tuple[int, int, Key, bool]]:
        found = set()
        for file, (rows, gone) in enumerate(zip(self.rows, self.gone, strict=True)):
            for at, (number, shard, rank) in enumerate(rows):
                key = tuple(values(number)[name] for name in self.shape.key)
                key = (*key, shard) if self.shape.many_shards and self.shape.shard_in_key else key
                if key in changes and at not in gone:
                    found.add((file, at, key, changes[key] > rank))
        return found


def made(
    folder: Path, key: tuple[str, ...] = ("a",), *, shards: int = 1, in_key: bool = False
) -> Table:
    lake = open_lake(folder / "lake", now=1)
    create_mirrored_table(lake, PATH, COLUMNS, key=key, name="shop.t", now=1)
    shape = Shape.of(
        SCHEMA, InvalidValuePolicy(), key=key, many_shards=shards > 1, shard_in_key=in_key
    )
    return Table(lake, shape)


def changed(
    table: Table, numbers: Sequence[int], rank: tuple[int, int, int] = (0, 9, 0), shard: str = "s1"
) -> NewestChanges:
    """A change of each of them."""
    parts = dict(zip(("generation", "seq", "idx"), rank, strict=True))
    token = {"ts": 1, "shard": shard, "gtid": None, **parts}
    rows = [{"op": INSERT, "token": token, "before": None, "after": values(n)} for n in numbers]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=change_schema(COLUMNS)), sink)
    return newest(ChangeFiles(Lake.at("/nowhere"), ["changes"], [sink.getvalue()]), table.shape)


KEYS = [("a",), ("b.c",), ("d",), ("a", "b.c"), ("d", "a")]


@pytest.mark.parametrize("key", KEYS, ids=", ".join)
@pytest.mark.parametrize("run_rows", [1, 3, 1 << 20])
def test_beside_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...], run_rows: int
) -> None:
    """Files in the order of the keys and not, with statistics and without, with vectors."""
    monkeypatch.setattr(ratchet.merge.lookup, "_MOST_ROWS", run_rows)
    rng = random.Random(str(key))
    table = made(tmp_path, key)
    numbers = list(range(60))
    for ordered, stats in itertools.product([True, False], repeat=2):
        for _ in range(3):
            chosen = rng.sample(numbers, 13)
            chosen = sorted(chosen) if ordered else chosen
            rows = [(n, "s1", (rng.choice([0, 1]), rng.randint(1, 3), 0)) for n in chosen]
            table.add(rows, gone=sorted(rng.sample(range(13), rng.choice([0, 4]))), stats=stats)
    for _ in range(8):
        at = rng.choice([(0, 2, 0), (1, 2, 0), (1, 9, 0)])
        chosen = rng.sample(range(-5, 70), rng.choice([1, 4, 30]))
        keys = {tuple(values(n)[name] for name in key): at for n in chosen}
        assert table.look(changed(table, chosen, at)) == table.expected(keys)


def test_what_statistics_exclude_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files by the log, of row groups by the footer; tokens where the footer tells enough."""
    table = made(tmp_path)
    for first in (0, 20, 40):
        table.add([(n, "s1", (0, 1, 0)) for n in range(first, first + 20)], group=5)
    table.add([(100 + n * 7 % 20, "s1", (0, 1, 0)) for n in range(20)], group=5)
    read: list[tuple[list[int], list[str]]] = []
    genuine = pq.ParquetFile.read_row_groups

    def noted(self: Any, groups: Any, columns: Any = None, **options: Any) -> Any:
        read.append((list(groups), list(columns)))
        return genuine(self, groups, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", noted)
    monkeypatch.setattr(ratchet.merge.lookup, "_LEAST_ROWS", 6)
    for numbers, groups in (
        ([], []),
        ([-1, 60], []),
        ([19, 20], [[3], [0]]),
        ([5, 14], [[1, 2]]),  # behind each other, and few rows
        ([5, 10, 15], [[1, 2], [3]]),  # no longer few
        ([0, 10, 11], [[0], [2]]),
        # 14 keys in the second file, two in the third.
        (list(range(26, 42)), [[1, 2], [3], [0]]),
        # More keys than rows, since each group may hold any: their table is made once.
        (list(range(100, 120)), [[0, 1, 2, 3]]),
    ):
        read.clear()
        found = table.look(changed(table, numbers))
        assert found == table.expected({(n,): (0, 9, 0) for n in numbers})
        assert sorted(read) == sorted((g, ["a"]) for g in groups), numbers
    read.clear()
    table.look(changed(table, [3], (0, 1, 7)))  # only idx tells
    assert len(read) == 2


def test_any_column_of_the_key_excludes_files_by_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a decimal it tells nothing that is believed; of the second column it does."""
    table = made(tmp_path, ("d", "a"))
    table.add([(n, "s1", (0, 1, 0)) for n in range(10, 20)])
    opened: list[str] = []
    genuine = ratchet.merge.lookup._hits

    def noted(look: Any, keys: range) -> Any:
        opened.append(look.file.path)
        return genuine(look, keys)

    monkeypatch.setattr(ratchet.merge.lookup, "_hits", noted)
    for number in (9, 20):
        assert table.look(changed(table, [number])) == set()
    assert opened == []
    assert len(table.look(changed(table, [10, 19]))) == 2
    assert len(opened) == 1


@pytest.mark.parametrize(
    "stats",
    [
        {"minValues": {"a": 5}},
        {"maxValues": {"a": 3}},
        {"minValues": None, "maxValues": None},
        {"minValues": {"a": 5, "b.c": 5}, "maxValues": {"b.c": 9}},
    ],
)
@pytest.mark.parametrize("key", ["a", "b.c"])
def test_statistics_that_are_not_whole_are_not_believed(
    tmp_path: Path, key: str, stats: dict[str, Any]
) -> None:
    """One bound alone, none, or numbers for a text."""
    table = made(tmp_path, (key,))
    table.add([(4, "s1", (0, 1, 0))])
    text = json.dumps({"numRecords": 1, **stats})
    action = DataFile.new(
        "000.parquet", size=table.lake.size(f"{PATH}/000.parquet"), stats=text, now=1
    )
    assert put_commit(table.lake, PATH, 2, [INFO, action])
    assert len(table.look(changed(table, [4]))) == 1


def test_too_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the files that may hold the keys."""
    table = made(tmp_path)
    table.add([(n, "s1", (0, 1, 0)) for n in range(6)])
    table.add([(n, "s1", (0, 1, 0)) for n in range(10, 20)])
    monkeypatch.setattr(ratchet.merge.lookup, "MOST_ROWS", 6)
    assert table.look(changed(table, [0])) == {(0, 0, (0,), True)}
    with pytest.raises(NeedsSpark, match="too many rows"):
        table.look(changed(table, [10]))
    with pytest.raises(NeedsSpark, match="too many rows"):
        table.look(changed(table, [0, 10]))
    assert put_commit(table.lake, PATH, 3, [INFO, uncounted(1)])
    with pytest.raises(NeedsSpark, match="too many rows"):
        table.look(changed(table, [30]))


def uncounted(number: int) -> DataFile:
    """A file again, with a log that tells nothing of it."""
    return DataFile.new(f"{number:03d}.parquet", size=1, stats="{}", now=1)


def test_nothing_changed(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.add([(1, "s1", (0, 1, 0))])
    assert table.look(changed(table, [])) == set()


@pytest.mark.parametrize("in_key", [False, True])
def test_rows_of_several_shards(tmp_path: Path, *, in_key: bool) -> None:
    table = made(tmp_path, shards=2, in_key=in_key)
    table.add([(1, "s1", (0, 1, 0)), (2, "s2", (0, 20, 0)), (3, "s1", (0, 20, 0))])
    table.add([(4, "s2", (0, 1, 0)), (5, "s2", (0, 2, 0))])
    if in_key:
        assert table.look(changed(table, [1, 2, 3, 4])) == {
            (0, 0, (1, "s1"), True),
            (0, 2, (3, "s1"), False),
        }
        assert table.look(changed(table, [1, 2, 3, 4], shard="s2")) == {
            (0, 1, (2, "s2"), False),
            (1, 0, (4, "s2"), True),
        }
        return
    assert table.look(changed(table, [1, 3])) == {(0, 0, (1,), True), (0, 2, (3,), False)}
    assert table.look(changed(table, [4], shard="s2")) == {(1, 0, (4,), True)}
    for numbers, shard in (([2], "s1"), ([1], "s2"), ([4, 5], "s1"), ([1, 2], "s1")):
        with pytest.raises(NeedsSpark, match="another shard"):
            table.look(changed(table, numbers, shard=shard))


def test_a_row_of_another_shard_that_is_gone(tmp_path: Path) -> None:
    """It is nobody's."""
    table = made(tmp_path, shards=2)
    table.add([(1, "s2", (0, 1, 0)), (1, "s1", (0, 1, 0))], gone=[0])
    assert table.look(changed(table, [1])) == {(0, 1, (1,), True)}


@pytest.mark.parametrize("in_key", [False, True])
def test_a_row_without_a_token(tmp_path: Path, *, in_key: bool) -> None:
    """It is anybody's: Spark decides. Those of other keys do not matter."""
    table = made(tmp_path, shards=2, in_key=in_key)
    table.add([(1, "s1", (0, 1, 0)), (2, None, None)], group=1)
    assert table.look(changed(table, [1])) == table.expected(
        {(1, "s1") if in_key else (1,): (0, 9, 0)}
    )
    for number in (2, 1):
        with pytest.raises(NeedsSpark, match="lost its token"):
            table.look(changed(table, [2, number]))


@pytest.mark.parametrize("group", [1, 3])
def test_a_row_without_all_of_its_token(tmp_path: Path, group: int) -> None:
    """The footer of its row group tells nothing of it."""
    table = made(tmp_path)
    table.add([(1, "s1", (0, 1, 0)), (2, None, None), (3, "s1", (0, None, 0))], group=group)
    assert table.look(changed(table, [1])) == table.expected({(1,): (0, 9, 0)})
    for number in (2, 3):
        with pytest.raises(NeedsSpark, match="lost its token"):
            table.look(changed(table, [number]))


def test_a_key_that_stands_there_twice(tmp_path: Path) -> None:
    """Both rows are told; who asks finds it out."""
    table = made(tmp_path)
    table.add([(1, "s1", (0, 1, 0)), (1, "s1", (0, 10, 0))])
    assert table.look(changed(table, [1])) == {(0, 0, (1,), True), (0, 1, (1,), False)}


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.add([(1, "s1", (0, 1, 0))])
    table.lake.delete(f"{PATH}/000.parquet")
    with pytest.raises(LakeError, match="000") as error:
        table.look(changed(table, [1]))
    assert "dump" in error.value.hint


def test_deletes_are_looked_for(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.add([(1, "s1", (0, 1, 0))])
    token = {"ts": 1, "shard": "s1", "gtid": None, "generation": 0, "seq": 9, "idx": 0}
    rows = [{"op": DELETE, "token": token, "before": values(1), "after": None}]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=change_schema(COLUMNS)), sink)
    found = newest(ChangeFiles(Lake.at("/nowhere"), ["changes"], [sink.getvalue()]), table.shape)
    assert table.look(found) == {(0, 0, (1,), True)}
