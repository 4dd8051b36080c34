"""What processes use, as the kernel tells it: processor time and memory."""

from __future__ import annotations

import os
from pathlib import Path


class Processes:
    """Processes with all below them.

    Args:
        pids: those at the top.
    """

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._ticks: dict[int, int] = {}

    def cpu(self) -> float:
        """Seconds used so far.

        Of a process that has ended, what it had used when it was last looked at: Spark's Python
        workers end, and nobody is told what they have used.
        """
        for pid in self._all():
            fields = _stat(pid)
            if fields:
                self._ticks[pid] = int(fields[11]) + int(fields[12])
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def memory(self, *, java: bool = False) -> float:
        """MiB that Java's processes hold, or all others; pages that several share count once."""
        total = 0
        for pid in self._all():
            try:
                if ("java" in Path(f"/proc/{pid}/comm").read_text()) != java:
                    continue
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue  # it has just ended
            total += sum(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:")
        return total / 1024

    def _all(self) -> list[int]:
        parents = {}
        for entry in Path("/proc").iterdir():
            fields = _stat(int(entry.name)) if entry.name.isdigit() else None
            if fields:
                parents[int(entry.name)] = int(fields[1])
        found = list(self._pids)
        for pid in found:
            found += [
                child for child, parent in parents.items() if parent == pid and child not in found
            ]
        return found


def _stat(pid: int) -> list[str] | None:
    """The fields behind the name: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
