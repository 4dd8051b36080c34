"""Tables that a server writes anew, or takes partitions from, without a word in its log."""

from __future__ import annotations

import time

from capture_kit import source_of

from lab.servers import Server
from ratchet.jobs.preflight.restarts import Life, Start, look_at_life
from ratchet.snapshot.source import made_at
from ratchet.wire.session import Session, SourceConfig


def look(source: SourceConfig, noted: Start | None) -> Life:
    with Session.connect(source) as session:
        return look_at_life(session, lambda _: True, noted, None, {})


def run(server: Server, database: str, *statements: str) -> None:
    """In one session."""
    with server.connect(database=database, autocommit=True) as connection:
        for statement in statements:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                cursor.fetchall()


def test_what_is_written_anew_is_in_doubt(server: Server, database: str) -> None:
    run(
        server,
        database,
        "CREATE TABLE gen (id INT PRIMARY KEY, a INT, g VARCHAR(30) AS (CONCAT(a / 3)) STORED, "
        "s TEXT, FULLTEXT (s))",
        "INSERT INTO gen (id, a) VALUES (1, 1)",
        "CREATE TABLE plain (id INT PRIMARY KEY)",
        "CREATE TABLE part (id INT PRIMARY KEY) PARTITION BY RANGE (id) "
        "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
    )
    source = source_of(server, database)
    noted = look(source, look(source, None).start).start
    run(
        server,
        database,
        "INSERT INTO gen (id, a) VALUES (2, 1)",
        "INSERT INTO part VALUES (1), (11)",
    )
    run(server, database, "ALTER TABLE part ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))")
    assert look(source, noted).doubts == {}
    with Session.connect(source) as session:  # what a dump notes is what a look finds
        assert made_at(session, "gen") == f"{noted.server_id} {noted.stored['gen']}"
    time.sleep(1.1)  # the time has whole seconds
    run(
        server,
        database,
        "SET SESSION div_precision_increment = 0",
        "OPTIMIZE LOCAL TABLE gen, plain",
    )
    found = look(source, noted)
    assert set(found.doubts) == {"gen"}
    assert "OPTIMIZE LOCAL" in found.doubts["gen"]
    assert found.start.is_news(noted)
    assert look(source, found.start).doubts == {}
    run(server, database, "ALTER TABLE part DROP PARTITION p0")
    gone = look(source, found.start)
    assert gone.gone == {"part": {"p0"}}
    assert gone.head is not None
    assert look(source, gone.start).doubts == {}
