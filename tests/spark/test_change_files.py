"""Change files as Spark reads them, in its merges and for whoever asks the change log by SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from change_kit import WHOLE, whole_numbers
from event_kit import SHARD

from ingest.files import ChangeFiles
from store.files import open_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_whole_numbers_are_as_they_were_written(
    spark: SparkSession, tmp_path: Path, vectorized: str
) -> None:
    """By both of its readers: the one by columns, and the one by rows for what that cannot."""
    lake = open_lake(tmp_path / "lake", now=1)
    files = ChangeFiles(lake, shard=SHARD, round_number=1)
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
