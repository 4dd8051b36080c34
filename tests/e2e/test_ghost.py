"""A table is migrated as gh-ost does it, under a run and a writer. Nobody types a command."""

from __future__ import annotations

import signal
import threading
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
    execute,
    mirror_rows,
    reading,
    status,
    wait_while_running,
)
from worker_kit import Worker

from lab.ghost import GhostMigration
from lab.servers import create_ratchet_user

pytestmark = [
    pytest.mark.long,
    # mysql-replication's own connection.
    pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning"),
]

ROWS = 5_000
ALTER = "add x int not null default 3, modify n bigint, drop column gone"


class Changer(Worker):
    """Changes, adds and removes rows."""

    def __init__(self, server: Any, database: str) -> None:
        super().__init__()
        self._server, self._database = server, database

    def step(self) -> None:
        with self._server.connect(database=self._database) as connection:
            cursor = connection.cursor()
            while not self.told.wait(0.005):
                key = (self.done * 7919) % ROWS + 1
                cursor.execute("UPDATE t SET n = n + 1 WHERE id = %s", (key,))
                cursor.execute("DELETE FROM t WHERE id = %s", (key + 1,))
                cursor.execute("INSERT INTO t (id, s, n) VALUES (%s, 'back', 7)", (key + 1,))
                cursor.execute("INSERT INTO other VALUES (%s)", (self.done,))
                self.done += 1


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_a_migration(
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    tmp_path: Path,
    flavor: str,
) -> None:
    """The first cut-over fails, as a transaction holds the table."""
    server = make_server(flavor)
    server.execute("CREATE DATABASE shop")
    create_ratchet_user(server, PASSWORD, ["shop"])
    execute(
        server,
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(20), n INT, gone INT)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO t (s, n, gone) VALUES " + ", ".join(["('a', 1, 2)"] * ROWS),
    )
    ratchet = make_ratchet({"-": server}, "shop")
    ratchet.run("run", "--until-caught-up")
    said = tmp_path / "said"
    running = ratchet.start("run", log=said)
    with Changer(server, "shop"), reading(ratchet, ["t"]) as seen:
        migration = GhostMigration(server, "shop", "t", ALTER, chunk=200)
        time.sleep(5)  # the run looks for new tables meanwhile
        held = server.connect(database="shop", autocommit=False)
        held.cursor().execute("SELECT * FROM t LIMIT 1")
        holder = threading.Thread(target=_let_go, args=(migration, held))
        holder.start()
        migration.run()
        holder.join()
        assert migration.attempts > 1
        assert migration.copied + migration.applied > ROWS
        wait_while_running(running, lambda: _has_x(ratchet), within=240)
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    assert running.returncode == 0, said.read_text()
    assert min(rows for rows, _ in seen["t"]) >= ROWS - 1
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", ["t", "other"])
    tables = {one["table"]: one["phase"] for one in status(ratchet)["tables"]}
    assert tables == {"t": "streaming", "other": "streaming"}
    assert "_t_" not in "".join(path.name for path in ratchet.lake.glob("shop/*"))


def _let_go(migration: GhostMigration, held: Any) -> None:
    """End a transaction some time after the first cut-over has begun."""
    while not migration.attempts:
        time.sleep(0.1)
    time.sleep(5)
    held.close()


def _has_x(ratchet: Ratchet) -> bool:
    return "x" in mirror_rows(ratchet.lake, "shop", "t")[0]
