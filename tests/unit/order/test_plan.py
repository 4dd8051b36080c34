"""What a step does, read from rounds alone: how far, which files, where a table stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.core.dumps import DumpedChunk
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import GtidRange, Round
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.ancestry import NO_ANCESTRY, Ancestry
from ratchet.merge.floors import as_arrays, floor_overrides
from ratchet.merge.plan import (
    app_id,
    choose_round,
    covers,
    loses_shards,
    shape_of,
)
from ratchet.store.dumpstates import DumpState
from ratchet.store.rounds import StreamState
from ratchet.store.tables import TableState
from tests.plan_kit import (
    OTHER,
    STATE,
    UUID,
    WIDER,
    A,
    B,
    event,
    file,
    gathered,
    make_round,
    position,
)


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


def test_a_statement_that_moves_rows_stops_the_table_where_it_stands() -> None:
    """Also inside a file: what is above its seq is left out by the merge."""
    found = gathered(make_round(2, file(A, 11, 19), event(A, 15, "RENAME TABLE t TO u, v TO t")))
    assert found.stopped is not None
    assert "RENAME TABLE" in found.stopped.message
    assert found.until == {A: (0, 15)}
    assert len(found.files) == 1


def test_statements_before_the_dump_are_none_of_its_business() -> None:
    assert gathered(make_round(2, event(A, 9, "DROP TABLE t"))).stopped is None
    assert gathered(make_round(2, event(A, 11, "DROP TABLE t"))).stopped is not None


def test_progress_is_counted_for_each_dump() -> None:
    assert app_id(STATE) != app_id(replace(STATE, dump=None))
    assert STATE.dump is not None
    assert app_id(STATE) != app_id(replace(STATE, dump=replace(STATE.dump, id="e")))


def test_floors_are_overridden_only_where_their_number_misleads() -> None:
    runs = (GtidRange(OTHER, 1, 1, 11), GtidRange(UUID, 11, 13, 12))
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
            make_round(3),
            slices=(replace(old, start=position(20), runs=(GtidRange(UUID, 21, 24, 21),)),),
        ),
        replace(
            make_round(4), slices=(replace(new, generation=1, start=begun, end=begun, runs=()),)
        ),
        replace(
            make_round(5),
            slices=(replace(new, generation=1, start=begun, runs=(GtidRange(OTHER, 11, 16, 11),)),),
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
    assert not shape_of(one, InvalidValuePolicy(), NO_ANCESTRY).many_shards
    assert shape_of(STATE, InvalidValuePolicy(), NO_ANCESTRY).contested
    assert shape_of(one, InvalidValuePolicy(), Ancestry({"shop/c0-": heir})).contested


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
