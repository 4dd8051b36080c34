"""Schema changes under a running pipeline, each on a table of its own: what goes on, what stops.

With rows in flight before and behind each. What goes on ends as the source; what stops names the
change and the remedy, and is right after it. Nothing else stops.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from fix_e2e import (
    PASSWORD,
    TABLES,
    Ratchet,
    Writer,
    assert_identical,
    create_tables,
    end_of,
    reading,
    status,
)

from lab.servers import create_ratchet_user

pytestmark = pytest.mark.long

GOES_ON: Final = {
    "come_last": ["ALTER TABLE come_last ADD x INT"],
    "come_first": ["ALTER TABLE come_first ADD x VARCHAR(9) NULL FIRST"],
    "come_after": ["ALTER TABLE come_after ADD x DATE AFTER id, ALGORITHM=INSTANT"],
    "wider": ["ALTER TABLE wider MODIFY s VARCHAR(200)"],
    "member_last": ["ALTER TABLE member_last MODIFY e ENUM('a','b','c')"],
    "member_between": ["ALTER TABLE member_between MODIFY e ENUM('a','between','b')"],
    "utf8": ["ALTER TABLE utf8 MODIFY l VARCHAR(20) CHARACTER SET utf8mb4"],
    "reordered": ["ALTER TABLE reordered MODIFY n INT AFTER id"],
    "indexed": ["CREATE INDEX i ON indexed (n)", "DROP INDEX i ON indexed"],
    "commented": ["ALTER TABLE commented COMMENT 'of a table', MODIFY n INT COMMENT 'of a column'"],
    "rebuilt": ["ALTER TABLE rebuilt ENGINE=InnoDB", "OPTIMIZE TABLE rebuilt"],
    "truncated": ["TRUNCATE TABLE truncated"],
    # In doubt, compared, and right: no value was longer.
    "narrower": ["ALTER TABLE narrower MODIFY s VARCHAR(19)"],
}
STOPS: Final = {
    "valued": ["ALTER TABLE valued ADD x INT NOT NULL DEFAULT 7"],
    "gone": ["ALTER TABLE gone DROP COLUMN n"],
    "renamed": ["ALTER TABLE renamed CHANGE n m INT"],
    "wider_type": ["ALTER TABLE wider_type MODIFY n BIGINT"],
    "other_key": ["ALTER TABLE other_key DROP PRIMARY KEY, ADD PRIMARY KEY (id, s)"],
    "made_anew": [
        "DROP TABLE made_anew",
        "CREATE TABLE made_anew LIKE come_last",
    ],
    "swap_one": ["RENAME TABLE swap_one TO x, swap_two TO swap_one, x TO swap_two"],
    "swap_two": [],
    "parted": ["ALTER TABLE parted EXCHANGE PARTITION p0 WITH TABLE exchanged"],
    "exchanged": [],
    # As gh-ost and pt-online-schema-change end.
    "ghost": [
        "CREATE TABLE _ghost_gho LIKE ghost",
        "ALTER TABLE _ghost_gho ADD x INT NOT NULL DEFAULT 3",
        "INSERT INTO _ghost_gho (id, s, n, e, l) SELECT id, s, n, e, l FROM ghost",
        "RENAME TABLE ghost TO _ghost_del, _ghost_gho TO ghost",
    ],
}
COLUMNS: Final = (
    "id INT NOT NULL, s VARCHAR(20) NOT NULL, n INT, e ENUM('a','b'), "
    "l VARCHAR(20) CHARACTER SET latin1, PRIMARY KEY (id)"
)
PARTED: Final = " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000))"


def test_on_mariadb(mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]) -> None:
    at_noon(mariadb, database, make_ratchet)


def test_on_mysql(mysql: Any, database: str, make_ratchet: Callable[..., Ratchet]) -> None:
    at_noon(mysql, database, make_ratchet)


def at_noon(server: Any, database: str, make_ratchet: Callable[..., Ratchet]) -> None:
    """All tables stay stopped but one, which the config lets go on by itself."""
    names = [*GOES_ON, *STOPS, "followed"]
    create_tables(server, database)
    for name in names:
        run(server, database, f"CREATE TABLE {name} ({COLUMNS}){PARTED * (name == 'parted')}")
        run(server, database, rows(name, 1, 20))
    create_ratchet_user(server, PASSWORD, [database])
    stops = {"schema_changes": {"stop": ["*", "!followed"]}}
    ratchet = make_ratchet({"-": server}, database, source=stops)
    ratchet.run("run", "--until-caught-up")
    running = ratchet.start("run")
    with writing(server, database):
        for name in names:
            run(server, database, f"UPDATE {name} SET n = n + 1 WHERE id % 3 = 0")
        for statements in (*GOES_ON.values(), *STOPS.values()):
            for statement in statements:
                run(server, database, statement)
        run(server, database, "ALTER TABLE followed ADD x INT NOT NULL DEFAULT 7")
        for number, name in enumerate(names):
            run(server, database, rows(name, 30 + number, 60))
        run(server, database, "CREATE TABLE copied (PRIMARY KEY (id)) SELECT * FROM indexed")
        wait_for(ratchet, running, {**dict.fromkeys(STOPS, "stopped"), "copied": "streaming"})
    running.send_signal(signal.SIGTERM)
    out, err = end_of(running, 120)
    assert running.returncode in {0, 6}, (out, err)
    found = {one["table"]: one for one in status(ratchet)["tables"]}
    for name in STOPS:
        assert "redump" in found[name]["hint"], name
        assert found[name]["stopped"], name
    assert "redump" not in found["followed"]["hint"] or "by itself" in found["followed"]["hint"]
    going = {name for name, one in found.items() if one["phase"] == "streaming"} - {"followed"}
    assert going == {*GOES_ON, *TABLES, "copied"}
    ratchet.run("run", "--until-caught-up", expect=6)
    going |= {"followed"}
    assert_identical(ratchet.lake, [server], database, sorted(going))
    again = [part for name in STOPS for part in ("--again", name)]
    ratchet.run("dump", *again)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], database, sorted({*going, *STOPS}))


def test_nobody_types_a_command_on_mariadb(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    followed(mariadb, database, make_ratchet)


def test_nobody_types_a_command_on_mysql(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    followed(mysql, database, make_ratchet)


def followed(server: Any, database: str, make_ratchet: Callable[..., Ratchet]) -> None:
    """As by default: in a run, in a run that is ended, and with a backlog of ALTERs."""
    names = list(STOPS)
    create_tables(server, database)
    run(server, database, f"CREATE TABLE come_last ({COLUMNS})")
    for name in names:
        run(server, database, f"CREATE TABLE {name} ({COLUMNS}){PARTED * (name == 'parted')}")
        run(server, database, rows(name, 1, 20))
    create_ratchet_user(server, PASSWORD, [database])
    ratchet = make_ratchet({"-": server}, database)
    ratchet.run("run", "--until-caught-up")
    running = ratchet.start("run")
    with writing(server, database), reading(ratchet, names) as seen:
        for statements in STOPS.values():
            for statement in statements:
                run(server, database, statement)
        for number, name in enumerate(names):
            run(server, database, rows(name, 30 + number, 60))
        wait_for_rows(ratchet, running, {**dict.fromkeys(names, 30), "made_anew": 20})
    running.send_signal(signal.SIGTERM)
    out, err = end_of(running, 120)
    assert running.returncode == 0, (out, err)
    fewest = {name: min(rows for rows, _ in seen[name]) for name in names}
    assert all(fewest[name] >= 19 for name in names if name != "made_anew"), fewest
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], database, sorted({*TABLES, *names}))
    # The run is away, and a table is altered again and again.
    for number in range(3):
        run(server, database, f"ALTER TABLE valued ADD y{number} INT NOT NULL DEFAULT {number}")
        run(server, database, f"UPDATE valued SET n = n + {number}")
    run(server, database, "ALTER TABLE valued DROP COLUMN y1, RENAME COLUMN y2 TO z")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], database, sorted({*TABLES, *names}))
    assert {one["phase"] for one in status(ratchet)["tables"]} == {"streaming"}
    # What cannot be dumped again is told of, and not waited for.
    run(server, database, "DROP TABLE swap_two")
    said = ratchet.run("run", "--until-caught-up", expect=6).stderr
    assert "shop.swap_two" in said


def wait_for_rows(ratchet: Ratchet, running: Any, rows: dict[str, int]) -> None:
    """Until these tables stream, and have so many rows at least."""
    deadline = time.monotonic() + 420
    while True:
        assert running.poll() is None, running.communicate()
        found = {one["table"]: one for one in status(ratchet)["tables"]}
        missing = {
            name: (found[name]["phase"], found[name]["rows"])
            for name, least in rows.items()
            if found[name]["phase"] != "streaming" or (found[name]["rows"] or 0) < least
        }
        if not missing:
            return
        assert time.monotonic() < deadline, missing
        time.sleep(1)


def run(server: Any, database: str, statement: str) -> None:
    with server.connect(database=database, autocommit=True) as connection:
        connection.cursor().execute(statement)


def rows(table: str, low: int, high: int) -> str:
    values = ", ".join(f"({n}, 'row {n}', {n}, 'b', 'ä{n}')" for n in range(low, high))
    columns = {"gone": "id, s, e, l", "renamed": "id, s, m, e, l"}.get(table, "id, s, n, e, l")
    if low > 1 and table == "gone":
        values = ", ".join(f"({n}, 'row {n}', 'b', 'ä{n}')" for n in range(low, high))
    elif low == 1:
        columns = "id, s, n, e, l"
    return f"INSERT INTO {table} ({columns}) VALUES {values}"


@contextmanager
def writing(server: Any, database: str) -> Iterator[None]:
    """The writer's three tables change all along."""
    writer = Writer(server, database, seed=3)
    writer.start()
    yield
    writer.finish()


def wait_for(ratchet: Ratchet, running: Any, phases: dict[str, str], seconds: float = 420) -> None:
    deadline = time.monotonic() + seconds
    while True:
        assert running.poll() is None, running.communicate()
        found = {one["table"]: one["phase"] for one in status(ratchet)["tables"]}
        missing = {name: found.get(name) for name in phases if found.get(name) != phases[name]}
        if not missing:
            return
        assert time.monotonic() < deadline, missing
        time.sleep(1)
