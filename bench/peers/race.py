"""One peer's process, measured from outside: time, processor, memory, the server's share."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.lib.processes import Processes

ROOT: Final = Path(__file__).parents[2]
_LOOK: Final = 0.2  # seconds between two looks at the processor time
_MEMORY_EVERY: Final = 3  # looks; counting a process's pages is itself work


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process and all below it have used.

    Attributes:
        code: its exit code.
        wall: seconds from its start to its end.
        cpu: seconds of processor time.
        server_cpu: what the source's server used meanwhile.
        peak: the most memory they held together, MiB.
        peak_outside_java: the same without Java's.
    """

    code: int
    wall: float
    cpu: float
    server_cpu: float
    peak: float
    peak_outside_java: float


def measure(command: Sequence[str], *, log: Path, server: int, limit: float) -> Usage:
    """Run a command to its end in the checkout's folder.

    Args:
        command: the program and its arguments.
        log: takes all that it prints.
        server: the process of the source's server.
        limit: seconds after which it is ended, with all that it started.
    """
    environment = {**os.environ, "TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1"}
    source, server_cpu = Processes(server), Processes(server).cpu()
    began = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True
        )
    tree = Processes(process.pid)
    cpu = peak = outside = 0.0
    looks, ended = 0, None
    try:
        while ended is None and time.perf_counter() - began < limit:
            cpu = max(cpu, tree.cpu())
            if looks % _MEMORY_EVERY == 0:
                without, whole = tree.memories()
                peak, outside = max(peak, whole), max(outside, without)
            looks += 1
            time.sleep(_LOOK)
            ended = _ended(process)
        wall = time.perf_counter() - began
    finally:
        _end(process)
    used = ended or _ended(process, wait=True)
    assert used is not None
    if peak == outside:  # no Java: what the kernel knows of the largest process is a floor
        peak = outside = max(outside, used.ru_maxrss / 1024)
    return Usage(
        code=process.returncode,
        wall=wall,
        cpu=max(cpu, used.ru_utime + used.ru_stime),
        server_cpu=source.cpu() - server_cpu,
        peak=peak,
        peak_outside_java=outside,
    )


def _ended(
    process: subprocess.Popen[bytes], *, wait: bool = False
) -> resource.struct_rusage | None:
    """What the process has used, with those that it has waited for; None while it lives."""
    pid, status, used = os.wait4(process.pid, 0 if wait else os.WNOHANG)
    if pid == 0:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return used


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the process's group: it is of a session of its own, so nobody else's."""
    with contextlib.suppress(ProcessLookupError):  # all have ended, as they should
        os.killpg(process.pid, signal.SIGKILL)
