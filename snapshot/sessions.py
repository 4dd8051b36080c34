"""Sessions that live longer than one piece of work: a Spark worker reads many chunks in its life.

Lives here: this thread's open sessions. Invariant: a session in which something went wrong is
closed, never used again; one that idled too long is noticed before it is used.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from ratchet.core.errors import (
    DatabaseGoneError,
    RetryableError,
    ServerRefusedError,
    TableStoppedError,
)
from ratchet.core.shell import redump
from ratchet.wire.session import Session, SourceConfig


class _Sessions(threading.local):
    def __init__(self) -> None:
        self.open: dict[SourceConfig, Session] = {}


_sessions: Final = _Sessions()


@contextlib.contextmanager
def open_session(config: SourceConfig, *, table: str = "") -> Iterator[Session]:
    """This thread's session with a server, kept afterwards unless an error came out of the block.

    Args:
        config: the server.
        table: keyspace.table that the block reads, and no other one: what the server refuses then
            is that table's trouble alone (a crashed one, one without its tablespace).

    Raises:
        RetryableError, SourceUnfitError, ConfigError: see `Session.connect`.
        TableStoppedError: the server refuses to read `table`.
    """
    session = _sessions.open.pop(config, None)
    if session is not None and not _answers(session):
        session.close()
        session = None
    session = session or Session.connect(config)
    try:
        yield session
    except (DatabaseGoneError, ServerRefusedError) as error:
        session.close()
        if not table:
            raise
        raise TableStoppedError(
            error.message,
            operation=error.operation,
            source=error.source,
            table=table,
            hint=f"{error.hint}; when it can be read again, {redump(table)}"
            ", or exclude it in `tables` of the config",
        ) from error
    except BaseException:
        session.close()
        raise
    if session.usable:
        _sessions.open[config] = session


def close_sessions() -> None:
    """Close this thread's idle sessions."""
    while _sessions.open:
        _sessions.open.popitem()[1].close()


def _answers(session: Session) -> bool:
    try:
        return session.usable and session.query("SELECT 1") == [(1,)]
    except RetryableError:
        return False  # it idled for too long, or the server was restarted: a new one will do
