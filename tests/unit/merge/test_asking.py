"""A table computed with some columns of the source: it is shown when it has all that was read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratchet.core.reshaping import NotComputableError, Reshaping
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import arrow_schema
from ratchet.merge.askedvalues import AskedValues
from ratchet.merge.asking import AskedColumns, refuse_asking
from ratchet.merge.remake import remake, reshaping_of
from ratchet.store.delta.tables import table_version
from ratchet.store.tables import TableState
from tests.merge_kit import POLICY, Source, merger
from tests.unit.merge.test_remake import stopped

COME = Column(name="g", type=ColumnType(name="int"))


def behind(folder: Path) -> tuple[Source, TableState, Reshaping]:
    """A table whose server has added a column that only it knows, and written rows since."""
    source, state = stopped(folder, "ALTER TABLE t ADD g INT AS (id + 100) STORED")
    state = source.tables.save(replace(state, foreign_keys=()))
    shape = replace(state.schema, columns=(*state.schema.columns, COME))
    found = reshaping_of(source.lake, state, POLICY, lambda _: shape)
    source.schema, source.columns = shape, arrow_schema(shape, POLICY)
    log = source.logs["shop/-"]
    for row in log.rows.values():
        row["g"] = row["id"] + 100
    return source, state, found


def made(source: Source, state: TableState, found: Reshaping) -> TableState:
    """What is read of the source now, put to the rows of the mirror."""
    log = source.logs["shop/-"]
    read = pa.Table.from_pylist([{"id": id_, "g": row["g"]} for id_, row in log.rows.items()])
    pq.write_table(read, Path(source.lake.absolute("read")))
    kinds = pa.schema([found.columns.field(name) for name in ("id", "g")])
    values = AskedValues.load(source.lake, ["read"], kinds, ["id"])
    asked = AskedColumns(values=values, end={"shop/-": source.position("-")}, generated=True)
    done = remake(source.lake, state, found, deletion_vectors=True, now=1, asked=asked)
    assert done is not None
    return done


def test_it_is_shown_when_it_has_all_that_was_read(tmp_path: Path) -> None:
    source, state, found = behind(tmp_path)
    assert found.asked == ("g",)
    with pytest.raises(NotComputableError, match="only its server knows"):
        remake(source.lake, state, found, deletion_vectors=True, now=1)
    source.tx(
        "-",
        ("del", 2),
        ("put", {"id": 3, "v": "new", "g": 103}),
        ("put", {"id": 1, "v": "moved on", "g": 101}),
    )
    done = made(source, state, found)
    assert (done.phase, done.generated) == ("catching_up", True)
    assert done.is_computed
    assert not done.is_of_one_place
    shown = table_version(source.lake, state.shown_path)
    with merger(None, source) as merging:
        merging.step()
        assert source.state.phase == "catching_up"
        assert table_version(source.lake, state.shown_path) == shown
        source.tx("-", ("put", {"id": 4, "v": "behind", "g": 104}))
        source.round()
        merging.step()
    assert source.state.phase == "streaming"
    source.assert_mirrored()
    assert {row["id"]: row["g"] for row in source.mirror_rows()} == {1: 101, 3: 103, 4: 104}


def test_a_statement_before_the_end_of_what_was_read_stops_it_unshown(tmp_path: Path) -> None:
    source, state, found = behind(tmp_path)
    source.event("-", "ALTER TABLE t DROP COLUMN v")
    source.tx("-", ("put", {"id": 3, "v": "new", "g": 103}))
    made(source, state, found)
    shown = table_version(source.lake, state.shown_path)
    source.round()
    with merger(None, source) as merging:
        merging.step()
    left = source.state
    assert left.phase == "stopped"
    assert left.stopped is not None
    assert left.stopped.altered, "it is dumped again"
    assert left.change is None
    assert left.standing == shown == table_version(source.lake, state.shown_path)


def test_what_has_to_be_read_as_a_whole(tmp_path: Path) -> None:
    source, state, found = behind(tmp_path)
    change = state.change
    assert change is not None
    shape = source.schema

    def refused(state: TableState = state, other: TableSchema = shape) -> str:
        try:
            shapes = {"shop/-": shape, "shop/other": other}
            refuse_asking(source.lake, state, change, found, shapes=shapes, policy=POLICY)
        except NotComputableError as error:
            return str(error)
        return ""

    assert not refused()
    assert "foreign keys" in refused(replace(state, foreign_keys=None))
    assert "config names" in refused(replace(state, key=("id", "v")))
    assert "key on the server" in refused(other=replace(shape, key=("v",)))
    assert "once more" in refused(other=replace(shape, columns=shape.columns[:-1]))
    come = replace(shape, columns=(*shape.columns, replace(COME, name="y")))
    assert "once more" in refused(other=come)
    assert not refused(replace(state, nulls={"shop/other": ("y", "v")}), come)
    assert "once more" in refused(replace(state, nulls={"shop/-": ("y",)}), come)
    wider = replace(COME, type=ColumnType(name="bigint"))
    assert "once more" in refused(other=replace(shape, columns=(*shape.columns[:-1], wider)))
    source.event("-", "ALTER TABLE t ADD h INT")
    source.round()
    assert "another statement" in refused()
