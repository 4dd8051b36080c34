"""File statistics: never a bound that would hide a row."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.store.delta.stats import MAX_TEXT, file_stats


def _stats(values: list[Any], kind: pa.DataType, *, group: int = 2) -> dict[str, Any]:
    table = pa.table({"k": pa.array(values, kind), "o": pa.nulls(len(values), pa.int32())})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group)
    found: dict[str, Any] = json.loads(
        file_stats(pq.read_metadata(io.BytesIO(sink.getvalue())), ["k"]), parse_float=Decimal
    )
    assert found["numRecords"] == len(values)
    return found


@settings(deadline=None)
@given(st.lists(st.text(max_size=70), min_size=1, max_size=8))
def test_strings_lie_between_their_bounds(values: list[str]) -> None:
    """In the order of UTF-8 bytes every value is between the bounds, which stay short."""
    found = _stats(values, pa.string())
    low, high = found["minValues"]["k"], found["maxValues"].get("k")
    assert all(low.encode() <= value.encode() for value in values)
    assert len(low) <= MAX_TEXT
    if high is not None:
        assert all(value.encode() <= high.encode() for value in values)
        assert len(high) <= MAX_TEXT + 1


@settings(deadline=None)
@given(st.lists(st.datetimes(datetime(1000, 1, 1), datetime(9998, 12, 31)), min_size=1))  # noqa: DTZ001
def test_moments_are_widened_to_milliseconds(values: list[datetime]) -> None:
    """Bounds have whole milliseconds, and still hold every microsecond."""
    found = _stats(values, pa.timestamp("us"))
    low = datetime.fromisoformat(found["minValues"]["k"])
    high = datetime.fromisoformat(found["maxValues"]["k"])
    assert low <= min(values)
    assert max(values) <= high
    assert max(high - max(values), min(values) - low) < timedelta(milliseconds=1)


def test_moments_in_utc_say_so() -> None:
    """A timestamp's bound ends in Z, a plain one's does not."""
    value = datetime(2024, 1, 1, tzinfo=UTC)
    found = _stats([value], pa.timestamp("us", tz="UTC"))
    assert found["minValues"]["k"] == "2024-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("values", "kind", "low", "high"),
    [
        ([3, -1, None, 7], pa.int64(), -1, 7),
        ([Decimal(2**64 - 1), Decimal(5)], pa.decimal128(20, 0), 5, 2**64 - 1),
        (
            [Decimal("-0.10"), Decimal("9.99")],
            pa.decimal128(38, 2),
            Decimal("-0.10"),
            Decimal("9.99"),
        ),
        ([date(2024, 2, 29), date(1000, 1, 1)], pa.date32(), "1000-01-01", "2024-02-29"),
        ([date(1, 1, 1), date(2024, 1, 1)], pa.date32(), None, "2024-01-01"),
        ([b"x"], pa.binary(), None, None),
        ([1.5], pa.float64(), None, None),
        ([None, None], pa.int64(), None, None),
    ],
)
def test_values_of_each_type(values: list[Any], kind: pa.DataType, low: Any, high: Any) -> None:
    """Bounds are exact or left out; nulls are counted over all row groups."""
    found = _stats(values, kind)
    assert (found["minValues"].get("k"), found["maxValues"].get("k")) == (low, high)
    assert found["nullCount"] == {"k": values.count(None)}


def test_a_value_that_the_footer_leaves_out() -> None:
    """Where one row group does not tell its bounds, the file does not either."""
    found = _stats(["a", "b" * 9000], pa.string(), group=1)
    assert "k" not in found["maxValues"] or found["maxValues"]["k"] >= "b" * MAX_TEXT
