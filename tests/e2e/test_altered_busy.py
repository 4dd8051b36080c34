"""Columns that only their server knows, read again from tables that are written to all the while.

Between the statement and the read of a row others change it, delete it, put it back, give it
another key. In the end the mirror has the server's rows, and no table was dumped again.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest
from fix_e2e import (
    PASSWORD,
    Ratchet,
    assert_identical,
    end_of,
    execute,
    reading,
    wait_while_running,
)
from worker_kit import Worker

from lab.servers import create_ratchet_user

KEYS: Final = {
    "t": "id INT NOT NULL, s VARCHAR(20) NOT NULL, PRIMARY KEY (id)",
    "u": "id INT NOT NULL, s VARCHAR(20) NOT NULL, PRIMARY KEY (s, id)",
    "w": "id INT NOT NULL, s VARBINARY(20) NOT NULL, UNIQUE KEY (id DESC, s)",
}
ALTERS: Final = (
    "ADD g BIGINT AS (n * 3) STORED, ADD c INT NOT NULL DEFAULT 5",
    "ADD v INT AS (id + 1) VIRTUAL AFTER id",
    "MODIFY f DOUBLE",
    "ADD k INT NOT NULL AUTO_INCREMENT UNIQUE",
    "MODIFY d DECIMAL(10,1), DROP COLUMN c",
    "ADD x VARCHAR(40) NOT NULL DEFAULT (CONCAT('two ', 1 + 1)), CHANGE d e DECIMAL(10,1)",
)
_DIGITS: Final = "(SELECT 0 d" + "".join(f" UNION SELECT {n}" for n in range(1, 10)) + ")"


class Changer(Worker):
    """Changes rows of the tables as fast as the server takes it, or a little slower."""

    def __init__(self, server: Any, rows: int, seed: int, pause: float) -> None:
        super().__init__()
        self._server, self._rows, self._pause = server, rows, pause
        self._dice = random.Random(seed)

    def step(self) -> None:
        with self._server.connect(database="shop", autocommit=True) as connection:
            cursor = connection.cursor()
            while not self.told.wait(self._pause):
                with suppress(pymysql.err.Error):  # a deadlock, or a key that is there
                    self._change(cursor)
                    self.done += 1

    def _change(self, cursor: Any) -> None:
        table, first = self._dice.choice(list(KEYS)), self._dice.randrange(self._rows)
        some = f"id BETWEEN {first} AND {first + self._dice.choice([1, 20])}"
        far, digits = 10 * self._rows, self._digits(cursor, table)
        anew = f"({first}, 'anew', 7, 0.5, 1.25)"
        cursor.execute(
            self._dice.choice(
                [
                    f"UPDATE {table} SET n = n + 1, f = f / 3 WHERE {some}",
                    f"UPDATE {table} SET s = CONCAT('S', n) WHERE {some}",
                    f"DELETE FROM {table} WHERE {some}",
                    f"UPDATE IGNORE {table} SET id = id - {far} WHERE id > {far} LIMIT 9",
                    f"UPDATE {table} SET id = id + {far} WHERE id = {first}",
                    f"INSERT IGNORE INTO {table} (id, s, n, f, {digits}) VALUES {anew}",
                ]
            )
        )

    @staticmethod
    def _digits(cursor: Any, table: str) -> str:
        """The name of the column with digits, which a statement changes."""
        cursor.execute(f"SHOW COLUMNS FROM {table} WHERE Field IN ('d', 'e')")
        return str(cursor.fetchone()[0])


def test_on_mysql(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], tmp_path: Path
) -> None:
    server = make_server("mysql")
    equal_in_the_end(server, make_ratchet, tmp_path, ALTERS[1:3], rows=20_000, writers=2)


@pytest.mark.long
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_large_ones(
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    tmp_path: Path,
    flavor: str,
) -> None:
    server = make_server(flavor)
    equal_in_the_end(server, make_ratchet, tmp_path, ALTERS, rows=300_000, writers=4, pause=0)


def equal_in_the_end(
    server: Any,
    make_ratchet: Callable[..., Ratchet],
    folder: Path,
    alters: Sequence[str],
    *,
    rows: int,
    writers: int,
    pause: float = 0.02,
) -> None:
    ratchet = begun(server, make_ratchet, rows)
    said = folder / "said"
    running = ratchet.start("run", log=said)
    with ExitStack() as stack:
        seen = stack.enter_context(reading(ratchet, list(KEYS)))
        for number in range(writers):
            stack.enter_context(Changer(server, rows, number, pause))
        for number, what in enumerate(alters, start=1):
            for table in KEYS:
                alter(server, table, what)
            wait_while_running(
                running, lambda n=number: _read_again(said) == [n] * len(KEYS), within=400
            )
    running.send_signal(signal.SIGTERM)
    end_of(running, 200)
    assert running.returncode == 0, said.read_text()
    assert "is dumped again" not in said.read_text()
    for table in KEYS:
        assert min(count for count, _ in seen[table]) > rows / 2, table
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", list(KEYS))
    ratchet.run("verify")


def begun(server: Any, make_ratchet: Callable[..., Ratchet], rows: int) -> Ratchet:
    server.execute("CREATE DATABASE shop")
    create_ratchet_user(server, PASSWORD, ["shop"], triggers=True)
    powers = range(len(str(rows - 1)))
    joined = " JOIN ".join(f"{_DIGITS} a{n}" for n in powers)
    number = " + ".join(f"a{n}.d * {10**n}" for n in powers)
    for table, key in KEYS.items():
        more = "n INT, f FLOAT, d DECIMAL(10,2)"
        execute(
            server,
            f"CREATE TABLE {table} ({key.replace('PRIMARY', f'{more}, PRIMARY')})"
            if "PRIMARY" in key
            else f"CREATE TABLE {table} ({more}, {key})",
            f"INSERT INTO {table} (id, s, n, f, d) SELECT i, CONCAT('s', i % 97), i, i / 7, i / 100"
            f" FROM (SELECT {number} i FROM {joined}) every WHERE i < {rows}",
        )
    ratchet = make_ratchet({"-": server}, "shop")
    ratchet.run("run", "--until-caught-up")
    return ratchet


def alter(server: Any, table: str, what: str) -> None:
    """Alter a table whose rows others change: until it is done."""
    while True:
        try:
            execute(server, "SET lock_wait_timeout = 60", f"ALTER TABLE {table} {what}")
        except pymysql.err.OperationalError:
            time.sleep(0.5)
        else:
            return


def _read_again(said: Path) -> Sequence[int]:
    lines = said.read_text().splitlines()
    each = ([one for one in lines if f"shop.{table}:" in one] for table in KEYS)
    return [
        min(
            sum("rows read from the source" in one for one in mine),
            sum("its new dump is shown" in one for one in mine),
        )
        for mine in each
    ]
