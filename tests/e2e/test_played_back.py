"""A backup is restored and the log played back into it, but for the transaction that did harm.

Behind it the server has the same GTIDs as the mirror, and the same last transaction.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix_e2e import (
    PASSWORD,
    Ratchet,
    assert_identical,
    end_of,
    mirror_rows,
    status,
    wait_while_running,
)
from history_kit import a_second_later, play_back, transactions

from lab.servers import create_ratchet_user

ACCIDENT = "DELETE FROM t WHERE id < 3"
WRITTEN = (
    "UPDATE t SET v = v + 10 WHERE id = 3",
    ACCIDENT,
    "INSERT INTO t VALUES (5, 5)",
    "INSERT INTO t VALUES (6, 6)",
)
EXPECTED = {1: 1, 2: 2, 3: 13, 4: 4, 5: 5, 6: 6, 100: 100}


class Restored:
    """A server with a table `d.t`, its mirror, and its backup of a moment ago."""

    def __init__(self, server: Any, make_ratchet: Callable[..., Ratchet], folder: Path) -> None:
        self.server, self._backup = server, folder / "backup"
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT NOT NULL PRIMARY KEY, v INT)")
        server.execute("INSERT INTO d.t VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
        create_ratchet_user(server, PASSWORD, ["d"])
        self.ratchet = make_ratchet({"-": server}, "d", verify={"every": "off"})
        self.ratchet.run("run", "--until-caught-up")
        server.stop()
        shutil.copytree(server.datadir, self._backup)
        server.start()
        for statement in WRITTEN:
            server.execute(statement, database="d")
            a_second_later()

    def restore(self, *, leave_out: str = ACCIDENT) -> None:
        """Play back what was written, and write on."""
        server = self.server
        *_, (file, *_) = server.execute("SHOW BINARY LOGS")
        logged = transactions((server.datadir / file).read_bytes())
        server.stop()
        shutil.rmtree(server.datadir)
        shutil.copytree(self._backup, server.datadir)
        server.start()
        for (number, committed), statement in zip(logged, WRITTEN, strict=True):
            if statement != leave_out:
                play_back(server, number, committed, statement)
        server.execute("INSERT INTO t VALUES (100, 100)", database="d")

    def rows(self) -> dict[int, int]:
        return {row["id"]: row["v"] for row in mirror_rows(self.ratchet.lake, "shop", "t")}


@pytest.fixture(params=["mariadb", "mysql"])
def restored(
    request: pytest.FixtureRequest,
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    tmp_path: Path,
) -> Restored:
    return Restored(make_server(request.param), make_ratchet, tmp_path)


@pytest.mark.quick_on("mariadb")
@pytest.mark.long
def test_while_no_run_follows(restored: Restored) -> None:
    ratchet = restored.ratchet
    ratchet.run("run", "--until-caught-up")
    restored.restore()
    done = ratchet.run("run", "--until-caught-up")
    assert "written anew" in done.stderr
    assert restored.rows() == EXPECTED
    assert_identical(ratchet.lake, [restored.server], "d", ["t"])
    # Said once: the next run, which begins where the log has moved to, compares nothing.
    done = ratchet.run("run", "--until-caught-up")
    assert "written anew" not in done.stderr


@pytest.mark.long
def test_behind_a_dump(restored: Restored, make_ratchet: Callable[..., Ratchet]) -> None:
    """No stream has delivered anything yet."""
    ratchet = make_ratchet({"-": restored.server}, "d", "second", verify={"every": "off"})
    ratchet.run("dump")
    restored.restore()
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [restored.server], "d", ["t"])


@pytest.mark.long
def test_under_a_run(restored: Restored) -> None:
    """It ends if it finds the server before the log was played back; the next one need not."""
    ratchet = restored.ratchet
    running = ratchet.start("run")
    wait_while_running(running, lambda: 6 in restored.rows(), within=240)
    restored.restore()
    deadline = time.monotonic() + 240
    while running.poll() is None and restored.rows() != EXPECTED:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    running.terminate()
    end_of(running, 120)
    assert running.returncode in {0, 5}
    ratchet.run("run", "--until-caught-up")
    assert restored.rows() == EXPECTED
    (table,) = status(ratchet)["tables"]
    assert table["phase"] == "streaming"
