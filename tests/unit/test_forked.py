"""Commands that tests fork are processes as those that they start."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from ratchet.store.crashpoints import HALT
from tests.forked import ForkedProcess, completed, is_alike

WAITING = "lake: ./lake\nsources: {a: {kind: binlog, tables: ['*'], shards: {'-': %s}}}\n"
SHARD = "{host: 127.0.0.1, port: 1, user: a, database: b, password: '${RATCHET_WORD}'}"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ratchet.yaml"
    path.write_text(WAITING % SHARD)
    return path


def test_what_it_writes_and_how_it_ends(config: Path) -> None:
    done = completed("status", str(config.parent / "none.yaml"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.yaml" in done.stderr


def test_its_environment_is_what_it_is_given(config: Path) -> None:
    without = completed("check", str(config))
    assert "RATCHET_WORD is not set" in without.stderr
    given = completed("check", str(config), RATCHET_WORD="x")
    assert "RATCHET_WORD" not in given.stderr
    assert "RATCHET_WORD" not in os.environ


def test_it_leads_a_group_and_is_killed_with_it(config: Path) -> None:
    every = {**os.environ, "RATCHET_WORD": "x", HALT: "takeover.before_claim"}
    with ForkedProcess(["run", str(config)], every, None) as process:
        assert os.getpgid(process.pid) == os.getsid(process.pid) == process.pid
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    process.kill()  # nothing, any more


def test_what_goes_to_a_file_is_not_read(config: Path, tmp_path: Path) -> None:
    with (tmp_path / "said").open("w") as said:
        process = ForkedProcess(["nonsense", str(config)], os.environ, said)
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 2
    assert "nonsense" in (tmp_path / "said").read_text()


def test_what_an_import_may_read_makes_a_command_unlike() -> None:
    assert is_alike({**os.environ, "RATCHET_ANY": "1", "AWS_REGION": "x"})
    assert not is_alike({**os.environ, "NUMBA_DISABLE_JIT": "1"})
    assert not is_alike({**os.environ, "TMPDIR": "/elsewhere"})
    assert not is_alike({})
