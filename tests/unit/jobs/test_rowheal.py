"""What becomes of tables that wait to be healed: lake and rounds are real, servers are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratchet.core.errors import TableStoppedError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import Round, ShardSlice
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.recovery import rowheal
from ratchet.jobs.recovery.rowheal import (
    HealPlan,
    heal_rows,
    plan_heal,
    undo_unbegun,
    waiting_tables,
)
from ratchet.jobs.topology.parting import DivergencePoint
from ratchet.merge.repair import ExpectedRow
from ratchet.snapshot.records import TableDumpRequest
from ratchet.snapshot.rowsat import KeyAt, RowsAt
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import RowRecovery, StopReason
from ratchet.store.tables import Tables, TableState

A, B = "shop/-80", "shop/80-"
UUID = "11111111-1111-1111-1111-111111111111"
KEYS = [{"id": 1}, {"id": 2}]


def at(upto: int) -> Position:
    return Position(executed=GtidSet.parse("mysql", f"{UUID}:1-{upto}"))


def slice_of(shard: str, start: int, end: int, generation: int = 0) -> ShardSlice:
    piece = ShardSlice.beginning(shard, at(start), generation=generation, now=1)
    return replace(piece, end=at(end), max_ts=end * 1000)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Four rounds; A's parting is the second, and the fifth is where it would begin anew."""
    lake = open_lake(tmp_path / "lake", now=1)
    for number in range(1, 5):
        append(lake, slice_of(A, number, number + 1), slice_of(B, number, number + 1))
    assert RoundLog(lake).last_number() == 4
    schema = TableSchema(
        keyspace="shop",
        table="t",
        columns=(Column(name="id", type=ColumnType(name="int"), nullable=False),),
        key=("id",),
    )
    dump = DumpState(
        id="first", start_round=1, start={A: at(1), B: at(1)}, end={A: at(2), B: at(2)}, done=True
    )
    Tables(lake).save(
        TableState(
            keyspace="shop", table="t", schema=schema, key=("id",), phase="streaming", dump=dump,
            merged_round=4,
        )
    )  # fmt: skip
    return lake


def append(lake: Lake, *slices: ShardSlice) -> None:
    rounds = RoundLog(lake)
    rounds.append(
        Round(number=rounds.last_number() + 1, committed_at=1, slices=slices, files=(), events=())
    )


def begin_anew(lake: Lake, generation: int = 1) -> None:
    append(lake, ShardSlice.beginning(A, at(3), generation=generation, now=1))


def wait(lake: Lake) -> TableState:
    (state,) = Tables(lake).list()
    waits = StopReason(message="m", hint="h", round=5, healing=RowRecovery(round=5, parted={A: 2}))
    return Tables(lake).save(replace(state, phase="stopped", stopped=waits))


def now(lake: Lake) -> TableState:
    (state,) = Tables(lake).list()
    return state


class Source:
    """In the place of a Verifier: what the source had; and of what writes it."""

    def __init__(self, rows: Mapping[str, Any] | None = None, *, reason: str = "") -> None:
        self._rows, self._reason = rows, reason
        self.written: list[tuple[ExpectedRow, int, int]] = []

    def rows_at(self, cut: Any, _: Any, __: Any, keys: Sequence[Any]) -> RowsAt:
        if self._rows is None:
            raise TableStoppedError("it is gone")
        assert cut.round == 5
        told = [KeyAt(key=key, rows=self._rows) for key in keys]
        return RowsAt(reason=self._reason) if self._reason else RowsAt(keys=told)

    def write(self, _: Any, truths: Sequence[ExpectedRow], cut: Any, streams: Any) -> None:
        self.written += [(one, streams[A].generation, cut.shards[A].latest_ts) for one in truths]


def heal(lake: Lake, source: Source, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(rowheal, "lost_keys", lambda *_: {A: KEYS})
    wanted = TableDumpRequest(keyspace="shop", table="t", shards=(A, B))
    table = rowheal._Table(lake, RoundLog(lake), now(lake))
    return table.heal(source, wanted, source)  # type: ignore[arg-type]


def test_a_table_that_nothing_was_lost_of(lake: Lake) -> None:
    plan = plan_heal(
        lake,
        RoundLog(lake),
        [DivergencePoint(shard=A, round=2, position=at(3))],
        InvalidValuePolicy(),
    )
    assert plan == HealPlan(rows={"shop.t": 0}, dumps={})
    plan = plan_heal(
        lake,
        RoundLog(lake),
        [DivergencePoint(shard=A, round=1, position=at(1))],
        InvalidValuePolicy(),
    )
    assert plan.rows == {}
    assert plan.dumps == {"shop.t": "its dump may have read what was lost"}


def test_two_keyspaces_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round in which the first one's streams begin anew keeps no table of the other's back."""
    other = replace(now(lake), keyspace="bar", phase="new", dump=None)
    Tables(lake).save(replace(other, schema=replace(other.schema, keyspace="bar")))
    append(lake, slice_of("bar/-", 1, 2))
    (_, mine) = Tables(lake).list()
    Cuts(lake).append(
        Cut(number=1, round=5, merged_at=1, shards={}, tables={"shop.t": 1, "bar.t": 1})
    )
    monkeypatch.setattr(rowheal, "merge_rest", lambda *_: None)
    monkeypatch.setattr(rowheal, "finish_healing", lambda *_, **__: {})
    monkeypatch.setattr(rowheal, "_count", lambda _: 3)
    partings = [
        DivergencePoint(shard="bar/-", round=5, position=at(2)),
        DivergencePoint(shard=A, round=2, position=at(3)),
    ]
    told = heal_rows(
        SimpleNamespace(policy=InvalidValuePolicy()),  # type: ignore[arg-type]
        lake,
        None,  # type: ignore[arg-type]
        partings,
        check=lambda: None,
        now=lambda: 7,
    )
    assert told == {}
    assert [state.name for state in waiting_tables(lake)] == ["shop.t"]
    assert mine.phase == "streaming"
    (waits,) = waiting_tables(lake)
    assert waits.merged_round == 6
    assert waits.stopped is not None
    assert waits.stopped.healing == RowRecovery(round=7, parted={A: 2})
    assert RoundLog(lake).streams()[A].generation == 1


def test_a_heal_that_had_not_begun(lake: Lake) -> None:
    wait(lake)
    assert undo_unbegun(lake) == {"shop.t": "continues to stream"}
    assert (now(lake).phase, now(lake).stopped) == ("streaming", None)
    wait(lake)
    append(lake, slice_of(A, 5, 6))  # the server came back, and a run went on
    assert undo_unbegun(lake) == {"shop.t": "continues to stream"}


def test_a_heal_that_had_begun(lake: Lake) -> None:
    wait(lake)
    begin_anew(lake)
    assert undo_unbegun(lake) == {}
    assert [state.name for state in waiting_tables(lake)] == ["shop.t"]


def test_the_rows_are_written_as_of_the_parting(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait(lake)
    begin_anew(lake)
    source = Source({A: {"id": 1}, B: None})
    assert heal(lake, source, monkeypatch) == "read again: 2 rows"
    assert [one.key for one, _, _ in source.written] == KEYS
    assert {(generation, ts) for _, generation, ts in source.written} == {(1, 3000)}
    state = now(lake)
    assert (state.phase, state.merged_round, state.stopped) == ("streaming", 5, None)
    assert state.dump is not None
    assert state.dump.id == "first"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (Source({A: {"id": 1}, B: None}, reason="its columns are not the source's"), "its columns"),
        (Source({A: {"id": 1}, B: {"id": 1}}), "one of its keys is on several shards"),
        (Source(None), "it is gone"),
    ],
)
def test_the_shard_is_dumped_instead(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, source: Source, why: str
) -> None:
    wait(lake)
    begin_anew(lake)
    assert heal(lake, source, monkeypatch).startswith(f"to be dumped again, only {A}: {why}")
    assert source.written == []
    state = now(lake)
    assert state.phase == "dumping"
    assert state.stopped is None
    assert state.dump is not None
    assert state.dump.read == (A,)
    assert state.dump.start_round == 6


def test_a_shard_that_has_parted_once_more(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    wait(lake)
    begin_anew(lake)
    begin_anew(lake, generation=2)
    told = heal(lake, Source({A: None, B: None}), monkeypatch)
    assert told == "to be dumped again: its shards have since begun from scratch"
    assert (now(lake).phase, now(lake).dump) == ("new", None)


def test_rounds_that_are_no_longer_kept(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    wait(lake)
    begin_anew(lake)
    for _ in range(3):
        append(lake, slice_of(B, 5, 6))
    RoundLog(lake).prune(7)
    assert undo_unbegun(lake) == {}
    told = heal(lake, Source({A: None, B: None}), monkeypatch)
    assert told == "to be dumped again: the rounds in question are no longer kept"
