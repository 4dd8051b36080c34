"""Whether a server's history is still the one that a mirror was made from.

Lives here: `check_position`, asked before a stream is opened and by `check` and `heal`. Does not
live here: whether all that follows a position is there (`wire.continues`), reading (`skim`).

A set of GTIDs names transactions and does not say what they were. After RESET, or once a backup is
restored, a server gives the same names to other transactions; as soon as it has given as many as
the mirror holds, its set contains the mirror's. So the last transaction that the mirror holds is
looked up in the server's log: it must have been committed at the same moment, by the clock of the
server that wrote it. What a reset or a restored backup loses is the end of a history, so if
anything that the mirror holds is gone, its last transaction is.

Not so where the log was played back into the backup: then that transaction is there, and another
may have been left out. But it lies elsewhere in the server's log, and in one that was only written
on nothing moves.

Where the server has purged that transaction nothing can be compared, and nothing is said.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ratchet.core.committimes import moment
from ratchet.core.errors import (
    DecodeError,
    PositionLostError,
    RatchetError,
    RetryableError,
    SourceUnfitError,
)
from ratchet.core.gtid import Flavor, Gtid, GtidSet, format_gtid, pack_file
from ratchet.core.position import LastTransaction, Position
from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.ingest.binlog.skim import LogScanner
from ratchet.wire.binlog import DumpOptions, probe_server_id
from ratchet.wire.connect import SourceConfig
from ratchet.wire.continues import check_continues, unlogged, used_twice
from ratchet.wire.failures import HEAL_HINT, is_garbage
from ratchet.wire.logstart import file_of, last_logged
from ratchet.wire.session import Session

log: Final = logging.getLogger(__name__)

_OPERATION: Final = "open the stream"
_HINT: Final = (
    "it was reset, restored from a backup, or it is another server; all rows of this shard may "
    f"differ: {HEAL_HINT}"
)
# What servers say of a place in their log that no event begins at.


@dataclass(frozen=True, slots=True)
class Found:
    """A transaction in the server's log.

    Attributes:
        gtid: its name.
        committed: see LastTransaction.
        offset: where it begins in its file.
        moved: whether it is not where it was in this server's log.
    """

    gtid: Gtid
    committed: int
    offset: int
    moved: bool = False


def check_position(control: Session, start: Position) -> None:
    """Whether a server can go on where a mirror stands, and with the same history.

    Args:
        control: a session with the server.
        start: where a stream shall begin.

    Raises:
        PositionLostError: it cannot: it has purged what follows, or see `check_same_history`.
        RetryableError: it lacks transactions that may still come, or cannot be reached.
        SourceUnfitError: it refuses us a stream.
    """
    check_continues(control, start)
    check_same_history(control, start)


def check_same_history(control: Session, start: Position) -> bool:
    """Whether a server that has all that a mirror holds means the same transactions by it.

    Args:
        control: a session with the server.
        start: where a stream shall begin.

    Returns:
        Whether its log was written anew since the mirror stood there: the last transaction is the
        same, and is not where it was. So those before it may be others.

    Raises:
        PositionLostError: other transactions go by the names of those that the mirror holds.
        RetryableError: it cannot be reached.
        SourceUnfitError: it refuses us a stream.
    """
    if start.last is None:
        return False
    found = _look_up(control, start, start.last)
    if found is None:
        log.debug("%s: %s cannot be looked up", control.source, start.last.gtid)
        return False
    if differs(start.flavor, start.last, found):
        raise PositionLostError(
            f"the server has another history than the mirror: {_told(start.flavor, start.last)} in "
            f"what is mirrored, {_told(start.flavor, found)} in the server's log",
            operation=_OPERATION,
            source=control.source,
            position=str(start.executed),
            hint=_HINT,
        )
    return found.moved


def with_witness(control: Session, start: Position) -> Position:
    """A position where a stream begins, with the last transaction that the server's log has of it.

    So a history that ends and begins anew before the stream has delivered anything is told, too.
    Where the log does not have it any more, without GTIDs, and through a vtgate it stays unknown.

    Args:
        control: a session with the server that the position was read from.
        start: what it had executed.

    Raises:
        RetryableError: the server cannot be reached.
    """
    if start.flavor == "file" or control.config.target or not start.executed.intervals:
        return start
    newest = [
        Gtid(origin, spans[-1][1], start.executed.servers.get(origin, 0))
        for origin, spans in start.executed.intervals.items()
    ]
    found: list[Found] = []
    for group in _asked_together(control, newest):
        before = start.executed
        for gtid in group:
            before = _before(before, LastTransaction(gtid=gtid, committed=0))
        found += _all_of(control.config, Position(executed=before), group)
    if not found:
        return start
    last = found[-1] if start.flavor == "mysql" else max(found, key=lambda one: one.committed)
    file = file_of(control, last.gtid)
    offset = last.offset if file else 0
    return replace(
        start,
        last=LastTransaction(gtid=last.gtid, committed=last.committed, file=file, offset=offset),
    )


def _asked_together(control: Session, gtids: Sequence[Gtid]) -> list[Sequence[Gtid]]:
    """MySQL sends what a set lacks, and nothing else; MariaDB all behind a place of each domain."""
    if control.flavor == "mariadb":
        purged = control.purged()
        return [[gtid] for gtid in gtids if not purged.contains(gtid)]
    found = last_logged(control, gtids)
    return [found] if found else []


def _all_of(source: SourceConfig, before: Position, wanted: Sequence[Gtid]) -> list[Found]:
    """Those of some transactions that the log has behind a position, in its order."""
    names = {(gtid.origin, gtid.number) for gtid in wanted}
    found: list[Found] = []

    def named(batch: TransactionBatch) -> Iterator[Found]:
        return (one for one in _all(batch) if (one.gtid.origin, one.gtid.number) in names)

    try:
        _collect(source, before, named, found, most=len(names))
    except (PositionLostError, SourceUnfitError, DecodeError) as error:
        # Purged, or (MariaDB) the one before it is another server's. What cannot be read is for the
        # stream to tell.
        log.debug("%s: no witness: %s", source.shard, error)
    except RetryableError as error:
        if not is_garbage(error.message):
            raise
        log.debug("%s: no witness: %s", source.shard, error)
    return found[: len(names)]


def is_shared(control: Session, place: Position) -> bool | None:
    """Whether a position of the past is in a server's history, as the mirror knows it.

    Args:
        control: a session with the server.
        place: where a stream once stood.

    Returns:
        None if that cannot be told: the server has purged its last transaction, or it has none.

    Raises:
        RetryableError: the server cannot be reached.
        SourceUnfitError: it refuses us a stream.
    """
    head = control.head().executed
    if control.flavor != place.flavor or place.executed.minus(head).intervals:
        return False
    if used_twice(head, place.executed) or unlogged(control, place.executed):
        return False
    if place.last is None:
        return None
    try:
        found = _look_up(control, place, place.last)
    except PositionLostError:
        return False
    return None if found is None else not differs(place.flavor, place.last, found)


def differs(flavor: Flavor, last: LastTransaction, found: Found) -> bool:
    """Whether two transactions that should be one are not.

    Args:
        flavor: of their names.
        last: what the mirror holds.
        found: what the server's log has in its place.
    """
    if found.gtid.number != last.gtid.number or found.committed != last.committed:
        return True
    return flavor == "mariadb" and found.gtid.server != last.gtid.server


def _look_up(control: Session, start: Position, last: LastTransaction) -> Found | None:
    """What the server's log has in the place of a transaction; None if that cannot be told."""
    before = Position(executed=_before(start.executed, last), server=start.server)
    was_there = bool(last.file) and start.server == control.server_identity
    if was_there:
        # A short cut, so that the server need not search a file of its log for the GTIDs.
        found = _at_its_place(control, start, last, before)
        # What is found elsewhere than expected proves nothing where there are GTIDs to go by.
        if start.flavor == "file" or (found and not differs(start.flavor, last, found)):
            return found
    if start.flavor == "file":
        return None
    try:
        found = _first(control.config, before, lambda batch: _candidates(batch, last))
    except PositionLostError:
        # It is purged, which is no harm; or MariaDB does not have the one before it, which it may
        # have by the id of another server, or because it has parted from what is mirrored.
        if start.flavor == "mariadb":
            _first(control.config, replace(start, file="", offset=0), _all)
        return None
    return found and replace(found, moved=was_there)


def _at_its_place(
    control: Session, start: Position, last: LastTransaction, before: Position
) -> Found | None:
    """What this server's log has where a transaction was; None: nothing, or its file is purged."""
    by_place = replace(before, file=last.file, offset=last.offset)
    try:
        return _first(control.config, by_place, lambda batch: _candidates(batch, last))
    except RatchetError as error:
        nothing = isinstance(error, DecodeError) or is_garbage(error.message)
        if start.flavor == "file":
            if nothing:
                raise _nothing_there(error, start, last) from error
            if isinstance(error, PositionLostError):
                return None  # its file is purged
            raise
        if isinstance(error, RetryableError) and not nothing:
            raise
        log.debug("%s: nothing at %s: %s", control.source, last.file, error)
        return None


def _nothing_there(
    error: RatchetError, start: Position, last: LastTransaction
) -> PositionLostError:
    """Without GTIDs: no event begins where a mirrored transaction began."""
    return PositionLostError(
        f"the server has another history than the mirror: in {last.file}, where the last mirrored "
        f"transaction began, is none now ({error.message})",
        operation=_OPERATION,
        source=error.source,
        position=str(start.executed),
        hint=_HINT,
    )


def _before(executed: GtidSet, last: LastTransaction) -> GtidSet:
    """What had been executed before a transaction, which nothing in the set came after."""
    gtid = last.gtid
    if executed.flavor == "mysql":
        one = GtidSet.empty("mysql").with_interval(gtid.origin, gtid.number, gtid.number)
        return executed.minus(one)
    if executed.flavor == "file":
        place = pack_file(last.file, last.offset)
        return GtidSet.empty("file").with_interval(place.origin, 1, place.number)
    spans = {origin: found for origin, found in executed.intervals.items() if origin != gtid.origin}
    servers = {origin: found for origin, found in executed.servers.items() if origin != gtid.origin}
    rest = GtidSet("mariadb", spans, servers)
    # Its server id may be another one: outside of its strict mode the server goes by the number.
    before = gtid.number - 1
    return rest.with_interval(gtid.origin, 1, before, gtid.server) if before else rest


def _first(
    source: SourceConfig, before: Position, wanted: Callable[[TransactionBatch], Iterable[Found]]
) -> Found | None:
    """The first transaction behind a position that is wanted; None if the log ends before."""
    found: list[Found] = []
    _collect(source, before, wanted, found, most=1)
    return found[0] if found else None


def _collect(
    source: SourceConfig,
    before: Position,
    wanted: Callable[[TransactionBatch], Iterable[Found]],
    found: list[Found],
    *,
    most: int,
) -> None:
    """Read on behind a position until so many are found; they are kept also where that fails."""

    def keep(batch: TransactionBatch) -> int:
        found.extend(wanted(batch))
        return 0

    options = DumpOptions(server_id=probe_server_id(random.SystemRandom()))
    with LogScanner(source, before, options, keep=keep) as skim:
        skim.read(enough=lambda: len(found) >= most)


def _all(batch: TransactionBatch) -> Iterator[Found]:
    for txn in batch.txns:
        gtid = Gtid(batch.names[int(txn["origin"])], int(txn["number"]), int(txn["server"]))
        yield Found(gtid, int(txn["committed"]), int(txn["begin"]))


def _candidates(batch: TransactionBatch, last: LastTransaction) -> Iterator[Found]:
    """The transactions of a batch that stand where the wanted one should."""
    for found in _all(batch):
        same = found.gtid.number == last.gtid.number or batch.flavor != "mysql"
        if found.gtid.origin == last.gtid.origin and same:
            yield found


def _told(flavor: Flavor, one: LastTransaction | Found) -> str:
    at = moment(one.committed, fine=True)
    return f"{format_gtid(flavor, one.gtid)} was committed at {at} UTC"
