"""Which tables hang on which: by their states, and by what a run noted of all others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.core.foreignkeys import ForeignKey
from ratchet.core.schema import TableSchema
from ratchet.merge.cascades.graph import KeyGraph, read_graph
from ratchet.store.formats import open_lake
from ratchet.store.keynotes import note_keys, read_key_notes
from ratchet.store.tables import Tables, TableState

KEY = ForeignKey(
    name="fk", columns=("p",), parent_database="", parent="p", parent_columns=("id",),
    on_delete="cascade",
)  # fmt: skip


def key(parent: str, **more: Any) -> ForeignKey:
    return replace(KEY, parent=parent, **more)


def state(name: str, *parents: str, phase: Any = "streaming") -> TableState:
    schema = TableSchema(keyspace="k", table=name, columns=(), key=("id",))
    return TableState(
        keyspace="k", table=name, schema=schema, key=("id",), phase=phase,
        foreign_keys=tuple(key(parent) for parent in parents),
    )  # fmt: skip


def test_tables_hang_over_others_in_rings_and_on_themselves() -> None:
    states = [state("a"), state("b", "a", "b"), state("c", "b"), state("r", "s"), state("s", "r")]
    graph = KeyGraph.of(states)
    above = {name: graph.above(name) for name in ("k.a", "k.b", "k.c", "k.r", "k.s")}
    assert above == {
        "k.a": frozenset(),
        "k.b": frozenset({"k.a"}),
        "k.c": frozenset({"k.a", "k.b"}),
        "k.r": frozenset({"k.s"}),
        "k.s": frozenset({"k.r"}),
    }
    assert graph.below("k.a") == {"k.b", "k.c"}
    assert graph.below("k.r") == {"k.r", "k.s"}
    assert not graph.unread


@pytest.mark.parametrize("phase", ["new", "dumping", "stopped", None])
def test_a_table_between_that_is_not_past_its_dump_has_the_keys_that_were_noted(
    phase: str | None,
) -> None:
    states = [state("p"), state("g", "c")]
    if phase is not None:
        states.append(replace(state("c", phase=phase), foreign_keys=None))
    graph = KeyGraph.of(states, {"k": {"c": (key("p"),), "g": (key("q"),)}})
    assert graph.above("k.g") == {"k.c", "k.p"}  # of g its state tells
    assert not graph.unknown


def test_one_whose_keys_nobody_noted_leaves_those_below_unread() -> None:
    states = [state("p"), state("g", "c"), state("h", "g"), state("c", phase="dumping")]
    graph = KeyGraph.of([*states, state("x", "p")])
    assert graph.unknown == {"k.c"}
    assert graph.unread == {"k.g": "k.c", "k.h": "k.c"}
    assert not KeyGraph.of(states, {"k": {}}).unknown  # it was looked at: it has none


def test_keys_that_change_no_rows_or_lead_elsewhere_do_not_count() -> None:
    odd = replace(
        state("c"),
        foreign_keys=(key("p", on_delete="none"), key("p", parent_database="other")),
    )
    assert KeyGraph.of([odd, state("p")]) == KeyGraph.of(())


def test_what_is_noted_is_read_back_and_other_keyspaces_stay(tmp_path: Path) -> None:
    lake = open_lake(str(tmp_path / "lake"), now=1)
    assert read_key_notes(lake) == {}
    note_keys(lake, {"k": {"c": (key("p", padded=("p",), blurred="b"),)}})
    note_keys(lake, {"other": {}})
    assert read_key_notes(lake) == {
        "k": {"c": (key("p", padded=("p",), blurred="b"),)},
        "other": {},
    }
    tables = Tables(lake)
    tables.save(state("g", "c"))
    assert read_graph(lake, tables.list()).above("k.g") == {"k.c", "k.p"}
