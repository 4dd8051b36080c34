"""What of a table is dumped again when shards are gone before their streams were read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ShardSlice
from ratchet.core.schema import TableSchema
from ratchet.jobs.topology.gaps import begin_after_a_gap, dump_of_heirs
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.dumpstates import DumpState, RetainedRows
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.store.tables import Tables, TableState

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
LEFT, RIGHT, A, B = "shop/-80", "shop/80-", "shop/80-c0", "shop/c0-"


def at(number: int) -> Position:
    return Position(executed=GtidSet.parse("mysql", f"{UUID}:1-{number}"))


def begin(shard: str, *, generation: int = 0, **ancestors: int) -> ShardSlice:
    named = {f"shop/{name}": value for name, value in ancestors.items()}
    return ShardSlice.beginning(shard, at(9), generation=generation, now=1, ancestors=named)


HEIRS = [begin(shard, generation=1, **{"80-": 0}) for shard in (A, B)]
STREAMS = {LEFT: StreamState(position=at(5)), RIGHT: StreamState(position=at(6))}
STATE = TableState(
    keyspace="shop",
    table="t",
    schema=TableSchema(keyspace="shop", table="t", columns=(), key=("id",)),
    key=("id",),
    phase="streaming",
    dump=DumpState(id="first", start_round=2, start={LEFT: at(1), RIGHT: at(1)}),
    merged_round=7,
)


def dump(
    state: TableState = STATE,
    streams: dict[str, StreamState] = STREAMS,
    then: dict[str, StreamState] = STREAMS,
) -> DumpState | None:
    return dump_of_heirs(state, streams, HEIRS, merged=7, then=then)


def test_the_heirs_are_read_and_the_others_kept() -> None:
    earlier = {**STREAMS, LEFT: StreamState(position=at(3))}
    found = dump(then=earlier)
    assert found is not None
    assert set(found.read) == {A, B}
    assert found.start == {LEFT: at(3), A: at(9), B: at(9)}  # where its rows stand
    assert (found.start_round, found.since) == (8, 2)
    assert found.kept == RetainedRows(names=(LEFT,), dump="first", since=2)
    assert DumpState.from_json(found.to_json()) == found


def test_rows_kept_twice_are_of_the_first_dump() -> None:
    kept = RetainedRows(names=(LEFT,), dump="zeroth", since=1)
    state = replace(STATE, dump=DumpState(id="first", start_round=5, start={}, kept=kept))
    found = dump(state)
    assert found is not None
    assert found.kept == RetainedRows(names=(LEFT,), dump="first", since=1)


def test_rows_of_a_common_ancestor_are_not_told_apart() -> None:
    """Whose they are is not known."""
    heir = StreamState(position=at(5), generation=1, ancestors={"shop/0": 0}, begun=3)
    heirs = [begin(shard, generation=2, **{"80-": 1, "0": 0}) for shard in (A, B)]
    streams = {LEFT: heir, RIGHT: heir}
    assert dump_of_heirs(STATE, streams, heirs, merged=7, then=streams) is None


def test_an_earlier_reshard_that_is_not_merged_yet() -> None:
    later = {**STREAMS, LEFT: StreamState(position=at(5), generation=1)}
    assert dump(streams=later) is None
    assert dump(then={RIGHT: STREAMS[RIGHT]}) is None


def test_nothing_is_kept_of_a_table_that_is_not_whole() -> None:
    assert dump(replace(STATE, phase="dumping")) is None
    assert dump(replace(STATE, phase="catching_up")) is None
    assert dump(streams={RIGHT: STREAMS[RIGHT]}) is None  # no other shard goes on


def test_the_states_are_saved_and_the_streams_begun(tmp_path: Path) -> None:
    """A state that lags behind the cut is no lower bound of what the rounds still hold."""
    lake = open_lake(tmp_path / "lake", now=1)
    rounds, tables = RoundLog(lake), Tables(lake)
    begin_after_a_gap(lake, rounds, "shop", [begin(LEFT), begin(RIGHT)], now=1)
    tables.save(replace(STATE, merged_round=0))
    tables.save(replace(STATE, table="stopped", phase="stopped"))
    tables.save(replace(STATE, keyspace="wiki"))
    Cuts(lake).append(
        Cut(number=1, round=1, merged_at=1, shards={}, tables={"shop.t": 3}, stopped=())
    )
    begin_after_a_gap(lake, rounds, "shop", HEIRS, now=1)
    found = {state.name: state for state in tables.list()}
    assert found["shop.t"].phase == "dumping"
    assert found["shop.t"].dump is not None
    assert found["shop.t"].dump.start_round == 2
    assert found["shop.stopped"].phase == "stopped"
    assert found["wiki.t"].phase == "streaming"
    assert set(rounds.streams()) >= {LEFT, A, B}


def test_a_kill_before_the_heirs_begin_loses_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables know it first."""
    lake = open_lake(tmp_path / "lake", now=1)
    rounds = RoundLog(lake)
    begin_after_a_gap(lake, rounds, "shop", [begin(LEFT), begin(RIGHT)], now=1)
    Tables(lake).save(replace(STATE, merged_round=1))

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rounds, "append", killed)
    with pytest.raises(KeyboardInterrupt):
        begin_after_a_gap(lake, rounds, "shop", HEIRS, now=1)
    assert Tables(lake).list()[0].phase != "streaming"
