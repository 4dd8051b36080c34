"""Rounds: one Spark job takes a slice of every shard, one commit makes them a round.

Lives here: `RoundTaker`, which starts the job, joins what came, and appends to the round log. Does
not live here: slices (`capture`), the log (`store.rounds`), when to try again (jobs).

Invariant: the slices of a shard follow each other without a gap over all committed rounds; what
was read but not worth a commit is carried into the next one.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ratchet.core.errors import BugError, RatchetError, RetryableError
from ratchet.core.position import Position
from ratchet.core.rounds import Round, ShardSlice
from ratchet.ingest.binlog.notes import join_runs
from ratchet.ingest.capture import capture_slice, close_streams
from ratchet.ingest.slices import CaptureRequest, CaptureResult
from ratchet.store.crashpoints import reach
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import object_of
from ratchet.store.workerlog import WorkerLine, kept_lines, tell_again

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log: Final = logging.getLogger(__name__)

_WORKERS: Final = "RATCHET_WORKERS"
_MUCH: Final = 4 << 20  # bytes of the logs in a round

# Given a round's slices and the shards that failed, whether it counts.
Accepts = Callable[[Sequence[ShardSlice], Collection[str]], bool]
Runner = Callable[[Sequence[CaptureRequest]], Sequence[CaptureResult]]
_Told = tuple[list[CaptureResult], list[WorkerLine]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """What one call came to.

    Attributes:
        committed: the round, None if there was nothing worth a commit.
        errors: shard -> why it could not take part; the others did.
        positions: shard -> where its capture stands now, committed or not.
        caught_up: shards whose stream had nothing more to give.
        slices: what was read just now, committed or not.
        refused: whether what was read does not count: all stands where it stood.
        broken: shard -> why its stream had to be opened anew meanwhile, each time.
    """

    committed: Round | None
    errors: Mapping[str, RatchetError] = field(default_factory=dict)
    positions: Mapping[str, Position] = field(default_factory=dict)
    caught_up: Collection[str] = ()
    slices: Sequence[ShardSlice] = ()
    refused: bool = False
    broken: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class RoundTaker:
    """Takes one round after the other for one lake. Not for several threads at once.

    Args:
        round_log: where rounds are committed.
        run: takes the slices side by side: `spark_runner` or, without Spark, `local_runner`.
        heartbeat_commit_seconds: rounds that move positions and hold nothing are committed only
            after this time.
        clock: wall clock in seconds.
    """

    def __init__(
        self,
        round_log: RoundLog,
        run: Runner,
        *,
        heartbeat_commit_seconds: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = round_log
        self._run = run
        self._patience = heartbeat_commit_seconds
        self._clock = clock
        self._carried: dict[str, ShardSlice] = {}
        self._bare: set[str] = set()  # those of them that were read without copies
        self._committed_at = 0.0

    @property
    def next_number(self) -> int:
        """The number of the round that `take` works on."""
        return self._log.last_number() + 1

    def position(self, shard: str) -> Position | None:
        """Where the shard's next slice has to begin; None if nothing was ever taken from it."""
        carried = self._carried.get(shard)
        return carried.end if carried else self._log.positions().get(shard)

    def take(
        self, requests: Sequence[CaptureRequest], *, accepts: Accepts = lambda *_: True
    ) -> RoundOutcome:
        """Take a slice of each shard and commit them as a round.

        Args:
            requests: one for each shard, beginning at `position` and for `next_number`.
            accepts: says whether the round counts, given its slices and the shards that failed. If
                it does not, all is as if nothing had been read.

        Raises:
            LakeError: the round cannot be committed, for instance because another process has
                committed that number meanwhile; nothing of it counts.
        """
        numbers = {request.round_number for request in requests}
        if len(numbers) != 1:
            raise BugError(f"requests for the rounds {sorted(numbers)}", operation="take a round")
        results = self._run(requests)
        errors = {result.shard: result.error for result in results if result.error is not None}
        for shard, error in errors.items():
            log.debug("no slice of %s: %s", shard, error)
        broken = {result.shard: result.broken for result in results if result.broken}
        taken = [result for result in results if result.slice is not None]
        if not accepts([r.slice for r in taken if r.slice is not None], tuple(errors)):
            lake = Lake.at(requests[0].lake)
            for path in {object_of(file.path) for result in taken for file in result.files}:
                lake.delete(path)
            return RoundOutcome(committed=None, errors=errors, refused=True, broken=broken)
        slices = [self._joined(r.slice) for r in taken if r.slice is not None]
        bare = self._bare | {result.shard for result in taken if not result.copies}
        committed = None
        if self._is_worth_it(slices, taken):
            committed = Round(
                # Not the next one by now: the slices follow the rounds before this number.
                number=numbers.pop(),
                committed_at=int(self._clock() * 1e6),
                slices=tuple(slices),
                files=tuple(file for result in taken for file in result.files),
                events=tuple(event for result in taken for event in result.events),
                copies=tuple(one.shard for one in slices if one.shard not in bare),
            )
            reach("capture.before_commit")
            self._log.append(committed)
            reach("capture.after_commit")
            self._committed_at = self._clock()
            for one in slices:
                self._carried.pop(one.shard, None)
        else:
            self._carried.update({one.shard: one for one in slices if one.end != one.start})
        self._bare = bare & self._carried.keys()
        return RoundOutcome(
            committed=committed,
            errors=errors,
            positions={one.shard: one.end for one in slices},
            caught_up=[one.shard for one in slices if one.caught_up],
            slices=[result.slice for result in taken if result.slice is not None],
            broken=broken,
        )

    def _joined(self, new: ShardSlice) -> ShardSlice:
        """The slice together with what was carried over for its shard."""
        old = self._carried.get(new.shard)
        if old is None:
            return new
        return replace(
            new,
            start=old.start,
            runs=tuple(join_runs(new.end.flavor, list(old.runs), list(new.runs))),
            transactions=old.transactions + new.transactions,
            bytes=old.bytes + new.bytes,
            min_ts=_least(old.min_ts, new.min_ts),
            max_ts=_greatest(old.max_ts, new.max_ts),
            odd_ts=old.odd_ts if new.odd_ts is None else new.odd_ts,
        )

    def _is_worth_it(self, slices: Sequence[ShardSlice], taken: Sequence[CaptureResult]) -> bool:
        if any(result.files or result.events for result in taken):
            return True
        if any(one.journal is not None for one in slices):
            return True
        moved = any(one.end.executed != one.start.executed for one in slices)
        return moved and self._clock() - self._committed_at >= self._patience


def spark_runner(spark: SparkSession, *, pool: str | None = None) -> Runner:
    """Slices in the tasks of one Spark job: one for each shard, and no more than Spark has cores.

    A task reads its shards side by side, in threads. A shard's slices are all taken by one Python
    worker, as long as Spark stays on one machine: the worker keeps the shard's stream open. Spark
    by itself gives a task to whichever worker has rested longest: with other Python tasks beside
    capture (a dump's) each round found its stream in another process, opened a new one, and had
    the server end the old one (docs/decisions/0013-who-keeps-a-stream.md). On a cluster another
    worker may take a slice: there a stream that has more to give is closed behind its slice.

    Args:
        spark: the session; needs a slot for each task.
        pool: the scheduler pool of the job.
    """
    homes: dict[str, int] = {}

    def run(requests: Sequence[CaptureRequest]) -> Sequence[CaptureResult]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if not requests:
            return []
        context: Any = spark.sparkContext
        if pool is not None:
            context.setLocalProperty("spark.scheduler.pool", pool)
        context.setJobDescription(f"capture round {requests[0].round_number}")
        if not context.master.startswith("local[") and context.master != "local":
            requests = [replace(request, moves=True) for request in requests]
        try:
            # Requests are the tasks', not their data, which PySpark writes to files: they have
            # passwords.
            parts = [
                _with_own_workers(context, f"capture {home}")
                .parallelize(range(1), 1)
                .map(partial(_in_a_worker, tuple(part)))
                for home, part in _shared_out(requests, homes, context.defaultParallelism).items()
            ]
            found: list[_Told] = context.union(parts).collect()
        except (Py4JError, PySparkException) as error:
            # A worker died, or Spark gave the job up: none of the slices counts.
            raise RetryableError(
                f"the capture job failed: {str(error)[:500]}",
                operation="take a round",
                hint="see Spark's log for what happened to its workers",
            ) from None  # its text is asked of the JVM, which may be gone when ours is printed
        for _, lines in found:
            tell_again(lines)
        return [result for part, _ in found for result in part]

    return run


def near_runner(far: Runner, *, is_far_up: Callable[[], bool]) -> Runner:
    """Slices in this process as long as they are small, and by `far` from the first large one on.

    Most of the time most sources have little to tell. A task in a process of its own is for
    streams that keep a core busy, and must not take the time of a merge; to start it takes longer
    than all that a short run has to read.

    Args:
        far: takes slices elsewhere.
        is_far_up: whether it costs nothing to begin with it.
    """
    gone = False

    def run(requests: Sequence[CaptureRequest]) -> Sequence[CaptureResult]:
        nonlocal gone
        if not gone and is_far_up():
            gone = True
            close_streams()
        if gone:
            return far(requests)
        found = _side_by_side(requests, 0) if requests else []
        gone = sum(one.slice.bytes for one in found if one.slice is not None) > _MUCH
        if gone:
            close_streams()
        return found

    return run


def _shared_out(
    requests: Sequence[CaptureRequest], homes: dict[str, int], tasks: int
) -> dict[int, list[CaptureRequest]]:
    """Task -> its requests. A shard keeps its task; a new one goes where there are fewest."""
    for request in requests:
        shard = str(request.source.shard)
        if shard not in homes:
            load = Counter(homes.values())
            homes[shard] = min(range(tasks), key=lambda number: load[number])
    parts: dict[int, list[CaptureRequest]] = {}
    for request in requests:
        parts.setdefault(homes[str(request.source.shard)], []).append(request)
    return parts


def _with_own_workers(context: SparkContext, name: str) -> SparkContext:
    """The context as one whose Python tasks share workers with nobody else.

    Workers are kept by the environment that they were started with, so a name in it is enough. It
    belongs to the context; a copy of that leaves the jobs of other threads alone.
    """
    own = object.__new__(type(context))
    own.__dict__.update(vars(context), environment={**context.environment, _WORKERS: name})
    return own


def _in_a_worker(requests: Sequence[CaptureRequest], number: int) -> _Told:
    with kept_lines() as lines:
        return _side_by_side(requests, number), lines


def _side_by_side(requests: Sequence[CaptureRequest], _: int) -> list[CaptureResult]:
    """Take slices in threads: they mostly wait for their servers, and kernels run by themselves."""
    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(capture_slice, requests))


def local_runner(requests: Sequence[CaptureRequest]) -> Sequence[CaptureResult]:
    """Slices one after the other in this process: for tests and small tools."""
    return [capture_slice(request) for request in requests]


def _least(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _greatest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)
