"""Grants that are given while a run goes on: its look at the server goes by those of now.

A session goes on with the privileges that it began with, and the lists of privileges show new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fix_dump import config_of

from lab.servers import Server
from ratchet.core.errors import TableStoppedError
from ratchet.wire.hints import ServerCatalog
from ratchet.wire.session import Session


@pytest.fixture
def catalog(server: Server, database: str) -> Iterator[ServerCatalog]:
    """Of an account that sees no triggers yet, by a session that stays open."""
    yield from _catalog(server, database)


def _catalog(server: Server, database: str) -> Iterator[ServerCatalog]:
    server.execute("CREATE USER late@'%' IDENTIFIED BY 'secret'")
    server.execute(f"GRANT SELECT ON `{database}`.* TO late@'%'")
    source = replace(config_of(server, database), user="late", password="secret", tls="preferred")
    with Session.connect(source) as session:
        yield ServerCatalog(session, keyspace="shop")
    server.execute("DROP USER late@'%'")


@pytest.mark.parametrize("on", ["`{}`.*", "*.*"])
def test_what_leads_on_is_seen_with_new_grants(
    catalog: ServerCatalog, server: Server, database: str, on: str
) -> None:
    for table in ("leads", "plain"):
        server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", database=database)
    server.execute("CREATE TABLE other (id INT)", database=database)
    server.execute(
        "CREATE TRIGGER tr AFTER INSERT ON leads FOR EACH ROW INSERT INTO other VALUES (NEW.id)",
        database=database,
    )

    def plain() -> dict[str, bool]:
        return {table: catalog.is_plain(database, table) for table in ("leads", "plain")}

    assert plain() == {"leads": False, "plain": False}
    server.execute(f"GRANT SELECT, TRIGGER ON {on.format(database)} TO late@'%'")
    assert plain() == {"leads": False, "plain": True}
    server.execute(f"REVOKE SELECT, TRIGGER ON {on.format(database)} FROM late@'%'")
    server.execute(f"GRANT SELECT ON `{database}`.* TO late@'%'")
    assert plain() == {"leads": False, "plain": False}


@pytest.fixture
def mariadb_catalog(mariadb: Server, database: str) -> Iterator[ServerCatalog]:
    """The same on MariaDB, whose log does not tell all of a table."""
    yield from _catalog(mariadb, database)


def test_refused_virtual_columns_are_looked_at_with_new_grants(
    mariadb_catalog: ServerCatalog, mariadb: Server, database: str
) -> None:
    """With the grant that the refusal asks for, a good table is taken, and a bad one is not."""
    for table in ("good", "bad"):
        mariadb.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL)",
            database=database,
        )
    mariadb.execute(
        "CREATE TRIGGER tr BEFORE INSERT ON bad FOR EACH ROW SET NEW.a = 7", database=database
    )
    for table in ("good", "bad"):
        with pytest.raises(TableStoppedError, match="may not see its triggers"):
            mariadb_catalog.hints(table)
    mariadb.execute(f"GRANT TRIGGER ON `{database}`.* TO late@'%'")
    assert mariadb_catalog.hints("good") == {}
    with pytest.raises(TableStoppedError, match="BEFORE trigger"):
        mariadb_catalog.hints("bad")
