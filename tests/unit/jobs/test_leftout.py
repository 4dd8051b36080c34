"""What a run leaves out: found by its look, noted in the lake, shown by `ratchet status`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ratchet.core.errors import LakeError, RetryableError
from ratchet.core.schema import TableSchema
from ratchet.jobs.inspect.standing import left_out
from ratchet.jobs.preflight.leftout import LeftOutCheck
from ratchet.jobs.preflight.unfit import UnfitReason
from ratchet.jobs.topology.discover import DiscoveredTable, Tell
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.leftout import LeftOutTable, LeftOutTables
from ratchet.store.tables import TableState

ODD = LeftOutTable(keyspace="shop", table="odd", reason="its engine is CSV", hint="exclude it")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


class Servers:
    """Tables that there are, those that nothing can mirror, and those that are refused."""

    def __init__(self, lake: Lake) -> None:
        self.tables, self.odd = ["a", "b"], [ODD]
        self.refused: dict[str, UnfitReason] = {}
        self.told: list[str] = []
        self.away = self.locked = False
        self.sight = LeftOutCheck(
            self._look,
            lambda _, table: self.refused.get(table),
            noted=LeftOutTables(lake),
            tell=lambda name, *_: self.told.append(name),
        )

    def _look(self, *, unfit: Tell, locked: Callable[[str], None]) -> Sequence[DiscoveredTable]:
        if self.locked:
            locked("shop")
            return []
        if self.away:
            raise RetryableError("the server is away")
        for one in self.odd:
            unfit(one.name, one.reason, one.hint)
        return [
            DiscoveredTable(keyspace="shop", table=table, shards=("shop/-",), rows=1)
            for table in self.tables
        ]

    def seen(self) -> list[str]:
        return [one.table for one in self.sight.tables()]


def test_what_each_look_leaves_out_is_noted(lake: Lake) -> None:
    servers, noted = Servers(lake), LeftOutTables(lake)
    assert noted.list() == ()
    assert servers.seen() == ["a", "b"]
    assert (noted.list(), servers.told) == ((ODD,), ["shop.odd"])

    servers.refused["a"] = UnfitReason(message="a filter leaves it out", mend="remove the filter")
    assert servers.seen() == ["b"]
    filtered = LeftOutTable(
        keyspace="shop", table="a", reason="a filter leaves it out", hint="remove the filter"
    )
    assert noted.list() == (filtered, ODD)

    servers.away = True
    with pytest.raises(RetryableError):
        servers.seen()
    assert noted.list() == (filtered, ODD), "what is not known any better stays"

    servers.away, servers.odd, servers.refused = False, [], {}
    assert servers.seen() == ["a", "b"]
    assert noted.list() == (), "what was mended is not told of any more"


def test_a_look_that_finds_the_same_writes_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Servers(lake)
    servers.seen()

    def refuse(*_: object) -> None:
        raise LakeError("written again")

    monkeypatch.setattr(Lake, "write_json", refuse)
    servers.seen()
    servers.odd = []
    with pytest.raises(LakeError):
        servers.seen()


def test_a_file_that_is_not_ours_is_passed_over(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """The run looks for such tables again."""
    lake.write_json(layout.LEFT_OUT_FILE, {"tables": [{"name": "odd"}]})
    assert list(LeftOutTables(lake).list()) == []
    assert "left_out.json is damaged" in caplog.text


def test_what_status_shows_of_it() -> None:
    """Not what the config leaves out by now, nor what has stopped with a reason of its own."""

    def state(phase: str) -> TableState:
        schema = TableSchema(keyspace="shop", table="odd", columns=(), key=())
        return TableState(
            keyspace="shop",
            table="odd",
            schema=schema,
            key=(),
            phase=phase,  # type: ignore[arg-type]
        )

    assert left_out([ODD], [], lambda *_: True) == (ODD,)
    assert left_out([ODD], [state("dumping")], lambda *_: True) == (ODD,)
    assert left_out([ODD], [state("stopped")], lambda *_: True) == ()
    assert left_out([ODD], [], lambda _, table: table != "odd") == ()


def test_of_a_keyspace_with_a_locked_table_the_notes_stay(lake: Lake) -> None:
    servers, noted = Servers(lake), LeftOutTables(lake)
    servers.seen()
    before = noted.list()
    assert before
    servers.locked = True
    assert servers.seen() == []
    assert servers.sight.locked == {"shop"}
    assert noted.list() == before
    servers.locked = False
    assert servers.seen() == ["a", "b"]
    assert servers.sight.locked == frozenset()
