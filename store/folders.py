"""Folders of a disk that are removed and made anew, of which a late process may know the old one.

Lives here: removing one so that nothing is removed of what a successor makes there, and making a
file in it so that it cannot come into a successor's. Does not live here: what is removed or made,
and the same in an object store (`files`).

Invariant: only what was there before the look is removed, and a file is made in the folder that was
looked at. The folders are held open meanwhile, so a folder of the same name that somebody makes
later is another one.
"""

from __future__ import annotations

import errno
import os
import uuid
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

    def remove(self) -> bool:
        """Remove its files and, if nothing has come since, the folder; whether something has."""
        for name in sorted(self.files, key=removal_order):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.opened)
        try:
            if os.path.samestat(self.path.stat(), os.fstat(self.opened)):
                self.path.rmdir()
        except OSError as error:
            if error.errno not in _GONE_ON:
                raise
            return error.errno != errno.ENOENT
        return False


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
            and nothing is removed. What a late process has put there since is removed as well,
            after another look: else it would stand in what is made there next.

    Raises:
        OSError: something cannot be removed.
    """
    while _removed(Path(folder), look):
        pass


def _removed(folder: Path, look: Callable[[], None]) -> bool:
    """Remove what is there; whether something came meanwhile."""
    with ExitStack() as held:
        seen = list(_seen(folder, held))
        look()
        came = [one.remove() for one in reversed(seen)]  # those within a folder come behind it
        return any(came)


def create_in(
    folder: str, name: str, content: bytes, before: str, look: Callable[[bytes | None], None]
) -> bool:
    """Make a whole file in a folder unless there is one; False if there is.

    Args:
        folder: its path.
        name: of the file.
        content: of it.
        before: the name of a file beside it.
        look: called with what that one has in it, None if it is not there. What it raises goes on,
            and the file is not made. If the folder is removed afterwards, the file is not made
            either, and it is called with None.

    Raises:
        OSError: it cannot be made.
    """
    try:
        with ExitStack() as stack:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, held)
            look(_content(held, before))
            return _create(held, name, content)
    except FileNotFoundError:
        look(None)
        raise


def _content(held: int, name: str) -> bytes | None:
    try:
        opened = os.open(name, os.O_RDONLY, dir_fd=held)
    except FileNotFoundError:
        return None
    with os.fdopen(opened, "rb") as stream:
        return stream.read()


def _create(held: int, name: str, content: bytes) -> bool:
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=held)
        return False
    temporary = f".{name}.{uuid.uuid4().hex}.tmp"
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=held)
    try:
        with os.fdopen(opened, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(temporary, name, src_dir_fd=held, dst_dir_fd=held)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=held)
    return True


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
