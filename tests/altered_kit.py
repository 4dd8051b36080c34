"""Tables whose columns are altered, and rows that are written to them whatever they look like."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

COLUMNS: Final = (
    "id INT NOT NULL, s VARCHAR(20) NOT NULL, n INT, d DECIMAL(10,2), "
    "l VARCHAR(20) CHARACTER SET latin1, a DATE NOT NULL DEFAULT '2024-02-29', PRIMARY KEY (id)"
)


def create(server: Any, database: str, names: Sequence[str], *, first: int = 0) -> None:
    """Make tables of twenty rows, whose keys begin there."""
    for name in names:
        execute(server, database, f"CREATE TABLE {name} ({COLUMNS})")
        values = ", ".join(f"({first + n}, 'row {n}', {n}, {n}.25, 'ä{n}')" for n in range(20))
        execute(server, database, f"INSERT INTO {name} (id, s, n, d, l) VALUES {values}")


def change(server: Any, database: str, name: str, number: int, *, first: int = 0) -> None:
    """Insert, update and delete some rows, whatever the columns are called by now.

    Args:
        server: where.
        database: its database.
        name: the table.
        number: another one each time.
        first: all keys are at least that.
    """
    with server.connect(database=database, autocommit=True) as connection:
        cursor = connection.cursor()
        key, texts = _replace(cursor, name, first + 1000 + number % 100, number)
        for text in texts[:1]:
            some = f"`{key}` % 7 = {number % 7}"
            cursor.execute(f"UPDATE {name} SET `{text}` = 'changed {number}' WHERE {some}")
        if number >= 100 and number % 2:
            cursor.execute(f"DELETE FROM {name} WHERE `{key}` = {first + 1000 + number % 100}")


def put(server: Any, database: str, name: str, key: int) -> None:
    """Write the row of a key, whatever the columns are called by now."""
    with server.connect(database=database, autocommit=True) as connection:
        _replace(connection.cursor(), name, key, key)


def _replace(cursor: Any, name: str, value: int, number: int) -> tuple[str, list[str]]:
    """Write a row; the key's column, and those that hold texts."""
    cursor.execute("SET sql_mode = ''")  # columns without a default get one
    cursor.execute(f"SHOW COLUMNS FROM {name}")
    shown = {row[0]: row[1] for row in cursor.fetchall() if "GENERATED" not in row[5]}
    cursor.execute(f"SHOW KEYS FROM {name} WHERE Key_name = 'PRIMARY'")
    key = str(cursor.fetchall()[0][4])
    texts = [one for one in shown if "varchar(20)" in shown[one]]
    values = {one: "1" for one in shown if "int" in shown[one] or "dec" in shown[one]}
    values |= dict.fromkeys(texts, f"'new {number}'")
    values |= {key: str(value)}
    into = ", ".join(f"`{one.replace('`', '``')}`" for one in values)
    cursor.execute(f"REPLACE INTO {name} ({into}) VALUES ({', '.join(values.values())})")
    return key, texts


def execute(server: Any, database: str, statement: str) -> None:
    with server.connect(database=database, autocommit=True) as connection:
        connection.cursor().execute(statement)


def computed(said: Path) -> set[str]:
    """The tables that a run has computed without reading the source."""
    return _told(said, "without reading the source")


def asked(said: Path) -> set[str]:
    """The tables that a run has computed with some columns of the source."""
    return _told(said, "rows read from the source")


def _told(said: Path, how: str) -> set[str]:
    lines = [line for line in said.read_text().splitlines() if "computed in" in line]
    return {line.partition("shop.")[2].partition(":")[0] for line in lines if how in line}


def wait_until_shown(running: Any, said: Path, names: list[str]) -> None:
    """Until the new form of each table has taken the place of the old one."""
    deadline = time.monotonic() + 420
    while True:
        text = said.read_text()
        missing = [name for name in names if f"shop.{name}: its new dump is shown" not in text]
        if not missing:
            return
        assert running.poll() is None, text
        assert time.monotonic() < deadline, (missing, text)
        time.sleep(1)
