"""An S3 of the tests' own (moto's server, a process of its own), and a bucket for each test."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs
import pytest

from lab.ports import Port

STARTS_WITHIN = 60.0  # seconds


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URL."""
    reserved = Port()
    port = reserved.number
    log = tmp_path_factory.mktemp("s3") / "server.log"
    command = [str(Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        until = time.monotonic() + STARTS_WITHIN
        while not _answers(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, f"moto's server does not answer: {log.read_text()}"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
        reserved.release()


@pytest.fixture
def s3_root(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The root of a lake in a bucket of its own; the environment says how to get there."""
    for name, value in (
        ("AWS_ENDPOINT_URL", s3_server),
        ("AWS_ACCESS_KEY_ID", "tests"),
        ("AWS_SECRET_ACCESS_KEY", "no-secret"),
        ("AWS_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    bucket = f"lakes-{uuid.uuid4().hex}"
    pyarrow.fs.S3FileSystem(
        endpoint_override=s3_server.rpartition("/")[2],
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    ).create_dir(bucket)
    return f"s3://{bucket}/some/lake"


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
