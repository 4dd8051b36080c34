"""Random sequences of what tools and people do to tables and their copies, with runs that are away.

Which tables are taken from the change log is left open; what counts is that no row is wrong.
"""

from __future__ import annotations

import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of

from lab.servers import create_ratchet_user

pytestmark = pytest.mark.long

TABLES: Final = ("a", "b", "c")
COPIES: Final = ("_{t}_new", "_{t}_gho", "__{t}_new")
TURNS: Final = 5
STEPS: Final = 14
BY_STATEMENT: Final = "SET SESSION binlog_format = 'STATEMENT'"
BY_ROW: Final = "SET SESSION binlog_format = 'ROW'"


@pytest.mark.parametrize("seed", range(5))
def test_on_mariadb(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], tmp_path: Path, seed: int
) -> None:
    sequence(mariadb, database, make_ratchet, tmp_path, random.Random(seed))


@pytest.mark.parametrize("seed", range(5))
def test_on_mysql(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], tmp_path: Path, seed: int
) -> None:
    sequence(mysql, database, make_ratchet, tmp_path, random.Random(seed))


def sequence(
    server: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    folder: Path,
    dice: random.Random,
) -> None:
    done: list[str] = []
    said = ""
    with server.connect(database=database, autocommit=True) as session:
        cursor = session.cursor()
        for table in TABLES:
            cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT, s VARCHAR(20))")
            cursor.execute(f"INSERT INTO {table} VALUES {_values(range(60), 0)}")
        create_ratchet_user(server, PASSWORD, [database])
        ratchet = make_ratchet({"-": server}, database, source={"tables": list(TABLES)})
        ratchet.run("run", "--until-caught-up")
        for turn in range(TURNS):
            away = dice.random() < 0.4
            log = folder / f"said{turn}"
            running = None if away else ratchet.start("run", log=log)
            for _ in range(STEPS):
                for statement in _steps(cursor, dice.choice(TABLES), dice):
                    with suppress(pymysql.err.Error):  # what it is about may not be there
                        cursor.execute(statement)
                        done.append(statement)
                time.sleep(dice.choice([0, 0.02, 0.6]))
            if running is not None:
                assert running.poll() is None, log.read_text()
                running.send_signal(dice.choice([signal.SIGKILL, signal.SIGTERM]))
                end_of(running, 120)
                said += log.read_text()
        for table in TABLES:
            cursor.execute(f"DELETE FROM {table} WHERE id < 5")
    said += ratchet.run("run", "--until-caught-up").stderr
    try:
        assert_identical(ratchet.lake, [server], database, TABLES)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *done, said])) from error
    ratchet.run("verify")
    taken = len(re.findall("taken from the change log", said))
    again = len(re.findall("is dumped again", said))
    sys.stdout.write(f"{taken} taken from the change log, {again} dumped again\n")


def _values(keys: range, number: int) -> str:
    return ", ".join(f"({key}, {number}, 'row {key}')" for key in keys)


def _steps(cursor: Any, table: str, dice: random.Random) -> list[str]:
    """A whole migration with something odd in it now and then, or one thing alone."""
    copy = dice.choice(COPIES).format(t=table)
    if dice.random() < 0.2:
        return [dice.choice(_single(table, copy, dice))]
    steps = list(_migration(cursor, table, copy, dice))
    for _ in range(dice.choice([0, 0, 0, 0, 1, 2])):
        odd = [*_odd(table, copy, dice), *([one] for one in _single(table, copy, dice))]
        at = dice.randrange(len(steps))
        steps[at:at] = dice.choice(odd)
    return steps


def _migration(cursor: Any, table: str, copy: str, dice: random.Random) -> Iterator[str]:
    columns = _columns(cursor, table)
    kept = [name for name in columns if name == "id" or dice.random() < 0.9]
    gone = [f"DROP COLUMN {name}" for name in columns if name not in kept]
    come = [f"ADD c{dice.randrange(40)} INT NOT NULL DEFAULT {dice.randrange(9)}"]
    what = ", ".join([*gone, *dice.choice([come, [], ["ENGINE=InnoDB"], ["MODIFY id BIGINT"]])])
    names = ", ".join(kept)
    yield f"DROP TABLE IF EXISTS {copy}"
    yield f"DROP TABLE IF EXISTS _{table}_old"
    yield f"CREATE TABLE {copy} LIKE {table}"
    if what:
        yield f"ALTER TABLE {copy} {what}"
    yield f"INSERT INTO {copy} ({names}) SELECT {names} FROM {table}"
    yield _written(copy, dice)
    yield _written(table, dice)
    yield _written(copy, dice)
    yield f"RENAME TABLE {table} TO _{table}_old, {copy} TO {table}"
    yield _written(table, dice)


def _columns(cursor: Any, table: str) -> list[str]:
    cursor.execute(f"SHOW COLUMNS FROM {table}")
    return [row[0] for row in cursor.fetchall()]


def _written(table: str, dice: random.Random) -> str:
    key = dice.randrange(80)
    return dice.choice(
        [
            f"UPDATE {table} SET id = id + 200 WHERE id = {key}",
            f"DELETE FROM {table} WHERE id % 9 = {key % 9}",
            f"REPLACE INTO {table} (id) VALUES ({key}), ({key + 1})",
            f"DELETE FROM {table} WHERE id = {key}",
        ]
    )


def _single(table: str, copy: str, dice: random.Random) -> list[str]:
    """What may happen to a table or to its copy at any time."""
    other = dice.choice(TABLES)
    return [
        _written(table, dice),
        _written(copy, dice),
        f"CREATE TABLE {copy} LIKE {table}",
        f"RENAME TABLE {table} TO _{table}_old, {copy} TO {table}",
        f"RENAME TABLE {table} TO {copy}, _{table}_old TO {table}",
        f"RENAME TABLE {table} TO between_them, {other} TO {table}, between_them TO {other}",
        f"ALTER TABLE {table} ADD c{dice.randrange(40)} INT NOT NULL DEFAULT 5",
        f"INSERT IGNORE INTO {copy} SELECT * FROM {table}",
    ]


def _odd(table: str, copy: str, dice: random.Random) -> list[list[str]]:
    """What makes a copy's changes not all that it is, or may."""
    return [
        [f"TRUNCATE TABLE {copy}"],
        [f"TRUNCATE TABLE {table}"],
        [f"DROP TABLE {copy}"],
        [f"ALTER TABLE {copy} ADD late INT NOT NULL DEFAULT {dice.randrange(9)}"],
        [f"CREATE TABLE IF NOT EXISTS {copy} LIKE {table}"],
        [f"CREATE OR REPLACE TABLE {copy} LIKE {table}"],
        [
            f"DROP TABLE IF EXISTS {copy}",
            f"CREATE TABLE {copy} (PRIMARY KEY (id)) AS SELECT * FROM {table}",
        ],
        [f"RENAME TABLE {copy} TO _{table}_del", f"RENAME TABLE _{table}_del TO {copy}"],
        [f"RENAME TABLE {copy} TO __{table}_new"],
        [BY_STATEMENT, f"DELETE FROM {copy} WHERE id % 5 = 1", BY_ROW],
        [BY_STATEMENT, f"DELETE FROM {table} WHERE id % 7 = 1", BY_ROW],
        [f"OPTIMIZE TABLE {copy}"],
        [f"REPAIR TABLE {copy}"],
        [f"ALTER TABLE {copy} ADD UNIQUE u (id)"],
        ["BEGIN", f"DELETE FROM {copy}", "ROLLBACK"],
        [
            "BEGIN",
            f"DELETE FROM {copy} WHERE id < 9",
            f"DELETE FROM {table} WHERE id < 9",
            "COMMIT",
        ],
    ]
