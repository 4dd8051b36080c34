"""`max_threads_running` is about the load of others: what we run ourselves holds nobody up.

On a real MySQL and a real MariaDB, with an account of Ratchet's that sees no other one's sessions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from busy_kit import running_statements
from fix_dump import Dump, config_of, make_table, wanted
from fix_e2e import assert_identical

from lab.servers import Server
from ratchet.snapshot.records import DumpSettings, ShardSource
from ratchet.snapshot.running import ServerLoad, running
from ratchet.snapshot.throttle import Throttle, ThrottleLimits
from ratchet.wire.binlog import BinlogStream, DumpOptions
from ratchet.wire.session import Session, SourceConfig

_SETTLED = 60.0  # seconds that sessions of other tests may take to go


@pytest.fixture(params=["ON", "OFF"])
def source(request: pytest.FixtureRequest, server: Server, database: str) -> Iterator[SourceConfig]:
    """Ratchet's own account; the server's event scheduler is on or off."""
    ((before,),) = server.execute("SELECT @@GLOBAL.event_scheduler")
    server.execute(f"SET GLOBAL event_scheduler = {request.param}")
    server.execute("CREATE USER mirror@'%' IDENTIFIED BY 'secret'")
    server.execute("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO mirror@'%'")
    server.execute(f"GRANT SELECT ON `{database}`.* TO mirror@'%'")
    yield replace(config_of(server, database), user="mirror", password="secret", tls="preferred")
    server.execute("DROP USER mirror@'%'")
    server.execute(f"SET GLOBAL event_scheduler = {before}")


def settled(session: Session, others: int) -> ServerLoad:
    """What runs, as soon as so many others do: a server notices late that a client has gone."""
    deadline = time.monotonic() + _SETTLED
    while (found := running(session)).others != others and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def test_what_we_run_ourselves_does_not_count(source: SourceConfig, server: Server) -> None:
    throttle = Throttle(ThrottleLimits(threads_running=1))
    with ExitStack() as stack:
        session, *own = (stack.enter_context(Session.connect(source)) for _ in range(4))
        assert settled(session, 0).others == 0
        stream = BinlogStream(source, session.head(), DumpOptions(server_id=4711))
        stack.callback(stream.close)
        with running_statements(server, *(one.query for one in own)):
            found = settled(session, 0)  # whoever looked for these last may count as running still
            assert found.others == 0
            assert found.total >= 5, "three statements, a stream, and the one that asks"
            assert throttle.reason(session) == ""


@pytest.mark.parametrize("user", ["root", "mirror"])
def test_what_others_run_does(source: SourceConfig, server: Server, user: str) -> None:
    """Also if they use our account: by an application that is given it, for instance."""
    password = "" if user == "root" else "secret"
    throttle = Throttle(ThrottleLimits(threads_running=1))
    with ExitStack() as stack:
        session, own = (stack.enter_context(Session.connect(source)) for _ in range(2))
        assert settled(session, 0).others == 0
        connections = [
            stack.enter_context(server.connect(user=user, password=password)) for _ in range(2)
        ]
        cursors = [stack.enter_context(one.cursor()) for one in connections]
        executes = [own.query, *(one.execute for one in cursors)]
        with running_statements(server, *executes):
            assert settled(session, 2).others == 2
            assert throttle.reason(session) == (
                "2 threads of others running on shop/-, above snapshot.max_threads_running (1)"
            )


def test_a_dump_on_an_idle_server_does_not_stand_still(
    dump: Dump, source: SourceConfig, server: Server, database: str
) -> None:
    """Several readers, a stream, and a limit that the server's own number is above."""
    make_table(server, database, 2000)
    with ExitStack() as stack:
        session = stack.enter_context(Session.connect(source))
        assert settled(session, 0).others == 0
        stream = BinlogStream(source, session.head(), DumpOptions(server_id=4712))
        stack.callback(stream.close)
        dump.shards = {str(source.shard): ShardSource(config=source)}
        limits = ThrottleLimits(threads_running=1)
        dump.settings = DumpSettings(chunk_rows=70, parallel=3, throttle=Throttle(limits))
        timer = threading.Timer(60, dump.stop.set)
        timer.start()
        outcome = dump.run(wanted())
        timer.cancel()
    assert outcome.done == ("shop.t",)
    assert_identical(Path(dump.lake.root), [server], database, ["t"])
