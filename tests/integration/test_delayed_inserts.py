"""Rows of INSERT DELAYED, which a MariaDB may log behind a DELETE that has found them."""

from __future__ import annotations

import time

from capture_kit import source_of

from lab.servers import Server
from ratchet.jobs.preflight.restarts import Life, Start, look_at_life
from ratchet.wire.session import Session, SourceConfig


def look(source: SourceConfig, noted: Start | None) -> Life:
    with Session.connect(source) as session:
        return look_at_life(session, lambda _: True, noted, None, {})


def test_what_came_delayed_is_in_doubt_and_once_more(mariadb: Server, database: str) -> None:
    for name, engine in (("my", "MyISAM"), ("inno", "InnoDB")):
        mariadb.execute(f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY) ENGINE={engine}")
    source = source_of(mariadb, database)
    before = look(source, None).start
    # Whatever tests of before left may not be in the log yet; then nothing has come.
    assert look(source, look(source, before).start).doubts == {}
    mariadb.execute(f"INSERT DELAYED INTO {database}.my VALUES (1), (2)")
    deadline = time.monotonic() + 30
    while (found := look(source, before)).start.delayed != before.delayed + 2:
        assert time.monotonic() < deadline
    assert found.start.late
    assert set(found.doubts) == {"my"}
    assert "INSERT DELAYED" in found.doubts["my"]
    again = look(source, found.start)
    assert set(again.doubts) == {"my"}
    assert not again.start.late
    assert look(source, again.start).doubts == {}
