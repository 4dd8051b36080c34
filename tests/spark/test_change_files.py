"""Change files as Spark reads them, in its merges and for whoever asks the change log by SQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from change_kit import TOKEN, WHOLE, whole_numbers
from event_kit import SHARD
from pyspark.errors import PythonException

from ratchet.core.change import captured_schema
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.ingest.changes import TableChanges
from ratchet.ingest.files import ChangeFileWriter
from ratchet.merge.delta import plain_session
from ratchet.merge.reduce import read_changes
from ratchet.merge.shape import Shape
from ratchet.store.formats import open_lake
from ratchet.store.segments import missing, object_of, part_of
from tests.merge_kit import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_whole_numbers_are_as_they_were_written(
    spark: SparkSession, tmp_path: Path, vectorized: str
) -> None:
    """By both of its readers: the one by columns, and the one by rows for what that cannot."""
    lake = open_lake(tmp_path / "lake", now=1)
    files = ChangeFileWriter(lake, shard=SHARD, round_number=1)
    given = whole_numbers(5000)
    files.add(given)
    (written,) = files.finish()
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    # As numbers: Python has no day as far away as some of these, and no instant without a zone.
    casts = {"day": "unix_date(after.day)", "at": "unix_micros(after.at)"}
    casts["local"] = "unix_micros(CAST(after.local AS TIMESTAMP))"
    columns = [casts.get(name, f"after.{name}") for name in WHOLE]
    found = session.read.parquet(lake.hadoop_uri(written.path)).selectExpr(
        "token.seq", "token.idx", "op", "before", *columns
    )
    rows = sorted(tuple(row) for row in found.collect())
    after = given.rows["after"].combine_chunks()
    plain = [
        after.field(name).cast("int64" if kind.bit_width == 64 else "int32").to_pylist()
        for name, (kind, _) in WHOLE.items()
    ]
    expected = [
        (n, 2**41 - n, 1, None, *values) for n, values in enumerate(zip(*plain, strict=True))
    ]
    assert rows == expected


def captured(table: str, first: int, count: int, columns: pa.Schema) -> TableChanges:
    """Inserts, updates and deletes, in turn, of rows with any values."""
    rng = random.Random(first)
    draw: dict[str, Callable[[int], Any]] = {
        "id": lambda n: n,
        "a.b`c": lambda n: rng.choice([None, "", "ä", f"{n}"]),
        "raw": lambda _: rng.choice([None, b"", rng.randbytes(5)]),
        "price": lambda _: rng.choice([None, Decimal("-1.25"), Decimal("99999999.99")]),
        "f": lambda _: rng.choice([None, 1.5, -0.0]),
        "flag": lambda _: rng.choice([None, True, False]),
        "day": lambda _: date(2020, 1, rng.randint(1, 31)),
        "at": lambda n: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=n),
        "local": lambda n: datetime(1, 1, 1) + timedelta(microseconds=n),  # noqa: DTZ001 - it has none
    }
    rows = []
    for n in range(first, first + count):
        one, other = ({name: draw[name](n) for name in columns.names} for _ in "ab")
        images = ((None, one), (one, other), (other, None))[n % 3]
        token = {**TOKEN, "seq": n, "idx": 0}
        rows.append(
            {
                "op": n % 3 + 1,
                "token": token,
                "before": images[0],
                "after": images[1],
                "silent": True,
            }
        )
    described = tuple(Column(name=name, type=ColumnType(name="bigint")) for name in columns.names)
    return TableChanges(
        schema=TableSchema(keyspace="shop", table=table, columns=described, key=("id",)),
        rows=pa.Table.from_pylist(rows, schema=captured_schema(columns)),
        min_seq=first, max_seq=first + count - 1, counts=(count, 0, 0), misfits={},
    )  # fmt: skip


def test_parts_of_segments_are_read_as_files_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every type, names with dots, files of before a column came; alone, in parts, and mixed."""
    now = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False), pa.field("a.b`c", pa.string()),
            pa.field("raw", pa.binary()), pa.field("price", pa.decimal128(10, 2)),
            pa.field("f", pa.float64()), pa.field("flag", pa.bool_()), pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("local", pa.timestamp("us")),
        ]
    )  # fmt: skip
    before = pa.schema([field for field in now if field.name != "flag"])
    lake = open_lake(tmp_path / "lake", now=1)
    paths: dict[bool, list[str]] = {True: [], False: []}
    for apart in paths:
        monkeypatch.setattr("ratchet.ingest.segment.LARGEST", 0 if apart else 1 << 20)
        for number in range(5):
            files = ChangeFileWriter(lake, shard=SHARD, round_number=number + 1)
            for table in "tu":
                columns = now if number > 1 else before
                files.add(captured(table, 1000 * number, 7 * number + 1, columns))
            paths[apart] += [file.path for file in files.finish() if file.table == "t"]
    assert [part_of(path) is None for path in paths[True]] == [True] * 5
    assert [part_of(path) is None for path in paths[False]] == [False] * 5
    schema = captured("t", 0, 1, now).schema
    shape = Shape(schema, now, ("id",), many_shards=False, shard_in_key=False)
    session = plain_session(spark)

    def found(*some: str) -> list[Any]:
        frame = read_changes(session, lake, some, shape)
        assert frame.schema == shape.change_type.toNullable()
        assert frame.collect() == frame.collect(), "computed again"
        return sorted(frame.collect(), key=lambda row: row["token"]["seq"])

    plain = found(*paths[True])
    assert len(plain) == sum(7 * number + 1 for number in range(5))
    assert found(*paths[False]) == plain
    assert found(*paths[True][:2], *paths[False][2:]) == plain
    assert found(paths[False][4]) == found(paths[True][4])


def test_a_part_that_is_gone_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """In the words of a task that failed; the merge then looks whose changes are gone."""
    source = Source(tmp_path)
    source.in_segments = 1
    source.tx("-", ("put", {"id": 1, "v": "x"}))
    source.round()
    (file,) = source.rounds.since(0)[0].files
    source.lake.delete(object_of(file.path))
    shape = Shape(source.schema, source.columns, ("id",), many_shards=False, shard_in_key=False)
    frame = read_changes(plain_session(spark), source.lake, [file.path], shape)
    with pytest.raises(PythonException, match="No such file"):
        frame.collect()
    assert missing(source.lake, [file.path]) == [file.path]
