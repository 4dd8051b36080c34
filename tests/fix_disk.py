"""A small disk of a test's own: a tmpfs that only the processes in its mount namespace see.

Needs no root: where we are not, the namespace comes with a user namespace in which we are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class SmallDisk:
    """A mounted disk.

    Attributes:
        pid: a process that lives in its namespace.
        mounted: where it lies for those who are in there.
    """

    pid: int
    mounted: Path

    @property
    def inside(self) -> tuple[str, ...]:
        """The head of a command line that runs in the namespace."""
        users = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        return ("nsenter", f"--target={self.pid}", "--mount", *users, f"--wdns={ROOT}")

    @property
    def _seen(self) -> Path:
        return Path(f"/proc/{self.pid}/root{self.mounted}")

    def copy(self, folder: str, to: Path) -> Path:
        """Bring a folder of it out here; gives where it is now."""
        return Path(shutil.copytree(self._seen / folder, to))

    def fill(self, *, but: int) -> None:
        """Take all its space but so many bytes."""
        disk = os.statvfs(self._seen)
        with (self._seen / "filler").open("wb") as out:
            os.posix_fallocate(out.fileno(), 0, disk.f_bavail * disk.f_frsize - but)

    def free(self) -> None:
        """Give the space back."""
        (self._seen / "filler").unlink()


@pytest.fixture
def make_disk() -> Iterator[Callable[[Path, str], SmallDisk]]:
    """A factory: the folder to mount on, and the size as `mount` takes it."""
    holders: list[subprocess.Popen[str]] = []

    def make(folder: Path, size: str) -> SmallDisk:
        folder.mkdir()
        users = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        script = 'mount -t tmpfs -o "size=$1" none "$0" && echo mounted && exec cat'
        holder = subprocess.Popen(
            ["unshare", "--mount", *users, "sh", "-c", script, str(folder), size],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        holders.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mounted\n"
        return SmallDisk(holder.pid, folder)

    yield make
    for holder in holders:
        holder.communicate()  # closes its stdin, and with it `cat` ends
