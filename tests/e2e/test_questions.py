"""What the commands ask a server, as the server logs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet

from lab.servers import Server, create_ratchet_user

TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY, d INT AS (id + 1) VIRTUAL)",
    "CREATE TABLE c (id INT PRIMARY KEY, p INT REFERENCES t (id) ON DELETE CASCADE)",
    "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MEMORY",
    "CREATE TABLE a (id INT PRIMARY KEY) ENGINE=Aria",
)


@pytest.fixture
def logging(mariadb: Server) -> Iterator[Callable[[], set[str]]]:
    """A server that logs what it is asked; what that was, of tables and in `SELECT`."""

    def asked() -> set[str]:
        with closing(mariadb.connect()) as session, session.cursor() as cursor:
            cursor.execute(
                "SELECT DISTINCT argument FROM mysql.general_log WHERE command_type = 'Query'"
                " AND argument LIKE '%FROM information_schema.%'"
                " AND user_host LIKE '%ratchet%'"
            )
            return {text if isinstance(text, str) else text.decode() for (text,) in cursor}

    mariadb.execute("TRUNCATE mysql.general_log")
    mariadb.execute("SET GLOBAL log_output = 'TABLE', general_log = ON")
    yield asked
    mariadb.execute("SET GLOBAL general_log = OFF, log_output = DEFAULT")


@pytest.mark.long
def test_no_question_opens_the_tables_of_other_databases(
    mariadb: Server,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    logging: Callable[[], set[str]],
) -> None:
    """MariaDB opens them to answer, and waits for somebody's locks there."""
    for statement in TABLES:
        mariadb.execute(statement, database=database)
    create_ratchet_user(mariadb, PASSWORD, [database], triggers=True)
    ratchet = make_ratchet({"-": mariadb}, database)
    for command in (["check"], ["run", "--until-caught-up"], ["verify"], ["heal"]):
        ratchet.run(*command)
    questions = logging()
    assert len(questions) > 20
    with closing(mariadb.connect(database=database)) as session, session.cursor() as cursor:
        for question in sorted(questions):
            cursor.execute(f"EXPLAIN {question}")
            plan: list[tuple[Any, ...]] = list(cursor)
            assert "Scanned all databases" not in str(plan), question
