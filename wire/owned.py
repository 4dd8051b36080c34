"""Files that are run, or turned into objects: nobody else may have written them.

Lives here: the look at owner and mode. Does not live here: what is refused then, and how that is
said to the user.

Invariant: whoever could change such a file could run code as us. So it is ours, or root's, or
belongs to the one whose program we run anyway; and no other may write to it or to its folder.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def distrust(path: Path, *, program: Path | None = None) -> str:
    """Why a file or folder must not be used; empty if it may be, or is not there.

    A link is looked at itself: one that somebody else made leads wherever they want.

    Args:
        path: the file or folder.
        program: a file of the program that we run; its owner is trusted.
    """
    try:
        trusted = {0, os.geteuid()} | ({program.stat().st_uid} if program is not None else set())
        for found in {path.lstat(), path.stat()}:
            if reason := _reason(found, trusted):
                return f"{path} {reason}"
    except FileNotFoundError:
        return ""
    return ""


def _reason(found: os.stat_result, trusted: set[int]) -> str:
    if found.st_uid not in trusted:
        return f"belongs to {_name(found.st_uid)}"
    if stat.S_ISLNK(found.st_mode):
        return ""  # a link's own mode says nothing
    if found.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return "can be written by its group"
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
