"""Looking for a text in the memory, the environment and the arguments of processes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from process_kit import descendants, program_of

_STEP = 4 << 20
_OVERLAP = 1 << 10


def pieces_of_memory(pid: int) -> Iterator[bytes]:
    """What a process has written into its memory, in pieces that overlap."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in lines:
            bounds, mode = line.split()[:2]
            begin, end = (int(bound, 16) for bound in bounds.split("-"))
            if not mode.startswith("rw") or line.endswith(("[vvar]", "[vsyscall]")):
                continue
            for at in range(begin, end, _STEP):
                # Reserved and not used yet, or given back meanwhile.
                with contextlib.suppress(OSError, ValueError):
                    memory.seek(at)
                    yield memory.read(min(_STEP + _OVERLAP, end - at))


class ChildWatch(threading.Thread):
    """Looks again and again at what a command has started.

    Attributes:
        found: where the text was.
        java: how often a JVM's memory was looked through.
        children: all processes that were seen.
    """

    def __init__(self, pid: int, holds: Callable[[bytes], bool]) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._holds = holds
        self._over = threading.Event()
        self.found: set[str] = set()
        self.java = 0
        self.children: set[int] = set()

    def run(self) -> None:
        while not self._over.wait(0.3):
            for pid in descendants(self._pid):
                self.children.add(pid)
                with contextlib.suppress(OSError):  # it has ended
                    self._look_at(pid)

    def finish(self) -> None:
        self._over.set()
        self.join()

    def _look_at(self, pid: int) -> None:
        # Before its environment: one that is about to begin another program has the command's.
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        seen = {name: Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline")}
        if command == Path(f"/proc/{self._pid}/cmdline").read_bytes():
            return  # the command itself, until its child begins another program
        self.found |= {f"{name} of {command!r}" for name in seen if self._holds(seen[name])}
        if program_of(pid) == "java":
            if any(map(self._holds, pieces_of_memory(pid))):
                self.found.add(f"memory of Java {pid}")
            self.java += 1
