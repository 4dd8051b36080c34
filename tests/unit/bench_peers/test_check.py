"""What counts as a wrong row."""

from __future__ import annotations

import pyarrow as pa

from bench.peers.check import normal, sums_of, wrong_rows


def _table(rows: list[tuple[int, str | None, int]]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "name": pa.array([row[1] for row in rows], pa.string()),
            "code": pa.array(["c" for _ in rows], pa.string()),
            "amount": pa.array([row[2] for row in rows], pa.int64()),
            "placed": pa.array([7 for _ in rows], pa.int64()),
            "price": pa.array([1 for _ in rows], pa.int64())
            .cast(pa.decimal128(21, 2))
            .cast(pa.decimal128(18, 2)),
        }
    )


def test_same_rows_in_another_order_are_right() -> None:
    source = _table([(1, "a", 1), (2, None, 2)])
    target = _table([(2, None, 2), (1, "a", 1)])
    assert wrong_rows(source, target) == {"missing": 0, "extra": 0, "different": 0}


def test_missing_extra_doubled_and_different_rows_are_counted() -> None:
    source = _table([(1, "a", 1), (2, "b", 2), (3, "c", 3), (4, None, 4)])
    target = _table([(1, "a", 1), (1, "a", 1), (2, "b", 20), (4, "d", 4), (9, "x", 9)])
    assert wrong_rows(source, target) == {"missing": 1, "extra": 2, "different": 2}


def test_an_empty_copy_lacks_everything() -> None:
    assert wrong_rows(_table([(1, "a", 1)]), _table([])) == {
        "missing": 1,
        "extra": 0,
        "different": 0,
    }


def test_types_of_a_peer_are_brought_to_one_form() -> None:
    found = normal(
        pa.table(
            {
                "id": pa.array([1], pa.int32()),
                "name": pa.array(["a"], pa.large_string()),
                "code": pa.array(["c"]),
                "amount": pa.array([5], pa.int32()),
                "placed": pa.array([7_000_000], pa.timestamp("us")),
                "price": pa.array([1.1], pa.float64()),
            }
        )
    )
    assert found.to_pylist()[0]["placed"] == 7_000_000
    assert str(found.to_pylist()[0]["price"]) == "1.10"
    assert found.schema.field("name").type == pa.string()


def test_sums() -> None:
    assert sums_of(_table([(1, "a", 10), (2, "b", 20)])) == {"count": 2, "ids": 3, "amounts": 30}
