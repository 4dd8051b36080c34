"""Before the loops: where streams start, which tables must be dumped anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.errors import ConfigError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import TableSchema
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.topology.begin import (
    again_of_stopped,
    align,
    check_databases,
    check_keys,
    dumped_without,
    fresh_shards,
    has_stood,
    left_behind,
    named_again,
    record_starts,
)
from ratchet.jobs.topology.discover import DiscoveredTable
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import ShapeChange
from ratchet.store.tables import Phase, Tables, TableState

CONFIG = """\
lake: ./lake
sources:
  shop:
    {kind: binlog, tables: ["!tmp_*"], shards: {a: {host: a, user: u}, b: {host: b, user: u}}}
  wiki: {kind: binlog, key: shard+primary, shards: {a: {host: c, user: u}}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "ratchet.yaml"
    path.write_text(CONFIG)
    return load_config(path)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


@pytest.fixture
def save(lake: Lake) -> Callable[..., TableState]:
    def save(
        name: str,
        phase: Phase,
        *,
        shard_in_key: bool = False,
        dumped: bool = True,
        shards: Sequence[str] = (),
    ) -> TableState:
        keyspace, table = name.split(".")
        schema = TableSchema(keyspace=keyspace, table=table, columns=(), key=("id",))
        start = {shard: position(1) for shard in shards}
        dump = DumpState(id="d", start_round=1, start=start) if dumped else None
        return Tables(lake).save(
            TableState(
                keyspace=keyspace, table=table, schema=schema, key=("id",), phase=phase,
                shard_in_key=shard_in_key, dump=dump,
            )
        )  # fmt: skip

    return save


def found(name: str, *shards: str) -> DiscoveredTable:
    keyspace, table = name.split(".")
    return DiscoveredTable(
        keyspace=keyspace, table=table, shards=tuple(f"{keyspace}/{s}" for s in shards), rows=1
    )


FOUND = [found("shop.items", "a"), found("shop.orders", "a", "b"), found("wiki.page", "a")]


def position(number: int) -> Position:
    return Position(executed=GtidSet.parse("mariadb", f"0-1-{number}"))


def test_starts_are_rounds(lake: Lake) -> None:
    log = RoundLog(lake)
    record_starts(log, {"shop/a": position(7)}, now=5)
    record_starts(log, {}, now=6)
    record_starts(log, {"shop/b": position(9)}, now=7)
    assert log.last_number() == 2
    assert {shard: str(p.executed) for shard, p in RoundLog(lake).positions().items()} == {
        "shop/a": "0-1-7",
        "shop/b": "0-1-9",
    }
    (first, _) = log.since(0)
    assert (first.slices[0].start, first.slices[0].observed_at) == (position(7), 5)


def test_fresh_shards() -> None:
    shards = ["shop/a", "shop/b", "wiki/a"]
    assert fresh_shards(shards, shards, set(), FOUND) == set()
    assert fresh_shards(shards, ["shop/a"], set(), FOUND) == {"shop/b", "wiki/a"}
    assert fresh_shards(shards, shards, {"shop.orders"}, FOUND) == set()
    both = {"shop.orders", "shop.items"}
    assert fresh_shards(shards, shards, both, FOUND) == {"shop/a", "shop/b"}


def test_tables_that_the_log_does_not_cover(
    lake: Lake, config: Config, save: Callable[..., TableState]
) -> None:
    """Left out by the config, of a source that is gone, or with rows on a shard that starts now."""
    for name in ("shop.items", "shop.orders", "shop.tmp_x", "gone.t", "wiki.page"):
        save(name, "streaming")
    save("shop.stuck", "stopped")
    save("shop.dropped", "streaming", shards=["shop/b"])
    save("shop.dropped_elsewhere", "streaming", shards=["shop/a"])
    phases = {s.name: s.phase for s in align(lake, FOUND, config.mirrors, {"shop/b"})}
    assert phases == {
        "gone.t": "new",
        "shop.dropped": "new",
        "shop.dropped_elsewhere": "streaming",
        "shop.items": "streaming",
        "shop.orders": "new",
        "shop.stuck": "stopped",
        "shop.tmp_x": "new",
        "wiki.page": "streaming",
    }
    assert {s.name: s.phase for s in Tables(lake).list()} == phases
    orders = Tables(lake).load("shop", "orders")
    assert orders is not None
    assert orders.dump is None


def test_tables_that_were_dumped_without_a_shard(
    lake: Lake, config: Config, save: Callable[..., TableState]
) -> None:
    """The config lacked it, so its stream stands where it was left: rows of before are not there.

    A shard that got the table later has moved since.
    """
    log = RoundLog(lake)
    record_starts(log, {"shop/a": position(1), "shop/b": position(1)}, now=5)
    left = save("shop.orders", "streaming", shards=["shop/a"])
    whole = save("wiki.page", "streaming", shards=["wiki/b", "wiki/a"])
    assert left.dump is not None
    record_starts(log, {"shop/a": position(2)}, now=6)

    def phases() -> dict[str, str]:
        states = align(lake, FOUND, config.mirrors, set(), was_left=lambda *of: has_stood(*of, log))
        return {one.name: one.phase for one in states}

    assert has_stood("shop/b", left.dump, log)
    assert dumped_without(Tables(lake).list(), config.sources, log) == ["shop/b"]
    assert not has_stood("shop/c", left.dump, log)
    assert phases() == {"shop.orders": "new", "wiki.page": "streaming"}
    save("shop.orders", "streaming", shards=["shop/a"])
    record_starts(log, {"shop/b": position(9)}, now=7)
    assert not has_stood("shop/b", left.dump, log)
    assert phases() == {"shop.orders": "streaming", "wiki.page": "streaming"}
    assert not dumped_without(Tables(lake).list(), config.sources, log)
    assert whole.dump is not None
    assert not has_stood("wiki/a", whole.dump, log)


def test_a_change_of_a_table_that_was_dumped_without_a_shard_is_not_computed(
    lake: Lake, config: Config, save: Callable[..., TableState]
) -> None:
    """It would be made of what the lake has, or of a tool's copy on the other shard alone."""
    log = RoundLog(lake)
    record_starts(log, {"shop/a": position(1), "shop/b": position(1)}, now=5)
    stopped = save("shop.orders", "stopped", shards=["shop/a"])
    change = ShapeChange(shard="shop/a", position=position(2), round=1, statement="ALTER TABLE t")
    Tables(lake).save(replace(stopped, change=change))

    def left(number: int) -> TableState:
        record_starts(log, {"shop/b": position(number)}, now=6)
        (state,) = align(
            lake, FOUND, config.mirrors, set(), was_left=lambda *of: has_stood(*of, log)
        )
        return state

    (state,) = align(lake, FOUND, config.mirrors, set(), was_left=lambda *of: has_stood(*of, log))
    assert (state.phase, state.change) == ("stopped", None)
    Tables(lake).save(replace(state, change=change))
    assert left(9).change == change


def test_another_key_is_refused(config: Config, save: Callable[..., TableState]) -> None:
    fitting = [save("shop.orders", "streaming"), save("wiki.page", "dumping", shard_in_key=True)]
    check_keys(fitting, config.sources)
    odd = save("shop.items", "streaming", shard_in_key=True)
    with pytest.raises(ConfigError, match=r"shop\.items was dumped with shard\+primary"):
        check_keys([*fitting, odd], config.sources)
    check_keys([odd], config.sources, again={"shop.items"})
    check_keys([save("shop.items", "new", shard_in_key=True)], config.sources)


def test_names_for_again() -> None:
    assert named_again(["orders"], FOUND) == {"shop.orders"}
    assert named_again(["shop.*"], FOUND) == {"shop.orders", "shop.items"}
    assert named_again(["*"], FOUND) == {one.name for one in FOUND}
    with pytest.raises(ConfigError, match="order") as caught:
        named_again(["order"], FOUND)
    assert "'orders'" in caught.value.hint


def test_a_table_of_a_shard_that_the_config_lacks_can_be_named(
    config: Config, save: Callable[..., TableState]
) -> None:
    """No server has it, so nothing else would get its rows out of the way."""
    states = [
        save("shop.orders", "streaming", shards=["shop/a", "shop/gone"]),  # it is found
        save("shop.alone", "streaming", shards=["shop/gone"]),
        save("shop.dropped", "streaming", shards=["shop/a"]),
        save("shop.stopped", "stopped", shards=["shop/gone"]),
        save("aside.t", "streaming", shards=["aside/gone"]),
    ]
    left = left_behind(states, FOUND, config.sources)
    assert left == {"shop.alone"}
    assert named_again(["shop.*"], FOUND, left) == {"shop.orders", "shop.items", "shop.alone"}
    assert named_again(["alone"], FOUND, left) == {"shop.alone"}


def test_tables_that_never_began_are_tried_again(save: Callable[..., TableState]) -> None:
    states = [
        save("shop.a", "stopped", dumped=False),
        save("shop.b", "stopped"),
        save("shop.c", "streaming"),
    ]
    assert again_of_stopped(states) == {"shop.a"}


def test_another_database_is_refused() -> None:
    noted = {"shop/-": "shop", "till/a": "till"}
    check_databases({"shop/-": "Shop", "till/a": "till", "new/-": "new"}, noted)
    with pytest.raises(ConfigError, match="the database of till/a is 'twin', but the mirror") as no:
        check_databases({"shop/-": "shop", "till/a": "twin"}, noted)
    assert "`" not in no.value.hint
    assert "ratchet dump CONFIG --again 'till.*'" in no.value.hint
    check_databases({"shop/-": "shop", "till/a": "twin"}, noted, fresh={"till/a"})
