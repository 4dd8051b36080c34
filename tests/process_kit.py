"""What /proc tells of other processes, which may end while it is read."""

from __future__ import annotations

import contextlib
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """All processes that a process has started, and those that they have."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def program_of(pid: int) -> str:
    """The name of what a process runs; nothing, if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_halted(pid: int) -> bool:
    """Whether a process stands still (SIGSTOP)."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"
