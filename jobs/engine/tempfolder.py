"""A command's folder for temporary files, and the removal of those that killed commands left.

Lives here: making it, telling whether its owner lives. Does not live here: what lies in it.

Invariants: the name is drawn afresh and only we may look inside, so nobody can have laid anything
there before; and nobody else can put another folder in its place. What is removed is a real folder
of ours whose lock can be taken: the lock is held for as long as the command lives, or the JVM that
it has started, by the kernel. A JVM lives on for a moment where its command is killed: were its
folder removed, another user could make one of that name, and Java would write and load programs
there. A process's number proves nothing, since two containers may share the folder and not the
numbers.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ratchet.core.errors import ConfigError, OperatorError
from ratchet.core.shell import shell_word
from ratchet.owned import opening

log: Final = logging.getLogger(__name__)

PREFIX: Final = "ratchet-run-"
LOCK: Final = "lock"
_NEW: Final = "lock.new"
# A folder without a lock is being made just now, or its maker was killed in that very moment.
_MADE_WITHIN: Final = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class HeldFolder:
    """A command's folder.

    Attributes:
        path: where it is.
        lock: descriptor of its lock. A process that gets it holds the folder as well.
    """

    path: Path
    lock: int


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder of mode 0700 below $TMPDIR, removed at the end. See `held_folder`."""
    with held_folder() as held:
        yield held.path


@contextmanager
def held_folder() -> Iterator[HeldFolder]:
    """The same, for whoever gives it to other processes.

    It is removed once none of them has its lock any more: at the end, or by another command.

    Raises:
        ConfigError: another user could exchange it.
        OperatorError: there is no folder for temporary files that we can write to.
    """
    try:
        base = Path(tempfile.gettempdir()).resolve()
        _refuse_open(base)
        remove_left(base)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    except OSError as error:
        raise OperatorError(
            f"a folder for temporary files cannot be created: {error}",
            operation="make a temporary folder",
            hint="set TMPDIR to a folder on a local disk that this user may write to",
        ) from error
    try:
        with _locked(folder) as lock:
            yield HeldFolder(folder, lock)
    finally:
        with suppress(FileNotFoundError):
            _remove_if_left(folder)


def remove_left(base: Path) -> None:
    """Remove our folders whose commands have ended without doing so."""
    for folder in base.glob(f"{PREFIX}*"):
        # Another command may be removing the same one.
        with suppress(FileNotFoundError, NotADirectoryError):
            _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    if not _is_ours(folder.lstat()):
        return
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - folder.lstat().st_mtime > _MADE_WITHIN:
            shutil.rmtree(folder, ignore_errors=True)
        return
    except OSError as error:  # a link, or a file of another mode: none of our making
        log.warning("%s is left as it is: %s", folder, error)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # its command lives, or what that has started
    else:
        # Its fd-based walk follows no link; what cannot be removed is tried again another time.
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _is_ours(found: os.stat_result) -> bool:
    mode = stat.S_IMODE(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and mode == 0o700


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Under its final name the lock is held from the beginning. Gives its descriptor."""
    lock = os.open(folder / _NEW, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / _NEW).rename(folder / LOCK)
        yield lock
    finally:
        os.close(lock)


def _refuse_open(base: Path) -> None:
    """Whoever may change a folder, or one above it, can put another one in the place of ours.

    Raises:
        ConfigError: that is somebody besides root and us.
    """
    found = opening(base / PREFIX)
    if found is None:
        return
    # Against an owner the bit does not help.
    sticky = "" if found.by == "owner" else f"chmod +t {shell_word(str(found.place))}, or "
    raise ConfigError(
        f"temporary files cannot be in {base}: {found}, so another user can replace them, and "
        "Java loads programs from there",
        operation="make a temporary folder",
        hint=f"{sticky}set TMPDIR to a folder of your own (mode 0700), or "
        "to one that root owns, such as /tmp",
    )
