"""What statements make of partitions, and which rows one holds."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest

from ratchet.core.partitions import Partition, PartitionsUnclearError, RangeLayout, RowRange
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy

POLICY = InvalidValuePolicy()


def layout(*partitions: tuple[str, str], by: str = "`id`") -> RangeLayout:
    return RangeLayout(by, tuple(Partition(name, bound) for name, bound in partitions))


FOUR = layout(("a", "10"), ("b", "20"), ("c", "30"), ("d", "MAXVALUE"))


def table(kind: ColumnType, name: str = "id") -> TableSchema:
    column = Column(name=name, type=kind, nullable=False)
    return TableSchema(keyspace="shop", table="t", columns=(column,), key=(name,))


INTS = table(ColumnType(name="int"))


def spans(found: RangeLayout, *names: str) -> list[tuple[Any, Any]]:
    return list(found.rows(names, INTS, POLICY).spans)


def test_between_the_bound_of_the_one_before_and_its_own() -> None:
    assert spans(FOUR, "a") == [(None, 10)]
    assert spans(FOUR, "C", "b") == [(10, 20), (20, 30)]
    assert spans(FOUR, "d") == [(30, None)]


def test_behind_a_drop_the_next_one_takes_its_place() -> None:
    assert spans(FOUR.without(["a", "B"]), "c") == [(None, 30)]
    assert spans(FOUR.without(["c"]), "d") == [(20, None)]
    with pytest.raises(PartitionsUnclearError, match="partition x"):
        FOUR.without(["a", "x"])


def test_behind_a_reorganize_the_others_stay_what_they_were() -> None:
    found = FOUR.reorganized(["B", "a"])
    assert spans(found, "c") == [(20, 30)]
    with pytest.raises(PartitionsUnclearError, match="partition a"):
        spans(found, "a")
    assert spans(FOUR.reorganized(["c", "d"]), "b") == [(10, 20)]
    with pytest.raises(PartitionsUnclearError, match="neighbours"):
        FOUR.reorganized(["a", "c"])


def test_what_is_not_known_is_refused() -> None:
    odd = {
        "partition é": (FOUR, "é"),  # a server takes it for e
        "bound is not known": (layout(("a", ""), ("b", "20")), "b"),
        "bound is x": (layout(("a", "x")), "a"),
        "bound is 9223372036854775808": (layout(("a", "9223372036854775808")), "a"),
        "by `id` DIV 2": (layout(("a", "1"), by="`id` DIV 2"), "a"),
        "by `id`,`v`": (layout(("a", "1,2"), by="`id`,`v`"), "a"),
        "by to_days(`id`)": (layout(("a", "1"), by="to_days(`id`)"), "a"),
        "its mirror lacks": (layout(("a", "1"), by="`no`"), "a"),
    }
    for why, (found, name) in odd.items():
        with pytest.raises(PartitionsUnclearError, match=re.escape(why)):
            found.rows([name], INTS, POLICY)


@pytest.mark.parametrize(
    ("kind", "by", "bound", "value"),
    [
        ("date", "to_days(`id`)", "738886", "2023-01-01"),
        ("date", "`id`", "'2023-01-01'", "2023-01-01"),
        ("date", "YEAR(`id`)", "2023", "2023-01-01"),
        ("datetime", "`id`", "'2023-01-01 10:11'", "2023-01-01 10:11"),
        ("datetime", "to_seconds(`id`)", "63839750460", "2023-01-01 00:01"),
        ("timestamp", "unix_timestamp(`id`)", "1672531260", "2023-01-01 00:01"),
    ],
)
def test_days_and_moments(kind: str, by: str, bound: str, value: str) -> None:
    found = layout(("a", bound), by=by).rows(["a"], table(ColumnType(name=kind)), POLICY)
    read = date if kind == "date" else datetime
    assert found.spans == ((None, read.fromisoformat(value)),)


@pytest.mark.parametrize(
    ("kind", "by", "bound"),
    [
        ("date", "`id`", "'2023-01-01 10:00:00'"),
        ("date", "`id`", "'2023-1-1'"),
        ("date", "`id`", "'0000-00-00'"),
        ("datetime", "`id`", "'2023-01-01 10:11:12.5'"),  # it may have been rounded
        ("date", "to_days(`id`)", "-5"),
        ("date", "to_days(`id`)", "99999999"),
        ("date", "unix_timestamp(`id`)", "1"),  # as the session's time zone has it
        ("time", "`id`", "'10:00:00'"),
        ("varchar", "`id`", "'a'"),
    ],
)
def test_days_that_are_refused(kind: str, by: str, bound: str) -> None:
    with pytest.raises(PartitionsUnclearError):
        layout(("a", bound), by=by).rows(["a"], table(ColumnType(name=kind)), POLICY)


@pytest.mark.parametrize(("plain", "odd"), [("ss", "ß"), ("fi", "ﬁ"), ("k", "\N{KELVIN SIGN}")])
def test_names_that_only_look_alike(plain: str, odd: str) -> None:
    """A server has both, and takes ß neither for ss nor for SS."""
    both = layout((plain, "10"), (odd, "20"))
    assert spans(both, plain.upper()) == [(None, 10)]
    with pytest.raises(PartitionsUnclearError, match="are not known"):
        spans(layout((odd, "20")), plain)


def test_days_as_text_are_refused() -> None:
    policy = InvalidValuePolicy(zero_dates="text")
    with pytest.raises(PartitionsUnclearError):
        layout(("a", "1"), by="year(`id`)").rows(["a"], table(ColumnType(name="date")), policy)


def test_numbers_from_2_63_on_are_shown_as_negative_ones() -> None:
    schema = table(ColumnType(name="bigint", unsigned=True))
    with pytest.raises(PartitionsUnclearError, match="-5"):
        layout(("a", "-5")).rows(["a"], schema, POLICY)


def test_the_other_rows() -> None:
    gone = RowRange("id", pa.int32(), ((None, 10), (20, 30)))
    rows = pa.table({"id": pa.array([-5, 9, 10, 19, 20, 29, 30], pa.int32())})
    assert gone.others(rows).column("id").to_pylist() == [10, 19, 30]
    with pytest.raises(PartitionsUnclearError, match="a row has no id"):
        gone.others(pa.table({"id": pa.array([1, None], pa.int32())}))


def file(low: object, high: object, nulls: object = 0) -> dict[str, Any]:
    return {"minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": nulls}}


def test_a_file_by_its_statistics() -> None:
    gone = RowRange("id", pa.int32(), ((10, 20), (20, 30)))
    assert gone.covers(file(10, 19)) is True
    assert gone.covers(file(20, 29)) is True
    assert gone.covers(file(0, 9)) is False
    assert gone.covers(file(30, 99)) is False
    for some in (file(9, 10), file(29, 30), file(0, 99), file(10, 25)):
        assert gone.covers(some) is None
    for untold in (file(0, 9, 1), file(0, 9, None), file(None, 9), file(0.0, 9.0), file("0", "9")):
        assert gone.covers(untold) is None
    assert gone.covers({}) is None


def test_moments_in_statistics_are_rounded() -> None:
    gone = RowRange("id", pa.timestamp("us"), ((None, datetime.fromisoformat("2023-01-01 12:00")),))
    assert gone.covers(file("2023-01-01T11:59:59.900", "2023-01-01T11:59:59.998")) is True
    assert gone.covers(file("2023-01-01T11:59:59.900", "2023-01-01T11:59:59.999")) is None
    assert gone.covers(file("2023-01-01T12:00:00.001Z", "2024-01-01T11:59:59.998Z")) is False
    assert gone.covers(file("2023-01-01T12:00:00.000Z", "2024-01-01T11:59:59.998Z")) is None
    assert gone.covers(file("garbage", "2023-01-01T11:59:59.998")) is None
