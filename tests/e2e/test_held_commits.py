"""Servers whose log tells of statements that are not committed yet: what is read then is older.

With a semi-synchronous replica that does not answer, a server hands its log out, and then waits
before it commits (AFTER_SYNC). Whoever compares meanwhile sees rows, columns and keys of before.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fix_e2e import (
    PASSWORD,
    Ratchet,
    assert_identical,
    end_of,
    execute,
    mirror_rows,
    status,
    wait_while_running,
)

from lab.servers import create_ratchet_user
from ratchet.store.files import Lake
from ratchet.store.tables import Tables

LONG = 600_000  # milliseconds: longer than the test
PLUGIN = "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'"
WAITS = "rpl_semi_sync_{0}_wait_point = AFTER_SYNC, GLOBAL rpl_semi_sync_{0}_timeout = {1}"
SEEN = "shows older rows than its log has"
LOOKS = 5.0  # seconds in which a run surely looks at a doubt, unless the machine is very busy
KEY = "CONSTRAINT {} FOREIGN KEY (up) REFERENCES parent (id) ON DELETE {}"
# What is held back: a statement for each session. An ALTER keeps others from its table meanwhile,
# but not from looking up its columns and keys.
ROWS = (("SET binlog_format = 'STATEMENT'", "UPDATE told SET v = v + 10"),)
ALTERS = (
    ("SET sql_mode = ''", "ALTER TABLE cut MODIFY s VARCHAR(2)"),
    (f"ALTER TABLE child DROP FOREIGN KEY k, ADD {KEY.format('l', 'SET NULL')}",),
)
TABLES = ("told", "cut", "child", "parent")


@pytest.mark.quick_on("mysql")
@pytest.mark.parametrize("kind", ["mysql", "file", "mariadb"])
def test_statements_that_the_log_tells_before_they_are_committed(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], kind: str, tmp_path: Path
) -> None:
    """They are compared when they are in force; "file" is a MySQL without GTIDs."""
    server = make_server("mysql", gtid=False) if kind == "file" else make_server(kind)
    server.execute("CREATE DATABASE shop")
    execute(
        server,
        "CREATE TABLE told (id INT PRIMARY KEY, v INT)",
        "INSERT INTO told VALUES (1, 1), (2, 2)",
        "CREATE TABLE cut (id INT PRIMARY KEY, s VARCHAR(20))",
        "INSERT INTO cut VALUES (1, 'a'), (2, 'longer')",
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "INSERT INTO parent VALUES (1), (2)",
        f"CREATE TABLE child (id INT PRIMARY KEY, up INT, {KEY.format('k', 'CASCADE')})",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
    )
    create_ratchet_user(server, PASSWORD, ["shop"], triggers=True)
    verify = {"every": "off", "on_difference": "repair"}
    ratchet = make_ratchet({"-": server}, "shop", verify=verify)
    ratchet.run("run", "--until-caught-up")
    log = tmp_path / "run.log"
    run = ratchet.start("run", log=log)
    side = "master" if kind == "mariadb" else "source"
    if side == "source":
        execute(server, PLUGIN)
    execute(server, f"SET GLOBAL {WAITS.format(side, LONG)}", "INSERT INTO parent VALUES (3)")
    wait_while_running(
        run, lambda: {"id": 3} in mirror_rows(ratchet.lake, "shop", "parent"), within=240
    )

    def doubtful(table: str) -> bool:
        state = Tables(Lake.at(ratchet.lake)).load("shop", table)
        return state is not None and state.is_doubtful

    def hold(sessions: Sequence[Sequence[str]], until: Callable[[], bool]) -> None:
        execute(server, f"SET GLOBAL rpl_semi_sync_{side}_enabled = 1")
        held = [threading.Thread(target=execute, args=(server, *one)) for one in sessions]
        for thread in held:
            thread.start()
        wait_while_running(run, until, within=240)
        time.sleep(LOOKS)
        assert all(thread.is_alive() for thread in held), "it was not held back"
        execute(server, f"SET GLOBAL rpl_semi_sync_{side}_enabled = 0")
        for thread in held:
            thread.join()

    hold(ROWS, lambda: SEEN in " ".join(log.read_text().split()))
    hold(ALTERS, lambda: doubtful("cut"))
    run.terminate()
    end_of(run, 240)
    assert run.returncode == 0, log.read_text()
    ratchet.run("run", "--until-caught-up")
    phases = {one["table"]: (one["phase"], one["stopped"]) for one in status(ratchet)["tables"]}
    assert {phase for phase, _ in phases.values()} == {"streaming"}, json.dumps(phases)
    assert_identical(ratchet.lake, [server], "shop", TABLES)
    execute(server, "DELETE FROM parent WHERE id = 1")  # by the key of now
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", TABLES)
    ratchet.run("verify")
