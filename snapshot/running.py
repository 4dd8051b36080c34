"""How busy a server is, and by whom: with us, or with others.

Lives here: the count of running threads, without our own. Does not live here: how many are too many
(`throttle`).

`Threads_running` counts the one that asks, each binlog stream, each of our readers, and the event
scheduler that does nothing but wait (MySQL 9.7 and MariaDB 10.11: 3 on an idle server that is only
mirrored). So a limit of 2 was never met, and a dump never began.

Ours are the account's statements that begin with `wire.session.MARK`, and its binlog streams: every
account sees its own sessions, whatever else it may see, and on whichever machine they were opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from ratchet.wire.decode.answers import (
    as_count,
    as_flag,
    as_text,
    or_null,
    shaped,
    single,
    single_value,
)
from ratchet.wire.session import MARK


class LoadSession(Protocol):
    """What is needed of a session (wire.session.Session has it)."""

    @property
    def through_vtgate(self) -> bool:
        """Whether the server is a vtgate."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement."""


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """Threads that a server runs.

    Attributes:
        total: its own `Threads_running`.
        others: those of them that are not ours, nor the event scheduler.
    """

    total: int
    others: int


_OURS: Final = (
    "SELECT USER, ID = CONNECTION_ID() FROM information_schema.PROCESSLIST "
    f"WHERE COMMAND LIKE 'Binlog Dump%' OR COMMAND <> 'Sleep' AND INFO LIKE '{MARK}%'"
)


def running(server: LoadSession) -> ServerLoad:
    """Ask a server, by three short statements.

    Raises:
        RetryableError, SourceUnfitError: see wire.session.
    """
    before = _ours(server)
    _, total = single(server.query("SHOW GLOBAL STATUS LIKE 'Threads_running'"), as_text, as_count)
    # Ours come and go between two statements; none of them may count as another one's.
    ours = max(before, _ours(server))
    scheduler = single_value(server.query("SELECT @@GLOBAL.event_scheduler"), as_text)
    waits = scheduler.upper() in {"ON", "1"}
    return ServerLoad(total=total, others=max(0, total - ours - waits))


def _ours(server: LoadSession) -> int:
    rows = shaped(server.query(_OURS), or_null(as_text), or_null(as_flag))
    if server.through_vtgate:
        # The tablet's accounts are everybody's, and its streams feed replicas and VStreams.
        return len(rows)
    account = next((user for user, asks in rows if asks), None)
    return sum(user == account for user, _ in rows)
