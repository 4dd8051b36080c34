"""The files of a server's log: which holds a transaction, and in which a stream begins.

Lives here: what each file says of the GTIDs before it, and the choice of the first one. Does not
live here: opening a stream (`binlog`), how files end (`logends`).

A stream must leave no file out. Asked for what a set lacks, a MySQL begins at the newest file of
which the set holds all that came before. Files that have only transactions *without* a GTID
(gtid_mode was off or permissive for a while) lie before that one, and the server leaves them out
without a word (measured on 9.7). Sent from an earlier file on, it refuses at the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ratchet.core.errors import PositionLostError
from ratchet.core.gtid import Gtid, GtidSet
from ratchet.core.position import Position
from ratchet.wire.decode.answers import as_is, as_text, or_null, refusal, shaped, single_value
from ratchet.wire.failures import HEAL_HINT
from ratchet.wire.session import Session

_FILES_BACK: Final = 8
_INFO: Final = or_null(as_text)
_HEAD: Final = 5  # events at the beginning of a file, among which its Previous_gtids is


def first_file(session: Session, start: Position) -> str:
    """The file that a position lies in, or an earlier one if transactions before it are lacking.

    Args:
        session: on a MySQL with GTIDs that has all of `start`.
        start: where a stream shall begin. Its `file` is believed only where the GTIDs allow it.

    Returns:
        The oldest file there is if the position's own is purged.

    Raises:
        PositionLostError: a file does not say what was executed before it.
        RetryableError: the server cannot be asked.
        SourceUnfitError: it may not be.
    """
    files = session.binlog_files()
    if not files:
        raise refusal("a log without files")
    follows = ""  # the newest file of which all that came before is ours: the server's choice
    holds = ""  # the newest file before which not all of ours was executed: the position's
    own = start.file if start.server == session.server_identity else ""
    for file in reversed(files):
        before = executed_before(session, file)
        if not follows and start.executed.contains_all(before):
            follows = file
        # A transaction lies behind a place of its own file, and that may be a later file than the
        # GTIDs tell: there are some without.
        if not holds and (file == own or not before.contains_all(start.executed)):
            holds = file
        if follows and holds:
            break
    return min(follows or files[0], holds or files[0], key=files.index)


def last_logged(session: Session, gtids: Sequence[Gtid]) -> tuple[Gtid, ...]:
    """Those of some transactions that lie in the newest file that has any of them.

    Looks back for a few files only: what is older would have the server read through all behind it.

    Raises:
        PositionLostError: a file does not say what was executed before it.
        RetryableError: the server cannot be asked.
        SourceUnfitError: it may not be.
    """
    return _newest_with(session, gtids)[1]


def file_of(session: Session, gtid: Gtid) -> str:
    """The file that a transaction lies in; empty if that is not one of the newest few.

    Raises:
        PositionLostError: a file does not say what was executed before it.
        RetryableError: the server cannot be asked.
        SourceUnfitError: it may not be.
    """
    return _newest_with(session, [gtid])[0]


def _newest_with(session: Session, gtids: Sequence[Gtid]) -> tuple[str, tuple[Gtid, ...]]:
    """The newest file that has any of some transactions, and which; of the newest few files."""
    files = session.binlog_files()
    for file in reversed(files[-_FILES_BACK:]):
        before = executed_before(session, file)
        if found := tuple(gtid for gtid in gtids if not before.contains(gtid)):
            return file, found
    return "", ()


def executed_before(session: Session, file: str) -> GtidSet:
    """What had been executed when a file of the log began.

    Raises:
        PositionLostError: it does not say.
        RetryableError: the server cannot be asked.
        SourceUnfitError: it may not be.
    """
    if session.is_mariadb:
        rows = session.query("SELECT BINLOG_GTID_POS(%s, 4)", (file,))
        return GtidSet.parse("mariadb", single_value(rows, or_null(as_text)) or "")
    events = session.query(f"SHOW BINLOG EVENTS IN %s LIMIT {_HEAD}", (file,))
    for *_, kind, _, _, info in shaped(events, as_is, as_is, as_text, as_is, as_is, _INFO):
        if kind == "Previous_gtids":
            return GtidSet.parse("mysql", info or "")
    raise PositionLostError(
        f"the binlog file {file} does not say what was executed before it",
        operation="open the binlog stream",
        source=session.source,
        hint=HEAL_HINT,
    )
