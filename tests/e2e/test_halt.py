"""A run stands still (SIGSTOP) at a named point, another machine's takes over, then it wakes."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from fix_e2e import PASSWORD, TABLES, Ratchet, Writer, assert_identical, create_tables, end_of
from process_kit import is_halted

from lab.objectstore import S3Server
from lab.servers import create_ratchet_user
from ratchet.store.crashpoints import HALT
from ratchet.store.lease import MACHINE

log = logging.getLogger(__name__)

# The point, the time that it is reached, and whether the lake is to be loaded before.
POINTS = (
    ("capture.before_commit:2", True),
    ("dump.before_commit", False),
    ("dump.before_done", False),
    ("merge.after_side", True),
    ("merge.before_merge:2", True),
    ("merge.before_cut", True),
    ("capture.after_commit", True),
    ("lease.renewing:3", True),  # with the lock of the lease's file
)
SOME = POINTS[:1]


def _wait_until_halted(process: Any, seconds: float) -> None:
    """Stopped, as /proc says."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        if is_halted(process.pid):
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


@pytest.mark.long
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


# --- many, side by side ---------------------------------------------------------------------------

LAKES = int(
    os.environ.get("RATCHET_LAKES", "8")
)  # a take-over waits half a minute for a lease that is not renewed
HALTS = int(os.environ.get("RATCHET_HALTS", "24"))
SEED = os.environ.get("RATCHET_SEED", "0")
# Points that a run comes to whose lake is loaded, or a table of which is dumped again.
STREAMING = (
    "capture.slice_read", "capture.files_written", "capture.before_commit", "capture.after_commit",
    "merge.before_side", "merge.after_side", "merge.before_merge", "merge.after_merge",
    "merge.before_cut", "merge.after_cut", "upkeep.before_compact", "upkeep.after_compact",
    "lease.renewing",
)  # fmt: skip
# Points that a run comes to, once, whose forerunner was killed.
TAKING_OVER = (
    "takeover.before_claim", "takeover.after_claim", "takeover.after_fences",
    "takeover.before_marker", "takeover.after_marker",
)  # fmt: skip
DUMPING = (
    "dump.before_chunk", "dump.after_read", "dump.before_commit", "dump.after_commit",
    "dump.before_done",
)  # fmt: skip


class _Mirror:
    """A lake of its own on a database of its own, beside which others halt as well.

    `root` is the lake's, if it is no folder.
    """

    def __init__(
        self, server: Any, number: int, make_ratchet: Callable[..., Ratchet], root: str = ""
    ) -> None:
        self.server, self.database = server, f"halts_{number}"
        self.random = random.Random(f"{SEED} {number}")
        server.execute(f"CREATE DATABASE {self.database}")
        create_tables(server, self.database)
        more: dict[str, Any] = {"lake": root} if root else {}
        self.ratchet = make_ratchet(
            {"-": server}, self.database, f"lake{number}", snapshot={"chunk_rows": 200}, **more
        )
        self.lake = root or self.ratchet.lake
        self.halted = 0
        self.seen: list[str] = []

    def load(self) -> None:
        self._write(100)
        self.ratchet.run("run", "--until-caught-up")

    def halt(self) -> None:
        """One run stands still somewhere, another takes over, the first one wakes."""
        points = self.random.choices((STREAMING, DUMPING, TAKING_OVER), (5, 3, 2))[0]
        point = self.random.choice(points)
        own = {MACHINE: f"late {self.halted}"}
        if points is DUMPING:
            self.ratchet.run("table", "redump", self.random.choice(TABLES))
        if points is TAKING_OVER:
            self._kill_one(own)
        else:
            point += f":{self.random.choice((1, 1, 1, 2, 3))}"
        self._write(60)
        late = self.ratchet.start("run", **own, **{HALT: point})
        writer = Writer(self.server, self.database, seed=self.random.randrange(1 << 30))
        writer.start()
        reached = self._stands_still(late)
        writer.finish()
        if not reached:  # not all come to each point so often
            _end(late)
            return
        heir = {MACHINE: f"next {self.halted}"}
        self.ratchet.run("run", "--until-caught-up", **heir)
        self._wake(late, point)
        self._write(20)
        self.ratchet.run("run", "--until-caught-up", **heir)
        assert assert_identical(self.lake, [self.server], self.database, TABLES) > 0, point
        self.halted += 1
        self.seen.append(point)
        log.info("%s, halt %d: %s", self.database, self.halted, point)

    def _kill_one(self, own: dict[str, str]) -> None:
        """A run that leaves its lease, in the midst of a round: of the same machine, so that the
        next one need not wait."""
        self._write(20)
        killed = self.ratchet.start("run", crash_at="capture.before_commit", **own)
        killed.communicate(timeout=120)
        assert killed.returncode == -signal.SIGKILL

    def _wake(self, late: Any, point: str) -> None:
        """It writes nothing that counts, and ends by itself."""
        os.kill(late.pid, signal.SIGCONT)
        if point.startswith("takeover.before_claim"):
            # It had claimed nothing yet, and may find a lake that is free again.
            with suppress(subprocess.TimeoutExpired):
                late.wait(20)
            _end(late)
            assert late.returncode in {0, 7}, point
        else:
            _, told = end_of(late, 120)
            assert late.returncode == 7, (point, told[-3000:])

    def _stands_still(self, process: Any) -> bool:
        end = time.monotonic() + 45
        while time.monotonic() < end:
            assert process.poll() is None, process.communicate()
            if is_halted(process.pid):
                return True
            time.sleep(0.1)
        return False

    def _write(self, transactions: int) -> None:
        writer = Writer(self.server, self.database, seed=self.random.randrange(1 << 30))
        writer.start()
        while writer.transactions < transactions and writer.is_alive():
            writer.join(0.05)
        writer.finish()


def _end(process: Any) -> None:
    """Tell a run to end, also if it comes to its point only now."""
    process.send_signal(signal.SIGTERM)
    done = threading.Event()

    def wake() -> None:
        while not done.wait(0.5):
            process.send_signal(signal.SIGCONT)

    waking = threading.Thread(target=wake)
    waking.start()
    try:
        end_of(process, 120)
    finally:
        done.set()
        waking.join()


@pytest.mark.long
@pytest.mark.quick_on("mariadb")
@pytest.mark.parametrize("where", ["folder", "s3"])
def test_many_halts_at_once(
    server: Any,
    make_ratchet: Callable[..., Ratchet],
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """`RATCHET_HALTS` of them, at random points of random runs, on eight lakes side by side."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    mirrors = [
        _Mirror(server, number, make_ratchet, s3_server.new_root() if where == "s3" else "")
        for number in range(min(LAKES, HALTS))
    ]
    create_ratchet_user(server, PASSWORD, [one.database for one in mirrors])

    def work(mirror: _Mirror) -> list[str]:
        mirror.load()
        while mirror.halted < HALTS // len(mirrors):
            mirror.halt()
        mirror.ratchet.run("verify")
        return mirror.seen

    with ThreadPoolExecutor(len(mirrors)) as pool:
        seen = Counter(point for found in pool.map(work, mirrors) for point in found)
    log.warning("%d halts: %s", seen.total(), dict(sorted(seen.items())))  # with -o log_cli=true
    assert seen.total() >= HALTS - HALTS % len(mirrors)
