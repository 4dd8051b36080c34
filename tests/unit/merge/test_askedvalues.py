"""Values that were read again, put to the mirror's rows by their keys."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratchet.core.errors import LakeError
from ratchet.core.reshaping import NotComputableError
from ratchet.merge.askedvalues import AskedValues
from ratchet.store.files import Lake


def loaded(folder: Path, key: list[str], *tables: pa.Table) -> AskedValues:
    lake = Lake.at(folder)
    for number, table in enumerate(tables):
        pq.write_table(table.append_column("_token", pa.nulls(len(table))), folder / f"{number}")
    names = [str(number) for number in range(len(tables))]
    return AskedValues.load(lake, names, tables[0].schema, key)


KEYS: dict[str, pa.Array] = {
    "numbers": pa.array([7, -3, 2**63 - 1, 0], pa.int64()),
    "texts": pa.array(["b", "a", "B", "\U0001f600", "\uffff", ""]),
    "bytes": pa.array([b"\xff", b"", b"\x00", b"a"], pa.binary()),
    "decimals": pa.array([Decimal("1.50"), Decimal("-7.25")], pa.decimal128(9, 2)),
    "days": pa.array([dt.date(2024, 2, 29), dt.date(1000, 1, 1)], pa.date32()),
    "times": pa.array([dt.datetime(2024, 2, 29, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
    "flags": pa.array([True, False]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_each_row_gets_the_value_of_its_key(tmp_path: Path, kind: str) -> None:
    keys = KEYS[kind]
    values = pa.array(range(len(keys)), pa.int32())
    found = loaded(tmp_path, ["id"], pa.table({"id": keys, "x": values}))
    back = list(range(len(keys)))[::-1]
    assert found.find(pa.table({"id": keys.take(back)})).to_pydict() == {"x": back}
    assert found.find(pa.table({"id": keys[:1]})).to_pydict() == {"x": [0]}
    assert found.find(pa.table({"id": keys[:0]})).num_rows == 0


def test_what_the_source_no_longer_has_is_null(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 5, 9], "x": ["one", None, "nine"]})
    found = loaded(tmp_path, ["id"], table)
    asked = pa.table({"id": [0, 1, 2, 5, 9, 10]})
    assert found.find(asked)["x"].to_pylist() == [None, "one", None, None, "nine", None]
    assert found.find(pa.table({"id": [3, 4]}))["x"].to_pylist() == [None, None]
    assert loaded(tmp_path, ["id"], table[:0]).find(asked)["x"].null_count == 6


def test_keys_of_several_columns_under_any_names(tmp_path: Path) -> None:
    """Also those that Arrow reads as parts of another."""
    names = [".a", "a", "a.b", "[k0]"]
    dice = random.Random(7)
    every = [(n, f"{n % 3}") for n in range(200)]
    rows: list[dict[str, Any]] = [
        {".a": n, "a": text, "a.b": n * 2, "[k0]": f"v{n}"} for n, text in every
    ]
    dice.shuffle(rows)
    tables = [pa.Table.from_pylist(part).select(names) for part in (rows[:50], rows[50:])]
    found = loaded(tmp_path, [".a", "a"], *tables)
    wanted = [dice.choice(every) for _ in range(300)] + [(3, "1")]
    asked = pa.table({".a": [n for n, _ in wanted], "a": [text for _, text in wanted]})
    assert found.find(asked).to_pydict() == {
        "a.b": [*(n * 2 for n, _ in wanted[:-1]), None],
        "[k0]": [*(f"v{n}" for n, _ in wanted[:-1]), None],
    }


def test_a_key_that_is_there_twice(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "x": [1, 2]})
    with pytest.raises(NotComputableError, match="same key"):
        loaded(tmp_path, ["id"], table, table[:1])


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    columns = pa.schema({"id": pa.int64()})
    with pytest.raises(LakeError, match="gone"):
        AskedValues.load(Lake.at(tmp_path), ["gone"], columns, ["id"])
