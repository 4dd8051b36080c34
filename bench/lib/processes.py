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

    def memory(self) -> float:
        """MiB that the processes besides Java's hold; pages that several share count once."""
        return self.memories()[0]

    def memories(self) -> tuple[float, float]:
        """MiB that the processes besides Java's hold, and that all of them hold.

        Java's is what is resident of it: to count a heap's pages one by one takes the kernel some
        10 ms a gigabyte, and it shares next to none.
        """
        others = java = 0.0
        for pid in self._all():
            try:
                if Path(f"/proc/{pid}/exe").readlink().name == "java":
                    if _is_copy(pid):
                        continue
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                    java += pages * os.sysconf("SC_PAGE_SIZE") / 1024
                    continue
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue  # it has just ended
            others += sum(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:")
        return others / 1024, (others + java) / 1024

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


def _is_copy(pid: int) -> bool:
    """Whether it is what Java makes of itself for a moment, to become another program.

    Hadoop starts one now and then (chmod). All of its parent's memory would count once more.
    """
    fields = _stat(pid)
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    try:
        return fields is not None and command == Path(f"/proc/{fields[1]}/cmdline").read_bytes()
    except OSError:
        return False


def _stat(pid: int) -> list[str] | None:
    """The fields behind the name: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
