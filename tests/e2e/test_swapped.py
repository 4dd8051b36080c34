"""Tables that a tool swaps in are taken from the change log of their copies, not from the source.

The steps of such tools are typed here, those of a plain migration and of many odd ones, each on a
table of its own; what is not sure to be the whole table has to be dumped again. The real tools are
in test_swapped_by_tools.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, reading, status

from lab.servers import create_ratchet_user

ROWS: Final = 200
COLUMNS: Final = "id INT NOT NULL, s VARCHAR(20) NOT NULL, n INT, gone INT, PRIMARY KEY (id)"
MAKE: Final = "CREATE TABLE _{t}_new LIKE {t}"
ALTER: Final = "ALTER TABLE _{t}_new ADD x INT NOT NULL DEFAULT 7, DROP COLUMN gone"
FILL: Final = "INSERT INTO _{t}_new (id, s, n) SELECT id, s, n FROM {t} ORDER BY id"
CHANGE: Final = (
    "UPDATE _{t}_new SET n = 5 WHERE id % 7 = 0",
    "DELETE FROM _{t}_new WHERE id % 11 = 0",
    "REPLACE INTO _{t}_new (id, s, n) VALUES (1, 'one', 1), (1000, 'new', 2)",
)
SWAP: Final = "RENAME TABLE {t} TO _{t}_old, _{t}_new TO {t}"
DROP: Final = "DROP TABLE _{t}_old"
PLAIN: Final = (MAKE, ALTER, FILL, *CHANGE, SWAP, DROP)
TAKEN: Final[dict[str, Sequence[str]]] = {
    "plain": PLAIN,
    "twice": (
        *PLAIN,
        MAKE,
        "ALTER TABLE _{t}_new MODIFY n BIGINT",
        "INSERT INTO _{t}_new SELECT * FROM {t}",
        SWAP,
        DROP,
    ),
    "same_shape": (
        MAKE,
        "ALTER TABLE _{t}_new ENGINE=InnoDB",
        "INSERT INTO _{t}_new SELECT * FROM {t} WHERE id % 2",
        SWAP,
        "DELETE FROM {t} WHERE id % 3 = 0",
    ),
    "begun_again": (
        MAKE,
        ALTER,
        "INSERT INTO _{t}_new (id, s, n) VALUES (5000, 'of the first try', 0)",
        "DROP TABLE _{t}_new",
        *PLAIN,
    ),
    "left_over": (
        "CREATE TABLE _{t}_new (a INT)",
        *(one.replace("_{t}_new", "__{t}_new") for one in (MAKE, ALTER, FILL, *CHANGE, SWAP)),
    ),
    "wider_key": (
        MAKE,
        "ALTER TABLE _{t}_new MODIFY id BIGINT NOT NULL, CONVERT TO CHARACTER SET utf8mb4",
        "INSERT INTO _{t}_new SELECT * FROM {t}",
        SWAP,
    ),
    "other_key": (
        MAKE,
        "ALTER TABLE _{t}_new DROP PRIMARY KEY, ADD PRIMARY KEY (s, id)",
        "INSERT INTO _{t}_new SELECT * FROM {t}",
        SWAP,
        "UPDATE {t} SET s = 'moved' WHERE id = 9",
    ),
    "unique_key": (
        *PLAIN[:2],
        "ALTER TABLE _{t}_new DROP PRIMARY KEY, ADD UNIQUE (id)",
        *PLAIN[2:],
    ),
    "altered_behind": (*PLAIN, "ALTER TABLE {t} ADD y INT NOT NULL DEFAULT 3, DROP COLUMN s"),
    "_begins_odd": PLAIN,
}
DUMPED: Final[dict[str, Sequence[str]]] = {
    "made_of_others": (
        MAKE,
        "ALTER TABLE _{t}_new ADD m INT AS (n + 1) STORED",
        "INSERT INTO _{t}_new (id, s, n) SELECT id, s, n FROM {t}",
        SWAP,
    ),
    "if_not_exists": (MAKE.replace("TABLE _", "TABLE IF NOT EXISTS _"), *PLAIN[1:]),
    "as_select": ("CREATE TABLE _{t}_new (PRIMARY KEY (id)) AS SELECT * FROM {t}", SWAP),
    "emptied": (*PLAIN[:3], "TRUNCATE TABLE _{t}_new", *PLAIN[2:]),
    "altered_late": (*PLAIN[:3], "ALTER TABLE _{t}_new ADD late INT NOT NULL DEFAULT 5", SWAP),
    "hangs": (
        *PLAIN[:2],
        "ALTER TABLE _{t}_new ADD FOREIGN KEY (n) REFERENCES _{t}_new (id) ON DELETE CASCADE",
        *PLAIN[2:],
    ),
    "by_statement": (
        *PLAIN[:3],
        "SET SESSION binlog_format = 'STATEMENT'",
        "UPDATE _{t}_new SET n = 77 WHERE id < 20",
        "SET SESSION binlog_format = 'ROW'",
        SWAP,
    ),
    "no_rows": (*PLAIN[:2], SWAP, "INSERT INTO {t} (id, s) VALUES (1, 'one')"),
    "exchanged": (
        MAKE,
        "ALTER TABLE _{t}_new PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN MAXVALUE)",
        "CREATE TABLE aside_e_{t} LIKE {t}",
        "INSERT INTO aside_e_{t} VALUES (3000, 'from elsewhere', 1, 1)",
        "ALTER TABLE _{t}_new EXCHANGE PARTITION p WITH TABLE aside_e_{t}",
        "INSERT INTO _{t}_new SELECT * FROM {t}",
        SWAP,
    ),
    "came_by_a_rename": (
        "CREATE TABLE aside_y_{t} LIKE {t}",
        "INSERT INTO aside_y_{t} VALUES (4000, 'of another name', 1, 1)",
        "RENAME TABLE aside_y_{t} TO _{t}_new",
        "INSERT INTO _{t}_new SELECT * FROM {t}",
        SWAP,
    ),
    "no_copy_by_name": (
        "CREATE TABLE aside_other_{t} LIKE {t}",
        "INSERT INTO aside_other_{t} SELECT * FROM {t} WHERE id < 50",
        "RENAME TABLE {t} TO _{t}_old, aside_other_{t} TO {t}",
    ),
    "taken_back": (
        *PLAIN[:-2],
        "RENAME TABLE {t} TO aside_x_{t}, _{t}_new TO {t}",
        "UPDATE {t} SET n = 8 WHERE id < 9",
        "RENAME TABLE {t} TO _{t}_new, aside_x_{t} TO {t}",
    ),
    "engine_of_a_check": (
        "SET SESSION default_storage_engine = 'MEMORY'",
        "CREATE TABLE _{t}_new (id INT PRIMARY KEY, engine INT, InnoDB INT, CHECK (engine=InnoDB))",
        "SET SESSION default_storage_engine = 'InnoDB'",
        "INSERT INTO _{t}_new (id) SELECT id FROM {t}",
        "ALTER TABLE _{t}_new ADD n INT",
        SWAP,
    ),
    "like_a_temporary_one": (
        "SET SESSION binlog_format = 'STATEMENT'",
        "CREATE TEMPORARY TABLE {t} (id INT PRIMARY KEY, s VARCHAR(20), n INT) ENGINE = MEMORY",
        "CREATE TABLE _{t}_new LIKE {t}",
        "DROP TEMPORARY TABLE {t}",
        "SET SESSION binlog_format = 'ROW'",
        "INSERT INTO _{t}_new SELECT id, s, n FROM {t}",
        SWAP,
    ),
    "swapped_back": (*PLAIN[:-1], "RENAME TABLE {t} TO _{t}_new, _{t}_old TO {t}"),
    "there_and_back": (*PLAIN[:-1], "RENAME TABLE {t} TO aside_z_{t}, aside_z_{t} TO {t}"),
}
TABLES: Final = [*TAKEN, *DUMPED]
POINTS: Final = (
    "fromlog.before_done",
    "staged.after_commit",
    pytest.param("merge.before_side", marks=pytest.mark.long),
    pytest.param("merge.after_merge", marks=pytest.mark.long),
    pytest.param("merge.after_merge:2", marks=pytest.mark.long),
    pytest.param("fromlog.before_done:2", marks=pytest.mark.long),
    pytest.param("staged.after_copies", marks=pytest.mark.long),
    pytest.param("merge.before_staged_removed", marks=pytest.mark.long),
    pytest.param("merge.before_cut:2", marks=pytest.mark.long),
)


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
    ratchet = begun(server, database, make_ratchet, TABLES)
    running = ratchet.start("run", log=said)
    plain = [name for name in TABLES if not name.startswith("_")]  # its folder is another
    with reading(ratchet, plain) as seen:
        for name in TABLES:
            migrate(server, database, name)
            execute(server, database, f"UPDATE {name} SET n = 4 WHERE id = 1")
        wait_until_shown(running, said, ratchet)
    running.send_signal(signal.SIGTERM)
    end_of(running, 120)
    assert running.returncode == 0, said.read_text()
    check_said(said.read_text())
    assert min(rows for name in TAKEN if name in seen for rows, _ in seen[name]) >= ROWS // 3
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], database, TABLES)
    ratchet.run("verify")
    assert {one["table"] for one in status(ratchet)["tables"]} == set(TABLES)


@pytest.mark.long
def test_a_backlog_on_mysql(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    with_a_backlog(mysql, database, make_ratchet)


def test_a_backlog_on_mariadb(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    with_a_backlog(mariadb, database, make_ratchet)


def with_a_backlog(server: Any, database: str, make_ratchet: Callable[..., Ratchet]) -> None:
    """The run is away from before each copy is made until behind the swap."""
    ratchet = begun(server, database, make_ratchet, TABLES)
    for name in TABLES:
        migrate(server, database, name)
        execute(server, database, f"UPDATE {name} SET n = 4 WHERE id = 1")
    said = ratchet.run("run", "--until-caught-up").stderr
    check_said(said)
    assert_identical(ratchet.lake, [server], database, TABLES)
    ratchet.run("verify")


@pytest.mark.parametrize("point", POINTS)
def test_killed_with_a_backlog(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], point: str
) -> None:
    ratchet = begun(mysql, database, make_ratchet, ["twice", "plain"])
    migrate(mysql, database, "twice")
    migrate(mysql, database, "plain")
    ratchet.run("run", "--until-caught-up", crash_at=point, expect=-signal.SIGKILL)
    execute(mysql, database, "UPDATE twice SET n = 4 WHERE id = 1")
    said = ratchet.run("run", "--until-caught-up").stderr
    assert "to dump" not in said, said
    assert_identical(ratchet.lake, [mysql], database, ["twice", "plain"])
    ratchet.run("verify")


def test_to_be_asked_first(mysql: Any, database: str, make_ratchet: Callable[..., Ratchet]) -> None:
    """With `stop` nothing of a copy is captured, and the table stays as it was."""
    ratchet = begun(mysql, database, make_ratchet, ["plain"], schema_changes="stop")
    migrate(mysql, database, "plain")
    ratchet.run("run", "--until-caught-up", expect=None)
    assert not list((ratchet.lake / "_ratchet" / "changes").rglob("*plain_new*"))
    assert status(ratchet)["tables"][0]["phase"] == "stopped"


def test_a_run_that_captured_no_copies_in_between(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """With another config it saw neither the rows nor anything else of the copy."""
    ratchet = begun(mysql, database, make_ratchet, ["t"])
    execute(mysql, database, *(one.format(t="t") for one in (MAKE, ALTER, FILL)))
    ratchet.run("run", "--until-caught-up")
    stops = with_config(mysql, database, make_ratchet, schema_changes="stop")
    execute(mysql, database, *(one.format(t="t") for one in CHANGE))
    stops.run("run", "--until-caught-up")
    ratchet = with_config(mysql, database, make_ratchet)
    execute(mysql, database, SWAP.format(t="t"))
    said = ratchet.run("run", "--until-caught-up").stderr
    assert "shop.t is dumped again: copies were not captured all the time" in said, said
    assert_identical(ratchet.lake, [mysql], database, ["t"])


def test_a_type_that_only_the_server_tells(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """A copy's UUIDs are bytes to the log, and its name is gone when the log is read."""
    ratchet = begun(mariadb, database, make_ratchet, ["t", "plain"])
    execute(
        mariadb,
        database,
        "CREATE TABLE _t_new LIKE t",
        "ALTER TABLE _t_new ADD u UUID NOT NULL DEFAULT '123e4567-e89b-12d3-a456-426655440000'",
        "INSERT INTO _t_new (id, s) SELECT id, s FROM t",
        SWAP.format(t="t"),
    )
    migrate(mariadb, database, "plain")
    said = ratchet.run("run", "--until-caught-up").stderr
    assert "shop.t is dumped again: the log does not tell the type of u" in said, said
    assert "shop.plain is dumped again" not in said, said
    assert_identical(ratchet.lake, [mariadb], database, ["t", "plain"])


NOWHERE: Final[dict[str, Sequence[str]]] = {
    # All rows of a BLACKHOLE are in the log, and none is in the table.
    "like_another": (
        "CREATE TABLE _{t} LIKE {t}",
        "ALTER TABLE _{t} ENGINE = BLACKHOLE",
        "CREATE TABLE __{t}_new LIKE _{t}",
        "INSERT INTO __{t}_new SELECT * FROM {t}",
        "RENAME TABLE {t} TO aside_{t}, __{t}_new TO {t}",
    ),
    "like_one_that_was": (
        "CREATE TABLE aside_{t} LIKE {t}",
        "INSERT INTO aside_{t} SELECT * FROM {t}",
        "ALTER TABLE {t} ENGINE = BLACKHOLE",
        "CREATE TABLE _{t}_new LIKE {t}",
        "ALTER TABLE {t} ENGINE = InnoDB",
        "INSERT INTO _{t}_new SELECT * FROM aside_{t}",
        SWAP,
    ),
    "sessions_engine": (
        "SET SESSION default_storage_engine = BLACKHOLE",
        "CREATE TABLE _{t}_new (id INT PRIMARY KEY, engine INT, InnoDB INT, CHECK (engine=InnoDB))",
        "INSERT INTO _{t}_new (id) SELECT id FROM {t}",
        SWAP,
    ),
    "like_a_temporary_one": (
        "SET SESSION binlog_format = 'STATEMENT'",
        "CREATE TEMPORARY TABLE {t} (id INT PRIMARY KEY, n INT) ENGINE = BLACKHOLE",
        "CREATE TABLE _{t}_new LIKE {t}",
        "DROP TEMPORARY TABLE {t}",
        "SET SESSION binlog_format = 'ROW'",
        "INSERT INTO _{t}_new SELECT id, n FROM {t}",
        SWAP,
    ),
}


def test_copies_that_keep_no_rows(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    ratchet = begun(mysql, database, make_ratchet, [*NOWHERE, "plain"])
    for name, steps in NOWHERE.items():
        execute(mysql, database, *(one.format(t=name) for one in steps))
        execute(mysql, database, f"ALTER TABLE {name} ENGINE = InnoDB")
    migrate(mysql, database, "plain")
    said = ratchet.run("run", "--until-caught-up").stderr
    for name in NOWHERE:
        assert f"shop.{name} is dumped again" in said, said
    assert "shop.plain is dumped again" not in said, said
    assert_identical(ratchet.lake, [mysql], database, [*NOWHERE, "plain"])


TEMPORARY: Final = (
    MAKE,
    "INSERT INTO _{t}_new SELECT * FROM {t} WHERE id % 2",
    "CREATE TEMPORARY TABLE {t} (a INT)",
    "CREATE TEMPORARY TABLE _{t}_new (a INT)",
    SWAP,
    "DROP TEMPORARY TABLE {t}, _{t}_old",
)


def test_a_swap_of_temporary_tables(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """A MariaDB logs their RENAME, and nothing else of them."""
    names = ["stays", "gone", "renamed", "plain"]
    ratchet = begun(mariadb, database, make_ratchet, names)
    for name in names[:-1]:
        execute(mariadb, database, *(one.format(t=name) for one in TEMPORARY))
    execute(
        mariadb,
        database,
        "DROP TABLE _gone_new",
        "RENAME TABLE _renamed_new TO aside",
        *(one.format(t="plain") for one in (MAKE, TEMPORARY[1], SWAP)),
    )
    said = ratchet.run("run", "--until-caught-up").stderr
    assert "shop.stays is dumped again: its server still has _stays_new" in said, said
    for name in names[1:3]:
        assert f"shop.{name} is dumped again: _{name}_new may still have been there" in said, said
    assert "shop.plain is dumped again" not in said, said
    assert_identical(ratchet.lake, [mariadb], database, names)


def test_a_server_that_puts_another_engine_in_its_place(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """With enforce_storage_engine the statement is logged as it was typed."""
    ratchet = begun(mariadb, database, make_ratchet, ["t"])
    steps = ("SET sql_mode = '', enforce_storage_engine = Aria", MAKE, FILL, SWAP)
    execute(mariadb, database, *(one.format(t="t") for one in steps))
    said = ratchet.run("run", "--until-caught-up").stderr
    assert "shop.t is dumped again" in said, said
    assert_identical(ratchet.lake, [mariadb], database, ["t"])


@pytest.mark.long
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_a_server_that_was_started_meanwhile(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], flavor: str
) -> None:
    """A copy in memory may be empty behind that, and no log tells of it; a crash takes more."""
    server = make_server(flavor)
    server.execute("CREATE DATABASE shop")
    ratchet = begun(server, "shop", make_ratchet, ["t", "plain"])
    execute(server, "shop", *(one.format(t="t") for one in (MAKE, FILL)))
    server.restart()
    ratchet.run("run", "--until-caught-up")
    execute(server, "shop", SWAP.format(t="t"))
    migrate(server, "shop", "plain")
    said = ratchet.run("run", "--until-caught-up").stderr
    assert "shop.t is dumped again: its server was started since _t_new was made" in said, said
    assert "shop.plain is dumped again" not in said, said
    assert_identical(ratchet.lake, [server], "shop", ["t", "plain"])


def with_config(
    server: Any, database: str, make_ratchet: Callable[..., Ratchet], **source: str
) -> Ratchet:
    return make_ratchet({"-": server}, database, source={"tables": ["*", "!aside_*"], **source})


def begun(
    server: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    names: Sequence[str],
    **source: str,
) -> Ratchet:
    for name in names:
        values = ", ".join(f"({n}, 'row {n}', {n}, {n})" for n in range(1, ROWS + 1))
        execute(
            server,
            database,
            f"CREATE TABLE {name} ({COLUMNS})",
            f"INSERT INTO {name} VALUES {values}",
        )
    create_ratchet_user(server, PASSWORD, [database])
    ratchet = with_config(server, database, make_ratchet, **source)
    ratchet.run("run", "--until-caught-up")
    return ratchet


def execute(server: Any, database: str, *statements: str) -> None:
    with server.connect(database=database, autocommit=True) as connection:
        for statement in statements:
            connection.cursor().execute(statement)


def migrate(server: Any, database: str, name: str) -> None:
    execute(server, database, *(one.format(t=name) for one in {**TAKEN, **DUMPED}[name]))


def wait_until_shown(running: Any, said: Path, ratchet: Ratchet) -> None:
    """Until nothing is stopped or dumped any more."""
    deadline = time.monotonic() + 240
    time.sleep(5)
    while any(one["phase"] != "streaming" for one in status(ratchet)["tables"]):
        assert running.poll() is None, said.read_text()
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(2)


def check_said(said: str) -> None:
    """Each is taken from the log or dumped, as it should be; the line says why."""
    taken = set(re.findall(r"shop\.(\w+): .*taken from the change log of .*, 0 rows read", said))
    dumped = set(re.findall(r"shop\.(\w+) is dumped again: ", said))
    assert taken >= set(TAKEN), said
    assert dumped == set(DUMPED), said
