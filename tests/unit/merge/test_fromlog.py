"""A table made from the change log of the copy that a tool has swapped in, without a Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import ratchet.merge.fromlog
from ratchet.core.errors import TableStoppedError
from ratchet.core.reshaping import NotComputableError
from ratchet.core.sql.effects import CREATED, MOVED
from ratchet.merge.fromlog import SwappedTable, copy_of, make_from_log, swapped_table
from ratchet.merge.maintain import needed_from
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.tables import create_mirrored_table, table_version
from ratchet.store.dumpstates import DumpState
from ratchet.store.segments import object_of
from ratchet.store.stops import Doubt, ShapeChange
from ratchet.store.tables import Tables, TableState
from tests.merge_kit import PLAIN, POLICY, Source

COPY = "_t_new"
SWAP = f"RENAME TABLE t TO _t_old, {COPY} TO t"
NO_SPARK: Any = None


def put(key: int, value: str) -> tuple[str, dict[str, Any]]:
    return "put", {"id": key, "v": value}


def statement(source: Source, text: str, reason: str) -> int:
    """A statement about the copy, as capture understands it."""
    seq = source.event("-", text)
    events = source.logs["shop/-"].events
    events[-1] = replace(events[-1], effect="rows", reason=reason)
    return seq


def swapped(folder: Path) -> tuple[Source, TableState]:
    """A table that was shown, and was stopped by the swap; its copy's log is four rounds long."""
    source = Source(folder, schema=replace(PLAIN, table=COPY))
    source.copies = ("shop/-",)
    source.tx("-", put(99, "of an earlier copy"))
    source.round()
    statement(source, f"CREATE TABLE {COPY} LIKE t", CREATED)
    source.logs["shop/-"].rows.clear()
    source.tx("-", put(1, "one"), put(2, "two"))
    source.round()
    source.tx("-", put(3, "three"), ("del", 2))
    source.tx("-", ("move", 1, {"id": 4, "v": "moved"}))
    source.round()
    source.tx("-", put(2, "two again"), put(3, "changed"))
    seq = statement(source, SWAP, MOVED)
    change = ShapeChange(
        shard="shop/-",
        position=source.position("-", seq),
        round=source.rounds.last_number() + 1,
        statement=SWAP,
    )
    source.round()
    dump = DumpState(id="d1", start_round=1, start={"shop/-": source.position("-", 10)})
    state = TableState(
        keyspace="shop",
        table="t",
        schema=replace(PLAIN, columns=PLAIN.columns[:1]),
        key=("id",),
        phase="stopped",
        dump=dump,
        change=change,
        doubts={"shop/-": Doubt(message="of the rows before", statement="", round=1)},
        generated=False,
        nulls={"shop/-": ("n",)},
    )
    create_mirrored_table(
        source.lake, state.path, source.columns, key=("id",), name=state.name, now=1
    )
    version = table_version(source.lake, state.path)
    assert version is not None
    cut = Cut(number=1, round=4, merged_at=1, shards={}, tables={state.name: version})
    Cuts(source.lake).append(cut)
    return source, Tables(source.lake).save(state)


def made(source: Source, state: TableState, **more: Any) -> TableState | None:
    found = swapped_table(source.lake, state, COPY)
    return make(source, state, found, **more)


def make(source: Source, state: TableState, found: SwappedTable, **more: Any) -> TableState | None:
    return make_from_log(
        NO_SPARK, source.lake, state, found, policy=POLICY, deletion_vectors=True, now=2, **more
    )


def rows_of(source: Source, path: str) -> list[tuple[int, str]]:
    table = DeltaTable(source.lake.delta_uri(path))
    found = QueryBuilder().register("t", table).execute("SELECT id, v FROM t").read_all()
    return sorted((row["id"], row["v"]) for row in pa.table(found).to_pylist())


@pytest.mark.parametrize("most", [1, 3, 500_000])
def test_its_rows_are_what_the_copys_changes_come_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """In as many merges as it takes."""
    monkeypatch.setattr(ratchet.merge.fromlog, "_ROWS", most)
    source, state = swapped(tmp_path)
    assert copy_of(state) == COPY
    done = made(source, state)
    assert done is not None
    assert done == Tables(source.lake).load("shop", "t"), "the note says the same"
    wanted = sorted((row["id"], row["v"]) for row in source.logs["shop/-"].rows.values())
    assert rows_of(source, done.path) == wanted
    assert rows_of(source, done.shown_path) == [], "the table that is shown stays"
    assert (done.phase, done.change, done.key) == ("catching_up", None, ("id",))
    assert done.schema == replace(PLAIN, table="t")
    assert (done.doubts, done.nulls, done.generated) == ({}, {}, False), "that was the old table"
    assert done.foreign_keys is None, "they are read again"
    assert (done.standing, done.is_computed) == (0, True)
    assert done.dump is not None
    assert state.change is not None
    assert (done.dump.start, done.dump.end) == ({"shop/-": state.change.position},) * 2
    assert (done.dump.start_round, done.merged_round) == (4, 3)


def test_told_to_stop_it_is_made_anew_and_its_log_is_kept(tmp_path: Path) -> None:
    source, state = swapped(tmp_path)
    assert made(source, state, stop=lambda: True) is None
    half = Tables(source.lake).load("shop", "t")
    assert half is not None
    assert (half.phase, half.schema) == ("dumping", state.schema)
    assert needed_from([half], None) == 2, "from where the copy was made"
    done = made(source, half)
    assert done is not None
    assert done.path != half.path
    assert not source.lake.list(half.path), "nothing of the first try is left"
    assert needed_from([done], None) == 4


def test_what_the_source_has_to_be_asked_for(tmp_path: Path) -> None:
    source, state = swapped(tmp_path)
    change = state.change
    assert change is not None
    assert state.dump is not None
    cases = {
        "does not reach back to it": replace(state, change=replace(change, round=0)),
        "lost it": replace(state, change=replace(change, position=source.position("-", 1_000_000))),
        "dump began later": replace(state, dump=replace(state.dump, start_round=3)),
        "key is one": replace(state, key=("id", "v")),
        "nothing tells": replace(state, change=None),
    }
    for why, case in cases.items():
        with pytest.raises(NotComputableError, match=why):
            swapped_table(source.lake, case, COPY)
    source.rounds.prune(3)
    with pytest.raises(NotComputableError, match=f"back to where {COPY} was made"):
        swapped_table(source.lake, state, COPY)


def test_a_copy_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, state = swapped(tmp_path)
    bare = replace(PLAIN, table=COPY, key=())
    monkeypatch.setattr(ratchet.merge.fromlog, "get_schema", lambda *_: bare)
    with pytest.raises(NotComputableError, match="no key"):
        swapped_table(source.lake, state, COPY)


def test_change_files_that_are_gone(tmp_path: Path) -> None:
    source, state = swapped(tmp_path)
    found = swapped_table(source.lake, state, COPY)
    (file,) = source.rounds.since(2)[0].files
    source.lake.delete(object_of(file.path))
    with pytest.raises(TableStoppedError, match="captured changes are gone"):
        make(source, state, found)


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE t",
        "RENAME TABLE t TO _t_old, other TO t",
        "RENAME TABLE t TO x, x TO t",
        "RENAME TABLE _u_new TO t",
        "RENAME TABLE t TO _t_new",
        "ALTER TABLE t RENAME TO _t_new",
    ],
)
def test_what_swaps_in_no_copy_of_it(tmp_path: Path, text: str) -> None:
    _, state = swapped(tmp_path)
    assert state.change is not None
    assert copy_of(replace(state, change=replace(state.change, statement=text))) is None
    assert copy_of(replace(state, change=None)) is None
