"""The comparison by itself: two streams of transactions, and each way in which they can differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.errors import DecodeError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.logcheck import LakeChange, LogCheck, LogResult
from ratchet.wire.secondlog import SecondTransaction
from ratchet.wire.secondrows import Change, SecondColumn, SecondRows, SecondTable

T = TableSchema(
    keyspace="shop",
    table="t",
    columns=(
        Column(name="id", type=ColumnType(name="int")),
        Column(name="v", type=ColumnType(name="varchar", charset="utf8mb4")),
    ),
    key=("id",),
)
U = replace(T, table="u")
COLUMNS = (SecondColumn(name="id", form="number"), SecondColumn(name="v", form="bytes", charset="utf8"))  # fmt: skip # noqa: E501


def lake(seq: int, idx: int, op: int, before: Any, after: Any, **more: Any) -> LakeChange:
    schema = more.pop("schema", T)
    token = {"shard": "shop/-", "generation": 1, "gtid": f"g:{seq}", "seq": seq, "idx": idx, **more}
    images = [None if row is None else dict(zip(("id", "v"), row, strict=True)) for row in (before, after)]  # fmt: skip # noqa: E501
    return LakeChange(round=1, schema=schema, op=op, token=token, before=images[0], after=images[1])


def server(seq: int, *changes: Change, table: str = "t", **more: Any) -> SecondTransaction:
    one = SecondTable(name=table, columns=more.pop("columns", COLUMNS), unread=more.pop("bad", ""))
    rows = [SecondRows(one, change[0], lambda change=change: [change]) for change in changes]
    return SecondTransaction(gtid=f"g:{seq}", seq=seq, rows=rows, **more)


OURS = [
    lake(1, 0, INSERT, None, (1, "a")),
    lake(1, 1, INSERT, None, (2, None)),
    lake(2, 0, UPDATE, (1, "a"), (1, "b")),
    lake(4, 0, DELETE, (1, "b"), None),
]
THEIRS = [
    server(1, (INSERT, None, (1, b"a")), (INSERT, None, (2, None))),
    server(2, (UPDATE, (1, b"a"), (1, b"b"))),
    server(3),
    server(4, (DELETE, (1, b"b"), None)),
]


def compared(
    ours: Sequence[LakeChange],
    theirs: Sequence[SecondTransaction],
    left_out: Callable[[str, int, int], str] = lambda *_: "",
) -> LogResult:
    check = LogCheck(shard="shop/-", generation=1, policy=InvalidValuePolicy(), left_out=left_out)
    check.compare(ours, theirs, round_of=lambda _: 1)
    return check.result


def test_the_same() -> None:
    result = compared(OURS, THEIRS)
    assert (result.rows, result.transactions, result.differences) == (4, 3, 0)
    assert result.values == 2 + 2 + 4 + 2
    assert not result.not_compared


def test_nothing() -> None:
    assert compared([], []).rows == 0
    assert compared([], [server(1), server(2)]).differences == 0


@pytest.mark.parametrize("at", range(4))
def test_a_row_that_is_missing(at: int) -> None:
    assert compared(OURS[:at] + OURS[at + 1 :], THEIRS).differences


@pytest.mark.parametrize("at", range(4))
def test_a_transaction_that_only_one_side_has(at: int) -> None:
    assert compared(OURS, THEIRS[:at] + THEIRS[at + 1 :]).differences == (at != 2)
    seq = at + 1
    assert compared([one for one in OURS if one.token["seq"] != seq], THEIRS).differences == (
        at != 2
    )


def test_another_order() -> None:
    assert compared([OURS[1], OURS[0], *OURS[2:]], THEIRS).differences
    assert compared(OURS, [server(1, (INSERT, None, (2, None)), (INSERT, None, (1, b"a"))), *THEIRS[1:]]).differences  # fmt: skip # noqa: E501


@pytest.mark.parametrize(
    "change",
    [
        lake(1, 0, INSERT, None, (2, "a")),
        lake(1, 0, INSERT, None, (1, "b")),
        lake(1, 0, INSERT, None, (1, None)),
        lake(1, 0, INSERT, None, (1, "")),
        lake(1, 0, DELETE, (1, "a"), None),
        lake(1, 0, INSERT, None, None),
        lake(1, 0, INSERT, None, (1, "a"), schema=U),
        lake(1, 0, INSERT, None, (1, "a"), gtid="g:9"),
        lake(1, 0, INSERT, None, (1, "a"), shard="shop/x"),
        lake(1, 0, INSERT, None, (1, "a"), generation=2),
        lake(1, 7, INSERT, None, (1, "a")),
        replace(lake(1, 0, INSERT, None, (1, "a")), round=2),
    ],
)
def test_one_thing_is_another(change: LakeChange) -> None:
    result = compared([change, *OURS[1:]], THEIRS)
    assert result.differences
    assert result.examples[0].gtid == "g:1"


def test_null_is_nothing_else() -> None:
    ours = [OURS[0], lake(1, 1, INSERT, None, (2, "")), *OURS[2:]]
    (example,) = compared(ours, THEIRS).examples
    assert (example.column, example.lake, example.server, example.row) == ("v", "''", "None", 1)


def test_a_table_that_is_left_out_is_named() -> None:
    result = compared(OURS, THEIRS, lambda *place: "why" if place[2] >= 2 else "")
    assert (result.rows, result.differences) == (2, 0)
    assert dict(result.not_compared) == {"t: why": 2}
    result = compared([], THEIRS, lambda *_: "why")
    assert (result.rows, result.differences) == (0, 0)
    assert dict(result.not_compared) == {"t: why": 0}


def test_a_table_that_the_library_cannot_read_is_named_and_the_others_compared() -> None:
    ours = [lake(1, 0, INSERT, None, (1, "a")), lake(1, 1, INSERT, None, (5, "x"), schema=U)]
    theirs = server(1, (INSERT, None, (1, b"a")))
    theirs.rows += server(1, (INSERT, None, ()), table="u", bad="a type").rows
    result = compared(ours, [theirs])
    assert (result.rows, result.differences) == (1, 0)
    assert dict(result.not_compared) == {"u: a type": 1}


def test_a_row_that_the_library_fails_at_ends_the_transaction_by_name() -> None:
    def fails() -> list[Change]:
        raise DecodeError("mysql-replication fails at a row: x")

    theirs = server(1, (INSERT, None, (1, b"a")))
    theirs.rows.append(SecondRows(theirs.rows[0].table, INSERT, fails))
    result = compared(OURS[:2], [theirs])
    assert (result.rows, result.differences) == (1, 0)
    assert list(result.not_compared) == [
        "rows of a transaction: mysql-replication fails at a row: x"
    ]


def test_a_transaction_that_was_not_read_is_named() -> None:
    result = compared(OURS[:2], [server(1, unread="larger than a sample")])
    assert (result.rows, result.differences) == (0, 0)
    assert list(result.not_compared) == ["transactions: larger than a sample"]


def test_columns_of_one_side_only() -> None:
    more = (*COLUMNS, SecondColumn(name="n", form="number"))
    result = compared(OURS[:1], [server(1, (INSERT, None, (1, b"a", 5)), columns=more)])
    assert result.examples[0].column == "n"
    own = (*COLUMNS, SecondColumn(name="DB_ROW_HASH_1", form="number"))
    assert not compared(
        OURS[:1], [server(1, (INSERT, None, (1, b"a", 5)), columns=own)]
    ).differences
    assert compared(OURS[:1], [server(1, (INSERT, None, (1,)), columns=COLUMNS[:1])]).differences


def test_a_column_of_another_kind_in_the_log_is_not_compared_and_named() -> None:
    columns = (SecondColumn(name="id", form="bytes"), COLUMNS[1])
    result = compared(OURS[:1], [server(1, (INSERT, None, (b"1", b"a")), columns=columns)])
    assert not result.differences
    assert dict(result.not_compared) == {"t.id: the log has bytes for int": 1}


def test_differences_are_all_counted_and_some_described() -> None:
    ours = [lake(n, 0, INSERT, None, (n, "x")) for n in range(1, 301)]
    theirs = [server(n, (INSERT, None, (n, b"y"))) for n in range(1, 301)]
    result = compared(ours, theirs)
    assert (result.differences, len(result.examples)) == (300, 100)
