"""Functions that run in a pool of Spark's scheduler, and whose Spark errors come out as ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ratchet.jobs.capture.loops import Task
from ratchet.jobs.config.config import Config
from ratchet.jobs.engine.spark import log_folder
from ratchet.merge.failures import spark_failure
from ratchet.store.lazyspark import use_pool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
T = TypeVar("T")


class SparkGuard:
    """Wraps functions.

    Args:
        spark: the run's session.
        config: tells where Spark's own log is, which an error names.
    """

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._log = log_folder(config)

    def plain(self, operation: str, work: Callable[P, T]) -> Callable[P, T]:
        """With our errors."""

        def guarded_work(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return work(*args, **kwargs)
            except Exception as error:
                known = spark_failure(error, operation, log=str(self._log))
                if known is None:
                    raise
                raise known from None

        return guarded_work

    def in_pool(self, pool: str, operation: str, work: Callable[P, T]) -> Callable[P, T]:
        """With our errors, and in a pool of the scheduler: for whichever thread calls it."""
        guarded_work = self.plain(operation, work)

        def pooled(*args: P.args, **kwargs: P.kwargs) -> T:
            use_pool(self._spark, pool)
            return guarded_work(*args, **kwargs)

        return pooled


@dataclass(frozen=True, slots=True)
class GuardedTask:
    """A background task whose Spark errors come out as ours."""

    guard: SparkGuard
    task: Task

    def next_bite(self) -> float:
        """See Task."""
        bite: Callable[[], float] = self.guard.plain("verify", self.task.next_bite)
        return bite()
