"""A Spark cluster of the tests' own: a standalone master and workers, each a process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 2
CORES = 4  # of each worker, as it is told; captures wait most of their time
STARTS_WITHIN = 90.0  # seconds


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[str]:
    """The master's URL.

    Its processes have the environment of the moment: ask for fixtures that set it before.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    logs = tmp_path / "cluster"
    logs.mkdir()
    url = f"spark://127.0.0.1:{port}"
    master = ["master.Master", "--port", str(port)]
    worker = ["worker.Worker", "-c", str(CORES), "-m", "2g", url]
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start("master", master, logs))
        for number in range(WORKERS):
            name = f"worker{number}"
            started.append(_start(name, [*worker, "-d", str(logs / name)], logs))
        until = time.monotonic() + STARTS_WITHIN
        while _said(logs / "master.log", "Registering worker") < WORKERS:
            assert time.monotonic() < until, (logs / "master.log").read_text()
            time.sleep(0.2)
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def _start(name: str, command: list[str], logs: Path) -> subprocess.Popen[bytes]:
    home = Path(str(pyspark.__file__)).parent
    head, *rest = command
    with (logs / f"{name}.log").open("wb") as out:
        return subprocess.Popen(
            [
                str(home / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{head}",
                *("--host", "127.0.0.1", "--webui-port", "0"),
                *rest,
            ],
            env={
                **os.environ,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),  # where Ratchet is installed on each worker
            },
            stdout=out,
            stderr=out,
        )


def _said(log: Path, words: str) -> int:
    return log.read_text(errors="replace").count(words)
