"""The real pt-online-schema-change alters a busy table under a run. Nobody types a command."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest
from deltalake import DeltaTable
from fix_e2e import (
    PASSWORD,
    Ratchet,
    assert_identical,
    end_of,
    execute,
    reading,
    status,
    wait_while_running,
)
from worker_kit import Worker

from lab.percona import alter_online
from lab.servers import create_ratchet_user

pytestmark = pytest.mark.long

ROWS = 1_000_000
PER_SECOND = 2_000
BATCH = 50
WRITERS = 4
DIGITS = "(SELECT 0 d" + "".join(f" UNION SELECT {n}" for n in range(1, 10)) + ")"
NUMBER = "a.d + 10*b.d + 100*c.d + 1000*e.d + 10000*f.d + 100000*g.d + 1"


class Changer(Worker):
    """One of several that change rows at a steady rate: most updates, some rows go and come back.

    The tool's triggers and chunks get in each other's way and in ours, as its manual says: a
    deadlock is tried again.
    """

    def __init__(self, server: Any, database: str, number: int) -> None:
        super().__init__()
        self._server, self._database, self._number = server, database, number

    def step(self) -> None:
        with self._server.connect(database=self._database) as connection:
            cursor = connection.cursor()
            next_at = time.monotonic()
            while not self.told.wait(max(0.0, next_at - time.monotonic())):
                next_at += WRITERS * BATCH / PER_SECOND
                with suppress(pymysql.err.OperationalError):
                    self._change(cursor)

    def _change(self, cursor: Any) -> None:
        first = (self.done * 7919 + self._number * ROWS // WRITERS) % (ROWS - BATCH) + 1
        keys = ", ".join(map(str, range(first, first + BATCH - 2)))
        cursor.execute(f"UPDATE t SET n = n + 1 WHERE id IN ({keys})")
        cursor.execute("DELETE FROM t WHERE id = %s", (first + 1,))
        cursor.execute("INSERT INTO t (id, s, n) VALUES (%s, 'back', 7)", (first + 1,))
        self.done += 1


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_migrations(
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    tmp_path: Path,
    flavor: str,
) -> None:
    server = make_server(flavor)
    server.execute("CREATE DATABASE shop")
    create_ratchet_user(server, PASSWORD, ["shop"])
    joined = " JOIN ".join(f"{DIGITS} {name}" for name in "abcefg")
    execute(
        server,
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(20), n INT, gone INT)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        f"INSERT INTO t SELECT {NUMBER}, 'a', 1, 2 FROM {joined}",
    )
    ratchet = make_ratchet({"-": server}, "shop")
    ratchet.run("run", "--until-caught-up")
    said = tmp_path / "said"
    running = ratchet.start("run", log=said)
    writers = [Changer(server, "shop", number) for number in range(WRITERS)]
    with ExitStack() as stack:
        for one in writers:
            stack.enter_context(one)
        seen = stack.enter_context(reading(ratchet, ["t"]))
        time.sleep(5)
        began, before = time.monotonic(), sum(one.done for one in writers)
        for number, alter in enumerate(
            ("ADD COLUMN x INT NOT NULL DEFAULT 3", "MODIFY n BIGINT, DROP COLUMN gone")
        ):
            alter_online(server, "shop", "t", alter, "--chunk-time=1")
            server.execute(f"INSERT INTO other VALUES ({number})", database="shop")
        rows = (sum(one.done for one in writers) - before) * BATCH
        rate = rows / (time.monotonic() - began)
        sys.stdout.write(f"{flavor}: {rate:,.0f} changes of rows a second\n")
        wait_while_running(running, lambda: _is_altered(ratchet), within=400)
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    assert running.returncode == 0, said.read_text()
    assert rows > 0, "the writers had no turn"
    # A writer that met a deadlock between its DELETE and its INSERT has left a row out.
    assert min(count for count, _ in seen["t"]) >= 0.99 * ROWS
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", ["t", "other"])
    ratchet.run("verify")
    tables = {one["table"]: one["phase"] for one in status(ratchet)["tables"]}
    assert tables == {"t": "streaming", "other": "streaming"}
    assert "_t_" not in "".join(path.name for path in ratchet.lake.glob("shop/*"))


def _is_altered(ratchet: Ratchet) -> bool:
    columns = DeltaTable(str(ratchet.lake / "shop" / "t")).schema().fields
    names = {one.name for one in columns}
    return "x" in names and "gone" not in names
