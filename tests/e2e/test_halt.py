"""A run stands still (SIGSTOP) at a named point, another machine's takes over, then it wakes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix_e2e import PASSWORD, TABLES, Ratchet, Writer, assert_identical, create_tables, end_of

from lab.servers import create_ratchet_user
from store.crashpoints import HALT
from store.lease import MACHINE

# The point, the time that it is reached, and whether the lake is to be loaded before.
POINTS = (
    ("capture.before_commit:2", True),
    ("dump.before_commit", False),
    ("dump.before_done", False),
    ("merge.after_side", True),
    ("merge.before_merge:2", True),
    ("merge.before_cut", True),
    ("capture.after_commit", True),
)
SOME = POINTS[:1]


def _wait_until_halted(process: Any, seconds: float) -> None:
    """Stopped, as /proc says."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "T":
            return
        time.sleep(0.1)
    pytest.fail("it did not come to the point")


def _halt(
    point: str, server: Any, database: str, make_ratchet: Callable[..., Ratchet], *, loaded: bool
) -> None:
    create_tables(server, database)
    create_ratchet_user(server, PASSWORD, [database])
    writer = Writer(server, database, seed=3)
    writer.start()
    while writer.transactions < 300 and writer.is_alive():
        writer.join(0.05)
    ratchet = make_ratchet({"-": server}, database, snapshot={"chunk_rows": 200})
    if loaded:
        ratchet.run("run", "--until-caught-up")
    late = ratchet.start("run", **{MACHINE: "one", HALT: point})
    _wait_until_halted(late, 200)
    ratchet.run("run", "--until-caught-up", **{MACHINE: "two"})
    os.kill(late.pid, signal.SIGCONT)
    _, told = end_of(late, 120)
    assert late.returncode == 7, told[-3000:]
    assert "lost its lease" in told or "taken this lake over" in told
    writer.finish()
    ratchet.run("run", "--until-caught-up", **{MACHINE: "two"})
    assert assert_identical(ratchet.lake, [server], database, TABLES) > 0
    ratchet.run("verify")


@pytest.mark.quick_on("mariadb")
@pytest.mark.parametrize(("point", "loaded"), SOME)
def test_halted_at_some_points(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet], point: str, *, loaded: bool
) -> None:
    """Nothing of the late one's is visible, nothing is lost, and no manual step is needed."""
    _halt(point, server, database, make_ratchet, loaded=loaded)


@pytest.mark.long
@pytest.mark.parametrize(("point", "loaded"), POINTS)
def test_halted_at_every_point(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet], point: str, *, loaded: bool
) -> None:
    """The same at each of the points."""
    _halt(point, server, database, make_ratchet, loaded=loaded)
