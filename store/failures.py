"""What failures of the lake's storage mean, and what to do about them.

Lives here: turning what Arrow, obstore, deltalake and the operating system raise, and what damaged
content leads to, into a LakeError with a remedy. Does not live here: touching files (`files`).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import pyarrow as pa

from ratchet.core.errors import (
    DAMAGE,
    DamagedFileError,
    LakeAwayError,
    LakeError,
    TableFileError,
)
from ratchet.core.shell import shell_word
from ratchet.store import layout

_HINTS: Final = {
    errno.ENOSPC: "free space where the lake lies (remove nothing of the lake's own), then start "
    "again: nothing was lost",
    errno.EDQUOT: "raise the quota where the lake lies, then start again: nothing was lost",
    errno.EACCES: "let this user read and write the lake's folder",
    errno.EPERM: "let this user read and write the lake's folder",
    errno.EROFS: "the file system is mounted read-only: mount it writable or move the lake; if it "
    "became so by itself, it found damage: check it first (fsck), and then run `ratchet verify`",
    errno.EIO: "the disk under the lake, or the way to it, fails: see the system's log (dmesg), "
    "fix it, check the file system (fsck), then start again and run `ratchet verify`",
    errno.ENOENT: "something else removed the file: only `ratchet` may change files there",
}
# What may pass by itself, or by somebody who makes room meanwhile: a run waits for it.
_PASSING: Final = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN),
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.EREMOTEIO),
    }
)
# The same of object stores, in the words of Arrow's client, of obstore's and of Java's.
_PASSING_TEXT: Final = re.compile(
    r"time[sd]?[ -]?out|could ?n.t connect|connect(ion)? (error|refused|reset|closed|aborted)"
    r"|network_connection|error sending request|slow_?down|throttl|too many requests"
    r"|internal_(failure|error)|service_?unavailable|\b(429|500|502|503|504)\b"
    r"|internal server error|bad gateway|reset by peer|broken pipe|temporarily|dns error",
    re.IGNORECASE,
)
# What gets out of a damaged file, by what it tells: what a run finds out again may just be removed.
_AGAIN: Final = "remove the file {path} in the lake: the next run makes it again"
_COMPARE: Final = (
    "remove the file {path} in the lake, start the run, and compare all tables: `ratchet verify "
    "CONFIG`; rows may have changed unseen about which the file had a note"
)
_BACKUP: Final = (
    "restore the lake from a backup that was made while no run worked, or set `lake` in the config "
    "to a new folder, which is filled from the start"
)
_DAMAGED: Final = {
    layout.FORMAT_FILE: "if no later version of Ratchet has worked on the lake, put "
    '{{"format": 6}} into the file {path} in it',
    layout.LEASE_FILE: "if no ratchet runs on this lake, remove the file {path} in it: the next "
    "run finds in the logs what it needs",
    layout.TABLES: "remove the file {path} in the lake: the next run dumps its table again",
    layout.SCHEMAS: "remove the file {path} in the lake; if the next run stops a table for want "
    "of it, dump that again (`ratchet table CONFIG redump TABLE`)",
    layout.REQUESTS: "remove the file {path} in the lake, and ask again (`ratchet table`)",
    layout.ANSWERS: _AGAIN,
    layout.VERIFIED: _AGAIN,
    layout.LOG_CHECKED: _AGAIN,
    layout.BUNDLES: _AGAIN,  # the objects that it names go with their rounds
    layout.PASS: _AGAIN,
    layout.PARTITIONS: _AGAIN,
    layout.DATES_FILE: _AGAIN,
    layout.DATABASES_FILE: _AGAIN,
    layout.FOLDED_FILE: _AGAIN,
    layout.UPKEEP_FILE: _AGAIN,
    layout.LEFT_OUT_FILE: _AGAIN,
    layout.ENDING_FILE: _AGAIN,
    layout.ASIDE_FILE: _AGAIN,
    layout.FOREIGN_KEYS_FILE: _AGAIN,
    layout.ATTEMPTS_FILE: _AGAIN,
    layout.STARTS_FILE: _COMPARE,
    layout.UNCHECKED_FILE: _COMPARE,
    layout.ROUNDS: f"{_BACKUP}; or remove the folders {layout.ROUNDS} and {layout.CUTS} in the "
    "lake: the next run empties each table and dumps it again",
    layout.CUTS: "restore the lake from a backup that was made while no run worked; or remove the "
    f"folder {layout.CUTS} in it: the tables stay, the next run makes cuts again, and what the "
    "tables were before that can no longer be asked for by time",
}
_DAMAGED_OTHER: Final = (
    "restore it, or dump the table it belongs to again (`ratchet table CONFIG redump TABLE`)"
)
_LOG: Final = "/_delta_log"
# Something else stands where a file or a folder belongs: that is as good as a damaged one.
_MISPLACED: Final = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ELOOP})
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
# What reading the rows of a damaged file leads to, besides an OSError. It may seem to need what
# Arrow has not implemented or cannot hold, such as an encoding that nobody writes.
_UNREADABLE: Final = (
    *DAMAGE,
    pa.ArrowCapacityError,
    pa.ArrowNotImplementedError,
    pa.ArrowSerializationError,
)
_ALLOCATION: Final = re.compile(r"alloc of size (\d+)")
_IMPOSSIBLE: Final = 1 << 40  # bytes
# Words of object stores' clients, which no reader of Parquet uses.
_OF_STORE: Final = re.compile(
    r"aws|azure|google|s3|http|curl|request|connect|time[sd]?[ -]?out", re.IGNORECASE
)
_OTHER_HINT: Final = "see the cause; the lake's storage must be reachable and writable"


@contextmanager
def lake_errors(operation: str, path: str = "") -> Iterator[None]:
    """Turn what Arrow and the operating system raise into a LakeError with a remedy."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, operation, path) from error


@contextmanager
def sound(what: str) -> Iterator[None]:
    """Turn what reading damaged content leads to into an error with a remedy.

    Args:
        what: the file or the record.

    Raises:
        DamagedFileError: it is damaged.
    """
    try:
        yield
    except DAMAGE as error:
        raise DamagedFileError(
            f"{what} is damaged ({type(error).__name__})",
            operation=f"read {what}",
            hint=damage_hint(what),
        ) from error


class RawFiles(Protocol):
    """What a look at a file's bytes needs of a lake."""

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""

    def read_through(self, path: str) -> None:
        """Read a file to its end; a LakeError says why that does not go."""


@contextmanager
def content_errors(lake: RawFiles, path: str, operation: str) -> Iterator[None]:
    """For reading a file of rows: tells damage of it from a failure of the storage.

    Arrow raises an OSError without a number for both: for damage of what it reads, and for what an
    object store says. So the file's bytes are asked for once more, all of them. If the store hands
    them out, it is well, and they are damaged.

    Args:
        lake: where it lies.
        path: the file, or a part of a segment.
        operation: what is being done.

    Raises:
        DamagedFileError: it is damaged.
        LakeError: it is missing, or cannot be read.
    """
    try:
        yield
    except OSError as error:
        if errno_of(error) or not _is_of_content(lake, path, error):
            raise storage_error(error, operation, path) from error
        raise _damaged(path, operation, error) from error
    except MemoryError as error:
        if not _asks_for_too_much(error):
            raise
        raise _damaged(path, operation, error) from error
    except _UNREADABLE as error:
        raise _damaged(path, operation, error) from error


def _is_of_content(lake: RawFiles, path: str, error: OSError) -> bool:
    """Whether an error without a number comes from a file's bytes, and not from its storage."""
    if not lake.is_local and _OF_STORE.search(str(error)):
        return False  # what the store said may have passed by now
    try:
        lake.read_through(path.partition("#")[0])
    except LakeError:
        return False
    return True


def _asks_for_too_much(error: MemoryError) -> bool:
    """Whether it was for more than any machine has: no size that a sound file would ask for."""
    asked = _ALLOCATION.search(str(error))
    return asked is not None and int(asked[1]) >= _IMPOSSIBLE


def _damaged(path: str, operation: str, error: Exception) -> DamagedFileError:
    return DamagedFileError(
        f"{path} is damaged ({type(error).__name__})", operation=operation, hint=damage_hint(path)
    )


@contextmanager
def data_file_errors(lake: RawFiles, path: str, kind: str = "data") -> Iterator[None]:
    """For reading a file of one table's rows or changes: without it that must be dumped again.

    Args:
        lake: where it lies.
        path: the file.
        kind: "data" or "change".

    Raises:
        TableFileError: it is gone or damaged.
        LakeError: it cannot be read for another reason.
    """
    doing = f"read a {kind} file"
    try:
        with content_errors(lake, path, doing):
            yield
    except DamagedFileError as error:
        raise TableFileError(
            error.message, operation=doing, hint=lost_file_hint(path)
        ) from error.__cause__
    except LakeError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise TableFileError(error.message, operation=doing, hint=lost_file_hint(path)) from error


def lost_file_hint(path: str) -> str:
    """What to do about a file of a table, which its log names and which is gone or damaged.

    Args:
        path: of the file, or of the table's folder, in the lake.
    """
    return redump_hint(layout.table_of(path))


def redump_hint(table: str) -> str:
    """What to do about a table of which a file is gone or damaged.

    Args:
        table: keyspace.table; empty if it is not known.
    """
    named = shell_word(table) if table else "TABLE"
    return (
        f"dump the table again (`ratchet table CONFIG redump {named}`), then start the run if it "
        "has ended; only `ratchet` may change files in a lake"
    )


def damage_hint(path: str) -> str:
    """What to do about a damaged file of the lake, or a record of one of its logs."""
    plain = layout.plain_path(path)
    for head, remedy in _DAMAGED.items():
        if plain == head or plain.startswith(head + "/"):
            return remedy.format(path=path)
    return lost_file_hint(path) if _LOG in path else _DAMAGED_OTHER


def is_found_again(path: str) -> bool:
    """Whether a run finds out again what a note says, so that a damaged one counts as none."""
    return damage_hint(path) == _AGAIN.format(path=path)


def damage_kind(path: str) -> type[LakeError]:
    """What damage of a file is: of a table's own one, TableFileError, which stops that table alone.

    Args:
        path: of the file, or of the table's folder, in the lake.
    """
    return TableFileError if layout.is_tables_own(path) else LakeError


def storage_error(error: Exception, operation: str, path: str) -> LakeError:
    """What a failure of the storage means, with a remedy."""
    number = errno_of(error)
    what = os.strerror(number) if number else "the storage failed"
    misplaced = path and (number in _MISPLACED or "is a directory" in str(error).lower())
    kind = LakeAwayError if is_passing(error) else damage_kind(path) if misplaced else LakeError
    is_lost = number == errno.ENOENT and layout.is_of_logs(path)
    hint = damage_hint(path) if misplaced or is_lost else storage_hint(number)
    if not number and kind is not LakeAwayError and layout.is_of_logs(path):
        hint = f"{hint}; if the file is damaged, {damage_hint(path)}"
    if misplaced and number != errno.ENOTDIR:
        hint = hint.replace("remove the file", "remove the folder")  # which stands in its place
    return kind(f"{what}: {path or 'the lake'}", operation=f"{operation} in the lake", hint=hint)


def is_passing(error: Exception) -> bool:
    """Whether a failure of the storage may be over soon."""
    number = errno_of(error)
    if number:
        return number in _PASSING
    return _PASSING_TEXT.search(str(error)) is not None


def storage_hint(number: int) -> str:
    """What to do about an error with the operating system's number; 0 if it has none."""
    return _HINTS.get(number, _OTHER_HINT)


def errno_of(error: Exception) -> int:
    """The operating system's number of an error; 0 if it has none.

    Libraries written in Rust name it in their text only.
    """
    if isinstance(error, OSError) and error.errno:
        return error.errno
    named = _OS_ERROR.search(str(error))
    return int(named[1]) if named else 0
