"""How the files of a server's log ended: closed by a shutdown or a new file, or cut by a crash.

Lives here: asking a server about the last event of each file. Does not live here: what a crash
means for the mirrored tables (`jobs.preflight.restarts`).

Measured on MySQL 9.7 and MariaDB 10.11: a file that was closed ends with a Stop or Rotate event,
whose length is known, so one question by its place tells: under a millisecond each, in files of
200 MB as in small ones. After a crash neither is there. MySQL takes the mark "in use" from the
file's head when it recovers, so that mark tells nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ratchet.core.errors import ServerRefusedError, SourceUnfitError
from ratchet.wire.decode.answers import as_count, as_is, as_name, as_text, shaped, single
from ratchet.wire.session import Session

_HEADER: Final = 19
_CHECKSUM: Final = 4
_ENCRYPTION_HEADER: Final = 512  # of MySQL's encrypted files; places in them do not count it
_MOST_FILES: Final = 1000  # that are asked about


@dataclass(frozen=True, slots=True)
class LogEnds:
    """What was found.

    Attributes:
        newest: the file that the server writes; empty if it has none, or we may not ask.
        unclean: why the server may have crashed before it began that file; empty if it has not.
    """

    newest: str
    unclean: str = ""


def read_log_ends(session: Session, *, since: str = "") -> LogEnds:
    """Whether the server ended its lives cleanly.

    Args:
        session: on the server.
        since: the file that it wrote when this was asked last; empty: only the end of the life
            before this one is looked at.

    Raises:
        RetryableError: the server does not answer.
    """
    try:
        shown = session.query("SHOW BINARY LOGS")
    except (ServerRefusedError, SourceUnfitError) as error:
        return LogEnds("", f"it does not show the files of its log: {error.message}")
    files = [
        (name, size - _ENCRYPTION_HEADER * (encrypted == ["Yes"]))
        for (name, size), encrypted in (
            (single([row], as_name, as_count, wider=True), list(row[2:])) for row in shown
        )
    ]
    if not files:
        return LogEnds("", "its log has no files")
    newest = files[-1][0]
    return LogEnds(newest, "" if since == newest else _unclean(session, files, since))


def _unclean(session: Session, files: Sequence[tuple[str, int]], since: str) -> str:
    """Args: `files` are the log's, with their lengths as offsets of events go."""
    known = any(name == since for name, _ in files)
    later = files[-1][0]
    for name, length in reversed(files[-_MOST_FILES - 1 : -1]):
        ended = _last_event(session, name, length, later)
        if not ended:
            return f"it did not close its log's file {name}"
        if name == since or (ended == "Stop" and not known):
            return ""
        later = name
    is_first = re.fullmatch(r".*\.0*1", later)  # there was never one before it
    return "" if is_first else f"how its log ended before the file {later} is not known"


def _last_event(session: Session, name: str, size: int, later: str) -> str:
    """Stop, Rotate, or nothing if the file does not end with one."""
    rotate = _HEADER + 8 + len(later.encode())
    for kind, length in (("Stop", _HEADER), ("Rotate", rotate)):
        for checksum in (_CHECKSUM, 0):
            at = size - length - checksum
            try:
                rows = session.query(f"SHOW BINLOG EVENTS IN %s FROM {at} LIMIT 1", (name,))
            except (ServerRefusedError, SourceUnfitError):
                continue  # no event begins there; without the privilege the answer is "unclean"
            found = shaped(rows, as_is, as_count, as_text, wider=True)
            if found and found[0][1:] == (at, kind):
                return kind
    return ""
