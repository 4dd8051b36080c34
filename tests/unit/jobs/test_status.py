"""What `ratchet status` makes of positions, slices and servers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ratchet.core.errors import LakeError, PositionLostError, RetryableError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, Round, ShardSlice
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.jobs.config.config import load_config
from ratchet.jobs.inspect.standing import gather, judge_shard, newest_slices
from ratchet.jobs.inspect.status import run_status
from ratchet.jobs.topology.lag import seen_until, tables_lag
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.formats import open_lake
from ratchet.store.lease import Lease
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState

NOW = 1_800_000_000.0
CONFIG = """\
lake: ./lake
sources:
  shop:
    kind: binlog
    shards: {"-": {host: 127.0.0.1, port: 9, user: u, password: sesame-open, connect_timeout: 1s}}
"""


def position(text: str, offset: int = 0) -> Position:
    return Position(executed=GtidSet.parse("mariadb", text), file="bin.000001", offset=offset)


def piece(*, caught_up: bool = True, ago: float = 3.0, end: str = "0-1-7") -> ShardSlice:
    micros = int((NOW - ago) * 1e6)
    return ShardSlice(
        shard="shop/-",
        generation=0,
        start=position("0-1-5"),
        end=position(end, 900),
        runs=(),
        transactions=2,
        rows=2,
        bytes=300,
        min_ts=micros - 2_000_000,
        max_ts=micros - 1_000_000,
        observed_at=micros,
        caught_up=caught_up,
    )


def judged(**changes: object) -> tuple[str, float | None, float | None]:
    given: dict[str, object] = {
        "position": position("0-1-7"),
        "newest": piece(),
        "head": position("0-1-7"),
        "follower": "running",
        "now": NOW,
        "bound": 0.5,
        **changes,
    }
    found = judge_shard("shop/-", **given)  # type: ignore[arg-type]
    return found.state, found.lag_min, found.lag_max


def test_states_and_lags() -> None:
    assert judged() == ("idle", 0.0, 0.0)
    behind = position("0-1-9")
    assert judged(head=behind) == ("streaming", 0.0, 3.5)
    assert judged(head=behind, newest=piece(caught_up=False)) == ("streaming", 0.0, 5.5)
    assert judged(follower="ended") == ("stopped", 0.0, 0.0)
    assert judged(head=behind, follower="ended") == ("stopped", 0.0, 3.5)
    assert judged(head=behind, follower="dead") == ("dead", 0.0, 3.5)
    assert judged(position=None, newest=None) == ("streaming", None, None)
    # No recent round has anything of it: how far it was read still stands in the log.
    long_ago = int((NOW - 600) * 1e6)
    assert judged(head=behind, newest=None, read_until=long_ago) == ("streaming", 0.0, 600.5)
    gone = RetryableError("connection refused")
    assert judged(head=gone) == ("disconnected", 0.0, 3.5)
    assert judged(head=gone, follower="dead") == ("disconnected", 0.0, 3.5)
    assert judged(head=PositionLostError("purged")) == ("lost", 0.0, 3.5)


def test_a_shard_that_is_held_back() -> None:
    """It is streaming, and read up to what it waits before."""
    newest = replace(piece(caught_up=False), held_ts=int((NOW - 9) * 1e6), min_ts=None, max_ts=None)
    behind = {"position": position("0-1-7"), "head": position("0-1-9"), "now": NOW, "bound": 0.5}
    found = judge_shard("shop/-", newest=newest, follower="running", **behind)  # type: ignore[arg-type]
    assert (found.state, found.held, found.lag_max) == ("streaming", True, 9.5)
    assert not judge_shard("shop/-", newest=newest, follower="ended", **behind).held  # type: ignore[arg-type]


def test_a_mirror_ahead_of_another_server_of_the_shard_is_idle() -> None:
    assert judged(head=position("0-1-6")) == ("idle", 0.0, 0.0)


def test_other_flavours_are_not_compared() -> None:
    other = Position(executed=GtidSet.parse("mysql", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"))
    assert judged(head=other)[0] == "streaming"


def test_newest_slices() -> None:
    rounds = [
        Round(number=n, committed_at=0, slices=(piece(end=f"0-1-{6 + n}"),), files=(), events=())
        for n in (1, 2)
    ]
    assert newest_slices(rounds)["shop/-"].end.seq == 8
    assert seen_until(piece(caught_up=False, ago=0)) == int(NOW * 1e6) - 2_000_000


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    path = tmp_path / "ratchet.yaml"
    path.write_text(CONFIG)
    return path


def test_gathered_from_a_lake(config_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The server is away: everything else is still told, and its absence with it."""
    lake = open_lake(config_path.parent / "lake", now=1)
    change = ChangeFile(
        keyspace="shop", table="orders", shard="shop/-", schema="s", path="p", rows=2, bytes=7,
        min_seq=6, max_seq=7, inserts=2, updates=0, deletes=0, misfits={},
    )  # fmt: skip
    RoundLog(lake).append(
        Round(number=1, committed_at=5, slices=(piece(),), files=(change,), events=())
    )
    schema = TableSchema(
        keyspace="shop", table="orders", columns=(Column(name="id", type=ColumnType(name="int")),),
        key=("id",),
    )  # fmt: skip
    state = TableState(
        keyspace="shop", table="orders", schema=schema, key=("id",), phase="streaming",
        merged_round=1,
    )  # fmt: skip
    tables = Tables(lake)
    tables.save(state)
    other = tables.save(TableState(keyspace="shop", table="odd", schema=schema, key=("id",)))
    tables.stop(other, message="no primary key", hint="add one", at_round=0)
    write_deltalake(lake.delta_uri("shop/orders"), pa.table({"id": [1, 2, 3]}))
    config = load_config(config_path)
    with Lease.acquire(lake, "ratchet run x"):
        found = gather(config)
    assert found.round == 1
    assert found.run is not None
    assert found.run["command"] == "ratchet run x"
    assert (found.change_rounds, found.change_bytes) == (1, change.bytes)
    (shard,) = found.shards
    assert (shard.state, shard.position, shard.file, shard.offset) == (
        "disconnected", "0-1-7", "bin.000001", 900,
    )  # fmt: skip
    odd, orders = found.tables
    assert (orders.phase, orders.rows, orders.version, orders.round) == ("streaming", 3, 1, 1), (
        "its take-over is a version of its own"
    )
    assert orders.last_change is not None
    assert (odd.phase, odd.rows, odd.stopped, odd.hint) == (
        "stopped", None, "no primary key", "add one",
    )  # fmt: skip
    assert run_status(config, as_json=True) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["run"] is None
    assert [t["table"] for t in data["tables"]] == ["odd", "orders"]
    assert run_status(config, as_json=False) == 0
    shown = capsys.readouterr().out
    assert re.search(r"0-1-7 *\n", shown)
    for part in ("shop/-", "disconnected", "shop.orders", "3", "no primary key", "add one"):
        assert part in shown


@pytest.mark.parametrize("mode", ["follow", "stop", "{stop: [t]}", "{stop: ['*', '!t']}"])
def test_who_brings_an_altered_table_up_to_date(config_path: Path, mode: str) -> None:
    lake = open_lake(config_path.parent / "lake", now=1)
    schema = TableSchema(keyspace="shop", table="t", columns=(), key=())
    state = TableState(keyspace="shop", table="t", schema=schema, key=())
    Tables(lake).stop(state, message="a column goes", hint="redump", at_round=0, altered=True)
    with config_path.open("a") as out:
        out.write(f"    schema_changes: {mode}\n")
    (table,) = gather(load_config(config_path)).tables
    assert table.hint.endswith("redump")
    assert ("by itself" in table.hint) == (mode in {"follow", "{stop: ['*', '!t']}"})


def test_tables_are_behind_by_the_oldest_change_that_waits() -> None:
    assert tables_lag(2.0, None, now=NOW) == 2.0
    assert tables_lag(2.0, int((NOW - 30) * 1e6), now=NOW) == 30.0
    assert tables_lag(50.0, int((NOW - 30) * 1e6), now=NOW) == 50.0
    assert tables_lag(None, int((NOW - 30) * 1e6), now=NOW) is None


def test_excluded_tables_are_shown_only_if_the_lake_has_them(
    config_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Excluding a stopped table ends its being told of."""
    lake = open_lake(config_path.parent / "lake", now=1)
    RoundLog(lake).append(Round(number=1, committed_at=5, slices=(piece(),), files=(), events=()))
    schema = TableSchema(keyspace="shop", table="t", columns=(), key=())
    for table in ("old", "never"):
        state = TableState(keyspace="shop", table=table, schema=schema, key=())
        Tables(lake).stop(state, message="no primary key", hint="add one", at_round=0)
    write_deltalake(lake.delta_uri("shop/old"), pa.table({"id": [1]}))
    with config_path.open("a") as out:
        out.write('    tables: ["*", "!old", "!never"]\n')
    config = load_config(config_path)
    (old,) = gather(config).tables
    assert (old.table, old.phase, old.rows, old.stopped) == ("old", "excluded", 1, "")
    run_status(config, as_json=False)
    assert "no primary key" not in capsys.readouterr().out


def test_lag_of_the_tables_is_told(config_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = open_lake(config_path.parent / "lake", now=1)
    rounds = RoundLog(lake)
    rounds.append(Round(number=1, committed_at=5, slices=(piece(),), files=(), events=()))
    config = load_config(config_path)
    run_status(config, as_json=False)
    assert "round 1 captured, nothing merged yet" in capsys.readouterr().out
    Cuts(lake).append(Cut(number=1, round=1, merged_at=6, shards={}, tables={}))
    second = replace(piece(end="0-1-8"), start=position("0-1-7"))
    rounds.append(Round(number=2, committed_at=9, slices=(second,), files=(), events=()))
    found = gather(config)
    assert (found.round, found.merged) == (2, 1)
    (shard,) = found.shards
    assert found.tables_lag_max is not None
    assert shard.lag_max is not None
    assert found.tables_lag_max >= shard.lag_max
    run_status(config, as_json=False)
    assert "round 2 captured, round 1 merged; streaming tables are behind by" in (
        capsys.readouterr().out
    )


def test_no_lake(config_path: Path) -> None:
    with pytest.raises(LakeError, match="no lake"):
        gather(load_config(config_path))
