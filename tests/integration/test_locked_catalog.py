"""What a server says of its tables while one of them is locked: all of it, or an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from fix_dump import config_of

from lab.servers import Server
from ratchet.core.errors import LockedError
from ratchet.wire.session import Session

CHILD = (
    "CREATE TABLE child (id INT PRIMARY KEY, p INT, "
    "FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)"
)
ASKED = {  # about what: the column that names a table, where, and under which condition
    "keys": ("table_name", "key_column_usage", "referenced_table_name IS NOT NULL"),
    "columns": ("table_name", "columns", "column_name = 'p'"),
    "tables": ("table_name", "tables", "engine = 'InnoDB'"),
    "triggers": ("event_object_table", "triggers", "trigger_name = 'leads'"),
    "indexes": ("table_name", "statistics", "non_unique = 0"),
}


@pytest.fixture
def _renaming(server: Server, database: str) -> Iterator[None]:
    """A RENAME TABLE that holds `child`, and waits for a table that a transaction has read."""
    for statement in (
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        CHILD,
        "CREATE TRIGGER leads AFTER INSERT ON child FOR EACH ROW DELETE FROM parent",
        "CREATE TABLE open (id INT PRIMARY KEY)",
    ):
        server.execute(statement, database=database)

    def rename() -> None:
        server.execute("RENAME TABLE child TO child2, open TO open2", database=database)

    with closing(server.connect(database=database)) as holder, holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM open")
        thread = threading.Thread(target=rename)
        thread.start()
        time.sleep(0.5)
        yield
        holder.rollback()
        thread.join()


@pytest.mark.usefixtures("_renaming")
@pytest.mark.parametrize("about", sorted(ASKED))
def test_nothing_is_left_out_silently(server: Server, database: str, about: str) -> None:
    """MariaDB waits, leaves the locked table out, and says so in a warning alone."""
    named, where, condition = ASKED[about]
    schema = "trigger_schema" if about == "triggers" else "table_schema"
    sql = f"SELECT {named} FROM information_schema.{where} WHERE {schema} = %s AND {condition}"
    with closing(Session.connect(config_of(server, database))) as session:
        session.execute("SET SESSION lock_wait_timeout = 1")
        if session.is_mariadb:
            with pytest.raises(LockedError, match="an answer about tables is incomplete"):
                session.query(sql, [database])
        else:
            assert "child" in {name for (name,) in session.query(sql, [database])}
