"""A wrong clock for processes of ours, by a few lines of C that are loaded before the C library.

Lives here: making them, and what processes are started with. Only the wall clock is wrong: the time
that passes (`time.monotonic`) and the times of files stay. libfaketime was dropped: with the clock
that passes left alone, Debian's 0.9.10 breaks the sleep of Python 3.11.
"""

from __future__ import annotations

import mmap
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ratchet.core.errors import OperatorError

_FILE: Final = "RATCHET_LAB_CLOCK"
_SOURCE: Final = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *ahead;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("RATCHET_LAB_CLOCK"), O_RDONLY | O_CLOEXEC);
    void *where = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (where == MAP_FAILED) _exit(127);
    ahead = where;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (told) *told = exact.tv_sec;
    return exact.tv_sec;
}
"""


class Clock:
    """One that some processes share, and that may be set while they run. Needs a C compiler.

    Args:
        home: a folder for what is made.
    """

    def __init__(self, home: Path) -> None:
        self._file = home / "clock"
        self._file.write_bytes(bytes(8))
        source, self._library = home / "clock.c", home / "clock.so"
        source.write_text(_SOURCE)
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(self._library), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            raise OperatorError(
                f"the C compiler failed: {getattr(error, 'stderr', error)}",
                operation="make a wrong clock",
                hint="it is Debian's package gcc",
            ) from error

    def set(self, seconds: int) -> None:
        """Let it be ahead by so much from now on; less than 0: behind."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 8) as shared:
            shared[:] = struct.pack("<q", seconds)

    @property
    def environment(self) -> Mapping[str, str]:
        """What its processes are started with."""
        return {"LD_PRELOAD": str(self._library), _FILE: str(self._file)}
