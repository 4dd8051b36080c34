"""Whether a copy's changes in the log are all that a table is which a tool has swapped in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.reshaping import NotComputableError
from ratchet.core.rounds import ChangeFile, Effect, Round, ShardSlice, TableEvent
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.sql.effects import CREATED, MOVED
from ratchet.merge.swap import CopyLog, about, copy_log, is_moved, refuse_untold
from ratchet.store.stops import ShapeChange

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SHARD = "shop/-"
SWAP = "RENAME TABLE t TO _t_old, _t_new TO t"
ALTER = "ALTER TABLE _t_new ADD x INT"
MADE, ALTERED, FILLED, SWAPPED = 12, 13, 14, 25


def at(seq: int) -> Position:
    return Position(executed=GtidSet("mysql", {UUID: ((1, seq),)}))


def event(
    seq: int,
    statement: str,
    reason: str = MOVED,
    *,
    table: str = "_t_new",
    effect: Effect = "rows",
    **more: Any,
) -> TableEvent:
    return TableEvent(
        keyspace="shop",
        table=table,
        shard=SHARD,
        statement=statement,
        gtid=f"{UUID}:{seq}",
        seq=seq,
        ts=seq,
        effect=effect,
        reason=reason,
        **{"kind": "ddl", **more},
    )


def file(first: int, last: int, *, table: str = "_t_new", schema: str = "a") -> ChangeFile:
    return ChangeFile(
        keyspace="shop",
        table=table,
        shard=SHARD,
        schema=schema,
        path=f"{table}/{first}-{last}",
        rows=1,
        bytes=1,
        min_seq=first,
        max_seq=last,
        inserts=1,
        updates=0,
        deletes=0,
        misfits={},
    )


def piece(first: int, last: int) -> ShardSlice:
    begun = ShardSlice.beginning(SHARD, at(first), generation=3, now=1)
    return replace(begun, end=at(last))


def value(
    number: int, span: tuple[int, int], files: list[ChangeFile], events: list[TableEvent]
) -> Round:
    return Round(
        number=number,
        committed_at=number,
        slices=(piece(*span),),
        files=tuple(files),
        events=tuple(events),
        copies=(SHARD,),
    )


CREATE = event(MADE, "CREATE TABLE _t_new LIKE t", CREATED)
SWAPS = [event(SWAPPED, SWAP, table="t"), event(SWAPPED, SWAP)]
FIRST = value(
    5,
    (10, 20),
    [file(11, 19, table="t"), file(FILLED, 20)],
    [CREATE, event(ALTERED, ALTER)],
)
LAST = value(6, (20, 30), [file(21, 24), file(26, 30, table="t", schema="b")], SWAPS)
CHANGE = ShapeChange(shard=SHARD, position=at(SWAPPED), round=6, statement=SWAP)


def found(*rounds: Round, **seqs: list[int]) -> CopyLog:
    by_path = {name.replace("__", "/").replace("_to_", "-"): one for name, one in seqs.items()}

    def seqs_of(one: ChangeFile) -> list[int]:
        return by_path.get(one.path.removeprefix("_"), list(range(one.min_seq, one.max_seq + 1)))

    return copy_log(rounds or [FIRST, LAST], "t", "_t_new", CHANGE, seqs_of)


def test_a_migration() -> None:
    assert found() == CopyLog(
        copy="_t_new",
        shard=SHARD,
        generation=3,
        round=5,
        made=MADE,
        made_at=CREATE.ts,
        swapped=SWAPPED,
        shape="a",
    )


def test_the_newest_copy_of_the_name_counts() -> None:
    earlier = value(
        4,
        (0, 10),
        [file(3, 5, schema="of before")],
        [
            event(2, "CREATE TABLE _t_new (a INT)", CREATED),
            event(4, "ALTER TABLE _t_new ADD late INT"),
            event(9, "DROP TABLE _t_new"),
        ],
    )
    assert found(earlier, FIRST, LAST) == found()


def test_a_file_that_holds_rows_of_both_copies_is_looked_into() -> None:
    both = replace(
        FIRST,
        files=(file(2, 20),),
        events=(event(1, "CREATE TABLE _t_new LIKE t", CREATED), *FIRST.events),
    )
    assert found(both, LAST, t_new__2_to_20=[2, 3, FILLED, 20]) == found()
    with pytest.raises(NotComputableError, match="more than rows came to _t_new: ALTER"):
        found(both, LAST, t_new__2_to_20=[2, ALTERED, 20])


def with_events(*events: TableEvent) -> Round:
    return replace(FIRST, events=(*FIRST.events, *events))


@pytest.mark.parametrize(
    ("why", "rounds"),
    {
        "reach back": [replace(FIRST, events=FIRST.events[1:]), LAST],
        "does not tell of _t_new": [FIRST, replace(LAST, events=LAST.events[:1])],
        "began anew": [FIRST, replace(LAST, slices=(piece(22, 30),))],
        "were not captured all the time": [replace(FIRST, copies=("shop/b",)), LAST],
        "has no rows of": [replace(FIRST, files=()), replace(LAST, files=LAST.files[1:])],
        "several shapes": [FIRST, replace(LAST, files=(file(21, 24, schema="c"),))],
        "came to _t_new: TRUNCATE": [
            with_events(event(15, "TRUNCATE _t_new", effect="", kind="truncate")),
            LAST,
        ],
        "came to _t_new: ALTER TABLE _t_new ADD y": [
            with_events(event(20, "ALTER TABLE _t_new ADD y INT")),
            LAST,
        ],
        "came to _t_new: ALTER TABLE _t_new ADD FOREIGN": [
            replace(
                FIRST,
                events=(
                    CREATE,
                    event(13, "ALTER TABLE _t_new ADD FOREIGN KEY (x) REFERENCES t (id)"),
                ),
            ),
            LAST,
        ],
        "came to _t_new: DROP": [with_events(event(13, "DROP TABLE _t_new")), LAST],
        "came to _t_new: UPDATE": [
            with_events(event(18, "UPDATE _t_new SET n = 1", effect="untold")),
            LAST,
        ],
        "came to _t_new: it is not readable": [
            with_events(event(18, "it is not readable", effect="", kind="unreadable")),
            LAST,
        ],
        "any table meanwhile: its log": [
            with_events(event(18, "", "its log", table="t", effect="restored")),
            LAST,
        ],
    }.items(),
)
def test_what_is_read_from_the_source(why: str, rounds: list[Round]) -> None:
    with pytest.raises(NotComputableError, match=why):
        found(*rounds)


def test_another_generation_of_the_stream() -> None:
    again = replace(LAST, slices=(replace(LAST.slices[0], generation=4),))
    with pytest.raises(NotComputableError, match="began anew"):
        found(FIRST, again)


@pytest.mark.parametrize(
    "rounds",
    [
        [replace(FIRST, files=(file(MADE, 20),)), LAST],
        [replace(FIRST, files=(file(MADE - 3, MADE), file(FILLED, 20))), LAST],
        [FIRST, replace(LAST, files=(file(21, SWAPPED),))],
        [FIRST, replace(LAST, files=(file(21, 24), file(SWAPPED, 30, table="t")))],
    ],
)
def test_rows_at_the_place_of_a_statement_may_be_on_either_side(rounds: list[Round]) -> None:
    """As those of CREATE TABLE ... SELECT, and of transactions without a GTID."""
    with pytest.raises(NotComputableError, match="at the same place"):
        found(*rounds)


def test_what_happens_to_the_table_itself_says_nothing_of_its_copy() -> None:
    told = with_events(event(18, "ALTER TABLE t ADD late INT", table="t"))
    assert found(told, LAST) == found()


def test_a_migration_behind_it_in_the_same_round() -> None:
    """Its copy has the same name, and its first rows may be in one file with the last of these."""
    again = replace(
        LAST,
        files=(file(21, 29), *LAST.files[1:]),
        events=(*LAST.events, event(27, "CREATE TABLE _t_new LIKE t", CREATED)),
    )
    assert found(FIRST, again, t_new__21_to_29=[21, 24, 28, 29]) == found()


def test_a_round_without_what_is_of_others() -> None:
    other = replace(file(1, 2), shard="shop/b")
    crowd = replace(
        FIRST,
        slices=(*FIRST.slices, replace(FIRST.slices[0], shard="shop/b")),
        files=(*FIRST.files, other, file(1, 2, table="u")),
        events=(*FIRST.events, event(1, "", table="u")),
    )
    assert about(crowd, "shop", ["_t_new", "t"], SHARD) == FIRST
    assert about(crowd, "other", ["_t_new", "t"], SHARD).files == ()


def test_a_copy_that_was_made_with_something_in_it() -> None:
    made = event(MADE, "CREATE TABLE _t_new AS SELECT * FROM t", MOVED)
    with pytest.raises(NotComputableError, match="more than its own rows may be in _t_new: CREATE"):
        found(replace(FIRST, events=(made,)), LAST)


def test_whether_a_copy_was_gone_behind_its_swap() -> None:
    """A MariaDB logs the RENAME of temporary tables of these names word for word."""
    assert not is_moved([], "_t_new")
    made = event(27, "CREATE TABLE _t_new LIKE t", CREATED)
    assert is_moved([made, event(28, "DROP TABLE _t_new")], "_t_new")
    told = event(26, "UPDATE other SET a = 1", "rows were changed", effect="untold")
    assert not is_moved([told], "_t_new")
    assert is_moved([told, made], "_t_new")
    for text in ("CREATE OR REPLACE TABLE _t_new LIKE t", "/* */ CREATE TABLE _t_new LIKE t"):
        with pytest.raises(NotComputableError, match="may still have been there"):
            is_moved([event(27, text, CREATED), made], "_t_new")
    for text in ("DROP TABLE _t_new", "CREATE TABLE IF NOT EXISTS _t_new (a INT)"):
        with pytest.raises(NotComputableError, match="may still have been there"):
            is_moved([event(27, text), made], "_t_new")


def test_types_that_a_mariadbs_log_does_not_tell() -> None:
    def shape(name: str, length: int | None = None) -> TableSchema:
        column = Column(name="u", type=ColumnType(name=name, length=length))
        return TableSchema(keyspace="shop", table="t", columns=(column,), key=())

    refuse_untold(shape("int"), None)
    refuse_untold(shape("uuid"), shape("uuid"))
    refuse_untold(shape("binary", 16), shape("binary", 16))
    for now in (shape("uuid"), None):
        with pytest.raises(NotComputableError, match="type of u"):
            refuse_untold(shape("binary", 16), now)
