"""How Spark is set for a batch: by its changes where their files tell too little."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.merge.batch import MergeBatch
from ratchet.merge.shape import Shape


def settings(*, size: int, rows: int) -> dict[str, str]:
    columns = (Column(name="id", type=ColumnType(name="bigint")),)
    shape = Shape(
        schema=TableSchema(keyspace="shop", table="t", columns=columns, key=("id",)),
        columns=pa.schema([("id", pa.int64())]),
        key=("id",),
        many_shards=False,
        shard_in_key=False,
    )
    nothing: dict[str, Any] = {
        "path": "t",
        "side_path": "s",
        "app_id": "a",
        "round": 1,
        "files": [],
    }
    batch = MergeBatch(shape=shape, bytes=size, rows=rows, may_delete=False, **nothing)
    return {name.rpartition(".")[2]: value for name, value in batch.settings.items()}


@pytest.mark.parametrize(
    ("size", "rows", "partitions"),
    [
        (1 << 20, 1000, None),
        (64 << 20, 2 << 20, None),  # the most that is held several times in memory
        (65 << 20, 1000, 2),
        (10 << 20, 10_000_000, 9),  # as small as files of inserts in a row can be
        (8 << 30, 10_000_000, 200),
    ],
)
def test_what_is_large_is_not_broadcast(size: int, rows: int, partitions: int | None) -> None:
    found = settings(size=size, rows=rows)
    broadcast = partitions is None
    assert found["autoBroadcastJoinThreshold"] == (str(256 << 20) if broadcast else "-1")
    assert found["enabled"] == str(not broadcast).lower()
    assert found["partitions"] == str(partitions or 2)
