"""Which tables need a dump."""

from __future__ import annotations

from pathlib import Path

import pytest
from alike import ALIKE

from ratchet.core.schema import TableSchema
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.topology.discover import DiscoveredTable, needing_dump, sharing_folder
from ratchet.store.tables import Phase, TableState


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "ratchet.yaml"
    path.write_text(
        "lake: ./lake\nsources: {shop: {kind: binlog, key: shard+primary, "
        "shards: {a: {host: a, user: u}, b: {host: b, user: u}}}}"
    )
    return load_config(path)


def found(table: str) -> DiscoveredTable:
    return DiscoveredTable(keyspace="shop", table=table, shards=("shop/a", "shop/b"), rows=10)


def state(table: str, phase: Phase) -> TableState:
    schema = TableSchema(keyspace="shop", table=table, columns=(), key=("id",))
    return TableState(keyspace="shop", table=table, schema=schema, key=("id",), phase=phase)


def test_new_and_unfinished_tables_and_those_asked_for(config: Config) -> None:
    phases: dict[str, Phase] = {
        "half": "dumping",
        "caught": "catching_up",
        "live": "streaming",
        "stuck": "stopped",
        "gone": "dumping",
    }
    states = [state(table, phase) for table, phase in phases.items()]
    tables = [found(table) for table in ("caught", "half", "live", "never", "stuck")]
    wanted = needing_dump(tables, states, config.sources)
    assert [(w.table, w.again) for w in wanted] == [("half", False), ("never", False)]
    assert wanted[0].shards == ("shop/a", "shop/b")
    assert wanted[0].shard_in_key
    wanted = needing_dump(tables, states, config.sources, again={"shop.stuck", "shop.live"})
    assert {(w.table, w.again) for w in wanted} == {
        ("half", False),
        ("never", False),
        ("stuck", True),
        ("live", True),
    }


def test_two_names_that_would_share_a_folder() -> None:
    first, second = sorted(ALIKE)
    tables = [("shop", one) for one in ("orders", *ALIKE)]
    (one,) = sharing_folder([*tables, ("other", first)]).items()
    assert one[0] == ("shop", second)
    assert one[1].endswith(f"the same folder in the lake as that of {first}")
