"""Holding back whoever reads a source's tables: a dump, a verification, a repair.

Lives here: when the next read may begin, by rows per second, by the server's running threads, by
the lag of its replicas. Does not live here: how much is read at a time (`reader`, `reread`).

Invariant: a throttle only ever delays; it never skips a read, and says why it waits. Whatever of
one process reads tables asks the same one, so that its rate holds for all of them together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from ratchet.core.errors import RetryableError, SourceUnfitError
from ratchet.snapshot.running import LoadSession, running
from ratchet.snapshot.sessions import open_session
from ratchet.snapshot.waits import Waits
from ratchet.wire.decode.answers import as_is, as_number, or_null, shaped

if TYPE_CHECKING:
    from ratchet.snapshot.records import ShardSource

_LOOK_EVERY: Final = 1.0  # seconds between two looks at a server
# Seconds_Behind_Master or Seconds_Behind_Source: in this place in every version of both servers.
_LAG_COLUMN: Final = 32
_BURST: Final = 2.0  # seconds' worth of rows that may be ahead of the rate
_PAUSE: Final = 0.5  # seconds until a shard that is held back is looked at again


class ThrottleSession(LoadSession, Protocol):
    """What is needed of a session (wire.session.Session has it)."""

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is a MariaDB."""

    @property
    def source(self) -> str:
        """keyspace/shard, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleLimits:
    """When to wait; 0 switches a limit off.

    Attributes:
        rows_per_second: rows read from all sources together.
        threads_running: threads of others on the server (`running`) above which no chunk begins.
        replica_lag: seconds of lag of any replica asked above which no chunk begins.
    """

    rows_per_second: int = 0
    threads_running: int = 0
    replica_lag: float = 0

    @property
    def any(self) -> bool:
        """Whether anything is limited."""
        return bool(self.rows_per_second or self.threads_running or self.replica_lag)


class Throttle:
    """Decides for all reads of one process; may be used by several threads."""

    def __init__(
        self,
        limits: ThrottleLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is looked at before `reason`."""
        self.limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._rows_until = clock()  # by when the rows read so far are due at the wanted rate
        self._waits = Waits(clock)
        # Not by the server's id(), which is another one's when that is gone.
        self._looks: WeakKeyDictionary[ThrottleSession, tuple[float, str]] = WeakKeyDictionary()

    def most_rows(self, wanted: int) -> int:
        """Rows that one read may take, so that the rate bites: some two seconds' worth.

        Args:
            wanted: how many it would take without a rate.
        """
        rate = self.limits.rows_per_second
        return min(wanted, max(1, int(rate * _BURST))) if rate else wanted

    def count(self, rows: int) -> None:
        """Note that rows were read."""
        if self.limits.rows_per_second:
            with self._lock:
                start = max(self._rows_until, self._clock() - _BURST)
                self._rows_until = start + rows / self.limits.rows_per_second

    def reason(self, source: ThrottleSession, replicas: Sequence[ThrottleSession] = ()) -> str:
        """Why the next chunk must wait; empty if it may begin.

        Args:
            source: the server that the chunk is read from.
            replicas: servers whose lag counts.

        Raises:
            RetryableError: a server does not answer.
            SourceUnfitError: a replica is none, or does not replicate.
        """
        with self._lock:
            if self._rows_until > self._clock():
                ahead = self._rows_until - self._clock()
                return (
                    f"{ahead:.1f} s ahead of snapshot.max_rows_per_second "
                    f"({self.limits.rows_per_second})"
                )
            return self._running(source) or next(
                (why for replica in replicas if (why := self._lag(replica))), ""
            )

    def reason_on(self, shard: ShardSource) -> str:
        """As `reason`, by this thread's sessions with the shard's server and its replicas.

        Who asks again and again is told of in the log (`waits`).

        Raises:
            RetryableError, SourceUnfitError: see `reason`.
        """
        if not self.limits.any:
            return ""
        with ExitStack() as stack:
            session = stack.enter_context(open_session(shard.config))
            replicas = [stack.enter_context(open_session(one)) for one in shard.replicas]
            reason = self.reason(session, replicas)
        self._waits.note(str(shard.config.shard), reason)
        return reason

    def wait(self, shard: ShardSource, stop: threading.Event | None = None) -> None:
        """Until the next read of a shard may begin.

        Args:
            shard: where it is read.
            stop: ends the waiting with RetryableError when it is set.

        Raises:
            RetryableError, SourceUnfitError: see `reason`.
        """
        stop = stop or threading.Event()
        while self.reason_on(shard):
            if stop.wait(_PAUSE):
                raise RetryableError(
                    "told to stop while the throttle held it back",
                    operation="read a table",
                    source=str(shard.config.shard),
                )

    def _running(self, source: ThrottleSession) -> str:
        limit = self.limits.threads_running
        if not limit:
            return ""

        def look() -> str:
            others = running(source).others
            if others <= limit:
                return ""
            return (
                f"{others} threads of others running on {source.source}, above "
                f"snapshot.max_threads_running ({limit})"
            )

        return self._recent(source, look)

    def _lag(self, replica: ThrottleSession) -> str:
        limit = self.limits.replica_lag
        if not limit:
            return ""

        def look() -> str:
            lag = replica_lag(replica)
            if lag <= limit:
                return ""
            return (
                f"a replica of {replica.source} is {lag:.0f} s behind, above "
                f"snapshot.max_replica_lag ({limit:g} s)"
            )

        return self._recent(replica, look)

    def _recent(self, server: ThrottleSession, look: Callable[[], str]) -> str:
        now = self._clock()
        when, found = self._looks.get(server, (now - _LOOK_EVERY, ""))
        if now - when >= _LOOK_EVERY:
            found = look()
            self._looks[server] = (now, found)
        return found


def replica_lag(replica: ThrottleSession) -> float:
    """Seconds that a replica is behind its source; the largest, if it has several.

    Raises:
        SourceUnfitError: it is no replica, or its replication stands still.
    """
    rows = replica.query("SHOW SLAVE STATUS" if replica.is_mariadb else "SHOW REPLICA STATUS")
    columns = [*[as_is] * _LAG_COLUMN, or_null(as_number)]
    lags: list[float | None] = [lag for *_, lag in shaped(rows, *columns, wider=True)]
    if not lags or None in lags:
        raise SourceUnfitError(
            "it does not replicate" if rows else "it is not a replica",
            operation="ask a replica for its lag",
            source=replica.source,
            hint="correct the throttle's replicas in the config, or start replication there",
        )
    return max(lag for lag in lags if lag is not None)
