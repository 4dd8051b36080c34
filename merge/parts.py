"""Parts of segments as a frame of Spark's, which itself reads whole objects only.

Lives here: the tasks that read them. Does not live here: change files of their own (`reduce`).

Invariant: nothing is written for it. Each time the frame is computed its tasks read the parts, as
they would read files: a step that is killed leaves nothing behind, and a frame holds as long as
the objects do that it was made from: an hour at least (`bundle.BundleLimits`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratchet.core.change import change_schema
from ratchet.merge.fitted import fitted_table
from ratchet.merge.shape import Shape
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake
from ratchet.store.segments import SegmentPart, open_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHANGE_BYTES: Final = 32  # in a change file, about


def read_parts(
    session: SparkSession, lake: Lake, parts: Sequence[SegmentPart], shape: Shape
) -> DataFrame:
    """The changes in those parts (core.change.change_schema).

    Args:
        session: where the query runs.
        lake: where they are; its credentials are in the environment of Spark's workers, too.
        parts: at least one.
        shape: the table's.
    """
    # Spark takes the size of what comes by the rows that go in, and joins accordingly: so there
    # are about as many numbers as changes, and each part is read where its number comes by.
    rows = max(len(parts), sum(part.length for part in parts) // _CHANGE_BYTES)
    places = {at * rows // len(parts): str(part) for at, part in enumerate(parts)}
    tasks = min(len(parts), session.sparkContext.defaultParallelism)
    read = partial(_read, lake, places, change_schema(shape.columns))
    return session.range(0, rows, 1, tasks).mapInArrow(read, shape.change_type.toNullable())


def _read(
    lake: Lake, places: Mapping[int, str], wanted: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    numbers = pa.array(places, pa.int64())
    wanted = pa.schema([field.with_nullable(True) for field in wanted])
    for batch in batches:
        for number in batch.column(0).filter(pc.is_in(batch.column(0), numbers)).to_pylist():
            path = places[number]
            with data_file_errors(lake, path, "change"):
                with open_changes(lake, path) as stream:
                    found = pq.ParquetFile(stream).read(columns=wanted.names)
                yield from fitted_table(found, wanted).to_batches()
