"""Files that are run, believed or written to: nobody else may have made or changed them.

Lives here: the look at owner and mode, of a file (`distrust`) and of the way to it (`opening`).
Does not live here: what is refused then, and how that is said to the user.

Invariant: whoever could change such a file could run code as us. So it is ours, or root's, or
belongs to the one whose program we run anyway; and no other may write to it or to its folder.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

_MAX_LINKS: Final = 40  # as the kernel has it
# A POSIX ACL as Linux gives it: a version, then tag, rights and number of each entry.
_ACL: Final = "system.posix_acl_access"
_ENTRY: Final = struct.Struct("<HHI")
_USER, _OWN_GROUP, _GROUP, _WRITE = 0x02, 0x04, 0x08, 0x02


@dataclass(frozen=True, slots=True)
class Opening:
    """A folder or a link at which another user could turn a way to somewhere else.

    Attributes:
        place: the folder or link.
        reason: what is wrong with it, behind its name.
        by: whose right it is: the owner's, everybody's, or a group's.
    """

    place: Path
    reason: str
    by: Literal["owner", "all", "group"] = "owner"

    def __str__(self) -> str:
        return f"{self.place} {self.reason}"


def distrust(path: Path, *, program: Path | None = None) -> str:
    """Why a file or folder must not be used; empty if it may be, or is not there.

    A link is looked at itself: one that somebody else made leads wherever they want.

    Args:
        path: the file or folder.
        program: a file of the program that we run; its owner is trusted.
    """
    try:
        trusted = _trusted(program)
        target = Path(os.path.realpath(path))  # unlike `resolve`, it lets `stat` tell of a loop
        for place, found in ((path, path.lstat()), (target, path.stat())):
            if reason := _reason(place, found, trusted):
                return f"{path} {reason}"
    except FileNotFoundError:
        return ""
    return ""


def refuse_foreign_pipe(path: Path) -> None:
    """Do not wait for what another user writes into a pipe, which may be never.

    A pipe of our own is what `<(...)` of a shell is.

    Raises:
        PermissionError: it is another user's pipe.
        OSError: it cannot be looked at.
    """
    found = path.stat()
    if stat.S_ISFIFO(found.st_mode) and found.st_uid not in {0, os.geteuid()}:
        raise PermissionError(errno.EACCES, f"it is a pipe of {_name(found.st_uid)}", str(path))


def distrust_code(path: Path, *, program: Path | None = None) -> str:
    """Why a file must not be run; empty if it may be, or is not there.

    Looked at are the file, its folder, and the way there: who may exchange a folder above it may do
    so between this look and the moment at which the file is read.

    Args:
        path: the file.
        program: see distrust.
    """
    why = distrust(path.parent, program=program) or distrust(path, program=program)
    return why or str(opening(path, program=program) or "")


def opening(path: Path, *, program: Path | None = None) -> Opening | None:
    """The first of `openings`; None if there is none."""
    return next(openings(path, program=program), None)


def openings(path: Path, *, program: Path | None = None) -> Iterator[Opening]:
    """Where another user could put something else in a file's or folder's place.

    Looked at is the way there, from the root on: each folder, and each link, also those behind
    links. Not what is at its end (`distrust`), which need not be there yet. In a folder with the
    sticky bit nobody can exchange what is not his.

    Args:
        path: the file or folder.
        program: see distrust.
    """
    try:
        trusted = _trusted(program)
        for place, found in _way(path):
            is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
            if found.st_uid in trusted and is_sticky:
                continue
            if reason := _reason(place, found, trusted):
                if found.st_uid not in trusted:
                    yield Opening(place, reason)
                else:
                    yield Opening(place, reason, "all" if found.st_mode & stat.S_IWOTH else "group")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield Opening(path, f"cannot be followed: {error.strerror}")


def _trusted(program: Path | None) -> set[int]:
    """The users whose files are run."""
    return {0, os.geteuid()} | ({program.stat().st_uid} if program is not None else set())


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Each folder and link that is passed on the way to a path."""
    whole = path.absolute()
    here, left = Path(whole.anchor), [*reversed(whole.parts[1:])]
    links = 0
    while left:
        yield here, here.lstat()
        name = left.pop()
        step = here.parent if name == ".." else here / name
        try:
            found = step.lstat()
        except FileNotFoundError:
            if left:
                raise
            return
        if not stat.S_ISLNK(found.st_mode):
            here = step
            continue
        yield step, found
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = step.readlink()
        here = Path(target.anchor) if target.is_absolute() else here
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _reason(place: Path, found: os.stat_result, trusted: set[int]) -> str:
    if found.st_uid not in trusted:
        return f"belongs to {_name(found.st_uid)}"
    if stat.S_ISLNK(found.st_mode):
        return ""  # a link's own mode says nothing
    if found.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    # Where there is an ACL, the group's part of the mode bounds what it allows anybody.
    if found.st_mode & stat.S_IWGRP:
        return _group_reason(place, found, trusted)
    return ""


def _group_reason(place: Path, found: os.stat_result, trusted: set[int]) -> str:
    allowed = [(_OWN_GROUP, 0)]
    try:
        acl = os.getxattr(place, _ACL, follow_symlinks=False)
    except OSError:  # none, or a file system without them
        pass
    else:
        entries = _ENTRY.iter_unpack(acl[4 : len(acl) - (len(acl) - 4) % _ENTRY.size])
        allowed = [(tag, number) for tag, rights, number in entries if rights & _WRITE]
    for tag, number in allowed:
        if tag == _OWN_GROUP and not _is_private(found.st_gid):
            return "can be written by its group"
        if tag == _USER and number not in trusted:
            return f"can be written by {_name(number)}, by its ACL"
        if tag == _GROUP and not _is_private(number):
            return f"can be written by the group {number}, by its ACL"
    return ""


def _is_private(group: int) -> bool:
    """Whether a group is root's, or has no members but us, as many systems make one for each user.

    By such a system's umask a group may write everything.
    """
    if group == 0:
        return True
    try:
        own = pwd.getpwuid(os.geteuid())
        found = grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == own.pw_name and set(found.gr_mem) <= {own.pw_name}


def _name(user: int) -> str:
    try:
        return f"the user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"the user {user}"
