"""A run stands still (SIGSTOP) at a named point, another machine's takes over, then it wakes."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fix_e2e import PASSWORD, TABLES, Ratchet, Writer, assert_identical, create_tables, end_of
from halt_kit import SEED, WAYS, Deck, Mirror, make_mirrors, stands_still

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
    assert stands_still(late, 200), "it did not come to the point"
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
GONE = os.environ.get("RATCHET_WAYS", ",".join(WAYS)).split(",")  # by name, as in halt_kit


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
    """`RATCHET_HALTS` of them, on eight lakes side by side: all points, in an order of chance."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    store = s3_server if where == "s3" else None
    mirrors = make_mirrors(server, make_ratchet, min(LAKES, HALTS), store)

    deck = Deck(GONE, SEED)

    def work(mirror: Mirror) -> list[str]:
        mirror.load()
        while len(mirror.seen) < HALTS // len(mirrors):
            way, point = deck.draw()
            if not mirror.halt(way, point):
                deck.put_back(way, point)
        mirror.ratchet.run("verify")
        return mirror.seen

    with ThreadPoolExecutor(len(mirrors)) as pool:
        seen = Counter(point for found in pool.map(work, mirrors) for point in found)
    log.warning("%d halts: %s", seen.total(), dict(sorted(seen.items())))  # with -o log_cli=true
    assert seen.total() >= HALTS - HALTS % len(mirrors)
