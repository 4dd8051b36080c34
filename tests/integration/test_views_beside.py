"""Questions about tables leave views alone: a few may take a MariaDB minutes to look at."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lab.servers import Server, create_ratchet_user
from ratchet.core.errors import RetryableError
from ratchet.core.patterns import TablePatterns
from ratchet.core.shard import ShardId
from ratchet.jobs.preflight.facts import gather
from ratchet.jobs.preflight.restarts import _stored
from ratchet.snapshot.source import SourceCatalog, table_shapes
from ratchet.wire.decode.catalog import read_schemas
from ratchet.wire.decode.foreignkeys import read_foreign_keys
from ratchet.wire.decode.unfit import unfit_tables
from ratchet.wire.decode.views import beside_views
from ratchet.wire.decode.volatile import volatile_columns
from ratchet.wire.session import Session, SourceConfig

DEEP = 12  # views that stand on each other: each doubles what the one before it is made of
BROAD = 64  # on the last of them


@pytest.fixture
def doubled(mariadb: Server, database: str) -> Server:
    """A database whose views take many seconds to look at, and a table."""
    with mariadb.connect(database=database, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute(
            "CREATE TABLE `it's 100%` (id INT PRIMARY KEY, n INT, "
            "v INT AS (n + 1) VIRTUAL, s INT AS (n + 2) STORED)"
        )
        cursor.execute("CREATE VIEW v0 AS SELECT id FROM `it's 100%`")
        for number in range(1, DEEP):
            below = f"SELECT id FROM v{number - 1}"
            cursor.execute(f"CREATE VIEW v{number} AS {below} UNION ALL {below}")
        for number in range(BROAD):
            cursor.execute(f"CREATE VIEW `100% ' of {number}` AS SELECT id FROM v{DEEP - 1}")
    create_ratchet_user(mariadb, "secret", [database], triggers=True)
    return mariadb


def config(server: Server, database: str, **more: Any) -> SourceConfig:
    return SourceConfig(
        shard=ShardId("shop", "-"),
        host="127.0.0.1",
        port=server.port,
        user="ratchet",
        password="secret",
        database=database,
        tls="disabled",
        **more,
    )


def test_no_question_opens_a_view(doubled: Server, database: str) -> None:
    source = config(doubled, database)
    with Session.connect(source) as session:
        began = time.monotonic()
        every = "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s"
        session.query(every, (database,))
        slow = time.monotonic() - began
        asked: dict[str, Callable[[], Sequence[Any] | dict[str, Any]]] = {
            "schemas": lambda: read_schemas(session.query, keyspace="shop", database=database),
            "shapes": lambda: table_shapes(session.query, database),
            "volatile": lambda: [volatile_columns(session.query, database=database) is not None],
            "unfit": lambda: [unfit_tables(session.query, database=database) is not None],
            "foreign keys": lambda: [read_foreign_keys(session.query, database=database)],
            "stored": lambda: _stored(session, lambda _: True),
            "facts": lambda: (
                gather(
                    session,
                    shard=source.shard,
                    host=source.host,
                    user=source.user,
                    database=database,
                    patterns=TablePatterns(("*",)),
                ).tables
            ),
            "catalog": lambda: [SourceCatalog({"-": source}).table("-", "it's 100%")],
        }
        for name, ask in asked.items():
            began = time.monotonic()
            found = ask()
            took = time.monotonic() - began
            assert len(found) == 1, name
            assert took < slow / 3, (name, took, slow)


def test_what_takes_too_long_is_not_left_behind_at_the_server(
    doubled: Server, database: str
) -> None:
    # Looks at each view, and then at so many rows that it never ends. A server ends a statement
    # between two views: the seconds it has for that are a tenth of `read_timeout`.
    columns = "information_schema.COLUMNS"
    endless = f"SELECT SUM(a.ORDINAL_POSITION) FROM {columns} a JOIN {columns} b JOIN {columns} c"
    with Session.connect(config(doubled, database, read_timeout=6.0)) as session:
        with pytest.raises(RetryableError, match="took too long") as caught:
            session.query(endless)
        assert "VIEW" in caught.value.hint
        left = doubled.execute("SELECT INFO FROM information_schema.PROCESSLIST WHERE INFO <> ''")
        assert not [info for (info,) in left if "COLUMNS" in str(info)]
        assert session.query("SELECT 1") == [(1,)]


def test_a_table_beside_a_view_of_its_name_in_other_letters(mariadb: Server, database: str) -> None:
    for sql in ("CREATE TABLE T (id INT PRIMARY KEY)", "CREATE VIEW t AS SELECT 1 AS a"):
        mariadb.execute(sql, database=database)
    found = read_schemas(mariadb.execute, keyspace="shop", database=database)
    assert list(found) == ["T"]
    assert beside_views(mariadb.execute, database, "x") == " AND CAST(x AS BINARY) NOT IN (X'74')"
