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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from bench.lib.following import DATABASE, ROOT
from lab.servers import RATCHET_PASSWORD, RATCHET_USER, Server

_VARIABLE: Final = "RATCHET_SOAK_PASSWORD"
_REST: Final = 5.0  # seconds until a supervisor starts it again


class Life:
    """One lake and the runs on it.

    Args:
        home: where config, lake and logs go.
        servers: by keyspace.
        config: more of the config.

    Attributes:
        kills: how often it was killed by us.
        ends: exit code -> how often it ended by itself.
    """

    def __init__(
        self, home: Path, servers: Mapping[str, Server], config: Mapping[str, Any]
    ) -> None:
        self._home = home
        self._path = home / "ratchet.yaml"
        sources = {
            keyspace: {
                "kind": "binlog",
                "shards": {
                    "-": {
                        "host": server.host,
                        "port": server.port,
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
        self._runs = 0
        self.kills = 0
        self.ends: Counter[int] = Counter()

    @property
    def lake(self) -> Path:
        """Where the lake is."""
        return self._home / "lake"

    @property
    def pid(self) -> int | None:
        """Of the run that lives; None: there is none just now."""
        return None if self._process is None else self._process.pid

    def look(self) -> None:
        """Note a run that has ended, and start one if there is none."""
        if self._process is not None and (code := self._process.poll()) is not None:
            self.ends[code] += 1
            self._process, self._again = None, time.monotonic() + _REST
        if self._process is None and time.monotonic() >= self._again:
            self._process = self._started("run")

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

    def catch_up(self, seconds: float) -> int:
        """Merge all that there is, and end; the exit code."""
        return self._started("run", "--until-caught-up").wait(seconds)

    def _started(self, command: str, *more: str) -> subprocess.Popen[bytes]:
        self._runs += 1
        with (self._home / f"run-{self._runs}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "ratchet.jobs.cli", command, str(self._path), *more],
                cwd=ROOT,
                env={**os.environ, _VARIABLE: RATCHET_PASSWORD},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
