"""Change files read back; changes whose whole numbers are as far apart as they can be."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.core.change import INSERT, TOKEN_TYPE, change_schema
from ratchet.core.rounds import ChangeFile
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.ingest.changes import TableChanges
from ratchet.store.files import Lake
from ratchet.store.segments import SegmentPart, open_changes, read_changes

TOKEN = {"ts": 0, "shard": "s", "gtid": "g", "generation": 1, "seq": 1, "idx": 0}
# Each type that is written as differences, and the lowest and highest value that Spark can read.
WHOLE: dict[str, tuple[pa.DataType, tuple[int, int]]] = {
    "i8": (pa.int8(), (-(2**7), 2**7 - 1)),
    "i16": (pa.int16(), (-(2**15), 2**15 - 1)),
    "i32": (pa.int32(), (-(2**31), 2**31 - 1)),
    "i64": (pa.int64(), (-(2**63), 2**63 - 1)),
    "day": (pa.date32(), (-719_162, 2_932_896)),
    "at": (pa.timestamp("us", tz="UTC"), (-62_135_596_800_000_000, 253_402_300_799_999_999)),
    "local": (pa.timestamp("us"), (-62_135_596_800_000_000, 253_402_300_799_999_999)),
}


def read_file(lake: Lake, file: ChangeFile, columns: list[str] | None = None) -> pa.Table:
    """The rows of a change file, whether it lies alone or in a segment."""
    with open_changes(lake, file.path) as stream:
        return pq.read_table(stream, columns=columns)


def in_a_segment(lake: Lake, file: ChangeFile) -> ChangeFile:
    """The same changes between others in a segment, and in no file of their own."""
    content = read_changes(lake, file.path).to_pybytes()
    lake.delete(file.path)
    part = SegmentPart(f"{file.path}.segment", 6, len(content))
    with lake.open_output(part.path) as sink:
        sink.write(b"before" + content + b"behind")
    return replace(file, path=str(part))


def whole_numbers(count: int) -> TableChanges:
    """So many inserts: the ends of each type, small numbers, NULLs and any others, mixed."""
    rng = random.Random(count)
    columns = tuple(Column(name=name, type=ColumnType(name="bigint")) for name in WHOLE)
    schema = pa.schema([pa.field(name, kind) for name, (kind, _) in WHOLE.items()])
    arrays = [
        pa.array([rng.choice([*ends, 0, 1, None, rng.randint(*ends)]) for _ in range(count)], kind)
        for kind, ends in WHOLE.values()
    ]
    image = pa.StructArray.from_arrays(arrays, fields=list(schema))
    token = pa.array([{**TOKEN, "seq": n, "idx": 2**41 - n} for n in range(count)], TOKEN_TYPE)
    op = pa.array([INSERT] * count, pa.int8())
    return TableChanges(
        schema=TableSchema(keyspace="shop", table="a", columns=columns, key=("i64",)),
        rows=pa.Table.from_arrays(
            [op, token, pa.nulls(count, image.type), image], schema=change_schema(schema)
        ),
        min_seq=0,
        max_seq=count - 1,
        counts=(count, 0, 0),
        misfits={},
    )
