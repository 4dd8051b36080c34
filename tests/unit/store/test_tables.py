"""Table states and schemas survive the way to the lake and back."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ratchet.core.errors import LakeError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.store import layout
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.schemas import get_schema, put_schema
from ratchet.store.stops import Doubt
from ratchet.store.tables import Tables, TableState

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


def test_a_state_is_read_again_unless_its_file_is_old(tmp_path: Path) -> None:
    """Old files by size and time; what another process writes is seen, also in the same tick."""
    lake, now = Lake.at(tmp_path), 1_000_000_000_000_000
    tables, others = Tables(lake, clock=lambda: now), Tables(lake)
    state = TableState(keyspace="k", table="t", schema=SCHEMA, key=("id",), merged_round=10)
    path = tmp_path / layout.state_path("k", "t")

    def written(merged: int, *, age: int) -> list[int]:
        others.save(replace(state, merged_round=merged))
        at = (now // 1_000_000 - age) * 1_000_000_000
        os.utime(path, ns=(at, at))
        return [one.merged_round for one in tables.list()]

    assert written(11, age=2) == [11]
    assert written(12, age=2) == [12]  # of the same size, and in the same tick
    assert written(13, age=90) == [13]
    assert written(14, age=90) == [13]  # the file was not read: nothing writes so far back
    assert written(15, age=80) == [15]
    assert written(100, age=80) == [100]
    tables.remove(state)
    assert tables.list() == []


def test_schemas_are_kept_by_fingerprint(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    fingerprint = put_schema(lake, SCHEMA)
    assert put_schema(lake, SCHEMA) == fingerprint
    assert get_schema(lake, "shop", SCHEMA.table, fingerprint) == SCHEMA
    with pytest.raises(LakeError, match="missing"):
        get_schema(lake, "shop", SCHEMA.table, "0" * 16)


def test_doubts_of_earlier_versions_are_read() -> None:
    """They said whether rows may differ; now all doubts let them."""
    doubt = Doubt(message="one", statement="ALTER a", round=3, rebuilt=True)
    assert Doubt.from_json({**asdict(doubt), "expected": True}) == doubt


def test_doubts_one_behind_the_other() -> None:
    """Both are to be settled: the first cause is told, and only what holds for both holds."""
    first = Doubt(message="one", statement="ALTER a", round=3, rebuilt=True)
    later = Doubt(message="two", statement="ALTER b", round=5, by_shape=True)
    assert later.behind(None) == later
    both = later.behind(first)
    assert both == Doubt(message="one", statement="ALTER a; then ALTER b", round=5)
    third = Doubt(message="three", statement="ALTER c", round=6).behind(both)
    assert third == Doubt(message="one", statement="ALTER a; then ALTER c", round=6)
    same = Doubt(message="more of it", statement="ALTER a", round=4)
    assert same.behind(first).statement == "ALTER a"
    assert same.behind(first).message == "more of it"
    silent = Doubt(message="keys", statement="", round=2)
    assert silent.behind(first) == Doubt(message="one", statement="ALTER a", round=3)
    assert first.behind(silent) == Doubt(message="one", statement="ALTER a", round=3)
    shaped = Doubt(message="types", statement="ALTER d", round=1, by_shape=True)
    assert later.behind(shaped).by_shape
    assert first.behind(shaped).message == "one", "what a shape can settle says least"
    long = Doubt(message="one", statement="x" * 900, round=1)
    assert len(later.behind(long).statement) == 150 + len("; then ALTER b")
