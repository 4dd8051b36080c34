"""What a step does, read from rounds alone: how far, which files, where a table stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.core.dumps import DumpedChunk
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, Round, Run, ShardSlice, TableEvent
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import MisfitPolicy
from ratchet.merge.ancestry import NO_ANCESTRY, Ancestry
from ratchet.merge.floors import as_arrays, floor_overrides
from ratchet.merge.plan import (
    Gathered,
    app_id,
    choose_round,
    covers,
    gather,
    loses_shards,
    shape_of,
)
from ratchet.store.rounds import StreamState
from ratchet.store.tables import Doubt, DumpState, TableState

UUID, OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "3e11fa47-71ca-11e1-9e33-c80aa9429563"
A, B = "shop/-80", "shop/80-"
SCHEMA = TableSchema(
    keyspace="shop",
    table="t",
    columns=(
        Column(name="id", type=ColumnType(name="bigint"), nullable=False),
        Column(name="v", type=ColumnType(name="varchar", length=40, charset="utf8mb4")),
    ),
    key=("id",),
)
WIDER = replace(
    SCHEMA,
    columns=(SCHEMA.columns[0], replace(SCHEMA.columns[1], type=ColumnType(name="longtext"))),
)
MORE = replace(SCHEMA, columns=(*SCHEMA.columns, Column(name="n", type=ColumnType(name="int"))))
KNOWN = {schema.fingerprint: schema for schema in (SCHEMA, WIDER, MORE)}


def position(last: int) -> Position:
    return Position(executed=GtidSet("mysql", {UUID: ((1, last),)}))


STATE = TableState(
    keyspace="shop",
    table="t",
    schema=SCHEMA,
    key=("id",),
    phase="streaming",
    dump=DumpState(id="d", start_round=1, start={A: position(10), B: position(10)}),
    generated=False,
)


def file(shard: str, low: int, high: int, schema: TableSchema = SCHEMA, **more: int) -> ChangeFile:
    return ChangeFile(
        keyspace="shop",
        table="t",
        shard=shard,
        schema=schema.fingerprint,
        path=f"{shard}/{low}",
        rows=1,
        bytes=more.get("size", 100),
        min_seq=low,
        max_seq=high,
        inserts=1,
        updates=more.get("updates", 0),
        deletes=0,
        misfits={},
    )


def event(shard: str, seq: int, statement: str, *, truncate: bool = False) -> TableEvent:
    return TableEvent(
        keyspace="shop",
        table="t",
        shard=shard,
        kind="truncate" if truncate else "ddl",
        statement=statement,
        gtid=f"{UUID}:{seq}",
        seq=seq,
        ts=seq * 1000,
    )


def make_round(number: int, *items: ChangeFile | TableEvent, generation: int = 0) -> Round:
    piece = ShardSlice(
        shard=A,
        generation=generation,
        start=position(10),
        end=position(99),
        runs=(),
        transactions=1,
        rows=1,
        bytes=1,
        min_ts=None,
        max_ts=None,
        observed_at=1,
        caught_up=True,
    )
    return Round(
        number=number,
        committed_at=1,
        slices=(piece, replace(piece, shard=B)),
        files=tuple(i for i in items if isinstance(i, ChangeFile)),
        events=tuple(i for i in items if isinstance(i, TableEvent)),
    )


def gathered(*rounds: Round, state: TableState = STATE) -> Gathered:
    return gather(state, rounds, KNOWN.__getitem__, MisfitPolicy())


def test_a_step_takes_rounds_up_to_its_bytes_but_at_least_one() -> None:
    rounds = [make_round(n, file(A, n, n, size=100)) for n in range(6, 10)]

    def chosen(max_bytes: int, *, at_least: int = 0, upto: int = 99) -> int:
        return choose_round(
            rounds, begin=5, at_least=at_least, upto=upto, max_bytes=max_bytes, max_rows=10**9
        )

    assert [chosen(b) for b in (1, 100, 199, 200, 10_000)] == [6, 6, 6, 7, 9]
    assert chosen(1, at_least=8) == 8
    assert chosen(10_000, upto=7) == 7
    assert choose_round([], begin=5, at_least=0, upto=99, max_bytes=1, max_rows=1) == 5


def test_a_step_takes_rounds_up_to_one_tables_rows_but_at_least_one() -> None:
    """What other tables have counts for themselves; two shards' changes go into one table."""
    rounds = [
        make_round(
            n,
            replace(file(A, n, n), rows=10),
            replace(file(B, n, n), rows=5),
            replace(file(A, n, n), table="other", rows=14),
        )
        for n in range(6, 10)
    ]

    def chosen(max_rows: int) -> int:
        return choose_round(
            rounds, begin=5, at_least=0, upto=99, max_bytes=10**9, max_rows=max_rows
        )

    assert [chosen(n) for n in (1, 15, 29, 30, 44, 45, 10_000)] == [6, 6, 6, 7, 7, 8, 9]


def test_a_dump_is_covered_when_every_shard_is_past_its_end() -> None:
    end = {A: position(5), B: position(7)}
    assert covers({A: position(5), B: position(8)}, end)
    assert not covers({A: position(5), B: position(6)}, end)
    assert not covers({A: position(5)}, end)


def test_only_the_tables_own_files_in_the_order_of_rounds() -> None:
    foreign = replace(file(A, 12, 12), table="u")
    found = gathered(
        make_round(2, file(A, 11, 12), foreign, file(B, 20, 25)),
        make_round(3, file(A, 13, 14, updates=1), generation=1),
    )
    assert [f.path for f in found.files] == [f"{A}/11", f"{B}/20", f"{A}/13"]
    assert (found.lowest, found.highest) == ({A: (0, 11), B: (0, 20)}, {A: (1, 14), B: (0, 25)})
    assert found.may_delete
    assert (found.round, found.stopped, found.is_empty) == (3, None, False)


def test_truncations_are_marks_unless_the_dump_began_after_them() -> None:
    found = gathered(
        make_round(2, event(A, 10, "TRUNCATE t", truncate=True)),
        make_round(3, event(B, 20, "TRUNCATE t", truncate=True)),
        make_round(4, event(B, 22, "TRUNCATE t", truncate=True)),
    )
    assert found.truncated == {B: ((0, 22), 22_000)}


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


def test_a_statement_that_moves_rows_stops_the_table_where_it_stands() -> None:
    """Also inside a file: what is above its seq is left out by the merge."""
    found = gathered(make_round(2, file(A, 11, 19), event(A, 15, "RENAME TABLE t TO u, v TO t")))
    assert found.stopped is not None
    assert "RENAME TABLE" in found.stopped.message
    assert found.until == {A: (0, 15)}
    assert len(found.files) == 1


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


def test_statements_before_the_dump_are_none_of_its_business() -> None:
    assert gathered(make_round(2, event(A, 9, "DROP TABLE t"))).stopped is None
    assert gathered(make_round(2, event(A, 11, "DROP TABLE t"))).stopped is not None


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
    shape = shape_of(state, MisfitPolicy(), NO_ANCESTRY)
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
    changed = gather(state, rounds, known.__getitem__, MisfitPolicy())
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
        found = gather(STATE, rounds, known.__getitem__, MisfitPolicy())
        assert (found.stopped is not None) is stops


def test_progress_is_counted_for_each_dump() -> None:
    assert app_id(STATE) != app_id(replace(STATE, dump=None))
    assert STATE.dump is not None
    assert app_id(STATE) != app_id(replace(STATE, dump=replace(STATE.dump, id="e")))


def test_floors_are_overridden_only_where_their_number_misleads() -> None:
    runs = (Run(OTHER, 1, 1, 11), Run(UUID, 11, 13, 12))
    first = make_round(1)
    piece = replace(first.slices[0], start=position(10), runs=runs)
    rounds = [replace(first, slices=(piece,))]

    def chunk(number: int, floor: GtidSet) -> DumpedChunk:
        return DumpedChunk(
            number=number,
            shard=A,
            generation=0,
            rows=1,
            read_at=1,
            floor=Position(executed=floor),
        )

    mine = position(12).executed
    both = mine.with_interval(OTHER, 1, 1)
    found = floor_overrides([chunk(1, mine), chunk(2, both), chunk(3, mine)], rounds, {})
    assert found == {(A, 1): 10, (A, 3): 10}
    assert as_arrays(found) == {A: [None, 10, None, 10]}


def test_a_floor_is_looked_for_in_its_own_stream() -> None:
    """A shard that has begun anew under its name: the old stream's end is in the rounds as well.

    Taken for one stream, its numbers put the chunk behind changes that it does not have.
    """
    old, new = make_round(3).slices[0], make_round(4).slices[0]
    begun = Position(executed=GtidSet("mysql", {OTHER: ((1, 10),)}))
    read = begun.executed.with_interval(OTHER, 11, 13)
    rounds = [
        replace(
            make_round(3), slices=(replace(old, start=position(20), runs=(Run(UUID, 21, 24, 21),)),)
        ),
        replace(
            make_round(4), slices=(replace(new, generation=1, start=begun, end=begun, runs=()),)
        ),
        replace(
            make_round(5),
            slices=(replace(new, generation=1, start=begun, runs=(Run(OTHER, 11, 16, 11),)),),
        ),
    ]
    chunk = DumpedChunk(
        number=0, shard=A, generation=1, rows=1, read_at=1, floor=Position(executed=read)
    )
    assert floor_overrides([chunk], rounds, {A: begun}) == {}
    behind = replace(chunk, floor=Position(executed=read.with_interval(UUID, 1, 24)))
    assert floor_overrides([behind], rounds, {A: begun}) == {(A, 0): 13}
    assert floor_overrides([chunk], rounds[:1], {A: begun}) == {(A, 0): 10}


def reshard_round(number: int, *, ancestors: dict[str, int]) -> Round:
    """A round that begins the stream of a third shard."""
    value = make_round(number)
    begun = replace(value.slices[0], shard="shop/c0-", generation=1, ancestors=ancestors)
    return replace(value, slices=(*value.slices, begun))


def test_a_round_that_begins_heirs_comes_first_in_its_step() -> None:
    rounds = [make_round(6), reshard_round(7, ancestors={A: 0}), make_round(8)]

    def chosen(begin: int, at_least: int = 0) -> int:
        above = [value for value in rounds if value.number > begin]
        return choose_round(
            above, begin=begin, at_least=at_least, upto=99, max_bytes=10**9, max_rows=10**9
        )

    assert [chosen(5), chosen(6), chosen(7)] == [6, 8, 8]


ELSEWHERE = DumpState(id="d", start_round=1, start={"other/-": position(1)})


@pytest.mark.parametrize(
    ("state", "stops"),
    [
        (STATE, False),
        (replace(STATE, phase="catching_up"), True),
        (replace(STATE, shard_in_key=True), True),
        (replace(STATE, shard_in_key=True, dump=ELSEWHERE), False),
    ],
)
def test_where_rows_cannot_be_followed_into_heirs_the_table_stops(
    state: TableState, *, stops: bool
) -> None:
    found = gathered(reshard_round(2, ancestors={A: 0}), make_round(3), state=state)
    assert (found.stopped is not None) is stops
    rounds = [make_round(1), reshard_round(2, ancestors={A: 0})]
    assert loses_shards(state, rounds) is (state.dump is not ELSEWHERE)
    assert not loses_shards(replace(state, dump=None), rounds)
    if found.stopped:
        assert (found.round, found.stopped.round) == (2, 2)
        assert "redump 'shop.t'" in found.stopped.hint
        assert found.until == {"shop/c0-": (1, 0)}


def test_a_step_across_a_reshard_stops_rather_than_merge_wrongly() -> None:
    """`choose_round` makes none."""
    found = gathered(make_round(1, file(A, 11, 12)), reshard_round(2, ancestors={A: 0}))
    assert found.stopped is not None


def test_rows_of_several_shards_meet_where_shards_were_resharded() -> None:
    assert STATE.dump is not None
    one = replace(STATE, dump=replace(STATE.dump, start={A: position(10)}))
    heir = StreamState(position=position(1), generation=1, ancestors={A: 0}, begun=4)
    assert not shape_of(one, MisfitPolicy(), NO_ANCESTRY).many_shards
    assert shape_of(STATE, MisfitPolicy(), NO_ANCESTRY).contested
    assert shape_of(one, MisfitPolicy(), Ancestry({"shop/c0-": heir})).contested


def test_what_there_is_to_merge() -> None:
    assert gathered(make_round(2)).is_empty
    assert not gathered(make_round(2, event(A, 12, "TRUNCATE t", truncate=True))).is_empty
    assert not gathered(make_round(2, file(A, 11, 12))).may_delete
    assert gathered(make_round(2, replace(file(A, 11, 12), deletes=1))).may_delete


@pytest.mark.parametrize("other", [{"keyspace": "other"}, {"table": "u"}, {"shard": "shop/c0-"}])
def test_events_and_files_of_others_are_left_alone(other: dict[str, str]) -> None:
    theirs = replace(event(A, 12, "DROP TABLE t"), **other)
    found = gathered(make_round(2, theirs, replace(file(A, 12, 12), **other)))
    assert (found.stopped, found.is_empty) == (None, True)


def test_rows_of_the_transaction_that_stops_a_table_are_left_out() -> None:
    drop = event(A, 15, "DROP TABLE t")
    found = gathered(make_round(2, file(A, 14, 14), drop, file(A, 15, 16)), make_round(3))
    assert ([f.min_seq for f in found.files], found.until) == ([14], {A: (0, 15)})
    assert found.round == 2


def test_each_shard_has_its_own_end_and_the_first_reason_is_told() -> None:
    found = gathered(
        make_round(2, event(A, 15, "DROP TABLE t"), event(B, 17, "RENAME TABLE t TO u"))
    )
    assert found.until == {A: (0, 15), B: (0, 17)}
    assert found.stopped is not None
    assert "DROP TABLE" in found.stopped.message


def test_statements_are_before_the_dump_only_if_its_start_says_so() -> None:
    """Not where the start is of another flavour, of another shard, or there is none."""
    assert STATE.dump is not None
    early = event(A, 9, "DROP TABLE t")
    assert gathered(make_round(2, replace(early, gtid="0-1-9"))).stopped is not None
    one = replace(STATE, dump=replace(STATE.dump, start={B: position(10)}))
    assert gathered(make_round(2, early), state=one).stopped is not None
    assert gathered(make_round(2, early), state=replace(STATE, dump=None)).stopped is not None


def shapes(*more: TableSchema) -> dict[str, TableSchema]:
    """As read from the lake: equal, and other objects."""
    return {schema.fingerprint: replace(schema) for schema in (*KNOWN.values(), *more)}


NARROW = replace(
    SCHEMA,
    columns=(
        SCHEMA.columns[0],
        replace(SCHEMA.columns[1], type=ColumnType(name="varchar", length=20, charset="utf8mb4")),
    ),
)


def test_after_an_alter_the_first_shape_is_held_against_the_dumps() -> None:
    """Without one the server is asked whether its table still has the shape of the dump."""

    def taken(*items: ChangeFile | TableEvent) -> Gathered:
        rounds = [make_round(2, *items)]
        return gather(STATE, rounds, shapes(NARROW).__getitem__, MisfitPolicy())

    untold = taken(file(A, 13, 13, NARROW)).doubts[A]
    assert "no statement says so (v: length is shorter)" in untold.message
    assert untold.by_shape
    cut = "ALTER TABLE t MODIFY v VARCHAR(20)"
    found = taken(event(A, 12, cut), file(A, 13, 13, NARROW))
    assert found.stopped is None
    assert "length is shorter" in found.doubts[A].message
    assert (found.doubts[A].statement, found.doubts[A].by_shape) == (cut, False)


def test_a_primary_key_does_not_help_where_a_statement_moves_rows() -> None:
    told = replace(STATE, logged={A: WIDER.fingerprint})
    for statement in ("DROP TABLE t", "RENAME TABLE u TO t", "ALTER TABLE t DROP PARTITION p"):
        found = gathered(make_round(2, event(A, 14, statement)), state=told)
        assert found.stopped is not None, statement


def test_doubt_says_so_itself() -> None:
    told = event(A, 21, "ALTER TABLE t MODIFY v INT FIRST")
    found = gathered(make_round(6, told, replace(told, kind="doubt")))
    assert found.stopped is not None
    assert "read under its new columns" in found.stopped.message


def test_rows_that_cannot_be_read_stop_it_where_they_stand() -> None:
    told = replace(event(A, 21, "a bad column"), kind="unreadable")
    found = gathered(make_round(6, file(A, 20, 20), told, file(A, 22, 22)))
    assert found.until == {A: (0, 21)}
    assert [one.min_seq for one in found.files] == [20]
    assert found.stopped is not None
    assert "a bad column" in found.stopped.message
    assert gathered(make_round(2, replace(told, seq=9, gtid=f"{UUID}:9"))).stopped is None


def test_a_dropped_index_stops_a_table_of_which_no_row_has_told_its_key() -> None:
    drop = event(A, 14, "ALTER TABLE t DROP INDEX u")
    assert gathered(make_round(2, drop)).stopped is not None
    assert gathered(make_round(2, file(A, 11, 12), drop)).stopped is not None
    told = replace(STATE, logged={A: WIDER.fingerprint})
    assert gathered(make_round(2, drop), state=told).stopped is None


def test_a_key_by_a_unique_index_is_missing_in_the_log_and_a_lost_primary_key_stops() -> None:
    keyless = replace(WIDER, key=())

    def taken(before: TableSchema) -> Gathered:
        state = replace(STATE, logged={A: before.fingerprint})
        rounds = [make_round(2, file(A, 13, 13, keyless))]
        return gather(state, rounds, shapes(keyless).__getitem__, MisfitPolicy())

    assert taken(SCHEMA).stopped is None
    found = taken(WIDER)
    assert found.stopped is not None
    assert "primary key" in found.stopped.message


def test_a_type_without_a_rule_stops_the_table() -> None:
    odd = replace(
        SCHEMA, columns=(SCHEMA.columns[0], replace(SCHEMA.columns[1], type=ColumnType(name="odd")))
    )
    rounds = [make_round(2, file(A, 13, 13, odd))]
    found = gather(STATE, rounds, shapes(odd).__getitem__, MisfitPolicy())
    assert found.stopped is not None
    assert "odd" in found.stopped.message


# --- what statements did, as capture judged it ----------------------------------------------------


def judged(effect: str, seq: int = 12, **more: object) -> TableEvent:
    told = event(A, seq, "a statement")
    return replace(told, effect=effect, reason=f"{effect} happened", **more)  # type: ignore[arg-type]


def test_what_moved_rows_stops_a_quiet_table_at_the_statement() -> None:
    found = gathered(make_round(5, judged("rows")))
    assert found.stopped is not None
    assert found.stopped.message == f"rows happened on {A}: a statement"
    assert found.until == {A: (0, 12)}


@pytest.mark.parametrize("phase", ["streaming", "catching_up"])
@pytest.mark.parametrize("effect", ["types", "foreign_key", "doubt", "prepared", "untold"])
def test_a_doubt_is_in_the_state_at_once_and_stays(effect: str, phase: str) -> None:
    start = replace(STATE, phase=phase, foreign_keys=())  # type: ignore[arg-type]
    found = gathered(make_round(5, judged(effect)), state=start)
    assert found.stopped is None
    doubt = Doubt(
        message=f"{effect} happened",
        statement="a statement",
        round=5,
        by_shape=effect == "types",
    )
    assert found.doubts == {A: doubt}
    state = found.learned(start)
    assert state.doubts == {A: doubt}
    assert state.foreign_keys == (None if effect == "foreign_key" else ())
    assert TableState.from_json(state.to_json()) == state
    later = gathered(make_round(6, file(B, 13, 13)), make_round(7), state=state)
    assert later.learned(state).doubts == {A: doubt}


def test_the_next_shape_takes_a_doubt_of_types_away_and_no_other() -> None:
    for schema in (SCHEMA, WIDER):
        shown = gathered(make_round(5, judged("types"), file(A, 13, 13, schema)))
        assert (shown.doubts, shown.stopped) == ({}, None)
        other = gathered(make_round(5, judged("types"), file(B, 13, 13, schema)))
        assert set(other.doubts) == {A}
        kept = gathered(make_round(5, judged("doubt"), file(A, 13, 13, schema)))
        assert set(kept.doubts) == {A}


@pytest.mark.parametrize("effects", [("types", "doubt"), ("doubt", "types"), ("types", "types")])
def test_two_doubts_are_one_that_only_the_rows_can_take_away(effects: tuple[str, str]) -> None:
    first, second = effects
    found = gathered(
        make_round(5, judged(first)), make_round(6, judged(second, 13), file(A, 14, 14, WIDER))
    )
    assert [(doubt.round, doubt.by_shape) for doubt in found.doubts.values()] == [(6, False)]
    if "doubt" in effects:
        assert found.doubts[A].message == "doubt happened"


@pytest.mark.parametrize("generated", [True, None])
def test_no_shape_proves_what_generated_columns_are_made_of(
    generated: bool | None,  # noqa: FBT001 - a table's row
) -> None:
    """Nor collations: `a = 'A'` may be another value behind a MODIFY that no shape shows."""
    state = replace(STATE, generated=generated)
    found = gathered(make_round(5, judged("types"), file(A, 13, 13, WIDER)), state=state)
    assert [doubt.by_shape for doubt in found.doubts.values()] == [False]
    assert found.learned(state).generated is generated


@pytest.mark.parametrize("generated", [True, None])
def test_rows_written_anew_are_in_doubt_where_columns_are_generated(
    generated: bool | None,  # noqa: FBT001 - a table's row
) -> None:
    """No row event says what became of the rows before it; the server's columns may."""
    assert gathered(make_round(5, judged("rebuild"))).doubts == {}
    state = replace(STATE, generated=generated)
    found = gathered(make_round(5, judged("rebuild"), file(A, 13, 13)), state=state)
    assert [(one.by_shape, one.rebuilt, one.round) for one in found.doubts.values()] == [
        (True, True, 5)
    ]
    for other in ("types", "doubt"):
        rounds = (make_round(5, judged(other)), make_round(6, judged("rebuild", 13)))
        found = gathered(*rounds, state=state)
        assert [(one.by_shape, one.rebuilt, one.round) for one in found.doubts.values()] == [
            (False, False, 6)
        ]


def test_what_was_not_understood_may_have_brought_a_generated_column() -> None:
    state = gathered(make_round(5, judged("doubt"))).learned(STATE)
    assert (state.generated, TableState.from_json(state.to_json())) == (None, state)
    kept = gathered(make_round(5, judged("foreign_key"), judged("types", 13))).learned(STATE)
    assert kept.generated is False


def test_a_change_of_the_lakes_type_stops_as_ever() -> None:
    bigger = replace(SCHEMA, columns=(SCHEMA.columns[0], replace(MORE.columns[-1], name="v")))
    known = {**KNOWN, bigger.fingerprint: bigger}
    rounds = [make_round(5, judged("types"), file(A, 13, 13, bigger))]
    found = gather(STATE, rounds, known.__getitem__, MisfitPolicy())
    assert found.stopped is not None
    assert "changed v from" in found.stopped.message


@pytest.mark.parametrize(("primary", "stops"), [(True, False), (False, True), (None, True)])
def test_an_index_that_goes_stops_a_table_only_if_it_may_be_its_key(
    primary: bool | None,  # noqa: FBT001 - a table's row
    stops: bool,  # noqa: FBT001
) -> None:
    """Also one that has had no row event since its dump: the dump told."""
    state = replace(STATE, primary=primary)
    found = gathered(make_round(5, judged("key")), state=state)
    assert (found.stopped is not None) is stops
    assert found.doubts == {}


def test_columns_come_with_their_event() -> None:
    told = judged("columns", nulls=("n",))
    found = gathered(make_round(5, told, file(A, 13, 13, MORE)))
    assert (found.stopped, found.nulls) == (None, {A: ("n",)})
    doubtful = gathered(make_round(5, told, replace(told, kind="doubt")))
    assert doubtful.stopped is not None
    assert "read under its new columns" in doubtful.stopped.message
    for effect in ("key", "foreign_key"):
        told = judged(effect)
        state = replace(STATE, primary=True)
        assert (
            gathered(make_round(5, told, replace(told, kind="doubt")), state=state).stopped is None
        )


def test_statements_before_the_dump_put_nothing_in_doubt() -> None:
    assert gathered(make_round(2, judged("doubt", 9, gtid=f"{UUID}:9"))).doubts == {}
