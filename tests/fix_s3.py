"""An S3 of the tests' own (moto's server, a process of its own), and a bucket for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.objectstore import S3Server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One for all of a process's tests."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_root(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The root of a lake in a bucket of its own; the environment says how to get there."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server.new_root()
