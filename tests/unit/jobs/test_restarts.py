"""When the start of a server is news, and what it may have done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.schema import TableSchema
from ratchet.jobs.preflight.fitness import not_durable
from ratchet.jobs.preflight.restarts import (
    Life,
    Start,
    doubt_restarted,
    note_looks,
    read_starts,
    was_watched,
)
from ratchet.store.dumpstates import DumpState
from ratchet.store.formats import open_lake
from ratchet.store.tables import Tables, TableState

NOTED = Start("a/3306/1", 1_000_000, "bin.000007", "sync_binlog=0")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, (False, True, False)),
        ({"at": 1_000_002}, (False, True, False)),  # rounding
        ({"at": 1_000_003}, (True, False, True)),  # a quick restart
        ({"at": 1_000_100}, (True, False, True)),
        ({"at": 999_900}, (False, False, True)),
        # A standby that was there all the while, and one that was started since.
        ({"server": "b/3306/2", "at": 900_000}, (False, False, True)),
        ({"server": "b/3306/2", "at": 1_000_100}, (True, False, True)),
        ({"loose": ""}, (False, True, True)),
        ({"delayed": 5, "late": True}, (False, True, True)),
    ],
)
def test_a_start_that_is_news(changed: dict[str, object], told: tuple[bool, ...]) -> None:
    start = replace(NOTED, **changed)  # type: ignore[arg-type]
    assert (start.is_later(NOTED), start.is_same(NOTED), start.is_news(NOTED)) == told


def test_rows_that_came_delayed() -> None:
    five = replace(NOTED, delayed=5)
    assert five.has_delayed(NOTED)
    assert not five.has_delayed(five)
    assert five.has_delayed(None)
    # The count begins anew with each start.
    assert five.has_delayed(replace(five, at=five.at - 900))
    assert not NOTED.has_delayed(replace(five, at=five.at - 900))
    assert five.is_news(replace(five, late=True))  # once more, when they are surely in the log


def test_what_was_written_anew() -> None:
    noted = replace(NOTED, stored={"a": "t1", "b": "t1"}, parts={"p": ["p0", "p1"], "q": ["q0"]})
    assert noted.rewritten(None) == {}
    assert noted.rewritten(noted) == {}
    assert noted.rewritten(NOTED) == {}  # nothing was known of them
    found = replace(noted, stored={"a": "t2", "b": "t1", "new": "t3"}, parts={"p": ["p1", "p2"]})
    assert found.is_news(noted)
    assert set(found.rewritten(noted)) == {"a"}
    assert found.lost_parts(noted) == {"p": {"p0"}}
    assert found.lost_parts(None) == noted.lost_parts(noted) == {}
    # Of another server the times are its own.
    other = replace(found, server="b/3306/2")
    assert other.rewritten(noted) == other.lost_parts(noted) == {}


def test_what_was_written_anew_before_the_first_look_behind_its_dump() -> None:
    found = replace(NOTED, stored={"a": "t2", "b": "t1", "old": "t2", "elsewhere": "t2"})
    made = {"a": "1 t1", "b": "1 t1", "elsewhere": "2 t1"}  # by the server with this id

    def rewritten(table: str, noted: Start | None) -> bool:
        schema = TableSchema(keyspace="shop", table=table, columns=(), key=())
        kept = {"shop/-": made[table]} if table in made else {}
        dump = DumpState(id="d", start_round=1, start={}, made=kept)
        state = TableState(keyspace="shop", table=table, schema=schema, key=(), dump=dump)
        return found.has_rewritten(state, "shop/-", {"shop/-": noted} if noted else {})

    tables = ("a", "b", "old", "elsewhere")
    assert [rewritten(table, NOTED) for table in tables] == [True, False, False, False]
    assert rewritten("a", None)
    assert not rewritten("a", found)  # it was looked at since


def test_the_first_start_is_news() -> None:
    assert NOTED.is_later(None)
    assert not NOTED.is_same(None)
    assert NOTED.is_news(None)


def test_who_looked_until_a_server_came_back() -> None:
    noted = replace(NOTED, loose="")
    new = replace(noted, at=noted.at + 5_000)
    just, long_ago = new.at - 30, new.at - 3_600
    assert was_watched(new, noted, Life(noted, just))
    assert not was_watched(new, noted, None)  # a run that has just begun
    assert not was_watched(new, noted, Life(noted, long_ago))  # it stood still, or saw no server
    other = replace(noted, server="b/3306/2")
    assert not was_watched(new, noted, Life(other, just))
    quick = replace(noted, at=noted.at + 5)  # killed as soon as it was there, and back at once
    assert was_watched(quick, noted, Life(noted, noted.at + 3))
    # The new life was looked at already, and is not noted yet.
    assert was_watched(new, noted, Life(new, new.at + 3, watched=True))
    assert not was_watched(new, noted, Life(new, new.at + 3, watched=False))


def test_looks_are_noted_for_the_next_run(tmp_path: Path) -> None:
    lake = replace(open_lake(tmp_path, now=1), epoch=1)
    lives = {"shop/-": Life(NOTED, NOTED.at + 50), "shop/2": Life(NOTED, NOTED.at + 60)}
    doubt_restarted(lake, Tables(lake), lives, last_round=1)
    assert read_starts(lake)["shop/-"] == replace(NOTED, round=1)
    other = replace(NOTED, at=NOTED.at + 1_000)  # a life that is not noted yet
    lives = {"shop/-": Life(NOTED, NOTED.at + 90), "shop/2": Life(other, other.at)}
    note_looks(lake, lives)
    assert read_starts(lake)["shop/-"] == replace(NOTED, seen=NOTED.at + 90, round=1)
    assert read_starts(lake)["shop/2"] == replace(NOTED, round=1)
    note_looks(lake, {"shop/2": Life(replace(NOTED, at=NOTED.at + 5), NOTED.at + 9)})
    assert read_starts(lake)["shop/2"] == replace(NOTED, round=1)


def test_one_server_under_two_names() -> None:
    renamed = replace(NOTED, server="pod-2/3307/1")
    replica = replace(NOTED, server="a/3306/2")
    assert NOTED.server_id == renamed.server_id != replica.server_id


def test_settings_that_a_crash_may_part_rows_and_log_with() -> None:
    durable = {"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1", "other": "0"}
    assert not_durable(durable) == ""
    assert not_durable({}) == ""  # a server without InnoDB has none of its settings
    assert not_durable(durable | {"sync_binlog": "100"}) == "sync_binlog=100"
    both = durable | {"innodb_flush_log_at_trx_commit": "2", "sync_binlog": "0"}
    assert not_durable(both) == "innodb_flush_log_at_trx_commit=2, sync_binlog=0"
