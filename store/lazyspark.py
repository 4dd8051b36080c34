"""A Spark session that is started when it is used.

Most runs of a small mirror use none, and a start takes more time than all that they do.
Does not live here: how it is started (`jobs.engine.spark`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POOL: Final = "spark.scheduler.pool"


class LazySession:
    """Stands for a Spark session, and has all that it has. May be used by several threads.

    Args:
        start: starts it.
    """

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._thread = threading.local()

    @property
    def is_started(self) -> bool:
        """Whether it was used."""
        return self._session is not None

    @property
    def session(self) -> SparkSession:
        """The session, started by now. This thread's jobs run in the pool that it has chosen."""
        with self._lock:
            if self._session is None:
                self._session = self._start()
        pool = getattr(self._thread, "pool", None)
        if pool is not None:
            self._thread.pool = None
            self._session.sparkContext.setLocalProperty(_POOL, pool)
        return self._session

    def use_pool(self, pool: str) -> None:
        """See the function of this name."""
        self._thread.pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


def use_pool(session: SparkSession, pool: str) -> None:
    """From now on this thread's jobs run in that pool of the scheduler."""
    if isinstance(session, LazySession):
        session.use_pool(pool)
    else:
        session.sparkContext.setLocalProperty(_POOL, pool)


def is_started(session: SparkSession) -> bool:
    """Whether it was used: who could use it a little may rather do without before."""
    return not isinstance(session, LazySession) or session.is_started
