"""Where chunks are read: in Spark tasks, or in this process.

Lives here: handing a request to a task and its outcome back; what is read without a task. An error
of ours comes back as a value, so that Spark neither retries it nor wraps it in a Java trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ratchet.core.errors import RatchetError
from ratchet.snapshot.keys import ChunkRange
from ratchet.snapshot.reader import FIRST_BYTES, ChunkRequest, ChunkResult, read_chunk
from ratchet.store.workerlog import WorkerLine, kept_lines, tell_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ReadChunk = Callable[[ChunkRequest], ChunkResult]
_Told = tuple[ChunkResult | RatchetError, list[WorkerLine]]

# Of a chunk that is read here: what that costs this process is less than what a Spark job does.
_FEW_ROWS: Final = 10_000
_FEW_BYTES: Final = 4 << 20


def near_reader(far: ReadChunk) -> ReadChunk:
    """Read the beginning of a table that was not worth splitting here, and all else by `far`.

    Most tables of most schemas are small, and that beginning is all of them. May be called from
    several threads.
    """

    def read(request: ChunkRequest) -> ChunkResult:
        # A table that nothing bounds is read in one statement, however large it is.
        if request.keys != ChunkRange() or not request.plan.walkable:
            return far(request)
        limits = replace(
            request.limits,
            rows=min(_FEW_ROWS, request.limits.rows),
            bytes=min(_FEW_BYTES, request.limits.bytes),
            # The first SELECT was to be as large as a task's by the server's estimate of a row.
            first_rows=max(1, request.limits.first_rows * _FEW_BYTES // FIRST_BYTES),
        )
        return read_chunk(replace(request, limits=limits))

    return read


def spark_reader(spark: SparkSession) -> ReadChunk:
    """Read each chunk in a Spark job of one task; may be called from several threads.

    Raises (the function it returns): what `read_chunk` raises.
    """

    def read(request: ChunkRequest) -> ChunkResult:
        context = spark.sparkContext
        context.setJobDescription(
            f"{request.schema.name} from {request.config.shard}: chunk {request.number}"
        )
        # The request is the task's, not its data, which PySpark writes to a file: it holds a
        # password.
        tasks = context.parallelize(range(1), 1)
        ((outcome, lines),) = tasks.mapPartitions(partial(_task, request)).collect()
        tell_again(lines)
        if isinstance(outcome, RatchetError):
            raise outcome
        return outcome

    return read


def _task(request: ChunkRequest, _: Iterable[int]) -> Iterable[_Told]:
    with kept_lines() as lines:
        outcome = _outcome(request)
    yield outcome, lines


def _outcome(request: ChunkRequest) -> ChunkResult | RatchetError:
    try:
        return read_chunk(request)
    except RatchetError as error:
        return error
