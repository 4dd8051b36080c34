"""The upper bound of what a read has seen, while others commit under names of several servers.

So do the threads of a replica that applies several servers' transactions in parallel.
"""

from __future__ import annotations

from contextlib import ExitStack

from capture_kit import source_of

from lab.servers import MysqlServer
from ratchet.core.gtid import GtidSet
from ratchet.snapshot.positions import parse_owned, seen_position
from ratchet.wire.session import Session

UUID = "{}-1111-2222-3333-444444444444"
GTIDS = [
    *(f"{UUID.format(first)}:{n}" for first in ("00000001", "1234567a") for n in (2605, 2607)),
    *(f"{UUID.format('ffffffff')}:{tag}:{n}" for tag in ("tag_one", "_2") for n in (9, 10)),
    f"{UUID.format('00000002')}:z:1",
]


def test_transactions_of_many_origins_are_waited_for() -> None:
    """MySQL prints what it is about to commit in its own way, and all of it is in the bound."""
    with MysqlServer() as server, ExitStack() as stack:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        committing = []
        for number, gtid in enumerate(GTIDS):
            connection = stack.enter_context(server.connect(autocommit=False))
            connection.cursor().execute(f"SET gtid_next = '{gtid}'")
            connection.cursor().execute(f"INSERT INTO d.t VALUES ({number})")
            committing.append(connection)
        expected = GtidSet.parse("mysql", ",".join(GTIDS))
        with Session.connect(source_of(server, "d")) as session:
            (text,) = session.query("SELECT @@GLOBAL.gtid_owned")[0]
            assert parse_owned(str(text)) == expected

            def commit_one(_: float) -> None:
                committing.pop().commit()

            seen = seen_position(session, sleep=commit_one)
        assert not committing
        assert seen.executed.contains_all(expected)
