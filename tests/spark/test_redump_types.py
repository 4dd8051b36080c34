"""A table whose columns get other types is emptied for its dump, whoever wrote its checkpoint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ratchet.snapshot.ledger import open_ledger
from ratchet.store.delta.actions import rewrite_info
from ratchet.store.delta.datafiles import write_data_file
from ratchet.store.delta.log import put_commit, replay
from ratchet.store.delta.tables import create_mirrored_table, mirrored_schema
from ratchet.store.files import Lake

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def columns(kind: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("id", kind, nullable=False), pa.field("v", pa.string())])


@pytest.mark.quick_on("before1")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pa.int32(), pa.int16()),
        (pa.decimal128(12, 2), pa.int32()),
        pytest.param(pa.int64(), pa.string(), marks=pytest.mark.long),
    ],
)
def test_other_types_behind_a_checkpoint_of_sparks(
    spark: SparkSession, tmp_path: Path, before: pa.DataType, after: pa.DataType
) -> None:
    lake, path = Lake.at(tmp_path), "shop/t"
    create_mirrored_table(lake, path, columns(before), key=("id",), name="shop.t", now=1)
    schema = mirrored_schema(columns(before), table="shop.t")
    table = f"delta.`{lake.hadoop_uri(path)}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    for version in range(2, 5):
        now = time.time_ns() // 1000
        rows = pa.table(
            {
                "id": pa.array([version], pa.int32()).cast(before),
                "v": ["x"],
                "_token": pa.nulls(1, schema[-1].type),
            },
            schema=schema,
        )
        file = write_data_file(lake, path, [rows], schema, kind="merge", described=["id"], now=now)
        info = rewrite_info("MERGE", read=version - 1, now=now)
        assert put_commit(lake, path, version, [info, file])
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    assert lake.exists(f"{path}/_delta_log/00000000000000000005.checkpoint.parquet")
    dump = {"generations": {"shop/-": 0}, "key": ("id",)}
    for number, kind in enumerate((after, before, after)):
        whole = mirrored_schema(columns(kind), table="shop.t")
        open_ledger(lake, path=path, dump=f"d{number}", columns=whole, **dump)  # type: ignore[arg-type]
        files = replay(lake, path)
        assert files is not None
        assert (dict(files.files), files.schema.field("id").type) == ({}, kind)
        assert spark.sql(f"SELECT * FROM {table}").count() == 0
