"""A Spark cluster on the loopback address: a standalone master and workers, each a process.

Lives here: starting and ending them; `local_cluster`, Spark's own means for tests. Does not live
here: what runs on it.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from lab.daemon import Daemon
from lab.ports import Port
from ratchet.core.errors import OperatorError

_ROOT: Final = Path(__file__).resolve().parents[1]
_STARTS_WITHIN: Final = 90.0  # seconds
_STOPS_WITHIN: Final = 30.0


@contextmanager
def local_cluster() -> Iterator[str]:
    """The name of a master with two workers in the driver's JVM, whose executors are processes.

    Spark starts and ends them by itself, with its session; their folders go with this context.
    """
    work = Path(pyspark.__file__).parent / "work"  # where Spark has them; nothing else is there
    before = set(work.glob("*"))
    try:
        yield "local-cluster[2,4,2048]"
    finally:
        for folder in set(work.glob("*")) - before:
            shutil.rmtree(folder)


class SparkCluster:
    """Use as a context; the workers are there when it is entered.

    Its processes get the environment of that moment.

    Args:
        home: a folder for its logs and its workers' files.
        workers: how many.
        cores: of each, as it is told. Captures wait most of their time: more than the machine has.
        memory: of each.
        conf: Spark's settings for master and workers.
    """

    def __init__(
        self,
        home: Path,
        *,
        workers: int = 2,
        cores: int = 4,
        memory: str = "2g",
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self._home = home
        self._conf = conf or {}
        self._workers = workers
        self._sizes = ("-c", str(cores), "-m", memory)
        self._started: dict[str, Daemon] = {}
        self._port = Port()

    @property
    def url(self) -> str:
        """The master's."""
        return f"spark://127.0.0.1:{self._port.number}"

    @property
    def pids(self) -> Sequence[int]:
        """The master's and the workers'; executors are children of the latter."""
        return [process.pid for process in self._started.values()]

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True, exist_ok=True)
        try:
            # Also when it is empty: by it the guard knows the process as ours.
            ours = self._home / "master.conf"
            ours.touch(mode=0o600)
            ours.write_text("".join(f"{name} {value}\n" for name, value in self._conf.items()))
            self.start("master")
            for number in range(self._workers):
                self.start(f"worker{number}")
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

    def kill(self, name: str) -> None:
        """End "master", "worker0", ... as a crash would."""
        self._started[name].kill()

    def start(self, name: str) -> None:
        """Start "master", "worker0", ..., or one in the place of one that was killed.

        A new master knows what its settings let it remember, by default nothing.
        """
        settings = ("--properties-file", str(self._home / "master.conf"))
        if name == "master":
            self._start(name, "master.Master", "--port", str(self._port.number), *settings)
        else:
            folder = str(self._home / name)
            self._start(name, "worker.Worker", *self._sizes, "-d", folder, *settings, self.url)

    def renew_master(self) -> None:
        """Kill the master, and start another one in its place."""
        self.kill("master")
        self.start("master")

    def stop(self) -> None:
        """End its processes; executors end with their workers."""
        while self._started:
            self._started.popitem()[1].terminate(timeout=_STOPS_WITHIN)
        self._port.release()

    def _start(self, name: str, what: str, *options: str) -> None:
        command = [str(Path(str(pyspark.__file__)).parent / "bin" / "spark-class")]
        command += [f"org.apache.spark.deploy.{what}", "--host", "127.0.0.1", "--webui-port", "0"]
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(_ROOT),  # as if Ratchet were installed on each worker
        }
        self._started[name] = Daemon(
            [*command, *options],
            log=self._log(name),
            datadir=self._home,
            environment=environment,
        )

    def _wait(self) -> None:
        until = time.monotonic() + _STARTS_WITHIN
        while self._said("Registering worker") < self._workers:
            ended = not all(process.running for process in self._started.values())
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
