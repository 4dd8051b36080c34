"""Table states and schemas survive the way to the lake and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import LakeError
from core.gtid import GtidSet
from core.position import Position
from core.schema import Column, ColumnType, TableSchema
from store.files import Lake
from store.schemas import get_schema, put_schema
from store.tables import DumpState, Tables, TableState

SCHEMA = TableSchema(
    keyspace="shop",
    table="größe/1",
    columns=(
        Column(name="id", type=ColumnType(name="bigint", unsigned=True), nullable=False),
        Column(name="e", type=ColumnType(name="enum", charset="utf8mb4", members=("a", "b"))),
    ),
    key=("id",),
)
POSITION = Position(executed=GtidSet.parse("mariadb", "0-1-100,2-3-7"))


def test_state_round_trip(tmp_path: Path) -> None:
    tables = Tables(Lake.at(tmp_path))
    assert tables.load("shop", SCHEMA.table) is None
    assert tables.list() == []
    state = TableState(
        keyspace="shop",
        table=SCHEMA.table,
        schema=SCHEMA,
        key=("id",),
        phase="catching_up",
        dump=DumpState(id="d", start_round=3, start={"shop/-": POSITION}, end={"shop/-": POSITION}),
        merged_round=7,
    )
    tables.save(state)
    assert tables.load("shop", SCHEMA.table) == state
    assert tables.list("shop") == tables.list() == [state]
    assert tables.list("other") == []


def test_stopping_keeps_the_reason(tmp_path: Path) -> None:
    tables = Tables(Lake.at(tmp_path))
    state = tables.save(TableState(keyspace="k", table="t", schema=SCHEMA, key=("id",)))
    tables.stop(state, message="m", hint="h", at_round=4)
    found = tables.load("k", "t")
    assert found is not None
    assert found.phase == "stopped"
    assert found.stopped is not None
    assert (found.stopped.message, found.stopped.hint, found.stopped.round) == ("m", "h", 4)


def test_schemas_are_kept_by_fingerprint(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    fingerprint = put_schema(lake, SCHEMA)
    assert put_schema(lake, SCHEMA) == fingerprint
    assert get_schema(lake, "shop", SCHEMA.table, fingerprint) == SCHEMA
    with pytest.raises(LakeError, match="missing"):
        get_schema(lake, "shop", SCHEMA.table, "0" * 16)
