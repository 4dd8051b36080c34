"""Removing a folder of a disk so that a late process cannot remove what its successor makes there.

Lives here: that, for a disk. Does not live here: what is removed, and the same in an object store
(`files`).

Invariant: only what was there before the look is removed. The folders are held open meanwhile, so
a folder of the same name that somebody makes later is another one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_GONE_ON: Final = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}


@dataclass(frozen=True, slots=True)
class _Seen:
    """A folder as it was.

    Attributes:
        path: of it.
        opened: its file descriptor.
        files: the names of what is no folder.
    """

    path: Path
    opened: int
    files: tuple[str, ...]

    def remove(self) -> None:
        """Remove its files and, if nothing has come since, the folder."""
        for name in sorted(self.files, key=removal_order):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.opened)
        try:
            if os.path.samestat(self.path.stat(), os.fstat(self.opened)):
                self.path.rmdir()
        except OSError as error:
            if error.errno not in _GONE_ON:
                raise


def removal_order(name: str) -> tuple[bool, str]:
    """A sort key of a log's files: the commits last, from the first one on.

    So a log of which only some is removed stays one that cannot be read, and is removed as well,
    with its folder.
    """
    return name.endswith(".json"), name


def remove_seen(folder: str, look: Callable[[], None]) -> None:
    """Remove a folder with all that is in it.

    Args:
        folder: its path; nothing happens if it is not there.
        look: called when all is listed and held, before the first removal. What it raises goes on,
            and nothing is removed.

    Raises:
        OSError: something cannot be removed.
    """
    with ExitStack() as held:
        seen = list(_seen(Path(folder), held))
        look()
        for one in reversed(seen):  # those within a folder come behind it
            one.remove()


def _seen(folder: Path, held: ExitStack) -> Iterator[_Seen]:
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    held.callback(os.close, opened)
    with os.scandir(opened) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    yield _Seen(folder, opened, tuple(name for name, is_folder in entries if not is_folder))
    for name in (name for name, is_folder in entries if is_folder):
        yield from _seen(folder / name, held)
