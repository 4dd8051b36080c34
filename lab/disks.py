"""Disks of our own, that only the processes in their mount namespace see.

One gets full, and one fails.

The small one is a tmpfs and needs no root: where we are not, the namespace comes with a user
namespace in which we are. The failing one is an ext4 in a file, which only root may mount.

Neither way of failing takes away what was written before: what a folder may lose that was never
forced to its disk is told in docs/operations.md. ext4's own way to become read-only (`mount -o
remount,abort` does the same) throws away the last seconds, and the lake may be damaged by that.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ratchet.core.errors import OperatorError

ROOT = Path(__file__).resolve().parent.parent
# EXT4_IOC_SHUTDOWN, with EXT4_GOING_FLAGS_DEFAULT: what was written so far is on the disk.
_SHUTDOWN: Final = 0x8004587D
_MENDED: Final = {0, 1}  # e2fsck found nothing, or mended what it found

Failure = Literal["gone", "read-only"]


@dataclass(frozen=True)
class Disk:
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
    def seen(self) -> Path:
        """Where it lies for us."""
        return Path(f"/proc/{self.pid}/root{self.mounted}")

    def copy(self, folder: str, to: Path) -> Path:
        """Bring a folder of it out here; gives where it is now."""
        return Path(shutil.copytree(self.seen / folder, to))


@dataclass(frozen=True)
class SmallDisk(Disk):
    """One that gets full."""

    def fill(self, *, but: int) -> None:
        """Take all its space but so many bytes."""
        with (self.seen / "filler").open("wb") as out:
            taken, deadline = 0, time.monotonic() + 60
            while (more := self._room() - but) > 0:
                if time.monotonic() > deadline:
                    raise OperatorError(f"{more} bytes are left", operation="fill a disk")
                # A run that writes meanwhile may have taken some of it, and then none is ours.
                try:
                    os.posix_fallocate(out.fileno(), taken, more)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                else:
                    taken += more

    def _room(self) -> int:
        disk = os.statvfs(self.seen)
        return disk.f_bavail * disk.f_frsize

    def free(self) -> None:
        """Give the space back."""
        (self.seen / "filler").unlink()


@dataclass(frozen=True)
class FailingDisk(Disk):
    """One that fails under whoever uses it, files open for writing or not.

    Attributes:
        image: the file that it lies in.
    """

    image: Path

    def fail(self, how: Failure) -> None:
        """Make the kernel give it up.

        Args:
            how: "gone": whatever opens, reads, writes or forces a file gets EIO, as behind a
                controller that died. "read-only": reads go on; what makes, opens for writing or
                removes a file gets EROFS.
        """
        if how == "read-only":
            # `remount,ro` is refused as long as a file is open for writing, and Spark's log always
            # is. So a read-only mount of the same comes to lie above, for every path from now on.
            above = self.mounted.with_name(f"{self.mounted.name}.ro")
            above.mkdir(exist_ok=True)
            self._do("mount", "--bind", str(self.mounted), str(above))
            self._do("mount", "-o", "remount,bind,ro", str(above))
            self._do("mount", "--move", str(above), str(self.mounted))
            return
        folder = os.open(self.seen, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", 0))
        finally:
            os.close(folder)

    def mend(self) -> None:
        """Unmount, check and mount it, as an administrator would. Nobody may use it any more."""
        mounts = Path(f"/proc/{self.pid}/mounts").read_text().splitlines()
        for _ in [line for line in mounts if line.split()[1] == str(self.mounted)]:
            self._do("umount", str(self.mounted))  # one above the other
        checked = subprocess.run(
            ["e2fsck", "-p", str(self.image)], capture_output=True, text=True, check=False
        )
        if checked.returncode not in _MENDED:
            raise OperatorError(checked.stdout + checked.stderr, operation="check a disk")
        self._do("mount", "-o", "loop", str(self.image), str(self.mounted))

    def _do(self, *command: str) -> None:
        subprocess.run([*self.inside, *command], check=True)


@contextmanager
def _namespace(script: str, *arguments: str) -> Iterator[int]:
    """A process in a mount namespace of its own, where the script has mounted something."""
    users = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    unshare = ("unshare", "--mount", *users)
    holder = subprocess.Popen(
        [*unshare, "sh", "-c", f"{script} && echo mounted && exec cat", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if holder.stdout is None or holder.stdout.readline() != "mounted\n":
            raise OperatorError("it was not mounted", operation="make a disk of our own")
        yield holder.pid
    finally:
        holder.communicate()  # closes its stdin, and with it `cat` ends


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """One that gets full.

    Args:
        folder: where it is mounted; made.
        size: as `mount` takes it.
    """
    folder.mkdir()
    script = 'mount -t tmpfs -o "size=$1" none "$0"'
    with _namespace(script, str(folder), size) as pid:
        yield SmallDisk(pid, folder)


@contextmanager
def failing_disk(folder: Path, size: int) -> Iterator[FailingDisk]:
    """One that fails.

    Args:
        folder: where it is mounted; made.
        size: bytes.
    """
    folder.mkdir()
    image = folder.with_name(f"{folder.name}.ext4")
    with image.open("xb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    script = 'mount -o loop "$1" "$0"'
    with _namespace(script, str(folder), str(image)) as pid:
        yield FailingDisk(pid, folder, image)
