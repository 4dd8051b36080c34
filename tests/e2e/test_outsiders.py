"""Other users of the machine: what they get from Spark's ports on the loopback address."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from outsider_kit import ask, blocks_of, java_call, listening_ports

from ratchet.jobs.engine.tempfolder import remove_left

ROOT = Path(__file__).resolve().parents[2]
PLANTED = "Planted0123456789abcdef"
RUN = """
import sys
from functools import partial
from pathlib import Path
from ratchet.jobs.config.config import load_config
from ratchet.jobs.engine.spark import spark_session

def task(planted, rows):
    return [len(planted.value)]

with spark_session(load_config(Path(sys.argv[1]), {}), "run") as spark:
    context = spark.sparkContext
    # Spark drops a task's own block as soon as Java collects its garbage; one that is held stays.
    held = context.broadcast(sys.argv[2])
    rows = context.parallelize([1], 1).mapPartitions(partial(task, held))
    rows.collect()
    context._jvm.System.gc()
    print(context._gateway.proc.pid, context.applicationId, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def session(
    folder: Path, home: Path | None = None, start: Path = ROOT, **conf: str
) -> Iterator[tuple[int, str]]:
    """A session of ours that holds a block: the JVM's process, the application's name.

    `home` is for its temporary files, and `start` the folder that it is started in.
    """
    home = home or folder / "tmp"
    config: dict[str, Any] = {
        "lake": "./lake",
        "sources": {"none": {"kind": "binlog", "shards": {"-": {"host": "h", "user": "u"}}}},
        "spark": {
            "log_dir": "./log",
            "conf": {
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                "spark.broadcast.compress": "false",  # so that the blocks can be looked into
                **conf,
            },
        },
    }
    path = folder / "ratchet.yaml"
    path.write_text(yaml.safe_dump(config))
    (folder / "run.py").write_text(RUN)
    home.mkdir(exist_ok=True)
    # As another user could have made it, where its name can be guessed.
    planted = home / f"ratchet-spark-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    process = subprocess.Popen(
        [sys.executable, str(folder / "run.py"), str(path), PLANTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=start,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(home)},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        pid, app = process.stdout.readline().split()
        yield int(pid), app
        process.communicate("", timeout=120)
        assert process.returncode == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def family_of(pid: int) -> set[int]:
    """The process that started that one, and all that it and its children have started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # it has ended; or it is no process
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(stat[1])
    found = {parents[pid]}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found


@pytest.mark.parametrize(
    ("address", "alone"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
    ],
)
def test_a_listener_for_other_machines_is_noticed(address: str, *, alone: bool) -> None:
    """So that each test that asks for a process's ports fails if one is."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen()
        if alone:
            assert listener.getsockname()[1] in listening_ports(os.getpid())
        else:
            with pytest.raises(AssertionError, match="listens for other machines"):
                listening_ports(os.getpid())


BLOCKS = [f"broadcast_{number}_piece0" for number in range(3)]


def taken(ports: list[int], app: str) -> tuple[dict[str, bytes], bytes]:
    """What an outsider gets from all ports: blocks, and what Java says of bytes that are none."""
    blocks: dict[str, bytes] = {}
    said = b""
    for port in ports:
        blocks |= blocks_of(port, app, BLOCKS)
        said += ask(port, java_call())[1]
    return blocks, said


@pytest.mark.spark
def test_an_outsider_gets_no_block_and_nothing_is_deserialized_for_him(tmp_path: Path) -> None:
    with session(tmp_path) as (pid, app):
        ports = listening_ports(pid)
        assert len(ports) >= 3, "RPC, blocks, and PySpark's own"
        open_to_others = [
            path for path in (tmp_path / "tmp").iterdir() if path.stat().st_mode & 0o077
        ]
        assert [path.name for path in open_to_others] == [f"ratchet-spark-{os.getuid()}"]
        assert list(open_to_others[0].iterdir()) == []
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        loaded = [line for line in maps if "/tmp/" in line]
        assert all("/ratchet-run-" in line for line in loaded), loaded
        blocks, said = taken(ports, app)
        assert blocks == {}
        assert b"ObjectInputStream" not in said
        assert said.count(b"AuthRpcHandler.doAuthChallenge") >= 2, "each of Spark's ports refused"


@pytest.mark.spark
def test_pyspark_listens_on_no_port(tmp_path: Path) -> None:
    """Whoever connected first and was silent held up a dump; what he ended ended a run."""
    with (
        tempfile.TemporaryDirectory(prefix="r-") as short,
        session(tmp_path, home=Path(short)) as (java, _),
    ):
        ours = family_of(java) - {java}
        assert len(ours) >= 2, "ours, and PySpark's daemon"
        assert [pid for pid in ours if listening_ports(pid)] == []
        sockets = list(Path(short).glob("ratchet-run-*/.*.sock"))
        assert sockets
        assert all(path.parent.stat().st_mode & 0o077 == 0 for path in sockets)


@pytest.mark.spark
def test_spark_takes_nothing_from_the_folder_where_ratchet_was_started(tmp_path: Path) -> None:
    """Others may make files in /tmp and the like; Python's `-m` looks there first."""
    folder = tmp_path / "anybodys"
    folder.mkdir()
    proof = tmp_path / "proof"
    for name in ("pyspark", "numpy", "pyarrow", "ratchet", "socket", "sitecustomize"):
        (folder / f"{name}.py").write_text(f"open({str(proof)!r}, 'a').write({name!r})\n")
    for name in ("bin", "jars"):  # PySpark looks for Spark above the current folder first
        (folder / name).mkdir()
    submit = folder / "bin" / "spark-submit"
    submit.write_text(f"#!/bin/sh\necho spark-submit >> {proof}\nexit 1\n")
    submit.chmod(0o755)
    below = folder / "own"
    below.mkdir()
    for start in (folder, below):
        with session(tmp_path, home=tmp_path / f"tmp-{start.name}", start=start) as (java, _):
            assert family_of(java) - {java}
            assert Path(f"/proc/{java}/cwd").resolve() == Path("/")
        assert not proof.exists(), proof.read_text()


def test_nothing_is_taken_from_the_folder_where_ratchet_was_started(tmp_path: Path) -> None:
    """Settings of numba; modules by a name on the path that is no folder."""
    proof = tmp_path / "proof"
    (tmp_path / ".numba_config.yaml").write_text(f"chrome_trace: {proof}\ncache_dir: {tmp_path}\n")
    code = (
        "import sys, ratchet.wire.kernel, numba, yaml\n"
        "numba.njit(lambda x: x + 1)(1)\n"
        "assert not numba.config.CHROME_TRACE, numba.config.CHROME_TRACE\n"
        "assert not numba.config.CACHE_DIR, numba.config.CACHE_DIR\n"
        "print([one for one in sys.path if one and not one.startswith('/')])\n"
    )
    environment = {name: v for name, v in os.environ.items() if not name.startswith("NUMBA")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    assert not proof.exists()


@pytest.mark.long
@pytest.mark.spark
def test_without_authentication_the_same_outsider_gets_both(tmp_path: Path) -> None:
    """So that the test above can fail."""
    with session(tmp_path, **{"spark.authenticate": "false"}) as (pid, app):
        blocks, said = taken(listening_ports(pid), app)
        assert PLANTED.encode() in b"".join(blocks.values())
        assert b"ObjectInputStream" in said
        assert b"StreamCorruptedException: invalid stream header" in said


def test_a_jvm_that_outlives_its_command_keeps_its_folder(tmp_path: Path) -> None:
    """Nobody gets the name of a folder that Java still writes to, and loads programs from."""
    home = tmp_path / "tmp"
    seen = []

    def folders() -> int:
        remove_left(home)  # as the next command does
        return len(list(home.glob("ratchet-run-*")))

    with contextlib.suppress(AssertionError, BrokenPipeError), session(tmp_path, home) as (jvm, _):
        stat = Path(f"/proc/{jvm}/stat").read_text().rpartition(")")[2].split()
        os.kill(jvm, signal.SIGSTOP)
        os.kill(int(stat[1]), signal.SIGKILL)
        time.sleep(0.5)
        seen.append(folders())
        os.kill(jvm, signal.SIGKILL)
    assert seen == [1]
    deadline = time.monotonic() + 20
    while folders():
        assert time.monotonic() < deadline
        time.sleep(0.1)
