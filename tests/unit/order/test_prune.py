"""The key range of a batch is read from its files, and is never narrower than the keys."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratchet.core.change import change_schema
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.prune import condition, key_ranges
from ratchet.merge.shape import Shape
from ratchet.store.files import Lake

DAY = datetime.date(2026, 3, 29)
CASES: dict[str, tuple[ColumnType, list[Any], str]] = {
    "bigint": (ColumnType(name="bigint"), [5, -3, 9], "t.`k` >= -3L AND t.`k` <= 9L"),
    "unsigned": (
        ColumnType(name="bigint", unsigned=True),
        [Decimal(2**64 - 1), Decimal(0)],
        (
            "t.`k` >= CAST('0' AS DECIMAL(20,0)) "
            "AND t.`k` <= CAST('18446744073709551615' AS DECIMAL(20,0))"
        ),
    ),
    "text": (
        ColumnType(name="varchar", length=40, charset="utf8mb4"),
        ["b", "a'\\", "\U0001f600", "\uffff"],
        "t.`k` >= 'a\\'\\\\' AND t.`k` <= '\U0001f600'",
    ),
    "date": (
        ColumnType(name="date"),
        [DAY],
        "t.`k` >= DATE'2026-03-29' AND t.`k` <= DATE'2026-03-29'",
    ),
    "datetime": (
        ColumnType(name="datetime", fraction=6),
        [datetime.datetime(2026, 3, 29, 2, 30, 0, 1)],  # noqa: DTZ001 - the type has no zone
        (
            "t.`k` >= TIMESTAMP_NTZ'2026-03-29 02:30:00.000001' "
            "AND t.`k` <= TIMESTAMP_NTZ'2026-03-29 02:30:00.000001'"
        ),
    ),
    "timestamp": (
        ColumnType(name="timestamp"),
        [datetime.datetime(2026, 3, 29, 2, 30, tzinfo=datetime.UTC)],
        (
            "t.`k` >= TIMESTAMP'2026-03-29 02:30:00.000000Z' "
            "AND t.`k` <= TIMESTAMP'2026-03-29 02:30:00.000000Z'"
        ),
    ),
    "binary": (ColumnType(name="varbinary", length=4), [b"a"], "true"),
    "double": (ColumnType(name="double"), [1.5], "true"),
}


def shape_of(kind: ColumnType) -> Shape:
    schema = TableSchema(
        keyspace="k",
        table="t",
        columns=(Column(name="k", type=kind, nullable=False),),
        key=("k",),
    )
    return Shape.of(schema, InvalidValuePolicy(), key=("k",), many_shards=False, shard_in_key=False)


def write(lake: Lake, name: str, shape: Shape, images: list[tuple[Any, Any]], **more: Any) -> str:
    token = {"ts": 0, "shard": "k/-", "gtid": "", "generation": 0, "seq": 1, "idx": 0}
    rows = [
        {
            "op": 2,
            "token": token,
            "before": None if old is None else {"k": old},
            "after": None if new is None else {"k": new},
        }
        for old, new in images
    ]
    with lake.open_output(name) as out:
        pq.write_table(pa.Table.from_pylist(rows, schema=change_schema(shape.columns)), out, **more)
    return name


@pytest.mark.parametrize("case", CASES)
def test_the_range_as_literals(tmp_path: Path, case: str) -> None:
    kind, values, expected = CASES[case]
    lake, shape = Lake.at(tmp_path), shape_of(kind)
    path = write(lake, "f.parquet", shape, [(None, value) for value in values])
    assert condition(key_ranges(lake, [path], shape), shape) == expected


def test_both_images_of_all_files_and_row_groups_count(tmp_path: Path) -> None:
    lake, shape = Lake.at(tmp_path), shape_of(ColumnType(name="bigint"))
    paths = [
        write(lake, "a", shape, [(1, 50), (7, None), (None, 3)], row_group_size=1),
        write(lake, "b", shape, [(-4, 2)]),
    ]
    (found,) = key_ranges(lake, paths, shape)
    assert (found.low, found.high) == (-4, 50)


def test_without_statistics_there_is_no_range(tmp_path: Path) -> None:
    lake, shape = Lake.at(tmp_path), shape_of(ColumnType(name="bigint"))
    path = write(lake, "a", shape, [(1, 1)], write_statistics=False)
    assert key_ranges(lake, [path], shape) == []
    assert key_ranges(lake, [], shape) == []
    assert condition([], shape) == "true"
