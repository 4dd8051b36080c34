"""Which rows lost transactions have touched, and where no key tells it: no server, no Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from change_kit import in_a_segment

from ratchet.core.change import DELETE, INSERT, UPDATE, change_schema
from ratchet.core.errors import LakeError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, Round, TableEvent
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.topology import lostrows
from ratchet.jobs.topology.lostrows import lost_files, lost_keys, too_much, why_a_dump
from ratchet.jobs.topology.parting import DivergencePoint
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.segments import object_of
from ratchet.store.tables import TableState

A, B = "shop/-80", "shop/80-"
UUID = "11111111-1111-1111-1111-111111111111"
COLUMNS = pa.schema([pa.field("a.b", pa.int32()), pa.field("v", pa.string())])


def at(upto: int) -> Position:
    return Position(executed=GtidSet.parse("mysql", f"{UUID}:1-{upto}"))


SCHEMA = TableSchema(
    keyspace="shop",
    table="t",
    columns=(
        Column(name="a.b", type=ColumnType(name="int"), nullable=False),
        Column(name="v", type=ColumnType(name="varchar", length=10, charset="utf8mb4")),
    ),
    key=("a.b",),
)
STATE = TableState(
    keyspace="shop",
    table="t",
    schema=SCHEMA,
    key=("a.b",),
    phase="streaming",
    dump=DumpState(
        id="d", start_round=1, start={A: at(5), B: at(5)}, end={A: at(10), B: at(10)}, done=True
    ),
    merged_round=9,
)
PARTED = {A: 4}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


def partings(upto: int = 20) -> dict[str, DivergencePoint]:
    return {A: DivergencePoint(shard=A, round=4, position=at(upto))}


def file(name: str, shard: str = A, table: str = "t", **more: Any) -> ChangeFile:
    known = {"rows": 2, "bytes": 100, "min_seq": 1, "max_seq": 2, "inserts": 1, "updates": 1,
             "deletes": 0, "misfits": {}, "schema": "s"}  # fmt: skip
    return ChangeFile(keyspace="shop", table=table, shard=shard, path=name, **{**known, **more})


def round_of(number: int, *files: ChangeFile, events: tuple[TableEvent, ...] = ()) -> Round:
    return Round(number=number, committed_at=1, slices=(), files=files, events=events)


def write(
    lake: Lake, name: str, changes: list[tuple[int, Any, Any]], columns: Any = COLUMNS
) -> None:
    token = {"ts": 1, "shard": A, "gtid": "g", "generation": 0, "seq": 1, "idx": 0}
    rows = [
        {"op": op, "token": token, "before": before, "after": after}
        for op, before, after in changes
    ]
    with lake.open_output(name) as out:
        pq.write_table(pa.Table.from_pylist(rows, schema=change_schema(columns)), out)


def row(key: int, value: str = "x") -> dict[str, Any]:
    return {"a.b": key, "v": value}


def test_only_what_came_behind_the_shards_own_parting() -> None:
    rounds = [
        round_of(4, file("at")),
        round_of(5, file("behind"), file("other", table="u"), file("right", shard=B)),
        round_of(6, file("further")),
    ]
    assert [one.path for one in lost_files(STATE, rounds, PARTED)] == ["behind", "further"]
    found = lost_files(STATE, rounds, {A: 5, B: 4})
    assert [one.path for one in found] == ["right", "further"]


@pytest.mark.parametrize("apart", [True, False])
def test_the_keys_before_and_after_each_change(lake: Lake, *, apart: bool) -> None:
    """A column's name may hold a dot; a key that comes twice is one."""
    write(lake, "one", [(INSERT, None, row(1)), (UPDATE, row(2), row(3)), (DELETE, row(4), None)])
    write(lake, "two", [(UPDATE, row(1), row(1, "y"))])
    one, two = (file(n) if apart else in_a_segment(lake, file(n)) for n in ("one", "two"))
    assert not too_much(lake, [one, two])
    found = lost_keys(lake, STATE, [one, two, replace(two, shard=B)])
    lake.delete(object_of(two.path))
    assert too_much(lake, [one, two]) == f"{object_of(two.path)} is no longer kept"
    assert sorted(key["a.b"] for key in found[A]) == [1, 2, 3, 4]
    assert found[B] == [{"a.b": 1}]


def test_a_file_without_the_key(lake: Lake) -> None:
    columns = pa.schema([pa.field("v", pa.string())])
    write(lake, "odd", [(INSERT, None, {"v": "x"})], columns)
    with pytest.raises(LakeError, match="odd lacks the key's columns"):
        lost_keys(lake, STATE, [file("odd")])


def test_a_table_that_can_be_healed(lake: Lake) -> None:
    write(lake, "one", [(INSERT, None, row(1))])
    assert (
        why_a_dump(lake, STATE, [round_of(5, file("one"))], partings(), InvalidValuePolicy()) == ""
    )
    assert why_a_dump(lake, STATE, [], partings(), InvalidValuePolicy()) == ""


def test_why_one_has_to_be_dumped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def why(state: TableState, *rounds: Round, upto: int = 20) -> str:
        return why_a_dump(lake, state, rounds, partings(upto), InvalidValuePolicy())

    assert why(replace(STATE, phase="catching_up")) == "it is in phase catching_up"
    assert why(STATE, upto=9) == "its dump may have read what was lost"
    assert STATE.dump is not None
    kept = replace(STATE.dump, start={A: at(15), B: at(5)}, end={B: at(10)})  # a dump of B alone
    assert why(replace(STATE, dump=kept)) == ""
    assert why(replace(STATE, dump=kept), upto=14) == "its dump may have read what was lost"
    strange = replace(STATE.dump, start={B: at(5)}, end={B: at(10)})
    assert why(replace(STATE, dump=strange)) == "its dump may have read what was lost"
    event = TableEvent(
        keyspace="shop", table="t", shard=A, kind="truncate", statement="TRUNCATE t", gtid="g",
        seq=1, ts=1,
    )  # fmt: skip
    lost = "what was lost includes: TRUNCATE t"
    assert why(STATE, round_of(5, events=(event,))) == lost
    for harmless in (replace(event, shard=B), replace(event, table="u")):
        assert why(STATE, round_of(5, events=(harmless,))) == ""
    assert why(STATE, round_of(4, events=(event,))) == ""
    assert why(STATE, round_of(5, file("gone"))) == "gone is no longer kept"
    many = file("many", rows=lostrows.MOST_ROWS + 1)
    assert why(STATE, round_of(5, many)) == "200,001 changes of it were lost"
    assert why(STATE, round_of(5, file("wide", bytes=lostrows.MOST_BYTES + 1))).startswith("2 ")
    monkeypatch.setattr(lostrows, "newest_repair", lambda *_: 5)
    assert why(STATE) == "it was repaired since"
    monkeypatch.setattr(lostrows, "newest_repair", lambda *_: 4)
    assert why(STATE) == ""
