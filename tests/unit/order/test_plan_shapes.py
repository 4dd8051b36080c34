"""What a step does where a table's columns or key change: they come, or it stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.core.rounds import ChangeFile, TableEvent
from ratchet.core.schema import ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.ancestry import NO_ANCESTRY
from ratchet.merge.gather import TableBacklog, gather
from ratchet.merge.plan import shape_of
from ratchet.store.stops import Doubt
from ratchet.store.tables import TableState
from tests.plan_kit import (
    KNOWN,
    MORE,
    SCHEMA,
    STATE,
    WIDER,
    A,
    B,
    event,
    file,
    gathered,
    make_round,
    shapes,
)


def test_a_changed_shape_stops_the_table_at_its_first_file() -> None:
    found = gathered(
        make_round(2, file(A, 11, 12), file(A, 15, 18, MORE), file(B, 30, 31)),
        make_round(3, file(B, 32, 33)),
    )
    assert found.stopped is not None
    assert "added n" in found.stopped.message
    assert "redump 'shop.t'" in found.stopped.hint
    assert (found.stopped.round, found.until) == (2, {A: (0, 15)})
    assert [f.path for f in found.files] == [f"{A}/11", f"{B}/30"]


@pytest.mark.parametrize(
    ("statement", "until"),
    [("ALTER TABLE t MODIFY v INT FIRST", {A: (0, 21)}), ("ANALYZE TABLE t", {})],
)
def test_rows_under_columns_of_later_stop_the_table_where_columns_changed(
    statement: str, until: dict[str, tuple[int, int]]
) -> None:
    told = event(A, 21, statement)
    found = gathered(make_round(6, file(A, 20, 20), told, replace(told, kind="doubt")))
    assert found.until == until
    assert (found.stopped is None) == (not until)


@pytest.mark.parametrize(
    ("first", "then", "doubts"), [(SCHEMA, WIDER, False), (WIDER, SCHEMA, True)]
)
def test_values_may_have_been_cut_by_a_narrower_type(
    first: TableSchema, then: TableSchema, *, doubts: bool
) -> None:
    """The lake's type is the same, so only the shapes one after the other can tell.

    Whether a value was cut is looked up at the source: the table goes on, and is in doubt.
    """
    found = gathered(make_round(2, file(A, 11, 12, first), file(A, 15, 18, then)))
    assert (found.stopped, bool(found.doubts)) == (None, doubts)
    before = gathered(make_round(2, file(A, 11, 12, first)))
    later = replace(STATE, logged=before.logged)
    found = gathered(make_round(3, file(A, 15, 18, then)), state=later)
    assert (found.stopped, bool(found.doubts)) == (None, doubts)
    if doubts:
        assert found.doubts[A] == Doubt(
            message="values may have changed (v: length is shorter)", statement="", round=3
        )


def test_a_shards_shape_is_its_own() -> None:
    """One shard is altered before the other."""
    found = gathered(
        make_round(2, file(A, 11, 12, WIDER), file(B, 11, 12)),
        make_round(3, file(B, 13, 14), file(A, 13, 14, WIDER)),
    )
    assert found.stopped is None
    assert found.logged == {A: WIDER.fingerprint, B: SCHEMA.fingerprint}


def test_a_column_that_is_null_in_every_row_may_come() -> None:
    """From the statement on, on its own shard; on the other one when that has it as well."""
    come = MORE.columns[-1]
    found = gathered(
        make_round(5, file(A, 11, 11), event(A, 12, "ALTER TABLE t ADD n INT"), file(B, 11, 11)),
        make_round(6, file(A, 13, 13, MORE), file(B, 12, 12)),
    )
    assert found.stopped is None
    assert len(found.files) == 4
    assert (found.added, found.nulls) == ((come,), {A: ("n",)})
    state = found.learned(STATE)
    assert state.whole.columns == MORE.columns
    assert TableState.from_json(state.to_json()) == state
    shape = shape_of(state, InvalidValuePolicy(), NO_ANCESTRY)
    assert shape.columns.names == ["id", "v", "n"]
    # The statement in one step, its first row in a later one; then the other shard.
    later = gathered(
        make_round(7, file(A, 14, 14, MORE), event(B, 13, "ALTER TABLE t ADD n INT")),
        make_round(8, file(B, 14, 14, MORE), file(A, 15, 15, MORE)),
        state=state,
    )
    assert later.stopped is None
    assert later.added == (come,)
    only_told = gathered(make_round(5, event(A, 12, "ALTER TABLE t ADD n INT"))).learned(STATE)
    assert only_told.added == ()
    assert gathered(make_round(6, file(A, 13, 13, MORE)), state=only_told).added == (come,)


@pytest.mark.parametrize(
    "items",
    [
        (file(A, 13, 13, MORE),),  # nobody said so
        (event(A, 12, "ALTER TABLE t ADD n INT DEFAULT 5"),),  # a quiet table, too
        (event(A, 12, "ALTER TABLE t ADD other INT"), file(A, 13, 13, MORE)),
        (event(A, 12, "ALTER TABLE t ADD n INT"), file(B, 13, 13, MORE)),  # the other shard
    ],
)
def test_and_no_other_column(items: tuple[ChangeFile | TableEvent, ...]) -> None:
    found = gathered(make_round(5, *items))
    assert found.stopped is not None
    assert "added n" in found.stopped.message
    assert found.added == ()


def test_a_column_that_came_may_not_go_or_change() -> None:
    state = gathered(
        make_round(5, event(A, 12, "ALTER TABLE t ADD n INT"), file(A, 13, 13, MORE))
    ).learned(STATE)
    gone = gathered(make_round(6, file(A, 14, 14)), state=state)
    assert gone.stopped is not None
    assert "removed n" in gone.stopped.message
    bigger = replace(MORE.columns[-1], type=ColumnType(name="bigint"))
    other = replace(MORE, columns=(*SCHEMA.columns, bigger))
    known = {**KNOWN, other.fingerprint: other}
    rounds = [make_round(6, file(A, 14, 14, other))]
    changed = gather(state, rounds, known.__getitem__, InvalidValuePolicy())
    assert changed.stopped is not None
    assert "changed n from int32 to int64" in changed.stopped.message


def test_no_column_comes_during_a_catch_up() -> None:
    """A chunk that was read without it may be newer than a change that has it."""
    state = replace(STATE, phase="catching_up")
    alter = event(A, 12, "ALTER TABLE t ADD n INT")
    found = gathered(make_round(5, alter, file(A, 13, 13, MORE)), state=state)
    assert found.stopped is not None
    assert "added n" in found.stopped.message


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("ALTER TABLE t DROP v, ADD v VARCHAR(40)", "a column goes"),
        ("ALTER TABLE t RENAME COLUMN v TO w, RENAME COLUMN w TO v", "changes its name"),
    ],
)
def test_a_shape_that_comes_back_with_other_values_stops_the_table(
    statement: str, why: str
) -> None:
    found = gathered(make_round(5, file(A, 11, 11), event(A, 12, statement), file(A, 13, 13)))
    assert found.stopped is not None
    assert why in found.stopped.message
    assert found.until == {A: (0, 12)}


def test_types_that_change_twice_with_no_row_between() -> None:
    """Narrowed and widened again: the shape is as before, the values may have been cut.

    So the rows have to be looked at, whatever the next shape says.
    """
    cut, back = "ALTER TABLE t MODIFY v VARCHAR(3)", "ALTER TABLE t MODIFY v VARCHAR(40)"
    once = gathered(make_round(5, event(A, 12, cut)))
    assert once.stopped is None
    assert once.retyped == (A,)
    twice = gathered(make_round(6, event(A, 13, back)), state=once.learned(STATE))
    assert twice.stopped is None
    assert [(doubt.round, doubt.by_shape) for doubt in twice.doubts.values()] == [(6, False)]
    after = gathered(make_round(7, file(A, 15, 15)), state=twice.learned(STATE))
    assert after.doubts == twice.doubts
    seen = gathered(
        make_round(5, event(A, 12, cut), file(A, 13, 13), event(A, 14, back), file(A, 15, 15))
    )
    assert (seen.stopped, seen.retyped, seen.doubts) == (None, (), {})


def test_a_type_that_changes_once_and_then_another_kind_of_alter() -> None:
    cut, come = "ALTER TABLE t MODIFY v VARCHAR(3)", "ALTER TABLE t ADD n INT"
    once = gathered(make_round(5, event(A, 12, cut)))
    assert once.nulls == {}
    both = gathered(make_round(5, event(A, 12, cut), event(A, 13, come)))
    assert (both.stopped, both.retyped, both.nulls) == (None, (A,), {A: ("n",)})


def test_a_dropped_index_stops_only_tables_that_may_have_it_for_a_key() -> None:
    drop = event(A, 14, "ALTER TABLE t DROP INDEX u")
    logged = replace(SCHEMA, table="t", key=())
    known = {**KNOWN, logged.fingerprint: logged, WIDER.fingerprint: WIDER}
    for schema, stops in ((WIDER, False), (logged, True)):
        rounds = [make_round(2, file(A, 11, 12, schema), drop)]
        found = gather(STATE, rounds, known.__getitem__, InvalidValuePolicy())
        assert (found.stopped is not None) is stops


NARROW = replace(
    SCHEMA,
    columns=(
        SCHEMA.columns[0],
        replace(SCHEMA.columns[1], type=ColumnType(name="varchar", length=20, charset="utf8mb4")),
    ),
)


def test_after_an_alter_the_first_shape_is_held_against_the_dumps() -> None:
    """Without one the server is asked whether its table still has the shape of the dump."""

    def taken(*items: ChangeFile | TableEvent) -> TableBacklog:
        rounds = [make_round(2, *items)]
        return gather(STATE, rounds, shapes(NARROW).__getitem__, InvalidValuePolicy())

    untold = taken(file(A, 13, 13, NARROW)).doubts[A]
    assert "no statement changed them (v: length is shorter)" in untold.message
    assert untold.by_shape
    later = taken(file(A, 13, 13, NARROW), file(A, 14, 14, NARROW)).doubts
    assert later == {A: untold}, "more rows of that shape explain nothing"
    cut = "ALTER TABLE t MODIFY v VARCHAR(20)"
    found = taken(event(A, 12, cut), file(A, 13, 13, NARROW))
    assert found.stopped is None
    assert "length is shorter" in found.doubts[A].message
    assert (found.doubts[A].statement, found.doubts[A].by_shape) == (cut, False)


def test_a_dropped_index_stops_a_table_of_which_no_row_has_told_its_key() -> None:
    drop = event(A, 14, "ALTER TABLE t DROP INDEX u")
    assert gathered(make_round(2, drop)).stopped is not None
    assert gathered(make_round(2, file(A, 11, 12), drop)).stopped is not None
    told = replace(STATE, logged={A: WIDER.fingerprint})
    assert gathered(make_round(2, drop), state=told).stopped is None


def test_a_key_by_a_unique_index_is_missing_in_the_log_and_a_lost_primary_key_stops() -> None:
    keyless = replace(WIDER, key=())

    def taken(before: TableSchema) -> TableBacklog:
        state = replace(STATE, logged={A: before.fingerprint})
        rounds = [make_round(2, file(A, 13, 13, keyless))]
        return gather(state, rounds, shapes(keyless).__getitem__, InvalidValuePolicy())

    assert taken(SCHEMA).stopped is None
    found = taken(WIDER)
    assert found.stopped is not None
    assert "primary key" in found.stopped.message


def test_a_type_without_a_rule_stops_the_table() -> None:
    odd = replace(
        SCHEMA, columns=(SCHEMA.columns[0], replace(SCHEMA.columns[1], type=ColumnType(name="odd")))
    )
    rounds = [make_round(2, file(A, 13, 13, odd))]
    found = gather(STATE, rounds, shapes(odd).__getitem__, InvalidValuePolicy())
    assert found.stopped is not None
    assert "odd" in found.stopped.message


@pytest.mark.parametrize("how", ["", " WITH VALIDATION", " WITHOUT VALIDATION"])
def test_rows_in_a_wrong_partition_are_for_a_person(how: str) -> None:
    """A new dump by itself would not find them either, and call the table right."""
    statement = f"ALTER TABLE t EXCHANGE PARTITION p WITH TABLE x{how}"
    found = gathered(make_round(3, event(A, 20, statement)))
    assert found.stopped is not None
    assert found.stopped.altered == ("WITHOUT" not in how)
