"""The run of a soak: started, killed now and then, started again.

Lives here: its processes and how each ended. Does not live here: what is measured of it
(`samples`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from bench.lib.following import DATABASE, ROOT
from lab.servers import RATCHET_PASSWORD, RATCHET_USER, Server
from ratchet.jobs.config.config import load_config

_VARIABLE: Final = "RATCHET_SOAK_PASSWORD"
_REST: Final = 5.0  # seconds until a supervisor starts it again


class Life:
    """One lake and the runs on it.

    Args:
        home: where config, lake and logs go.
        servers: by keyspace.
        config: more of the config.
        ports: by keyspace, where a server is reached otherwise than at its own.
        environment: what its runs get besides our own.
        inside: the head of a command line that runs somewhere else.

    Attributes:
        home: the same.
        kills: how often it was killed by us.
        ends: exit code -> how often it ended by itself.
    """

    def __init__(
        self,
        home: Path,
        servers: Mapping[str, Server],
        config: Mapping[str, Any],
        *,
        ports: Mapping[str, int] | None = None,
        environment: Mapping[str, str] | None = None,
        inside: Sequence[str] = (),
    ) -> None:
        self.home = home
        self._environment = {**(environment or {}), _VARIABLE: RATCHET_PASSWORD}
        self._inside = inside
        self._path = home / "ratchet.yaml"
        sources = {
            keyspace: {
                "kind": "binlog",
                "shards": {
                    "-": {
                        "host": server.host,
                        "port": (ports or {}).get(keyspace, server.port),
                        "user": RATCHET_USER,
                        "password": f"${{{_VARIABLE}}}",
                        "database": DATABASE,
                    }
                },
            }
            for keyspace, server in servers.items()
        }
        self._path.write_text(yaml.safe_dump({"lake": "./lake", "sources": sources, **config}))
        self._process: subprocess.Popen[bytes] | None = None
        self._again = 0.0
        self._runs = len(list(home.glob("run-*.log")))  # of the pieces before
        self.kills = 0
        self.ends: Counter[int] = Counter()

    @property
    def kept(self) -> float:
        """Seconds that its config keeps anything at most."""
        merge = load_config(self._path, lake_only=True).merge
        return max(merge.table_history, merge.change_log_retention, merge.tombstone_retention)

    @property
    def lake(self) -> Path:
        """Where the lake is."""
        return self.home / "lake"

    @property
    def pid(self) -> int | None:
        """Of the run that lives; None: there is none just now."""
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> Path:
        """What the newest of its commands has said."""
        return self.home / f"run-{self._runs}.log"

    def look(self) -> None:
        """Note a run that has ended, and start one if there is none."""
        if self._process is not None and (code := self._process.poll()) is not None:
            self.ends[code] += 1
            self._process, self._again = None, time.monotonic() + _REST
        if self._process is None and time.monotonic() >= self._again:
            self._process = self.command("run")

    def kill(self) -> None:
        """Kill it with everything that it started."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process, self._again = None, time.monotonic() + _REST
            self.kills += 1

    def stop(self, seconds: float) -> int:
        """Stop it as a service manager does; its exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(seconds)
        self._process = None
        return code

    def wait(self, seconds: float) -> int:
        """Wait until it ends by itself, and start no other one; its exit code."""
        if self._process is None:
            return 0
        code = self._process.wait(seconds)
        self._process = None
        return code

    def catch_up(self, seconds: float) -> int:
        """Merge all that there is, and end; the exit code."""
        return self.command("run", "--until-caught-up").wait(seconds)

    def command(self, command: str, *more: str) -> subprocess.Popen[bytes]:
        """Start a command on the config; what it says goes to a log of its own."""
        self._runs += 1
        ratchet = [*self._inside, sys.executable, "-m", "ratchet.jobs.cli"]
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*ratchet, command, str(self._path), *more],
                cwd=ROOT,
                env={**os.environ, **self._environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
