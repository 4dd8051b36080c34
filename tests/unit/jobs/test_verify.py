"""Which tables `ratchet verify` compares, and what it says about the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.core.errors import ConfigError, LakeError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import TableSchema
from ratchet.jobs.inspect.verify import beside, choose, print_result
from ratchet.jobs.topology.discover import DiscoveredTable
from ratchet.snapshot.verify import Difference, VerifyResult
from ratchet.store.cuts import Cut, Cuts, CutShard
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.tables import Phase, Tables, TableState


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = open_lake(tmp_path / "lake", now=1)
    phases: dict[str, Phase] = {
        "orders": "streaming",
        "items": "streaming",
        "stuck": "stopped",
        "fresh": "dumping",
        "gone": "streaming",
    }
    for table, phase in phases.items():
        schema = TableSchema(keyspace="shop", table=table, columns=(), key=("id",))
        state = TableState(
            keyspace="shop", table=table, schema=schema, key=("id",), phase=phase,
            shard_in_key=table == "items",
        )  # fmt: skip
        Tables(lake).save(state)
    return lake


@pytest.fixture
def cut(lake: Lake) -> Cut:
    position = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
    shard = CutShard(position=position, min_ts=None, max_ts=None, latest_ts=1, observed_at=1)
    cut = Cut(
        number=1, round=3, merged_at=1, shards={"shop/-": shard},
        tables={f"shop.{t}": 7 for t in ("orders", "items", "stuck", "gone")},
    )  # fmt: skip
    Cuts(lake).append(cut)
    return cut


FOUND = [
    DiscoveredTable(keyspace="shop", table=table, shards=("shop/-",), rows=1)
    for table in ("orders", "items", "stuck", "fresh")
]


def everything(_keyspace: str, _table: str) -> bool:
    return True


def test_excluded_tables_are_named_if_the_cut_shows_them(lake: Lake, cut: Cut) -> None:
    """One that the lake has nothing of is no longer anybody's concern."""
    _, chosen, left = choose(lake, FOUND, [], lambda _, table: table not in {"stuck", "fresh"})
    assert [t.state.table for t in chosen] == ["items", "orders"]
    assert left == {
        "shop.gone": "the sources do not have it",
        "shop.stuck": "the config leaves it out",
    }
    assert cut.stopped == ()


def test_chosen_and_left_out(lake: Lake, cut: Cut) -> None:
    found, chosen, left = choose(lake, FOUND, [], everything)
    assert found == cut
    assert [(t.state.table, t.version, t.wanted.shard_in_key) for t in chosen] == [
        ("items", 7, True),
        ("orders", 7, False),
    ]
    assert set(left) == {"shop.stuck", "shop.fresh", "shop.gone"}
    assert left["shop.fresh"] == "it is in phase dumping"


@pytest.mark.parametrize("name", ["orders", "shop.orders"])
def test_by_name(lake: Lake, cut: Cut, name: str) -> None:
    _, chosen, left = choose(lake, FOUND, [name], everything)
    assert [t.state.table for t in chosen] == ["orders"]
    assert left == {}
    assert cut.round == 3


def test_names_of_nothing(lake: Lake, cut: Cut) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        choose(lake, FOUND, ["orders", "nowhere"], everything)
    assert cut.round == 3


def test_nothing_merged(lake: Lake) -> None:
    with pytest.raises(LakeError, match="nothing has been merged"):
        choose(lake, FOUND, [], everything)


@pytest.mark.parametrize("server_id", [1, 1_000_000_000, 4_294_967_295])
def test_ids_beside_a_run(server_id: int) -> None:
    check: Callable[[int], bool] = lambda found: 0 < found < 2**32 and found != server_id  # noqa: E731
    assert check(beside(server_id))


def test_differences_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    """By kind and column: only the first rows are listed."""
    changed = Difference(key={"id": 1}, shard="", kind="changed", columns=("a", "b"))
    result = VerifyResult(
        table="shop.orders", round=3, positions={}, ends={}, source_rows=9, source_bytes=90,
        mirror_rows=9, chunks=1, columns=("id", "a", "b"), mismatched=1203, differences=1203,
        kinds={"missing": 3, "changed": 1200}, odd_columns={"b": 1200, "a": 7},
        examples=(changed,) * 100,
    )  # fmt: skip
    print_result(result)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("DIFFERENT  shop.orders: 9 rows")
    assert lines[1] == "  1,200 changed, 3 missing (columns: a 7, b 1,200)"
    assert lines[2] == "  changed: id=1 columns a, b"
    assert lines[-1] == "  and 1,183 more (--json lists up to 100)"
