"""Pieces of a source against a mirror: what is a suspect, without a server and without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from ratchet.core.change import TOKEN_COLUMN
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.snapshot.keys import ChunkRange
from ratchet.snapshot.mirror import MirrorAt, MirrorReader
from ratchet.snapshot.piecewise import (
    ComparisonSpec,
    Piece,
    bounds_of,
    rows_of,
    strangers,
    suspects,
)
from ratchet.snapshot.prints import RowHasher
from ratchet.store.delta.stats import file_stats
from ratchet.store.files import Lake

HERE = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
LEFT, RIGHT = "shop/-80", "shop/80-"
ROWS = 40
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [n - 20 for n in range(ROWS)]),
    "big": (pa.int64(), [n * 10**17 - 10**18 + n for n in range(ROWS)]),
    "unsigned": (pa.decimal128(20, 0), [Decimal(2**64 - 1 - n * 10**16) for n in range(ROWS)]),
    "wide": (pa.decimal128(38, 4), [Decimal(10**33 - 7 * n) for n in range(ROWS)]),
    "digits": (pa.decimal128(12, 3), [Decimal(n - 20) / 8 for n in range(ROWS)]),
    "words": (pa.string(), [f"{'aÄzÿ😀'[n % 5]}'\"\\{n}" for n in range(ROWS)]),
    "bytes": (pa.binary(), [bytes([n * 6, 0, 39]) for n in range(ROWS)]),
    "days": (pa.date32(), [date(1000 + 99 * n, 1, 2) for n in range(ROWS)]),
    "moments": (
        pa.timestamp("us", "UTC"),
        [datetime(1969, 12, 31, tzinfo=UTC) + n * timedelta(hours=1.0000001) for n in range(ROWS)],
    ),
    "plain": (
        pa.timestamp("us"),
        [datetime(1, 1, 1) + timedelta(days=9999 * n, microseconds=1) for n in range(ROWS)],  # noqa: DTZ001
    ),
}  # fmt: skip


def compared(types: pa.Schema, key: Sequence[str], *, shard_in_key: bool = False) -> ComparisonSpec:
    return ComparisonSpec(
        printer=RowHasher(types=types, key=tuple(key)),
        lacking=(),
        homes={LEFT: {LEFT, "shop/-"}, RIGHT: {RIGHT}},
        shard_in_key=shard_in_key,
    )


def mirrored(folder: Path, rows: pa.Table, shards: Sequence[str | None]) -> MirrorReader:
    """A Delta table of these rows, each under a shard's name, in several files."""
    token = pa.array([None if s is None else {"shard": s} for s in shards],
                     pa.struct([pa.field("shard", pa.string())]))  # fmt: skip
    whole = rows.append_column(TOKEN_COLUMN, token)
    # Statistics as Ratchet writes them; deltalake's own of large decimals are wrong.
    write_deltalake(str(folder / "t"), whole.slice(0, 0))
    for at in range(0, whole.num_rows, 15):
        file = folder / "t" / f"part-{at}.parquet"
        pq.write_table(whole.slice(at, 15), file)
        stats = file_stats(pq.read_metadata(file), rows.column_names)
        delta = DeltaTable(str(folder / "t"))
        action = AddAction(file.name, file.stat().st_size, {}, 1, data_change=True, stats=stats)
        delta.create_write_transaction([action], "append", delta.schema(), [])
    return MirrorReader(Lake.at(folder), MirrorAt(path="t", version=-(-whole.num_rows // 15)))


def piece(rows: pa.Table, how: ComparisonSpec, shard: str = LEFT) -> Piece:
    (batch,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    return Piece(
        shard=shard, rest=ChunkRange(), keys=rows.select(how.key),
        marks=how.keys_of(batch, [shard]), prints=how.printer.prints(batch), filled=(),
        seen=HERE, seconds=0.0,
    )  # fmt: skip


def table(kind: pa.DataType, values: list[Any]) -> pa.Table:
    types = pa.schema([pa.field("k", kind), pa.field("v", pa.int32())])
    rows = {"k": values, "v": list(range(len(values)))}
    return pa.Table.from_pydict(rows, schema=types)


@pytest.mark.parametrize("name", VALUES)
def test_keys_of_each_type_are_found_by_their_bounds(tmp_path: Path, name: str) -> None:
    rows = table(*VALUES[name])
    how = compared(rows.schema, ["k"])
    mirror = mirrored(tmp_path, rows, [LEFT] * ROWS)
    for first, last in ((0, ROWS), (7, 9), (ROWS - 1, ROWS)):
        some = rows.slice(first, last - first)
        assert bounds_of(some.select(["k"]), mirror), "else every piece reads the whole mirror"
        assert suspects(piece(some, how), mirror, how).num_rows == 0
        found = [row for batch in rows_of(mirror, how, some.select(["k"]), [LEFT]) for row in
                 batch.column("v").to_pylist()]  # fmt: skip
        assert sorted(found) == list(range(first, last))


def test_what_differs_is_a_suspect(tmp_path: Path) -> None:
    source = table(pa.int64(), list(range(10)))
    how = compared(source.schema, ["k"])
    changed = source.to_pylist()
    changed[3]["v"] = 99
    changed[4]["v"] = None
    del changed[7]
    shards: list[str | None] = [LEFT] * 9
    shards[0] = "shop/-"  # what it descends from
    shards[1] = RIGHT
    shards[2] = None
    changed.append(changed[5])
    mirror = mirrored(tmp_path, pa.Table.from_pylist(changed, source.schema), [*shards, LEFT])
    assert suspects(piece(source, how), mirror, how).column("k").to_pylist() == [1, 2, 3, 4, 5, 7]


def test_rows_that_no_piece_had(tmp_path: Path) -> None:
    rows = table(pa.int64(), list(range(30)))
    how = compared(rows.schema, ["k"])
    mirror = mirrored(tmp_path, rows, [LEFT] * 30)
    seen = [piece(rows.slice(0, 10), how).marks, piece(rows.slice(11, 18), how).marks]
    for parts in (1, 7):
        found = pa.concat_tables(strangers(mirror, how, seen, parts=parts))
        assert sorted(found.column("k").to_pylist()) == [10, 29]
    nothing: list[np.ndarray[Any, np.dtype[np.uint64]]] = []
    assert pa.concat_tables(strangers(mirror, how, nothing, parts=1)).num_rows == 30


def test_the_shard_is_part_of_the_key(tmp_path: Path) -> None:
    rows = table(pa.int64(), [1, 2, 1, 2])
    how = compared(rows.schema, ["k"], shard_in_key=True)
    mirror = mirrored(tmp_path, rows, [LEFT, LEFT, RIGHT, LEFT])
    left, right = piece(rows.slice(0, 2), how), piece(rows.slice(2, 2), how, RIGHT)
    assert suspects(left, mirror, how).column("k").to_pylist() == [2], "it is there twice"
    assert suspects(right, mirror, how).column("k").to_pylist() == [2]
    marks: Iterator[Any] = iter([left.marks, right.marks])
    found = pa.concat_tables(strangers(mirror, how, marks, parts=1))
    assert found.num_rows == 0


def test_a_composite_key_and_an_empty_mirror(tmp_path: Path) -> None:
    types = pa.schema([pa.field("a", pa.int32()), pa.field("b", pa.string())])
    rows = pa.Table.from_pylist([{"a": n % 3, "b": f"{n}"} for n in range(9)], types)
    how = compared(types, ["b", "a"])
    mirror = mirrored(tmp_path / "full", rows, [LEFT] * 9)
    assert suspects(piece(rows, how), mirror, how).num_rows == 0
    empty = mirrored(tmp_path / "empty", rows.slice(0, 0), [])
    assert suspects(piece(rows, how), empty, how).num_rows == 9
