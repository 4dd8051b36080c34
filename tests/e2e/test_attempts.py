"""A table whose batch ends each run: it is set aside by name, and the others go on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, status

from lab.servers import create_ratchet_user
from ratchet.merge.attempts import HEAVY_ROWS


def _insert_heavily(server: Any, database: str) -> None:
    """One batch that is noted before it is tried."""
    rows = f"SELECT seq, seq FROM seq_1_to_{HEAVY_ROWS + 1}"
    server.execute(f"INSERT INTO huge {rows}", database=database)


def _run_killed(ratchet: Ratchet) -> None:
    killed = ratchet.run("run", "--until-caught-up", crash_at="merge.attempted", expect=None)
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.long
def test_a_batch_that_kills_each_run(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """As where its changes need more memory than there is, and the system ends the process."""
    tables = ("huge", "kept")
    for table in tables:
        mariadb.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database=database)
    mariadb.execute("INSERT INTO kept VALUES (1, 1), (2, 2)", database=database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database)
    ratchet.run("run", "--until-caught-up")
    _insert_heavily(mariadb, database)
    mariadb.execute("UPDATE kept SET v = 20 WHERE id = 2", database=database)

    for _ in range(3):
        _run_killed(ratchet)
        assert all(table["phase"] == "streaming" for table in status(ratchet)["tables"])
    ratchet.run("run", "--until-caught-up", crash_at="merge.attempted", expect=6)
    found = {table["table"]: table for table in status(ratchet)["tables"]}
    assert (found["huge"]["phase"], found["kept"]["phase"]) == ("stopped", "streaming")
    assert "its changes have ended 3 runs" in found["huge"]["stopped"]
    assert_identical(ratchet.lake, [mariadb], database, ["kept"])

    (_,) = ratchet.redump_as_told(found["huge"]["hint"])
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, tables)


@pytest.mark.long
def test_two_kills_are_somebody_s(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """What is killed twice in the same batch for another reason is merged in the end."""
    mariadb.execute("CREATE TABLE huge (id INT PRIMARY KEY, v INT)", database=database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database)
    ratchet.run("run", "--until-caught-up")
    _insert_heavily(mariadb, database)
    for _ in range(2):
        _run_killed(ratchet)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, ["huge"])
