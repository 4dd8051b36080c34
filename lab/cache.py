"""The cache folder: what is downloaded or prepared once and used again.

Lives here: the lock that lets one process prepare an entry while others
wait, and the rule that an entry appears whole or not at all. Does not live here: what the
entries are (`debs`, `template`), and where the folder is (`ratchet.resources`).

Invariant: a folder under its final name is complete, because it is built under a temporary name
and renamed. A half-finished download therefore never counts as done.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.places import refuse_shared
from ratchet.resources import make_folder


@contextmanager
def locked(lock_file: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; it ends with the process at the latest.

    Nobody else may open its file: whoever may read one can lock it, for ever.
    """
    lock = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(lock, 0o600)  # earlier versions made it for all to read
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def prepared(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, built by `build(empty temporary folder)` if it does not exist yet.

    Raises:
        ConfigError: another user made it, or the folder that it is in, or could change it.
    """
    make_folder(folder.parent)
    for one in (folder.parent, folder):
        refuse_shared(one, hint="remove it, or set RATCHET_CACHE to a folder of your own")
    if folder.is_dir():
        return folder
    prefix = f".{folder.name}-"
    with locked(folder.parent / f".{folder.name}.lock"):
        if folder.is_dir():  # another process built it while this one waited
            return folder
        for stale in folder.parent.glob(f"{prefix}*"):  # nobody builds while we hold the lock
            shutil.rmtree(stale)
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
        try:
            build(work)
            work.rename(folder)
        finally:
            if work.exists():
                shutil.rmtree(work)
    return folder
