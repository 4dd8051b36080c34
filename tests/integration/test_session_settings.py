"""VIRTUAL columns that are taken have one value, whatever the writer's session is set to.

Expressions of all forms over columns of all types; each in a table of its own, as a run sees it.
Those that are not refused are written to under each setting, with the tables opened anew, and what
stands in the log is compared with what a session without it logs.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pymysql
import pytest
from capture_kit import Capturer, source_of
from expression_kit import COLUMNS, expressions, rows, settings

from lab.server import Server
from lab.servers import MariadbServer
from ratchet.wire.decode.unfit import unfit_tables


class Sessions:
    """Tables with one VIRTUAL column each, and what sessions write to them."""

    def __init__(self, server: Server, database: str, folder: Path) -> None:
        self.server, self.database, self.folder = server, database, folder
        self.kept: dict[str, str] = {}
        self.failed = 0

    def make(self, chosen: list[tuple[str, str]]) -> int:
        """How many tables the server made; the refused ones are gone again."""
        columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
        made: dict[str, str] = {}
        connection = self.server.connect(database=self.database, autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
            for number, (expression, kind) in enumerate(chosen):
                table = f"t{number}"
                try:
                    cursor.execute(
                        f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns}, tick INT, "
                        f"g {kind} AS ({expression}) VIRTUAL)"
                    )
                    fields = ", ".join(["id", *(f"`{name}`" for name in COLUMNS), "tick"])
                    cursor.execute(f"INSERT INTO {table} ({fields}) VALUES {', '.join(rows())}")
                except pymysql.err.Error:
                    cursor.execute(f"DROP TABLE IF EXISTS {table}")
                else:
                    made[table] = f"{expression} as {kind}"
            refused = unfit_tables(self.server.execute, database=self.database)
            for table in refused:
                cursor.execute(f"DROP TABLE {table}")
        self.kept = {table: text for table, text in made.items() if table not in refused}
        return len(made)

    def write(self, setting: str, tick: int) -> None:
        connection = self.server.connect(database=self.database, autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
            if setting:
                cursor.execute(f"SET {setting}")
            cursor.execute("FLUSH TABLES")
            for table in self.kept:
                try:
                    cursor.execute(f"UPDATE {table} SET tick = {tick}")
                except pymysql.err.Error:
                    self.failed += 1  # an error is not silent

    def logged(self, capturer: Capturer, table: str) -> dict[int, dict[int, Any]]:
        """tick -> row -> what the log has."""
        found: dict[int, dict[int, Any]] = {}
        for change in capturer.changes(table):
            after = change["after"]
            found.setdefault(after["tick"], {})[after["id"]] = after["g"]
        return found


def look(server: Server, database: str, folder: Path, chosen: list[tuple[str, str]]) -> Sessions:
    sessions = Sessions(server, database, folder)
    made = sessions.make(chosen)
    assert len(sessions.kept) > made / 4
    assert len(sessions.kept) < made  # the rule refuses something
    capturer = Capturer(source_of(server, database, triggers=True), folder)
    tried = ("", *settings(mariadb=isinstance(server, MariadbServer)))
    for tick, setting in enumerate(tried, start=1):
        sessions.write(setting, tick)
    capturer.catch_up(seconds=600)
    wrong = []
    for table, text in sessions.kept.items():
        logged = sessions.logged(capturer, table)
        assert logged, text
        for tick, setting in enumerate(tried, start=1):
            if tick in logged and repr(logged[tick]) != repr(logged[1]):  # NaN is NaN
                wrong.append((text, setting, logged[1], logged[tick]))
    assert wrong == []
    assert sessions.failed < len(tried) * len(sessions.kept) / 10
    return sessions


def test_what_is_taken_has_one_value(server: Server, database: str, tmp_path: Path) -> None:
    chosen = random.Random(1).sample(sorted(expressions()), 120)
    look(server, database, tmp_path, chosen)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 14))
def test_all_that_is_taken_has_one_value(
    server: Server, database: str, tmp_path: Path, seed: int
) -> None:
    """Some 3,000 of about 6,500 in each run."""
    chosen = random.Random(seed).sample(sorted(expressions()), 400)
    look(server, database, tmp_path, chosen)
