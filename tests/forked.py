"""Commands of tests as processes that are forked, not started: the same code, without its imports.

`python -m ratchet.jobs.cli` spends two seconds of a processor on its imports, and on most commands
of a test less than half a second more. So a server process imports all of Ratchet once, and forks
for each command. What is forked is a process as any other: it has its own environment, folder,
session and exit code, it can be halted and killed, and it ends as Python does.

It has no command line of its own in /proc, and the environment there is its server's. `is_alike`
tells which commands can be forked; `RATCHET_TESTS_EXEC=1` starts them all.

Run as a program, this module is the server.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

ROOT = Path(__file__).parents[1]
MESSAGE = 1 << 20  # bytes: more than any request
# What the environment may say differently than the server's: nothing of it is read by an import.
# Spark's are set by a test that has a session of its own, for the rest of its process.
READ_LATE = ("RATCHET_", "AWS_", "PYTEST_", "SPARK_", "PYSPARK_", "PYTHONSAFEPATH", "TZ")


def is_alike(environment: Mapping[str, str]) -> bool:
    """Whether a process with this environment imports what the server of this process imports."""
    if os.environ.get("RATCHET_TESTS_EXEC"):
        return False
    own = _server().environment
    names = {name for name, value in environment.items() if own.get(name) != value}
    return all(name.startswith(READ_LATE) for name in names | own.keys() - environment.keys())


def completed(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    Args:
        args: of `ratchet`.
        environment: what it gets besides our own; forked if all of that is in `READ_LATE`.
    """
    every = {**os.environ, **environment}
    if not is_alike(every):
        command = [sys.executable, "-m", "ratchet.jobs.cli", *args]
        return subprocess.run(
            command, cwd=ROOT, env=every, capture_output=True, text=True, check=False
        )
    with ForkedProcess(args, every, None) as process:
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.wait(), out, err)


class ForkedProcess:
    """One command; it has those methods of subprocess.Popen that tests use.

    Attributes:
        args: the command line.
        pid: of the process; it leads a session and a group of its own.
        returncode: once `poll` or `wait` has seen its end; as Popen's.
        stdout: what it writes.
        stderr: likewise; None if that goes to a file.
    """

    def __init__(
        self, args: Sequence[str], environment: Mapping[str, str], errors: IO[str] | None
    ) -> None:
        """Fork it.

        Args:
            args: of `ratchet`.
            environment: all of it.
            errors: gets what it writes to stderr; None: `stderr` does.
        """
        self.args = ["ratchet", *args]
        self.returncode: int | None = None
        self.stdout, out = _pipe()
        self.stderr: IO[str] | None = None
        if errors:
            err = os.dup(errors.fileno())
        else:
            self.stderr, err = _pipe()
        self._status, status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            fds = [nothing, out, err, status.fileno()]
            _server().ask({"args": list(args), "environment": dict(environment)}, fds)
        finally:
            status.close()
            for fd in (nothing, out, err):
                os.close(fd)
        self.pid = int(self._status.recv(MESSAGE))
        self._readers: list[_Reader] = []

    def poll(self) -> int | None:
        """The exit code, or None while it lives."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: that took longer; in seconds.
        """
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                said = self._status.recv(MESSAGE)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            assert said, "the server of forked commands has ended"
            self.returncode = int(said)
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read what it writes until it ends; what goes to a file is not in it.

        Raises:
            subprocess.TimeoutExpired: that took longer; can be called again then.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        streams = [stream for stream in (self.stdout, self.stderr) if stream]
        self._readers = self._readers or [_Reader(stream) for stream in streams]
        for reader in self._readers:
            reader.join(None if deadline is None else max(deadline - time.monotonic(), 0))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
        out, *err = (reader.text for reader in self._readers)
        return out, "".join(err)

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still lives."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream:
                stream.close()
        self.wait()


class _Reader(threading.Thread):
    """Reads a stream to its end."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(daemon=True)
        self.text = ""
        self._stream = stream
        self.start()

    def run(self) -> None:
        with self._stream:
            self.text = self._stream.read()


def _pipe() -> tuple[IO[str], int]:
    read, write = os.pipe()
    return os.fdopen(read, encoding="utf-8", errors="replace"), write


class _Server:
    """The server of this process, and the line to it. It ends when this process does."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def ask(self, request: object, fds: Sequence[int]) -> None:
        socket.send_fds(self._line, [json.dumps(request).encode()], fds)


@functools.cache
def _server() -> _Server:
    return _Server()


# --- the server's side ----------------------------------------------------------------------------


def _import_all() -> None:
    """Import what commands do, Spark's Python as well, and load the kernels."""
    import ratchet

    for module in pkgutil.walk_packages(ratchet.__path__, "ratchet."):
        importlib.import_module(module.name)
    from tests.fuzz import streams

    for seed in streams.stream_seeds()[:2]:
        streams.capture(seed)  # loads numba's machine code from its cache
    gc.collect()
    gc.freeze()  # pages that nobody writes to stay shared


def _serve(line: socket.socket) -> list[str] | None:
    """Fork for each request.

    Returns:
        In a process that was forked: the command's arguments. In the server: None, at the end.
    """
    waiting = selectors.DefaultSelector()
    waiting.register(line, selectors.EVENT_READ)
    # By what tells of a process's end: the process, and who is told.
    living: dict[int, tuple[int, int]] = {}
    while True:
        for key, _ in waiting.select():
            if key.fd != line.fileno():
                pid, status = living.pop(key.fd)
                waiting.unregister(key.fd)
                os.close(key.fd)
                _, ended = os.waitpid(pid, 0)
                with contextlib.suppress(OSError):  # the test has let go of it
                    os.write(status, str(os.waitstatus_to_exitcode(ended)).encode())
                os.close(status)
                continue
            text, fds, _, _ = socket.recv_fds(line, MESSAGE, 4)
            if not text:
                return None
            *streams, status = fds
            if not (pid := os.fork()):
                waiting.close()
                line.close()
                for fd in (*living, *(told for _, told in living.values())):
                    os.close(fd)
                request = json.loads(text)
                _become(request["environment"], streams, status)
                return list(request["args"])
            for fd in streams:
                os.close(fd)
            end = os.pidfd_open(pid)
            living[end] = (pid, status)
            waiting.register(end, selectors.EVENT_READ)


def _become(environment: Mapping[str, str], streams: Sequence[int], status: int) -> None:
    """Make this process a command's. It tells its pid once a signal reaches its group."""
    os.setsid()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.write(status, str(os.getpid()).encode())
    os.close(status)


def _main() -> None:
    sys.path[0] = str(ROOT)  # as `python -m` in this folder has it, instead of the tests'
    line = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(line.fileno(), False)
    _import_all()
    arguments = _serve(line)
    if arguments is None:
        return
    from ratchet.jobs.cli import main

    sys.argv = ["ratchet", *arguments]
    main(arguments)


if __name__ == "__main__":
    _main()
