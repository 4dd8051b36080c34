"""A change of zero_dates never meets a table of the other types."""

from __future__ import annotations

from pathlib import Path

from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.jobs.preflight.datetypes import stop_other_types
from ratchet.store.delta.tables import create_mirrored_table
from ratchet.store.formats import open_lake
from ratchet.store.tables import Phase, Tables, TableState

NULLS, FAIL, TEXT = (InvalidValuePolicy(zero_dates=choice) for choice in ("null", "fail", "text"))


def test_tables_of_other_types_stop(tmp_path: Path) -> None:
    lake = open_lake(tmp_path / "lake", now=1)
    tables = Tables(lake)
    kinds: dict[str, tuple[str, Phase]] = {
        "day": ("date", "streaming"),
        "moment": ("timestamp", "catching_up"),
        "half": ("datetime", "dumping"),
        "number": ("int", "streaming"),
        "gone": ("date", "stopped"),
    }
    for name, (kind, phase) in kinds.items():
        columns = (
            Column(name="id", type=ColumnType(name="int"), nullable=False),
            Column(name="d", type=ColumnType(name=kind, fraction=0), nullable=True),
        )
        schema = TableSchema(keyspace="shop", table=name, columns=columns, key=("id",))
        state = TableState(
            keyspace="shop", table=name, schema=schema, key=("id",), phase=phase, merged_round=3
        )
        tables.save(state)
        create_mirrored_table(
            lake, state.path, arrow_schema(schema, NULLS), key=("id",), name=state.name, now=1
        )

    def phases() -> dict[str, str]:
        return {state.table: state.phase for state in tables.list()}

    before = phases()
    for policy in (NULLS, FAIL, NULLS):
        stop_other_types(lake, tables, policy)
        assert phases() == before
    stop_other_types(lake, tables, TEXT)
    assert phases() == before | {"day": "stopped", "moment": "stopped", "half": "new"}
    state = tables.load("shop", "day")
    assert state is not None
    assert state.stopped is not None
    assert state.stopped.message.startswith("zero_dates in the config gives d another type")
    assert "`ratchet table CONFIG redump 'shop.day'`" in state.stopped.hint
