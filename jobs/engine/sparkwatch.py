"""Whether Spark does anything about what it was asked.

Lives here: `SparkWatch`, which tells of a job that stands still, and ends a run whose cluster has
nobody left to do it. Does not live here: a JVM that has ended (`spark`), when it is looked
(`loops`).

A standalone master that dies and comes back has the workers end the executors of a run that it does
not know; the run's job then waits for executors that nobody starts, without an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ratchet.core.errors import EngineGoneError
from ratchet.jobs.reporting.text import counted
from ratchet.store.lazyspark import is_started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("ratchet.jobs.run")

WARN_AFTER: Final = 60.0  # seconds that a job stands still
WARN_EVERY: Final = 60.0
_WARN_OF_TASKS: Final = 600.0  # the same where tasks are at work: one may take long


@dataclass(frozen=True, slots=True)
class SparkProgress:
    """What Spark has to do, and how far it is.

    Attributes:
        jobs: the numbers of those that are open.
        done: tasks of their stages that have ended, well or not.
        running: tasks that are at work.
        executors: processes that could do any; the driver is one where it does the work itself.
    """

    jobs: tuple[int, ...]
    done: int
    running: int
    executors: int


class SparkWatch:
    """Looks at one session. For one thread.

    Args:
        spark: the session.
        limit: seconds that a job may stand still with nobody at work on it.
        read: asks Spark; see `read_work`.
        cancel: gives all jobs up, so that who waits for them is told; see `cancel_jobs`.
        clock: seconds, rising.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        limit: float,
        read: Callable[[SparkSession], SparkProgress],
        cancel: Callable[[SparkSession], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark, self._limit, self._clock = spark, limit, clock
        self._read, self._cancel = read, cancel
        self._last = SparkProgress((), 0, 0, 0)
        self._since = self._told = clock()

    def look(self) -> None:
        """Compare what there is to do with what there was.

        Raises:
            EngineGoneError: nothing has moved for too long, and nobody is at work.
        """
        if not is_started(self._spark):
            return
        now, work = self._clock(), self._work()
        if work is None:
            return
        moved = not work.jobs or (work.jobs, work.done) != (self._last.jobs, self._last.done)
        self._last = work
        if moved:
            self._since = self._told = now
            return
        still = now - self._since
        idle = not work.running or not work.executors
        if idle and still >= self._limit:
            self._cancel(self._spark)
            raise EngineGoneError(
                f"Spark has done nothing for {still:.0f} s: {_told(work)}",
                operation="wait for Spark",
                hint="check the cluster's master and its workers (a master that was restarted "
                "without spark.deploy.recoveryMode does not know earlier runs); start again: "
                "nothing was lost",
            )
        if still >= (WARN_AFTER if idle else _WARN_OF_TASKS) and now - self._told >= WARN_EVERY:
            self._told = now
            log.warning(
                "Spark has finished no task for %.0f s: %s",
                still,
                _told(work),
                extra={"fields": {"event": "spark_stands", "seconds": round(still)}},
            )

    def _work(self) -> SparkProgress | None:
        from py4j.protocol import Py4JError

        try:
            return self._read(self._spark)
        except (Py4JError, OSError) as error:
            # Of a machine that has ended whoever waits for it is told.
            log.debug("Spark does not answer: %s", error)
            return None


def _told(work: SparkProgress) -> str:
    jobs, tasks = counted(len(work.jobs), "job"), counted(work.running, "task")
    executors = counted(work.executors, "executor")
    return f"{jobs} open, {tasks} running, {executors}"


def read_work(spark: SparkSession, *, driver_works: bool) -> SparkProgress:
    """Ask a session's Spark; takes no job.

    Args:
        spark: the session.
        driver_works: whether the driver does the tasks itself, and is an executor.
    """
    context: Any = spark.sparkContext
    tracker = context.statusTracker()
    jobs = tuple(tracker.getActiveJobsIds())
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    executors = context._jsc.sc().getExecutorMemoryStatus().size()  # noqa: SLF001
    return SparkProgress(
        jobs=jobs,
        done=sum(stage.numCompletedTasks + stage.numFailedTasks for stage in known),
        running=sum(stage.numActiveTasks for stage in known),
        executors=executors - (not driver_works),
    )


def cancel_jobs(spark: SparkSession) -> None:
    """Give all jobs up."""
    context: Any = spark.sparkContext
    context.cancelAllJobs()
