"""A table computed behind a change of its columns, and what is left to the source instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.reshaping import NotComputableError, NotYetComputableError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.merge.remake import remake, reshaping_of
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.tables import table_version
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import Doubt, ShapeChange, StopReason
from ratchet.store.tables import TableState
from tests.merge_kit import POLICY, Source

STATEMENT = "ALTER TABLE t ADD n INT NOT NULL DEFAULT 7, CHANGE v w VARCHAR(40)"
COME = Column(name="n", type=ColumnType(name="int"), nullable=False)


def stopped(folder: Path, statement: str = STATEMENT) -> tuple[Source, TableState]:
    """A table with rows 1 and 2 that was shown, and stopped at the end of the log."""
    source = Source(folder, shards=("-",))
    source.round()
    source.tx("-", ("put", {"id": 1, "v": "one"}), ("put", {"id": 2, "v": None}))
    source.dump_all()
    source.round()
    rounds = RoundLog(source.lake)
    change = ShapeChange(
        shard="shop/-",
        position=rounds.positions()["shop/-"],
        round=rounds.last_number(),
        statement=statement,
    )
    state = replace(source.state, phase="stopped", change=change, generated=False)
    version = table_version(source.lake, state.shown_path)
    assert version is not None
    cut = Cut(
        number=1,
        round=rounds.last_number(),
        merged_at=1,
        shards={},
        tables={state.name: version},
        stopped=(state.name,),
    )
    Cuts(source.lake).append(cut)
    return source, state


def described(state: TableState) -> TableSchema:
    return replace(state.schema, columns=(*state.schema.columns, COME))


def rows_of(source: Source, path: str) -> list[dict[str, Any]]:
    table = DeltaTable(source.lake.delta_uri(path))
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    return pa.table(found).to_pylist()


def test_its_rows_are_those_behind_the_statement(tmp_path: Path) -> None:
    source, state = stopped(tmp_path)
    doubt = Doubt(message="something before", statement="UPDATE t", round=1)
    state = replace(state, doubts={"shop/-": doubt})
    found = reshaping_of(source.lake, state, POLICY, described)
    made = remake(source.lake, state, found, deletion_vectors=True, now=1)
    assert made is not None
    assert made == source.state, "the note says the same"
    assert (made.phase, made.change, made.key) == ("catching_up", None, ("id",))
    assert [column.name for column in made.schema.columns] == ["id", "w", "n"]
    assert made.dump is not None
    assert state.change is not None
    assert (made.dump.start, made.dump.end) == ({"shop/-": state.change.position},) * 2
    assert made.standing == table_version(source.lake, state.shown_path)
    assert "something before" in made.doubts["shop/-"].message, "what was in doubt stays so"
    assert not made.doubts["shop/-"].by_shape
    rows, shown = rows_of(source, made.path), rows_of(source, made.shown_path)
    tokens = {row["id"]: row["_token"] for row in shown}
    assert sorted((r["id"], r["w"], r["n"], r["_token"] == tokens[r["id"]]) for r in rows) == [
        (1, "one", 7, True),
        (2, None, 7, True),
    ]
    assert {row["v"] for row in shown} == {"one", None}, "the table that is shown stays"


def test_told_to_stop_it_is_computed_anew_in_another_folder(tmp_path: Path) -> None:
    source, state = stopped(tmp_path)
    found = reshaping_of(source.lake, state, POLICY, described)
    left = remake(source.lake, state, found, deletion_vectors=True, now=1, stop=lambda: True)
    half = source.state
    assert (left, half.phase, half.schema) == (None, "dumping", state.schema)
    again = reshaping_of(source.lake, half, POLICY, described)
    made = remake(source.lake, half, again, deletion_vectors=True, now=2)
    assert made is not None
    assert made.path != half.path
    assert not source.lake.list(half.path), "nothing of the first try is left"


def test_what_the_source_has_to_be_asked_for(tmp_path: Path) -> None:
    source, state = stopped(tmp_path)
    change = state.change
    assert change is not None
    later = GtidSet(change.position.flavor, change.position.executed.intervals).with_interval(
        next(iter(change.position.executed.intervals)), 1, 10**6
    )
    cases = {
        "lost it": replace(state, change=replace(change, position=Position(executed=later))),
        "reach back": replace(state, change=replace(change, round=0)),
        "had before": replace(state, nulls={"shop/-": ("N",)}),
        "key is one": replace(state, key=("id", "v")),
        "more than to change columns": replace(
            state, change=replace(change, statement="DROP TABLE t")
        ),
        "nothing tells what": replace(state, change=None),
    }
    for why, case in cases.items():
        with pytest.raises(NotComputableError, match=why):
            reshaping_of(source.lake, case, POLICY, described)
    with pytest.raises(NotComputableError, match="type of n"):
        reshaping_of(source.lake, state, POLICY, lambda _: None)


def test_columns_that_no_row_has_shown_yet_may_still_come(tmp_path: Path) -> None:
    source, state = stopped(tmp_path)
    state = replace(state, nulls={"shop/-": ("v", "later")})
    found = reshaping_of(source.lake, state, POLICY, described)
    made = remake(source.lake, state, found, deletion_vectors=True, now=1)
    assert made is not None
    assert made.nulls == {"shop/-": ("later",)}


def of_two(folder: Path) -> tuple[Source, TableState, ShapeChange]:
    """A table of two shards, both of which have come to the statement; and the second's change."""
    source = Source(folder, shards=("-80", "80-"))
    source.round()
    source.tx("-80", ("put", {"id": 1, "v": "one"}))
    source.tx("80-", ("put", {"id": 2, "v": "two"}))
    source.dump_all()
    source.round()
    rounds = RoundLog(source.lake)
    one, other = (
        ShapeChange(
            shard=shard,
            position=rounds.positions()[shard],
            round=rounds.last_number(),
            statement=STATEMENT,
            mark=(rounds.streams()[shard].generation, 10),
        )
        for shard in ("shop/-80", "shop/80-")
    )
    why = StopReason(message="a column changes", hint="", round=2, altered=True)
    state = replace(
        source.state,
        phase="stopped",
        stopped=why,
        change=replace(one, others=(other,)),
        generated=False,
        foreign_keys=(),
    )
    return source, state, other


def test_a_table_of_two_shards(tmp_path: Path) -> None:
    source, state, other = of_two(tmp_path)
    assert TableState.from_json(state.to_json()) == state
    assert state.change is not None
    waiting = replace(state, change=replace(state.change, others=()))
    assert not state.awaits_shards
    assert waiting.awaits_shards
    assert waiting.marks == {"shop/-80": state.change.mark}
    found = reshaping_of(source.lake, state, POLICY, described)
    assert found.schema.columns[-1] == COME
    with pytest.raises(NotYetComputableError, match="shop/80- has not come"):
        reshaping_of(source.lake, waiting, POLICY, described)
    others = {
        "foreign keys": replace(state, foreign_keys=None),
        "altered otherwise": with_other(state, replace(other, statement="ALTER TABLE t ADD n INT")),
        "more than to change columns": with_other(state, replace(other, statement="DROP TABLE t")),
        "is not whole": with_other(state, replace(other, mark=(7, 10))),
    }
    for why, case in others.items():
        with pytest.raises(NotComputableError, match=why):
            reshaping_of(source.lake, case, POLICY, described)


def with_other(state: TableState, other: ShapeChange) -> TableState:
    assert state.change is not None
    return replace(state, change=replace(state.change, others=(other,)))
