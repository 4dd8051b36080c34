"""Whether a server can go on where a mirror stands: asked before a stream is opened.

A server that cannot may say so, or say nothing for minutes (vtgate), so it is asked.
"""

from __future__ import annotations

from typing import Final

from ratchet.core.errors import BehindError, PositionLostError, SourceUnfitError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.wire.decode.answers import as_count, as_text, shaped
from ratchet.wire.failures import HEAL_HINT
from ratchet.wire.logstart import executed_before
from ratchet.wire.session import Session
from ratchet.wire.vitess import on_primary

_OPERATION: Final = "open the stream"
_FILES: Final = 200  # the newest ones of a log: a millisecond each


def check_continues(control: Session, start: Position) -> None:
    """Whether a server has all that follows a position, and all that is in it.

    Args:
        control: a session with the server.
        start: where a stream shall begin.

    Raises:
        SourceUnfitError: it has no log.
        PositionLostError: it has not, and never will.
        BehindError: it lacks transactions that may still come: a replica that is behind.
    """
    source = control.source
    if control.variable("log_bin") != "1":
        raise SourceUnfitError(
            "the server was started without its log (log_bin is off): what is written to it now is "
            "in no log",
            operation=_OPERATION,
            source=source,
            position=str(start.executed),
            hint="start it with log_bin; tables that were stopped by it are dumped again, as "
            "`ratchet status` says",
        )
    if control.flavor != start.flavor:
        raise PositionLostError(
            f"the position is of flavour {start.flavor}, the server now of {control.flavor}",
            operation=_OPERATION,
            source=source,
            position=str(start.executed),
            hint=f"GTIDs were switched on or off, or it is another product: {HEAL_HINT}",
        )
    if start.flavor == "file":
        if start.server and start.server != control.server_identity:
            raise PositionLostError(
                "this is another server, and without GTIDs a position is good for one only",
                operation=_OPERATION,
                source=source,
                position=str(start.executed),
                hint=f"switch GTIDs on to move between servers; now {HEAL_HINT}",
            )
        return
    # First of all: of a server that is another shard's nothing else must be believed.
    head = control.head().executed
    _check_behind(control, start.executed.minus(head), start)
    if used := used_twice(head, start.executed) or unlogged(control, start.executed):
        raise PositionLostError(
            f"the server has another history than the mirror: {used}",
            operation=_OPERATION,
            source=source,
            position=str(start.executed),
            hint="a failover lost transactions, and the server has written others since: "
            + HEAL_HINT,
        )
    if forgotten := _forgotten(control, start):
        raise PositionLostError(
            f"the server has another history than the mirror: {forgotten}",
            operation=_OPERATION,
            source=source,
            position=str(start.executed),
            hint="after FLUSH BINARY LOGS DELETE_DOMAIN_ID a domain counts from 1 again, and gives "
            f"names that the mirror has already: {HEAL_HINT}",
        )
    check_not_purged(control, start)


def check_not_purged(control: Session, start: Position) -> None:
    """Whether the server's log still has, or will have, all that follows a position with GTIDs.

    Who loads what mysqldump wrote has a MySQL count transactions as purged that it never logged
    (SET GLOBAL gtid_purged), beside rows that it does not log either (sql_log_bin=0).

    Raises:
        PositionLostError: it has not.
    """
    purged = control.purged().minus(start.executed)
    if purged.intervals:
        raise PositionLostError(
            f"the server has purged transactions that the mirror lacks: {purged}",
            operation=_OPERATION,
            source=control.source,
            position=str(start.executed),
            hint=HEAL_HINT,
        )


def used_twice(head: GtidSet, ours: GtidSet) -> str:
    """MariaDB: a number that the server's newest transaction has, and another one of the mirror's.

    Asked for what follows such a number the server goes on behind it, without a word: only of
    numbers below its newest it says that they are not its own (measured on 10.11).

    Args:
        head: what the server has executed.
        ours: what the mirror holds.

    Returns:
        Both names, for people; empty if there is no such number.
    """
    for origin, server in ours.servers.items():
        number, other = ours.intervals[origin][-1][1], head.servers.get(origin, server)
        if other != server and head.intervals[origin][-1][1] == number:
            return (
                f"{origin}-{server}-{number} is mirrored, the server has {origin}-{other}-{number}"
            )
    return ""


def unlogged(control: Session, ours: GtidSet) -> str:
    """MariaDB: a transaction of the mirror's that the server has never logged, for people.

    A set says of a domain which number came last, and from which server. In a failover another one
    goes on counting, so a higher number does not say that ours is there. The server knows the last
    number of each that it has ever logged (`gtid_binlog_state`), also of those that are purged.

    Args:
        control: a session with the server.
        ours: what the mirror holds; the server has all of it, by the numbers.

    Returns:
        Empty if it has logged them all.
    """
    if ours.flavor != "mariadb":
        return ""
    text = control.variable("gtid_binlog_state")
    logged: dict[tuple[str, int], int] = {}
    for one in filter(None, text.split(",")):
        parts = one.strip().split("-")
        ((domain, server_id, last),) = shaped([parts], as_text, as_count, as_count)
        logged[domain, server_id] = last
    for origin, server in ours.servers.items():
        number, known = ours.intervals[origin][-1][1], logged.get((origin, server), 0)
        if known < number:
            which = f"only up to {known}" if known else "none"
            return (
                f"it has diverged: {origin}-{server}-{number} is mirrored, and of server {server} "
                f"it has logged {which}"
            )
    return ""


def _forgotten(control: Session, start: Position) -> str:
    """MariaDB: a transaction of this server's own that it does not count as logged, for people.

    Each file begins with the last number of each domain. Those that began behind the mirror's place
    know what this server had written until then, unless it was told to forget it.

    Returns:
        Empty if they know it all, or the place is in the newest file, or another server's.
    """
    identity = control.server_identity
    if start.flavor != "mariadb" or not start.file or start.server != identity:
        return ""
    own = {
        origin: start.executed.intervals[origin][-1][1]
        for origin, server in start.executed.servers.items()
        if str(server) == identity.partition("@")[0]
    }
    files = control.binlog_files()
    later = files[files.index(start.file) + 1 :] if start.file in files else files
    for file in later[-_FILES:]:
        counted = executed_before(control, file).intervals
        for origin, number in own.items():
            known = counted.get(origin, ((0, 0),))[-1][1]
            if known < number:
                return (
                    f"number {number} of its domain {origin} is mirrored, and when its file {file} "
                    f"began it had counted up to {known}"
                )
    return ""


def check_not_lost(control: Session, start: Position) -> None:
    """Whether the primary of a Vitess shard has all of a position: it catches up with nobody.

    Nothing is asked of other sources, whose primary is not known.

    Raises:
        PositionLostError: it has not.
        RetryableError: it cannot be asked.
    """
    if not control.config.target:
        return
    with Session.connect(on_primary(control.config)) as primary:
        lost = start.executed.minus(primary.head().executed)
    if lost.intervals:
        raise PositionLostError(
            f"the shard's primary lacks transactions that the mirror holds: {lost}",
            operation=_OPERATION,
            source=control.source,
            position=str(start.executed),
            hint="they were lost in a failover (an EmergencyReparentShard to a tablet that was "
            f"behind): {HEAL_HINT}",
        )


def _what_was_lost(control: Session) -> str:
    lost = "its history was reset, or it lost data in a crash"
    if not control.is_mariadb or control.variable("gtid_strict_mode") != "0":
        return f"{lost}: "
    # Asked for what is behind a number that it has given again, the server begins before it,
    # unless a file begins there.
    return (
        f"{lost}, or (as gtid_strict_mode is off) its numbers went back: SET GLOBAL "
        "gtid_strict_mode=ON; and FLUSH BINARY LOGS; on all servers of the shard, then "
    )


def _check_behind(control: Session, ours: GtidSet, start: Position) -> None:
    """What to do about transactions that we have and the server has not."""
    if not ours.intervals:
        return
    identity = control.server_identity
    own = [
        origin
        for origin in ours.intervals
        if identity in {origin, origin.partition(":")[0]}
        or identity.partition("@")[0] == str(ours.servers.get(origin))
    ]
    where = {
        "operation": _OPERATION,
        "source": control.source,
        "position": str(start.executed),
    }
    if own:
        raise PositionLostError(
            f"the server no longer has transactions of its own that the mirror holds: {ours}",
            **where,
            hint=_what_was_lost(control) + HEAL_HINT,
        )
    check_not_lost(control, start)
    raise BehindError(
        f"the server lacks transactions that the mirror holds: {ours}",
        **where,
        hint="a replica that is behind catches up by itself; if `host` and `port` lead to another "
        "shard's server, correct them; after a failover that lost them, " + HEAL_HINT,
    )
