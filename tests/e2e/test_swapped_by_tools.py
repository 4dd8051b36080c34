"""The real pt-online-schema-change, and gh-ost's steps: no row is read from the source.

Beside writers and a run, with a cut-over that fails once; two tables at once; with the run away.
Others in test_swapped.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

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

from lab.ghost import GhostMigration
from lab.percona import alter_online
from lab.servers import create_ratchet_user

pytestmark = [
    # mysql-replication's own connection.
    pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning"),
]

ROWS: Final = 20_000
ALTER: Final = "ADD COLUMN x INT NOT NULL DEFAULT 3, MODIFY n BIGINT, DROP COLUMN gone"
# What a server counts of rows that it has given to an account.
COUNTS: Final = {
    "mysql": "SELECT SUM(SUM_ROWS_SENT) FROM performance_schema."
    "events_statements_summary_by_account_by_event_name WHERE USER = 'ratchet'",
    "mariadb": "SELECT SUM(ROWS_SENT) FROM information_schema.USER_STATISTICS "
    "WHERE USER = 'ratchet'",
}
OPTIONS: Final = {"mysql": {"performance-schema": "ON"}, "mariadb": {"userstat": "1"}}
Migrate = Callable[[Any, str], None]


class Changer(Worker):
    """Changes, adds and removes rows; a deadlock with a tool is tried again."""

    def __init__(self, server: Any, table: str) -> None:
        super().__init__()
        self._server, self._table = server, table

    def step(self) -> None:
        with self._server.connect(database="shop", autocommit=True) as connection:
            cursor = connection.cursor()
            while not self.told.wait(0.01):
                key = (self.done * 7919) % ROWS + 1
                with suppress(pymysql.err.OperationalError):
                    cursor.execute(f"UPDATE {self._table} SET n = n + 1 WHERE id = {key}")
                    cursor.execute(f"DELETE FROM {self._table} WHERE id = {key + 1}")
                    cursor.execute(
                        f"INSERT INTO {self._table} (id, s, n) VALUES ({key + 1}, 'b', 7)"
                    )
                    self.done += 1


def percona(server: Any, table: str) -> None:
    alter_online(server, "shop", table, ALTER, "--chunk-time=1")


def ghost(server: Any, table: str) -> None:
    GhostMigration(server, "shop", table, ALTER, chunk=1000).run()


def ghost_at_the_second_try(server: Any, table: str) -> None:
    """A transaction holds the table while its first cut-over waits for it."""
    migration = GhostMigration(server, "shop", table, ALTER, chunk=1000)
    held = server.connect(database="shop", autocommit=False)
    held.cursor().execute(f"SELECT * FROM {table} LIMIT 1")

    def let_go() -> None:
        while not migration.attempts:
            time.sleep(0.1)
        time.sleep(5)
        held.close()

    holder = threading.Thread(target=let_go)
    holder.start()
    migration.run()
    holder.join()
    assert migration.attempts > 1


def given_up_and_begun_again(server: Any, table: str) -> None:
    """The first copy is dropped half filled, as the second migration of the name begins."""
    first = GhostMigration(server, "shop", table, "ADD COLUMN other INT", chunk=1000)
    execute(server, f"INSERT INTO _{table}_gho (id, s) SELECT id, 'first' FROM {table} LIMIT 500")
    del first
    ghost(server, table)


@pytest.mark.parametrize(
    ("flavor", "migrate"),
    [
        ("mysql", percona),
        ("mariadb", ghost),
        pytest.param("mariadb", percona, marks=pytest.mark.long),
        pytest.param("mysql", ghost, marks=pytest.mark.long),
        pytest.param("mysql", ghost_at_the_second_try, marks=pytest.mark.long),
        pytest.param("mariadb", given_up_and_begun_again, marks=pytest.mark.long),
    ],
)
def test_beside_a_run(
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    tmp_path: Path,
    flavor: str,
    migrate: Migrate,
) -> None:
    server, ratchet = begun(make_server, make_ratchet, flavor, ["t"])
    before = rows_sent(server, flavor)
    running = ratchet.start("run", log=tmp_path / "said")
    with Changer(server, "t") as writer, reading(ratchet, ["t"]) as seen:
        writer.more(20)
        migrate(server, "t")
        wait_while_running(running, lambda: has_x(ratchet, "t"), within=240)
        writer.more(20)
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    said = (tmp_path / "said").read_text()
    assert running.returncode == 0, said
    said += ratchet.run("run", "--until-caught-up").stderr
    check(server, ratchet, ["t"], said, rows_sent(server, flavor) - before)
    assert min(rows for rows, _ in seen["t"]) > 0.99 * ROWS


@pytest.mark.long
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_two_tables_at_once_while_the_run_is_away(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """One of them twice, one after the other; each copy's name is gone when the run comes back."""
    server, ratchet = begun(make_server, make_ratchet, flavor, ["t", "u"])
    before = rows_sent(server, flavor)
    with ExitStack() as stack:
        writers = [stack.enter_context(Changer(server, name)) for name in ("t", "u")]
        tools = [
            threading.Thread(target=percona, args=(server, "t")),
            threading.Thread(target=ghost, args=(server, "u")),
        ]
        for tool in tools:
            tool.start()
        for tool in tools:
            tool.join()
        alter_online(server, "shop", "t", "ADD COLUMN y DATETIME DEFAULT NOW()", "--chunk-time=1")
        for writer in writers:
            writer.more(20)
    said = ratchet.run("run", "--until-caught-up").stderr
    check(server, ratchet, ["t", "u"], said, rows_sent(server, flavor) - before)
    assert said.count("shop.t: its new dump is shown") == 2, said


def begun(
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    flavor: str,
    tables: Sequence[str],
) -> tuple[Any, Ratchet]:
    """Tables that are mirrored, and that nobody compares with their source for now."""
    server = make_server(flavor, options=OPTIONS[flavor])
    server.execute("CREATE DATABASE shop")
    create_ratchet_user(server, PASSWORD, ["shop"])
    for name in tables:
        shape = "id INT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(20), n INT, gone INT"
        rows = ", ".join(["('a', 1, 2)"] * 1000)
        fill = [f"INSERT INTO {name} (s, n, gone) VALUES {rows}"] * (ROWS // 1000)
        execute(server, f"CREATE TABLE {name} ({shape})", *fill)
    ratchet = make_ratchet({"-": server}, "shop", verify={"every": "off"})
    ratchet.run("run", "--until-caught-up")
    return server, ratchet


def rows_sent(server: Any, flavor: str) -> int:
    with server.connect(database="shop") as connection:
        cursor = connection.cursor()
        cursor.execute(COUNTS[flavor])
        return int(cursor.fetchone()[0])


def has_x(ratchet: Ratchet, table: str) -> bool:
    columns = DeltaTable(str(ratchet.lake / "shop" / table)).schema().fields
    return "x" in {one.name for one in columns}


def check(server: Any, ratchet: Ratchet, tables: Sequence[str], said: str, sent: int) -> None:
    """Nothing was dumped, which its server says as well, and all is equal."""
    assert sent < ROWS // 4, f"{sent} rows were read from the source"
    assert said.count(", 0 rows read from the source") >= len(tables), said
    assert "to dump" not in said, said
    assert_identical(ratchet.lake, [server], "shop", tables)
    ratchet.run("verify")
    ratchet.run("verify", "--log", "--from", "1")  # by a second decoder
    phases = {one["table"]: one["phase"] for one in status(ratchet)["tables"]}
    assert phases == dict.fromkeys(tables, "streaming")
    assert sorted(path.name for path in ratchet.lake.glob("shop/*")) == sorted(tables)
