"""One server process, and a guard that ends it when we die.

Lives here: starting a process in a session of its own, ending it politely or not, and the guard.
Does not live here: what the process is and when it is ready (`servers`).

Invariant: the process does not outlive its starter, not even after `kill -9` of the starter. The
guard is a shell that waits for the end of a pipe which only the starter holds open. (The kernel's
parent-death signal was dropped: it fires when the starting *thread* ends. Signal handlers were
dropped: they would take the application's own.)
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ratchet.core.errors import BugError, OperatorError

_GUARD: Final = """
read -r _
if tr '\\0' ' ' < "/proc/$1/cmdline" | grep -qF -- "$2"; then kill -KILL "$1"; fi
if [ -n "$3" ]; then sleep 1; rm -rf -- "$3"; fi
"""


class Daemon:
    """A running process of ours. Its output goes to the end of `log`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        datadir: Path,
        remove: Path | None = None,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Start `command`, which must name `datadir`; the guard also deletes `remove`.

        Args:
            command: what to run.
            log: where its output goes.
            datadir: by this the guard knows that the process is still ours.
            remove: a folder that goes when we die.
            environment: of the process; our own if not given.
            cwd: where it runs; where we do if not given.
        """
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=cwd,
                start_new_session=True,  # a Ctrl-C in the terminal is for us alone
            )
        arguments = [str(self._process.pid), str(datadir), str(remove or "")]
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is still there."""
        return self._process.poll() is None

    def terminate(self, *, timeout: float) -> None:
        """Ask the process to end (SIGTERM) and wait; after `timeout` seconds kill it and raise."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise OperatorError(
                f"the server did not stop within {timeout:.0f} s and was killed",
                operation=f"stop process {self.pid}",
                hint=f"its log ends with:\n{tail(self._log)}",
            ) from error
        self._dismiss_guard()

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would."""
        if self.running:
            self._process.kill()
        self._process.wait()
        self._dismiss_guard()

    def suspend(self) -> None:
        """Freeze the process (SIGSTOP): its connections stay open and silent."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen process go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if not self.running:
            raise BugError("the server is not running", operation=f"send {number.name}")
        os.kill(self._process.pid, number)

    def _dismiss_guard(self) -> None:
        # Killed, not told by closing the pipe: that is what our death looks like to it.
        self._guard.kill()
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()


def tail(log: Path, *, lines: int = 30) -> str:
    """The last lines of a log file; empty when there is none."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
