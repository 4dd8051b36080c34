"""A Spark cluster on the loopback address: a standalone master and workers, each a process.

Lives here: starting and ending them. Does not live here: what runs on it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from core.errors import OperatorError

_ROOT: Final = Path(__file__).resolve().parents[1]
_STARTS_WITHIN: Final = 90.0  # seconds


class SparkCluster:
    """Use as a context; the workers are there when it is entered.

    Its processes get the environment of that moment.

    Args:
        home: a folder for its logs and its workers' files.
        workers: how many.
        cores: of each, as it is told. Captures wait most of their time: more than the machine has.
        memory: of each.
    """

    def __init__(self, home: Path, *, workers: int = 2, cores: int = 4, memory: str = "2g") -> None:
        self._home = home
        self._workers = workers
        self._sizes = ("-c", str(cores), "-m", memory)
        self._started: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    @property
    def url(self) -> str:
        """The master's."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def pids(self) -> Sequence[int]:
        """The master's and the workers'; executors are children of the latter."""
        return [process.pid for process in self._started]

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True, exist_ok=True)
        try:
            self._start("master", "master.Master", "--port", str(self._port))
            for number in range(self._workers):
                name = f"worker{number}"
                folder = str(self._home / name)
                self._start(name, "worker.Worker", *self._sizes, "-d", folder, self.url)
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End its processes; executors end with their workers."""
        while self._started:
            process = self._started.pop()
            process.terminate()
            process.wait()

    def _start(self, name: str, what: str, *options: str) -> None:
        command = [str(Path(str(pyspark.__file__)).parent / "bin" / "spark-class")]
        command += [f"org.apache.spark.deploy.{what}", "--host", "127.0.0.1", "--webui-port", "0"]
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(_ROOT),  # as if Ratchet were installed on each worker
        }
        with self._log(name).open("wb") as out:
            self._started.append(
                subprocess.Popen([*command, *options], env=environment, stdout=out, stderr=out)
            )

    def _wait(self) -> None:
        until = time.monotonic() + _STARTS_WITHIN
        while self._said("Registering worker") < self._workers:
            ended = [process.pid for process in self._started if process.poll() is not None]
            if ended or time.monotonic() > until:
                raise OperatorError(
                    "the Spark cluster did not start",
                    operation="start a Spark cluster",
                    hint=f"its logs are in {self._home}; Java 17 is needed",
                )
            time.sleep(0.2)

    def _said(self, words: str) -> int:
        return self._log("master").read_text(errors="replace").count(words)

    def _log(self, name: str) -> Path:
        return self._home / f"{name}.log"
