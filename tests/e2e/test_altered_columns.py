"""Changes of columns that are computed from what the mirror has, with no second read of the source.

Each on a table of its own, with rows in flight before and behind it: under a running pipeline, with
the run away and a backlog of several, and with kills in the midst of it.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import ddl_kinds
import pymysql
import pytest
from altered_kit import asked, change, computed, create, execute, wait_until_shown
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, reading

from lab.servers import create_ratchet_user

# The kinds but for one whose columns are not here; some in other words.
COMPUTED: Final = {
    **{name: what for name, what in ddl_kinds.COMPUTED.items() if name != "several"},
    "digits": "ADD COLUMN x DECIMAL(9,3) DEFAULT -1.5",
    "nothing": "ADD x INT, DROP COLUMN n",
    "renamed": "RENAME COLUMN n TO `a ``new'' name`",
    "changed": "CHANGE n m BIGINT",
    "narrower": "MODIFY n SMALLINT",
    "narrower_key": "MODIFY id SMALLINT NOT NULL",
    "longer_key": "DROP PRIMARY KEY, ADD PRIMARY KEY (id, s)",
    "other_key": "DROP PRIMARY KEY, ADD PRIMARY KEY (s, id DESC), ADD INDEX (n)",
}
ASKED: Final = {
    "made_of_others": "ADD x INT AS (n + 1) STORED",
    "shown_only": "ADD x INT AS (n + 1) VIRTUAL AFTER id, DROP COLUMN l",
    "fewer_digits": "MODIFY d DECIMAL(10,1)",
    "counted": "ADD x INT NOT NULL AUTO_INCREMENT UNIQUE",
    "to_double": "MODIFY n DOUBLE",
    "any_value": "ADD x VARCHAR(40) DEFAULT (CONCAT('one ', 1 + 1))",
}
READ: Final = {
    "key_gone": "DROP PRIMARY KEY, ADD x INT NOT NULL, ADD PRIMARY KEY (id, x)",
}
TABLES: Final = [f"t{n}" for n in range(5)]
QUIET: Final = "quiet"  # no row is written to it behind the statement


@pytest.mark.long
def test_on_mariadb(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], tmp_path: Path
) -> None:
    while_it_runs(mariadb, database, make_ratchet, tmp_path / "said")


def test_on_mysql(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], tmp_path: Path
) -> None:
    while_it_runs(mysql, database, make_ratchet, tmp_path / "said")


def while_it_runs(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet], said: Path
) -> None:
    names = [*COMPUTED, *ASKED, *READ, QUIET]
    ratchet = begun(server, database, make_ratchet, names)
    running = ratchet.start("run", log=said)
    with reading(ratchet, names) as seen:
        for number, name in enumerate(names):
            change(server, database, name, number)
            what = {**COMPUTED, **ASKED, **READ, QUIET: COMPUTED["number"]}[name]
            execute(server, database, f"ALTER TABLE {name} {what}")
            if name != QUIET:
                change(server, database, name, number + 100)
        wait_until_shown(running, said, names)
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    assert running.returncode == 0, said.read_text()
    assert computed(said) == {*COMPUTED, QUIET}, said.read_text()
    assert asked(said) == {*ASKED}, said.read_text()
    assert min(rows for name in names for rows, _ in seen[name]) >= 20
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], database, names)
    ratchet.run("verify")


BACKLOG: Final = (
    "ADD x INT NOT NULL DEFAULT 7, ADD y VARCHAR(9) DEFAULT 'why'",
    "RENAME COLUMN n TO m, ALGORITHM=COPY",
    "DROP COLUMN x, MODIFY m BIGINT",
    "ADD x INT",
    "ADD z DECIMAL(4,1) NOT NULL DEFAULT 1, DROP COLUMN y",
)
POINTS: Final = (
    "remake.after_commit",
    "staged.after_commit",
    pytest.param("remake.before_commit", marks=pytest.mark.long),
    pytest.param("remake.after_commit:3", marks=pytest.mark.long),
    pytest.param("staged.after_copies:2", marks=pytest.mark.long),
    pytest.param("merge.before_merge:2", marks=pytest.mark.long),
    pytest.param("merge.after_merge:3", marks=pytest.mark.long),
    pytest.param("merge.before_staged_removed:2", marks=pytest.mark.long),
    pytest.param("merge.before_cut:4", marks=pytest.mark.long),
)


@pytest.mark.parametrize("point", POINTS)
def test_killed_with_a_backlog(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], point: str
) -> None:
    ratchet = begun(mysql, database, make_ratchet, ["t", "other"])
    for number, what in enumerate(BACKLOG):
        change(mysql, database, "t", number)
        change(mysql, database, "other", number)
        execute(mysql, database, f"ALTER TABLE t {what}")
        change(mysql, database, "t", number + 100)
    ratchet.run("run", "--until-caught-up", crash_at=point, expect=-signal.SIGKILL)
    change(mysql, database, "t", 50)
    said = ratchet.run("run", "--until-caught-up").stderr
    assert "to dump" not in said, said
    assert_identical(ratchet.lake, [mysql], database, ["t", "other"])
    ratchet.run("verify")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_on_mariadb(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], tmp_path: Path, seed: int
) -> None:
    ratchet = begun(mariadb, database, make_ratchet, TABLES)
    random_sequence(mariadb, database, ratchet, tmp_path, random.Random(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_on_mysql(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], tmp_path: Path, seed: int
) -> None:
    ratchet = begun(mysql, database, make_ratchet, TABLES)
    random_sequence(mysql, database, ratchet, tmp_path, random.Random(seed))


def random_sequence(
    server: Any, database: str, ratchet: Ratchet, folder: Path, dice: random.Random
) -> None:
    """Statements and rows, on several tables, and kills of the run."""
    names = TABLES
    done: list[str] = []
    for turn in range(5):
        running = ratchet.start("run", log=folder / f"said{turn}")
        for number in range(40):
            name = dice.choice(names)
            if dice.random() < 0.25:
                statement = f"ALTER TABLE {name} {_alteration(server, database, name, dice)}"
                done.append(statement)
                with suppress(pymysql.err.Error):  # it may not be possible as the table is now
                    execute(server, database, statement)
            else:
                with suppress(pymysql.err.IntegrityError):  # two of them get one key
                    change(server, database, name, turn * 40 + number)
            time.sleep(dice.choice([0, 0.05, 0.5]))
        assert running.poll() is None, (folder / f"said{turn}").read_text()
        running.send_signal(signal.SIGKILL if turn % 2 else signal.SIGTERM)
        end_of(running, 120)
    ratchet.run("run", "--until-caught-up")
    for name in names:
        with suppress(pymysql.err.IntegrityError):
            change(server, database, name, 300)
    ratchet.run("run", "--until-caught-up")
    try:
        assert_identical(ratchet.lake, [server], database, names)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *done])) from error
    ratchet.run("verify")


def _alteration(server: Any, database: str, name: str, dice: random.Random) -> str:
    with server.connect(database=database) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SHOW COLUMNS FROM {name}")
        columns = [f"`{row[0].replace('`', '``')}`" for row in cursor.fetchall()]
    one, two = dice.choice(columns[1:]), dice.choice(columns)
    new = f"c{dice.randrange(99)}"
    return dice.choice(
        [
            f"ADD {new} INT NOT NULL DEFAULT {dice.randrange(9)}",
            f"ADD {new} VARCHAR(20) NOT NULL DEFAULT 'it is {new}' AFTER {one}",
            f"ADD {new} INT",
            f"ADD {new} DECIMAL(9,2) NOT NULL, DROP COLUMN {one}",
            f"ADD {new} INT AS (1 + 1) STORED",
            f"ADD {new} VARCHAR(30) AS (CONCAT({one}, {two})) VIRTUAL",
            f"ADD {new} BIGINT DEFAULT (3 * 4), DROP COLUMN {one}",
            f"MODIFY {one} DOUBLE",
            f"DROP PRIMARY KEY, ADD PRIMARY KEY ({two}, {one})",
            f"DROP COLUMN {one}",
            f"RENAME COLUMN {two} TO {new}",
            f"RENAME COLUMN {one} TO {two}, RENAME COLUMN {two} TO {one}",
            f"CHANGE {one} {new} BIGINT",
            f"MODIFY {one} BIGINT",
            f"MODIFY {two} DECIMAL(20,2)",
            f"MODIFY {one} DECIMAL({dice.randrange(22, 39)},{dice.randrange(5)})",
            f"MODIFY {one} VARCHAR(20)",
            f"MODIFY {one} SMALLINT",
            f"ADD INDEX ({one})",
            f"DROP COLUMN {one}, ADD COLUMN {one} INT NOT NULL DEFAULT 3",
        ]
    )


def begun(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet], names: list[str]
) -> Ratchet:
    create(server, database, names)
    create_ratchet_user(server, PASSWORD, [database], triggers=True)
    ratchet = make_ratchet({"-": server}, database)
    ratchet.run("run", "--until-caught-up")
    return ratchet
