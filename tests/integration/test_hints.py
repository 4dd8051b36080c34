"""What a stream asks a MariaDB about tables: one at a time, and not held up by what is locked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from fix_dump import config_of

from lab.servers import Server
from ratchet.core.errors import LockedError, TableStoppedError
from ratchet.wire.hints import ServerCatalog
from ratchet.wire.session import Session

MANY = 30
QUICK = 5.0  # seconds; a MariaDB would wait ten for each locked table


@contextmanager
def hung_tables(server: Server, database: str) -> Iterator[None]:
    """Tables that are being made out of rows that somebody else has locked."""
    server.execute("CREATE TABLE source (id INT PRIMARY KEY, v INT)", database=database)
    server.execute("INSERT INTO source VALUES (1, 1)", database=database)
    threads = []

    def make(number: int) -> None:
        with server.connect(database=database, autocommit=True) as connection:
            cursor = connection.cursor()
            cursor.execute("SET innodb_lock_wait_timeout = 600")
            cursor.execute(f"CREATE TABLE hung{number} AS SELECT id FROM source FOR UPDATE")

    with ExitStack() as stack:
        holder = stack.enter_context(server.connect(database=database, autocommit=False))
        holder.cursor().execute("UPDATE source SET v = 2")
        for number in range(MANY):
            threads.append(threading.Thread(target=make, args=(number,)))
            threads[-1].start()
        waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'CREATE %'"
        while int(server.execute(waiting)[0][0]) < MANY:
            time.sleep(0.05)
        yield
        holder.rollback()
    for thread in threads:
        thread.join()


@pytest.fixture
def catalog(mariadb: Server, database: str) -> Iterator[ServerCatalog]:
    """Of the database."""
    with Session.connect(config_of(mariadb, database)) as session:
        yield ServerCatalog(session, keyspace="shop")


def test_tables_that_are_locked_hold_up_nothing_about_others(
    mariadb: Server, database: str, catalog: ServerCatalog
) -> None:
    mariadb.execute("CREATE TABLE plain (id INT PRIMARY KEY, u UUID)", database=database)
    with hung_tables(mariadb, database):
        began = time.monotonic()
        assert catalog.hints("plain") == {"u": "uuid"}
        mariadb.execute("CREATE TABLE late (id INT PRIMARY KEY, i INET6)", database=database)
        catalog.forget("late")
        assert catalog.hints("late") == {"i": "inet6"}
        assert catalog.is_base("plain")
        assert not catalog.is_base("hung1")
        with pytest.raises(LockedError):
            catalog.hints("hung1")
        assert time.monotonic() - began < QUICK
    assert catalog.hints("hung1") == {}
    assert catalog.is_base("hung1")


def test_a_table_that_is_made_anew_is_asked_about_by_itself(
    mariadb: Server, database: str, catalog: ServerCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*statements: str) -> None:
        for statement in statements:
            mariadb.execute(statement, database=database)

    make(
        "CREATE TABLE a (id INT PRIMARY KEY, x UUID)",
        "CREATE TABLE A (id INT PRIMARY KEY, x BINARY(16))",
        "CREATE TABLE old (id INT PRIMARY KEY)",
    )
    assert (catalog.hints("a"), catalog.hints("A"), catalog.hints("old")) == ({"x": "uuid"}, {}, {})
    asked: list[str] = []
    query = Session.query

    def note(self: Session, sql: str, args: Any = None) -> Any:
        asked.append(sql % tuple(map(repr, args or ())))
        return query(self, sql, args)

    monkeypatch.setattr(Session, "query", note)
    assert catalog.hints("a") == {"x": "uuid"}
    assert not asked
    make(
        "ALTER TABLE a MODIFY x BINARY(16)",
        "ALTER TABLE A MODIFY x UUID",
        "ALTER TABLE old ADD v INT AS (id + 1) VIRTUAL",
        "CREATE TRIGGER tr BEFORE INSERT ON old FOR EACH ROW SET NEW.id = 7",
        "CREATE SEQUENCE s",
        "CREATE TABLE v (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE TABLE k (id INT PRIMARY KEY) ENGINE = MyISAM",
        f"CREATE TABLE m (id INT PRIMARY KEY) ENGINE = MERGE UNION = ({database}.k)",
    )
    for table in ("A", "old", "s", "v", "k", "m"):
        catalog.forget(table)
    assert catalog.hints("A") == {"x": "uuid"}
    assert catalog.hints("a") == {}  # it is asked about with the other of that name
    assert catalog.hints("s") == {}
    for table, why in (
        ("old", "BEFORE trigger"),
        ("v", "versioned"),
        ("k", "MERGE"),
        ("m", "MERGE"),
    ):
        with pytest.raises(TableStoppedError, match=why):
            catalog.hints(table)
    make("DROP TRIGGER tr", "DROP TABLE m", "DROP TABLE v")
    for table in ("old", "m", "v"):
        catalog.forget(table)
    assert (catalog.hints("old"), catalog.hints("v")) == ({}, {})
    with pytest.raises(TableStoppedError, match="MERGE"):
        catalog.hints("k")
    monkeypatch.setattr("ratchet.wire.hints._REFUSED", 0.0)
    assert catalog.hints("k") == {}  # no statement has named it
    of_tables = [one for one in asked if "table_name" in one and "information_schema" in one]
    assert of_tables
    catalog.forget("old")
    del asked[:]
    catalog.hints("a")
    assert not asked
