"""kill -9 at every named point, under a writer: the next run goes on, the tables are identical."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fix_e2e import PASSWORD, TABLES, Ratchet, Writer, assert_identical, create_tables, status

from lab.servers import create_ratchet_user

# In the order in which a pipeline reaches them, so that each is still ahead when its turn comes:
# the dump, the catch-up, the stream. ":2" is the second time.
POINTS = (
    "dump.before_chunk",
    "dump.after_read:2",
    "dump.before_commit",
    "dump.after_commit",
    "dump.before_done",
    "merge.before_side",
    "merge.after_side",
    "merge.before_merge",
    "merge.after_merge",
    "merge.after_merge:2",
    "merge.before_cut",
    "merge.after_cut",
    "upkeep.before_compact",
    "upkeep.after_compact",
    "capture.slice_read",
    "capture.files_written",
    "capture.before_commit",
    "capture.after_commit",
)


_RUNS = 12  # until one has enough small files to put together; all else the first one reaches
KILLS = 15  # at random moments
# One of each kind, for every run of the tests; all of them in the long ones.
SOME = ("dump.after_commit", "merge.after_side", "upkeep.before_compact")


@pytest.mark.quick_on("mysql")
def test_killed_at_some_points(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Nothing is lost, nothing doubled, and no manual step is needed after any of the kills."""
    _kill_at(SOME, server, database, make_ratchet)


@pytest.mark.long
def test_killed_at_every_point(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """The same at every point that has a name."""
    _kill_at(POINTS, server, database, make_ratchet)


@pytest.mark.long
@pytest.mark.parametrize(("flavor", "seed"), [("mariadb", 1), ("mysql", 2)])
def test_killed_at_random_moments(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str, seed: int
) -> None:
    """The run, and every third time the server with it: wherever that is."""
    rng = random.Random(seed)
    server = make_server(flavor)
    server.execute("CREATE DATABASE d")
    create_tables(server, "d")
    create_ratchet_user(server, PASSWORD, ["d"])
    ratchet = make_ratchet({"-": server}, "d", snapshot={"chunk_rows": 500})
    writer = Writer(server, "d", seed=seed)
    writer.start()
    for number in range(KILLS):
        run = ratchet.start("run")
        time.sleep(rng.uniform(1, 25))
        with_server = number % 3 == 2
        if with_server:
            server.kill()
            time.sleep(rng.uniform(0, 2))
        assert run.poll() is None, run.communicate()
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        if with_server:
            server.start()
    writer.finish()
    ratchet.run("run", "--until-caught-up")
    assert {table["phase"] for table in status(ratchet)["tables"]} == {"streaming"}
    assert assert_identical(ratchet.lake, [server], "d", TABLES) > 0
    ratchet.run("verify")


def _kill_at(
    points: Sequence[str], server: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    create_tables(server, database)
    create_ratchet_user(server, PASSWORD, [database])
    seed = Writer(server, database, seed=1)
    seed.start()
    while seed.transactions < 500 and seed.is_alive():
        seed.join(0.05)
    seed.finish()
    ratchet = make_ratchet({"-": server}, database, snapshot={"chunk_rows": 500})
    writer = Writer(server, database, seed=2)
    writer.start()
    for point in points:
        for _ in range(_RUNS):
            done = ratchet.run("run", "--until-caught-up", crash_at=point, expect=None)
            if done.returncode:
                break
        assert done.returncode == -signal.SIGKILL, (point, done.returncode, done.stderr[-3000:])
    writer.finish()
    ratchet.run("run", "--until-caught-up")
    assert {table["phase"] for table in status(ratchet)["tables"]} == {"streaming"}
    assert assert_identical(ratchet.lake, [server], database, TABLES) > 0
    ratchet.run("verify")
