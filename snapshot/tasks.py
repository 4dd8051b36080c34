"""Where chunks are read: in Spark tasks, or in this process.

Lives here: handing a request to a task and its outcome back. An error of ours comes back as a
value, so that Spark neither retries it nor wraps it in a Java trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from core.errors import RatchetError
from snapshot.reader import ChunkRequest, ChunkResult, read_chunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ReadChunk = Callable[[ChunkRequest], ChunkResult]


def spark_reader(spark: SparkSession) -> ReadChunk:
    """Read each chunk in a Spark job of one task; may be called from several threads.

    Raises (the function it returns): what `read_chunk` raises.
    """
    context = spark.sparkContext

    def read(request: ChunkRequest) -> ChunkResult:
        context.setJobDescription(
            f"{request.schema.name} from {request.config.shard}: chunk {request.number}"
        )
        # The request is the task's, not its data, which PySpark writes to a file: it holds a
        # password.
        tasks = context.parallelize(range(1), 1)
        (outcome,) = tasks.mapPartitions(partial(_task, request)).collect()
        if isinstance(outcome, RatchetError):
            raise outcome
        return outcome

    return read


def _task(request: ChunkRequest, _: Iterable[int]) -> Iterable[ChunkResult | RatchetError]:
    try:
        yield read_chunk(request)
    except RatchetError as error:
        yield error
