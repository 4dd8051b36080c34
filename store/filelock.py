"""A lock on a file of a folder, that nobody waits for without end.

Lives here: taking it, and telling who has it. Does not live here: what is changed under it
(`files`).

A process that stands still (SIGSTOP, a frozen machine) while it holds the lock would hold up every
other one. So whoever waits gives up after a while, and says which process to end. The kernel gives
the lock of a process that ends to the next one; whoever removes the file (`StuckLockError.remove`)
lets the others go on with a new one, and the one that stands still with its own.

Invariant: who has the lock has it on the file that lies there now.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import Final, NoReturn

from ratchet.core.errors import LakeError
from ratchet.store.failures import lake_errors

# Renewals of a lease are due each 5 s, and a lease lasts for 30 s: one that gave up comes again.
LOCK_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.02


class StuckLockError(LakeError):
    """A process holds a lock and does not give it back."""

    def __init__(self, file: Path, who: str) -> None:
        """Of a lock's file, and who has it by its own words."""
        super().__init__(
            f"{who} holds the lock {file} and does not release it: it seems to stand still",
            operation="lock a file",
            hint="on its machine end that process (`kill -9 PID`) or let it continue (`kill -CONT "
            "PID`), then start again; if it cannot be found or its machine is frozen, remove "
            f"{file}: what a run that was taken over writes later is refused",
        )
        self._file, self._who = file, who

    def is_held_by(self, pid: int, host: str) -> bool:
        """Whether it is that process."""
        return self._who == _name(pid, host)

    def remove(self) -> None:
        """Take the lock away from it.

        Only where nothing goes wrong if that process writes as well, once it is awake.
        """
        with lake_errors("remove", self._file.name):
            self._file.unlink(missing_ok=True)


@contextmanager
def locked(
    file: Path,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Have the lock of a file, which is made if it is not there; its folder is.

    Args:
        file: the lock's.
        clock: seconds, rising.
        sleep: lets so many pass.

    Raises:
        StuckLockError: another process has had it all the while.
        LakeError: the file cannot be written.
    """
    with lake_errors("lock a file", file.name):
        stream = _take(file, clock, sleep)
    with stream:
        with lake_errors("lock a file", file.name):
            stream.write(_name(os.getpid(), os.uname().nodename).encode())
        try:
            yield
        finally:
            with lake_errors("lock a file", file.name):
                stream.truncate(0)  # nobody is to end us for the next one's lock


def _take(file: Path, clock: Callable[[], float], sleep: Callable[[float], None]) -> FileIO:
    end = clock() + LOCK_SECONDS
    while True:
        with ExitStack() as undo:
            # Unbuffered: what a full disk refuses must not be tried again when it is closed.
            stream = undo.enter_context(open(file, "a+b", buffering=0, opener=_opened))
            _keep_to_writers(stream)
            if _try(stream) and _lies_there(stream, file):
                stream.truncate(0)
                undo.pop_all()
                return stream
            if clock() >= end:
                _refuse(stream, file)
        sleep(_LOOK_SECONDS)


def _opened(file: str, flags: int) -> int:
    """A new file is nobody else's to read at any moment; `_keep_to_writers` gives that back."""
    return os.open(file, flags, 0o622)


def _keep_to_writers(stream: FileIO) -> None:
    """Let those open the file who may write it: whoever else may read it could hold its lock."""
    status = os.fstat(stream.fileno())
    mode = stat.S_IMODE(status.st_mode)
    may_write = mode & 0o022
    kept = mode & ~0o044 | may_write << 1  # the right to read is one bit above that to write
    if kept != mode and status.st_uid == os.geteuid():
        os.fchmod(stream.fileno(), kept)


def _try(stream: FileIO) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lies_there(stream: FileIO, file: Path) -> bool:
    """Whether it is no file that was removed while we waited for its lock."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), file.stat())
    except FileNotFoundError:
        return False


def _refuse(stream: FileIO, file: Path) -> NoReturn:
    stream.seek(0)
    unknown = f"a process that does not say who it is (as root, `fuser {file}` tells its pid)"
    raise StuckLockError(file, stream.read(300).decode(errors="replace") or unknown)


def _name(pid: int, host: str) -> str:
    return f"pid {pid} on {host}"
