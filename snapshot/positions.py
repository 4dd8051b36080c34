"""Positions that contain everything a read may have seen.

Lives here: the upper bound that the end of a dump and the end of a verification need; waiting until
reads contain what the log has told. The lower bound, what a read is sure to contain, is
`Session.executed` and `Session.snapshot`.

Invariant: what any read that ended before the call may have shown is inside the result.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from ratchet.core.errors import LockedError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.wire.session import Session

# A UUID and a tag, whose numbers with the threads that own them stand behind.
_ORIGIN: Final = re.compile(r"([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?::[a-z_]\w{0,31})?):")
_OWNER: Final = re.compile(r"#\d+")
_PATIENCE: Final = 5.0
_POLL: Final = 0.02
_LOOK_EVERY: Final = 0.1


def seen_position(
    session: Session,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Position:
    """A position that contains all that reads have shown until now.

    MariaDB's `gtid_binlog_pos` and the end of the binlog run ahead of what reads see, so they serve
    as they are. MySQL's `gtid_executed` may lag behind: a transaction shows its rows an instant
    before its GTID is entered, and until then `gtid_owned` has it. So the owned ones are
    waited for (an instant; a client that sits on a GTID is not waited for: it has committed
    nothing).

    In a transaction, for the sake of vtgate: outside of one it sends each question to any tablet,
    and a tablet may answer with what it found for somebody else who asked the same before us.
    """
    if session.flavor != "mysql":
        return session.head()
    with session.snapshot():
        committing = _owned(session)
        deadline = clock() + _PATIENCE
        while committing.intervals and clock() < deadline:
            sleep(_POLL)
            left = _owned(session)
            committing = committing.minus(committing.minus(left))
        return session.head()


def is_committed(
    session: Session,
    position: Position,
    *,
    patience: float = _PATIENCE,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether reads of the server contain a position of its log; waits a while until they do.

    Args:
        session: on the server.
        position: what its log has handed out.
        patience: seconds.
        clock: seconds, rising.
        sleep: for so many seconds.
    """
    deadline = clock() + patience
    while not session.contains(position):
        if clock() >= deadline:
            return False
        sleep(_LOOK_EVERY)
    return True


def require_committed(session: Session, position: Position) -> None:
    """See `is_committed`.

    Raises:
        LockedError: they do not contain it.
    """
    if not is_committed(session, position):
        raise LockedError(
            "the server shows older rows than its log has",
            operation="compare rows with the source",
            source=session.source,
            hint="a commit waits for a semi-synchronous replica, or the replica that is read is "
            "behind; it is tried again",
        )


def _owned(session: Session) -> GtidSet:
    return parse_owned(session.variable("gtid_owned"))


def parse_owned(text: str) -> GtidSet:
    """Read MySQL's `gtid_owned`: the transactions that threads are about to commit.

    `uuid[:tag]:number#thread:number#thread`, once for each UUID and tag, with nothing in between
    (measured on MySQL 9.7): a thread's number runs into the UUID that follows.

    Args:
        text: as the server prints it.

    Raises:
        DecodeError: it is none of that.
    """
    # A UUID has just eight digits in front of its first dash, so there is one way to read it.
    unread, *rest = _ORIGIN.split(text)
    owned = [
        f"{origin}:{_OWNER.sub('', numbers)}"
        for origin, numbers in zip(rest[::2], rest[1::2], strict=True)
    ]
    return GtidSet.parse("mysql", ",".join([unread, *owned] if unread else owned))
