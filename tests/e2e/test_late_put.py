"""Spark's commits into an object store: put with a condition, whatever happens before the put."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lab.objectstore import S3Server
from ratchet.store.delta.commits import fence
from ratchet.store.delta.tables import create_delta_table, open_delta, query
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from tests.s3_proxy import S3Proxy

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])
CONFIG = """\
lake: {lake}
sources: {{none: {{kind: binlog, shards: {{"-": {{host: 127.0.0.1, user: none}}}}}}}}
spark: {{log_dir: {logs}}}
"""


@pytest.fixture
def lake(s3_root: str) -> Lake:
    """A lake that a run holds."""
    held = replace(open_lake(s3_root, now=1), epoch=3)
    create_delta_table(held, "t", SCHEMA, name="t", description="", now=1)
    return held


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    """What Spark takes for the store."""
    with S3Proxy(s3_server.url) as made:
        yield made


@pytest.fixture
def child(lake: Lake, proxy: S3Proxy, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Merges the version that it reads, and says how it went."""
    config = tmp_path / "ratchet.yaml"
    config.write_text(CONFIG.format(lake=lake.root, logs=tmp_path / "logs"))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.merge_child", str(config), str(lake.epoch)],
        cwd=ROOT,
        env={**os.environ, "AWS_ENDPOINT_URL": proxy.url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def ask(child: subprocess.Popen[str], version: int) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{version}\n")
    child.stdin.flush()


def answer(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def next_commit(lake: Lake, ahead: int = 1) -> str:
    table = open_delta(lake, "t")
    assert table is not None
    return f"{table.version() + ahead:020}.json"


def ids(lake: Lake) -> list[int]:
    table = open_delta(lake, "t")
    assert table is not None
    found = query(table, "t", "SELECT id FROM t ORDER BY id")
    return [value for batch in found for value in batch.column("id").to_pylist()]


def test_a_commit_of_sparks_replaces_no_other(
    lake: Lake, proxy: S3Proxy, child: subprocess.Popen[str]
) -> None:
    """One whose answer was lost is put again, and meets itself. One that stood still is refused.

    The second had looked: there was no such commit. When it wakes, there is the fence.
    """
    ask(child, 5)
    assert answer(child) == "merged"
    wanted = next_commit(lake)
    proxy.lose(wanted)
    ask(child, 6)
    assert answer(child) == "merged"
    assert [status for name, status in proxy.answers if name == wanted] == [200, 412]
    assert next_commit(lake, 0) == wanted
    assert ids(lake) == [5, 6]
    late = next_commit(lake)
    proxy.hold(late)
    ask(child, 7)
    assert proxy.held.wait(120)
    fence(Lake(lake.root, epoch=4), "t", now=2)
    proxy.go_on.set()
    assert "ConcurrentTransaction" in answer(child)
    assert (late, 412) in proxy.answers
    assert ids(lake) == [5, 6]
