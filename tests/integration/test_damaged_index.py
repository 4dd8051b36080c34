"""MyISAM and Aria after a crash of a server that repairs nothing: keys that rows have are missing.

A read by key showed 1 row of 4, so the comparison after the crash took three out of the mirror.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from capture_kit import source_of

from lab.servers import Server
from ratchet.core.errors import TableStoppedError
from ratchet.snapshot.damage import rows_without_keys
from ratchet.snapshot.keys import find_plan
from ratchet.snapshot.source import SourceCatalog
from ratchet.wire.session import Session

MakeServer = Callable[..., Server]
CRASHED = "is marked as crashed and should be repaired"  # MySQL 9.7 does not read it at all
LACKS = "its index PRIMARY is damaged: it has [0-9]+ rows fewer than the table"
# Engine, rows that are inserted before the crash, what is said.
TABLES = {
    "mysql": [("MyISAM DELAY_KEY_WRITE = 1", 3, CRASHED)],
    "mariadb": [("MyISAM DELAY_KEY_WRITE = 1", 3, LACKS)],
}
OPTIONS = {"mysql": {}, "mariadb": {"aria-recover-options": ""}}


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_a_table_whose_index_lacks_rows_is_refused_until_it_is_repaired(
    make_server: MakeServer, flavor: str
) -> None:
    server = make_server(flavor, options={"myisam-recover-options": "OFF", **OPTIONS[flavor]})
    server.execute("CREATE DATABASE d")
    server.execute("CREATE TABLE d.calm (id INT PRIMARY KEY, v INT) ENGINE = MyISAM")
    for number, (engine, _, _) in enumerate(TABLES[flavor]):
        server.execute(f"CREATE TABLE d.t{number} (id INT PRIMARY KEY, v INT) ENGINE = {engine}")
        server.execute(f"INSERT INTO d.t{number} VALUES (1, 1)")
    server.execute("FLUSH TABLES")
    for number, (_, rows, _) in enumerate(TABLES[flavor]):
        for row in range(rows):
            server.execute(f"INSERT INTO d.t{number} VALUES ({row + 2}, 1)")
    server.kill()
    server.start()
    catalog = SourceCatalog({"shop/-": source_of(server, "d")})
    assert catalog.table("shop/-", "calm").schema.table == "calm"
    for number, (_, rows, said) in enumerate(TABLES[flavor]):
        with pytest.raises(TableStoppedError, match=said):
            catalog.table("shop/-", f"t{number}")
        server.execute(f"REPAIR TABLE t{number}", database="d")
        assert catalog.table("shop/-", f"t{number}").size.rows == rows + 1


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_a_table_that_is_written_to_is_not_called_damaged(
    make_server: MakeServer, flavor: str
) -> None:
    """Rows that are inserted between the two locks of a statement."""
    server = make_server(flavor)
    server.execute("CREATE DATABASE d")
    server.execute("CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE = MyISAM")
    source, ended = source_of(server, "d"), threading.Event()

    def write() -> None:
        with server.connect(database="d", autocommit=True) as connection:
            cursor = connection.cursor()
            while not ended.is_set():
                cursor.execute("INSERT INTO t (v) VALUES (1)")

    writers = [threading.Thread(target=write) for _ in range(3)]
    for one in writers:
        one.start()
    try:
        with Session.connect(source) as session:
            known = SourceCatalog({"shop/-": source}).table("shop/-", "t")
            plan = find_plan(
                session.query, database="d", schema=known.schema, mariadb=session.is_mariadb
            )
            assert known.size.engine == "MYISAM"
            found = {rows_without_keys(session.query, plan, known.size) for _ in range(100)}
    finally:
        ended.set()
        for one in writers:
            one.join()
    assert found == {0}
