"""A TCP port on the loopback address that stays ours while a server is down.

Lives here: choosing a port and reserving it between processes. Does not live here: listening.

Invariant: two servers of any two processes of this user never get the same port, because each
holds a file lock on its number until it lets go or dies. The range lies below the one from which
Linux takes the ports of outgoing connections, so none of those takes it during a restart.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import IO, Final

from ratchet.core.errors import OperatorError

_FIRST: Final = 20_000
_COUNT: Final = 12_000
LOOPBACK: Final = "127.0.0.1"

# Neighbours in time start apart, so they seldom ask for one number; and one process goes on to
# the next, since a MariaDB's GTIDs tell two servers apart by an id that we make of the port.
_steps: Final = itertools.count(os.getpid() * 7)


class Port:
    """A reserved port number; `release()` gives it back."""

    def __init__(self) -> None:
        self.number, self._lock = _reserve()

    def release(self) -> None:
        """Let others have the number. Harmless when repeated."""
        self._lock.close()


def _reserve() -> tuple[int, IO[bytes]]:
    folder = Path(tempfile.gettempdir()) / f"ratchet-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OperatorError(
            f"{folder} is not a folder of ours, or others can write to it",
            operation="choose a port",
            hint="remove it, or set TMPDIR to a folder of your own",
        )
    for step in itertools.islice(_steps, _COUNT):
        number = _FIRST + step % _COUNT
        lock = (folder / str(number)).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        if _is_free(number):
            return number, lock
        lock.close()
    raise OperatorError(
        f"no free port from {_FIRST} to {_FIRST + _COUNT - 1}",
        operation="choose a port",
        hint="end servers that are no longer needed",
    )


def _is_free(number: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do
        try:
            probe.bind((LOOPBACK, number))
        except OSError:
            return False
    return True
