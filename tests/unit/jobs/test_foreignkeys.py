"""What becomes of tables whose foreign keys are new, others, or lead to tables not mirrored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ratchet.core.errors import LockedError
from ratchet.core.foreignkeys import ForeignKey
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.jobs.preflight.foreignkeys import ForeignKeyWatch, Rules, refresh, together
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.keynotes import note_keys, read_key_notes
from ratchet.store.tables import Tables, TableState

KEY = ForeignKey(
    name="fk", columns=("p",), parent_database="", parent="p", parent_columns=("id",),
    on_delete="cascade",
)  # fmt: skip
BELOW = replace(KEY, name="below", parent="c", columns=("c",))
POSITION = Position(executed=GtidSet.parse("mariadb", "0-1-4"), server="s")


def state(table: str, keys: tuple[ForeignKey, ...] | None, phase: str = "streaming") -> TableState:
    columns = (Column(name="id", type=ColumnType(name="int"), nullable=False),)
    schema = TableSchema(keyspace="shop", table=table, columns=columns, key=("id",))
    dump = DumpState(id="d", start_round=1, start={"shop/-": POSITION}, done=True)
    return TableState(
        keyspace="shop", table=table, schema=schema, key=("id",), foreign_keys=keys,
        phase=phase, dump=dump, merged_round=7,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(str(tmp_path / "lake"), now=1)


def looked(
    lake: Lake, states: list[TableState], rules: Rules, mirrored: str = "pcd"
) -> dict[str, TableState]:
    """The states by table behind a look."""
    tables = Tables(lake)
    for one in states:
        tables.save(one)
    past = [one for one in states if one.phase in {"catching_up", "streaming"}]
    refresh(lake, past, {"shop": rules}, mirrors=lambda _, table: table in mirrored, last_round=9)
    return {one.table: one for one in tables.list()}


RULES = Rules(by_table={"c": (KEY,), "d": (BELOW,)}, logged=False)


def test_a_lake_of_an_earlier_version_is_in_doubt(lake: Lake) -> None:
    found = looked(lake, [state("p", None), state("c", None), state("d", None)], RULES)
    assert found["p"].foreign_keys == ()
    assert not found["p"].doubts
    assert found["c"].foreign_keys == (KEY,)
    assert found["c"].doubts["shop/-"].message.startswith("its foreign keys, by which")
    assert found["c"].doubts["shop/-"].round == 9
    assert found["d"].doubts


def test_keys_that_are_others_than_before_are_a_doubt_for_all_below(lake: Lake) -> None:
    before = replace(KEY, on_delete="set null")
    found = looked(lake, [state("p", ()), state("c", (before,)), state("d", (BELOW,))], RULES)
    assert found["c"].foreign_keys == (KEY,)
    assert "it is not known when" in found["c"].doubts["shop/-"].message
    assert "depends by foreign keys on shop.c" in found["d"].doubts["shop/-"].message
    assert not found["p"].doubts


def test_keys_that_went_are_a_doubt_too(lake: Lake) -> None:
    found = looked(lake, [state("p", ()), state("c", (KEY,))], Rules(by_table={}, logged=False))
    assert found["c"].foreign_keys == ()
    assert found["c"].doubts


def test_a_table_that_catches_up_is_as_it_was_read(lake: Lake) -> None:
    found = looked(lake, [state("p", ()), state("c", None, "catching_up")], RULES)
    assert found["c"].foreign_keys == (KEY,)
    assert not found["c"].doubts


@pytest.mark.parametrize("phase", ["new", "dumping", "stopped", None])
def test_keys_of_a_table_that_is_not_past_its_dump_are_noted_and_compared(
    lake: Lake, phase: str | None
) -> None:
    """What hangs on it may lack what they led to since it was looked last; once."""
    states = [state("p", ()), state("d", (BELOW,))]
    between = [] if phase is None else [state("c", None, phase)]
    note_keys(lake, {"shop": {"d": (BELOW,)}})
    found = looked(lake, [*states, *between], RULES)
    assert "depends by foreign keys on shop.c, whose own" in found["d"].doubts["shop/-"].message
    assert read_key_notes(lake) == {"shop": {"c": (KEY,), "d": (BELOW,)}}
    assert phase is None or found["c"].phase == phase
    found = looked(lake, [*states, *between], RULES)
    assert not found["d"].doubts


def test_what_hangs_over_a_table_in_a_lake_of_an_earlier_version_is_in_doubt_once(
    lake: Lake,
) -> None:
    states = [state("p", ()), state("c", (KEY,)), state("d", (BELOW,))]
    found = looked(lake, states, RULES)
    assert [bool(found[name].doubts) for name in "pcd"] == [False, False, True]
    assert set(found["d"].doubts) == {"shop/-"}
    assert not looked(lake, states, RULES)["d"].doubts


def test_a_table_that_stops_stays_stopped_though_it_hangs_on_a_doubtful_one(lake: Lake) -> None:
    other = replace(KEY, name="x", parent="q")
    rules = replace(RULES, by_table={"c": (KEY,), "d": (BELOW, other)})
    found = looked(lake, [state("p", ()), state("c", None), state("d", None)], rules)
    assert found["c"].doubts
    assert found["d"].phase == "stopped"


def test_where_the_server_logs_them_there_is_no_doubt(lake: Lake) -> None:
    rules = replace(RULES, logged=True)
    found = looked(lake, [state("c", None), state("d", None)], rules, mirrored="cd")
    assert [found["c"].phase, found["d"].phase] == ["streaming", "streaming"]
    assert not found["c"].doubts
    assert found["c"].foreign_keys == (KEY,)


@pytest.mark.parametrize(
    ("rules", "mirrored"),
    [
        (RULES, "cd"),
        (replace(RULES, unfit=frozenset("p")), "pcd"),
        (
            replace(RULES, by_table={"c": (replace(KEY, parent_database="other"),), "d": (BELOW,)}),
            "pcd",
        ),
    ],
)
def test_a_parent_that_is_not_mirrored_stops_all_that_hang_on_it(
    lake: Lake, rules: Rules, mirrored: str
) -> None:
    found = looked(lake, [state("c", ()), state("d", ())], rules, mirrored)
    for table in ("c", "d"):
        assert found[table].phase == "stopped"
        why = found[table].stopped
        assert why is not None
        if mirrored == "pcd" and not rules.unfit:  # perhaps it is mirrored, as another source
            assert "other.p is in another database" in why.message
            assert f'exclude it in `tables`, so that nobody expects it in the lake: "!{table}"' in (
                why.hint
            )
        else:
            assert "is not mirrored" in why.message
            assert f"redump 'shop.{table}'" in why.hint
    assert found["d"].stopped is not None
    assert "(through c)" in found["d"].stopped.message


def test_a_parent_that_the_config_leaves_out_meanwhile_stops_what_hangs_on_it(lake: Lake) -> None:
    tables = Tables(lake)
    for one in (state("p", ()), state("c", (KEY,)), state("d", (BELOW,))):
        tables.save(one)
    sections = {"shop": SimpleNamespace(tables=TablePatterns())}
    asked = []

    def read(_: str) -> Rules:
        asked.append(1)
        return RULES

    watch = ForeignKeyWatch(lake, read, sources=lambda: sections, last_round=lambda: 9)  # type: ignore[arg-type,return-value]
    for _ in range(2):
        watch.look()
    assert len(asked) == 1
    sections["shop"] = SimpleNamespace(tables=TablePatterns(("*", "!p")))
    for _ in range(2):
        watch.look()
    assert len(asked) == 2
    found = {one.table: one for one in tables.list()}
    assert [found[name].phase for name in "cd"] == ["stopped", "stopped"]


def test_a_server_that_does_not_answer_is_asked_later_and_keeps_nobody_waiting(lake: Lake) -> None:
    """Merges of all sources wait while one is asked; a locked table costs seconds."""
    tables = Tables(lake)
    for keyspace in ("shop", "good"):
        tables.save(replace(state("c", None), keyspace=keyspace))
    sections = dict.fromkeys(("shop", "good"), SimpleNamespace(tables=TablePatterns()))
    asked: list[str] = []
    away, seconds = {"shop"}, [0.0]

    def read(keyspace: str) -> Rules:
        asked.append(keyspace)
        if keyspace in away:
            raise LockedError("a table is locked")
        return RULES

    watch = ForeignKeyWatch(
        lake,
        read,
        sources=lambda: sections,  # type: ignore[arg-type,return-value]
        last_round=lambda: 9,
        clock=lambda: seconds[0],
    )
    for seconds[0] in (0.0, 1.0, 4.9, 5.0, 6.0, 14.9, 15.0):
        watch.look()
        assert watch.any_waits
    assert asked == ["shop", "good", "shop", "shop"]
    known = {one.keyspace: one.foreign_keys is not None for one in tables.list()}
    assert known == {"shop": False, "good": True}
    away.clear()
    seconds[0] = 100.0
    watch.look()
    watch.look()
    assert asked[4:] == ["shop"]
    assert not watch.any_waits
    assert all(one.foreign_keys is not None for one in tables.list())


def test_shards_that_differ_cannot_be_followed() -> None:
    one = Rules(by_table={"c": (KEY,)}, logged=False)
    assert together([one, one]).by_table["c"] == (KEY,)
    other = Rules(by_table={}, logged=True)
    (key,) = together([one, other]).by_table["c"]
    assert key.unclear == "its shards have different foreign keys"
    assert not together([one, other]).logged
