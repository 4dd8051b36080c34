"""Rows of a Parquet file come in batches of bounded memory."""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratchet.store import batches
from ratchet.store.batches import row_batches


def written(values: list[str], *, group: int) -> pq.ParquetFile:
    sink = BytesIO()
    table = pa.table({"n": range(len(values)), "v": values})
    pq.write_table(table, sink, row_group_size=group, use_dictionary=False)
    return pq.ParquetFile(sink)


def test_large_rows_come_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_BYTES", 1000)
    found = list(row_batches(written(["a" * 600] * 5, group=5)))
    assert [one.num_rows for one in found] == [1] * 5
    assert [n for one in found for n in one["n"].to_pylist()] == list(range(5))


@pytest.mark.parametrize("group", [1, 3, 100, 30_000])
def test_small_rows_come_many_at_once(group: int) -> None:
    found = list(row_batches(written([str(n) for n in range(25_000)], group=group), ["v"]))
    assert [v for one in found for v in one["v"].to_pylist()] == [str(n) for n in range(25_000)]
    assert max(one.num_rows for one in found) == min(group, 10_000)
    assert found[0].schema.names == ["v"]


def test_no_rows() -> None:
    assert not [one for one in row_batches(written([], group=1)) if one.num_rows]
