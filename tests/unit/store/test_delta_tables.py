"""Created Delta tables: the features they need and no more, any column name, statistics on keys."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.transaction import AddAction

from ratchet.core.change import TOKEN_TYPE
from ratchet.core.errors import LakeError, TableStoppedError
from ratchet.store.delta.tables import (
    app_version,
    create_mirrored_table,
    mirrored_schema,
    open_delta,
    query,
    table_version,
)
from ratchet.store.files import Lake

ODD = "a;b,c(d)={e}\n\tf`g.h"


def create(lake: Lake, columns: list[pa.Field], **more: bool) -> bool:
    return create_mirrored_table(
        lake, "k/t", pa.schema(columns), key=["id"], name="k.t", now=1_000_000, **more
    )


def test_created_once(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    assert table_version(lake, "k/t") is None
    assert create(lake, [pa.field("id", pa.int64())])
    assert not create(lake, [pa.field("id", pa.int64())])
    assert table_version(lake, "k/t") == 0
    assert app_version(lake, "k/t", "x") is None


@pytest.mark.parametrize(
    ("kind", "vectors", "features"),
    [
        (pa.string(), True, {"deletionVectors"}),
        (pa.timestamp("us"), True, {"deletionVectors", "timestampNtz"}),
        (pa.timestamp("us"), False, {"timestampNtz"}),
        (pa.timestamp("us", tz="UTC"), False, None),
    ],
)
def test_only_the_features_it_needs(
    tmp_path: Path, kind: pa.DataType, *, vectors: bool, features: set[str] | None
) -> None:
    create(
        Lake.at(tmp_path),
        [pa.field("id", pa.int64()), pa.field("x", kind)],
        deletion_vectors=vectors,
    )
    found = DeltaTable(str(tmp_path / "k/t")).protocol().reader_features
    assert (None if found is None else set(found)) == features


def test_files_written_by_tasks_are_committed_by_deltalake(tmp_path: Path) -> None:
    """What the dump does, on a table with deletion vectors and names that Delta usually refuses."""
    lake = Lake.at(tmp_path)
    columns = pa.schema(
        [
            pa.field("id", pa.decimal128(20, 0)),
            pa.field(ODD, pa.string()),
            pa.field("at", pa.timestamp("us")),
        ]
    )
    create_mirrored_table(lake, "k/t", columns, key=["id"], name="k.t", now=1)
    schema = mirrored_schema(columns, table="k.t")
    row = {"id": 2**64 - 1, ODD: "x", "at": None, "_token": None}
    file = tmp_path / "k/t/part.parquet"
    pq.write_table(pa.Table.from_pylist([row], schema=schema), file)
    stats = {"numRecords": 1, "minValues": {"id": 2**64 - 1}, "maxValues": {"id": 2**64 - 1}}
    table = DeltaTable(lake.delta_uri("k/t"))
    table.create_write_transaction(
        [AddAction("part.parquet", file.stat().st_size, {}, 1, True, json.dumps(stats))],
        "append",
        schema,
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": "{}"}, app_transactions=[Transaction("a", 7)]
        ),
    )
    assert app_version(lake, "k/t", "a") == 7
    assert set(DeltaTable(lake.delta_uri("k/t")).protocol().reader_features or ()) == {
        "deletionVectors",
        "timestampNtz",
    }
    found = QueryBuilder().register("t", DeltaTable(lake.delta_uri("k/t")))
    rows = pa.table(found.execute("SELECT * FROM t").read_all()).to_pylist()
    assert [(r["id"], r[ODD]) for r in rows] == [(2**64 - 1, "x")]


def test_statistics_are_asked_for_keys_that_can_have_them(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    columns = pa.schema([pa.field(ODD, pa.string()), pa.field("b", pa.binary())])
    create_mirrored_table(lake, "k/t", columns, key=[ODD, "b"], name="k.t", now=1)
    found = DeltaTable(str(tmp_path / "k/t")).metadata().configuration
    assert found["delta.dataSkippingStatsColumns"] == "`" + ODD.replace("`", "``") + "`"
    create_mirrored_table(lake, "k/u", columns, key=["b"], name="k.u", now=1)
    found = DeltaTable(str(tmp_path / "k/u")).metadata().configuration
    assert found["delta.dataSkippingNumIndexedCols"] == "0"


def test_a_column_named_like_the_token_stops_the_table() -> None:
    with pytest.raises(TableStoppedError, match="_Token"):
        mirrored_schema(pa.schema([pa.field("_Token", TOKEN_TYPE)]), table="k.t")


@pytest.mark.parametrize("damage", ["gone", "cut short"])
def test_a_data_file_that_cannot_be_read(tmp_path: Path, damage: str) -> None:
    """The engine's errors have no type: they become ours, with what to do."""
    lake = Lake.at(tmp_path)
    write_deltalake(lake.delta_uri("shop/t"), pa.table({"id": [1, 2]}))
    table = open_delta(lake, "shop/t")
    assert table is not None
    rows = [batch.to_pydict() for batch in query(table, "shop/t", "SELECT id FROM t ORDER BY id")]
    assert rows == [{"id": [1, 2]}]
    (file,) = Path(lake.absolute("shop/t")).glob("*.parquet")
    if damage == "gone":
        file.unlink()
    else:
        os.truncate(file, 10)
    with pytest.raises(LakeError) as caught:
        list(query(table, "shop/t", "SELECT id FROM t"))
    assert "shop/t" in str(caught.value)
    assert caught.value.hint
