"""What statements about a table mean for those that hang on it by foreign keys."""

from __future__ import annotations

from typing import cast, get_args

import pytest

from core.foreignkeys import ForeignKey
from core.rounds import Effect, TableEvent, TableEventKind
from core.schema import TableSchema
from merge.cascades.ancestors import Reach, ancestors, reach
from store.tables import TableState


def state(name: str, *parents: str) -> TableState:
    keys = tuple(
        ForeignKey(
            name=f"fk_{parent}", columns=("p",), parent=parent, parent_columns=("id",),
            parent_database="", on_delete="cascade", on_update="none",
        )
        for parent in parents
    )  # fmt: skip
    schema = TableSchema(keyspace="k", table=name, columns=(), key=("id",))
    return TableState(keyspace="k", table=name, schema=schema, key=("id",), foreign_keys=keys)


def event(kind: str, effect: str = "", statement: str = "") -> TableEvent:
    return TableEvent(
        keyspace="k", table="p", shard="k/-", kind=cast("TableEventKind", kind), gtid="", seq=1,
        ts=1, statement=statement, effect=cast("Effect", effect),
    )  # fmt: skip


def test_tables_hang_over_others_in_rings_and_on_themselves() -> None:
    states = [state("a"), state("b", "a", "b"), state("c", "b"), state("r", "s"), state("s", "r")]
    assert ancestors(states) == {
        "k.b": frozenset({"k.a"}),
        "k.c": frozenset({"k.a", "k.b"}),
        "k.r": frozenset({"k.s"}),
        "k.s": frozenset({"k.r"}),
    }


@pytest.mark.parametrize("effect", [one for one in get_args(Effect) if one])
def test_what_is_not_known_to_leave_rows_and_name_alone_reaches_rows(effect: str) -> None:
    harmless = {"columns", "types", "key", "foreign_key", "rebuild"}
    assert reach(event("ddl", effect)) == (Reach.KEYS if effect in harmless else Reach.ROWS)


def test_events_of_other_kinds_and_of_earlier_versions() -> None:
    assert reach(event("truncate")) == Reach.NOT
    assert reach(event("unreadable")) == Reach.ROWS
    assert reach(event("doubt", "types")) == Reach.ROWS
    assert reach(event("ddl", statement="RENAME TABLE p TO q")) == Reach.ROWS
    assert reach(event("ddl", statement="ALTER TABLE p ADD v INT NULL")) == Reach.KEYS
