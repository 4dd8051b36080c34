"""The notebook runs as it stands, on a small mirrored table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ratchet.core.change import TOKEN_TYPE
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.store.cuts import Cut, Cuts, CutShard
from ratchet.store.delta.tables import create_mirrored_table
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.tables import Tables, TableState

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "read_the_mirror.ipynb"


@pytest.mark.long
@pytest.mark.spark
def test_the_notebook_runs(tmp_path: Path) -> None:
    """Every code cell, in order, in a fresh process; the notebook is stored without outputs."""
    lake = open_lake(tmp_path / "lake", now=1)
    columns = pa.schema([("id", pa.int64()), ("name", pa.string())])
    create_mirrored_table(lake, "shop/orders", columns, key=["id"], name="shop.orders", now=1)
    token = {"ts": None, "shard": "shop/-", "gtid": "0-1-7", "generation": 0, "seq": 7, "idx": 0}
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "name": ["a", "b"],
            "_token": pa.array([token, token], TOKEN_TYPE),
        }
    )
    write_deltalake(lake.delta_uri("shop/orders"), rows, mode="append")
    _note(lake)
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in codes)
    program = "\n\n".join("".join(cell["source"]) for cell in codes)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={
            **os.environ,
            "RATCHET_LAKE": lake.root,
            "RATCHET_TABLE": "shop/orders",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "version 1, 2 rows" in done.stdout
    assert "['shop.orders'] follow their source" in done.stdout
    assert "cut 1: 2 rows, nothing later than 1970-01-01 00:00:02 UTC" in done.stdout


def _note(lake: Lake) -> None:
    """What a run would have noted of the table and its first cut."""
    column = Column(name="id", type=ColumnType(name="bigint"), nullable=False)
    schema = TableSchema(keyspace="shop", table="orders", columns=(column,), key=("id",))
    Tables(lake).save(
        TableState(keyspace="shop", table="orders", schema=schema, key=("id",), phase="streaming")
    )
    shard = CutShard(
        position=Position(executed=GtidSet.parse("mariadb", "0-1-7")),
        min_ts=None,
        max_ts=None,
        latest_ts=2_000_000,
        observed_at=2_000_000,
    )
    Cuts(lake).append(
        Cut(number=1, round=1, merged_at=3, shards={"shop/-": shard}, tables={"shop.orders": 1})
    )
