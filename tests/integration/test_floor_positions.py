"""What a position says about a read, with eight writers at work: it never claims too much.

Each writer raises its own counter, one transaction at a time. A read's sum of counters says how
many transactions it contains; the floor says how many it is sure to contain. The floor of a
session's snapshot must never be above the sum. The same with the positions that servers offer
first, which do run ahead, shows that the experiment would notice.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from event_kit import NoCatalog

from lab.accounts import RATCHET_PASSWORD, RATCHET_USER, create_ratchet_user
from lab.servers import Server
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.ingest.binlog.reader import Reader
from ratchet.wire.binlog import BinlogStream, DumpOptions
from ratchet.wire.session import Session, SourceConfig

log = logging.getLogger(__name__)

WRITERS = 8
SECONDS, PATIENCE = 3, 120
READINGS, FILES = 200, 50  # at least
DURABLE = {"sync-binlog": "1", "innodb-flush-log-at-trx-commit": "1"}
RELAXED = {"sync-binlog": "0", "innodb-flush-log-at-trx-commit": "2"}
BUMP = """
CREATE PROCEDURE bump(w INT, seconds INT)
BEGIN
    DECLARE until_when DATETIME(6) DEFAULT SYSDATE(6) + INTERVAL seconds SECOND;
    WHILE SYSDATE(6) < until_when DO
        UPDATE counters SET n = n + 1 WHERE id = w;
    END WHILE;
END
"""


def prepared(server: Server) -> SourceConfig:
    """A table of counters on a server, and the least-privileged account to read it with."""
    server.execute("CREATE DATABASE IF NOT EXISTS floors")
    create_ratchet_user(server, databases=["floors"])
    server.execute("CREATE TABLE counters (id INT PRIMARY KEY, n BIGINT)", database="floors")
    values = ", ".join(f"({w}, 0)" for w in range(WRITERS))
    server.execute(f"INSERT INTO counters VALUES {values}", database="floors")
    server.execute(BUMP, database="floors")
    return SourceConfig(
        shard=ShardId("floors", "-"),
        host=server.host,
        port=server.port,
        user=RATCHET_USER,
        password=RATCHET_PASSWORD,
        database="floors",
    )


@contextmanager
def writing_all_along(write: Callable[[int], object]) -> Iterator[Callable[[bool], bool]]:
    """Eight threads that call `write` with their number, again and again.

    Gives a function: whether to read on, given whether enough was read. That is for SECONDS, and on
    a busy machine, where less is read in them, until it is enough.
    """
    over, began = threading.Event(), time.monotonic()

    def work(writer: int) -> None:
        while not over.is_set():
            write(writer)

    def goes_on(enough: bool) -> bool:  # noqa: FBT001 - reads as a question
        passed = time.monotonic() - began
        return passed < SECONDS or (not enough and passed < PATIENCE)

    threads = [threading.Thread(target=work, args=(w,)) for w in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield goes_on
    finally:
        over.set()
        for thread in threads:
            thread.join()


def writers(server: Server) -> AbstractContextManager[Callable[[bool], bool]]:
    """Eight connections that write."""
    return writing_all_along(
        lambda writer: server.execute(f"CALL bump({writer}, 1)", database="floors")
    )


def transactions(session: Session) -> int:
    """How many of the writers' transactions a read sees."""
    return int(session.query("SELECT SUM(n) FROM counters")[0][0])


@pytest.mark.parametrize(
    "durability",
    [DURABLE, pytest.param(RELAXED, marks=pytest.mark.long)],
    ids=["durable", "relaxed"],
)
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_a_snapshot_contains_its_floor(
    make_server: Callable[..., Server], flavor: str, durability: dict[str, str]
) -> None:
    server = make_server(flavor, options=durability)
    with Session.connect(prepared(server)) as session:
        base = session.executed().seq
        less = more = same = 0
        with writers(server) as writing:
            while writing(same + more > READINGS):
                with session.snapshot() as snapshot:
                    seen, claimed = transactions(session), snapshot.floor.seq - base
                less += seen < claimed
                more += seen > claimed
                same += seen == claimed
        final = transactions(session)
        assert session.executed().seq - base == final
    log.info("%s: %d transactions, %d exact, %d more, %d LESS", flavor, final, same, more, less)
    assert less == 0
    assert same + more > READINGS


@pytest.mark.parametrize(
    "durability",
    [DURABLE, pytest.param(RELAXED, marks=pytest.mark.long)],
    ids=["durable", "relaxed"],
)
def test_without_gtids_a_file_begins_behind_all_that_was_committed(
    make_server: Callable[..., Server], durability: dict[str, str]
) -> None:
    small = {"max-binlog-size": "4096", **durability}
    server = make_server("mysql", gtid=False, options=small)
    config = prepared(server)
    with Session.connect(config) as session:
        server.execute("FLUSH BINARY LOGS")
        start = session.executed()
        readings: list[tuple[int, int]] = []

        def enough() -> bool:
            return len(readings) > READINGS and readings[-1][0] - readings[0][0] > (FILES + 5) << 40

        with writers(server) as writing:
            while writing(enough()):
                with session.snapshot() as snapshot:
                    readings.append((snapshot.floor.seq, transactions(session)))
        final = transactions(session)
        ends = transaction_ends(config, start, final)
    less = sum(seen < bisect_right(ends, floor) for floor, seen in readings)
    files = len({end >> 40 for end in ends})
    log.info("%d transactions, %d files, %d readings, %d LESS", final, files, len(readings), less)
    assert files > FILES
    assert len(readings) > READINGS
    assert less == 0


def test_the_experiment_notices_positions_that_run_ahead(
    make_server: Callable[..., Server],
) -> None:
    server = make_server("mariadb", options=DURABLE)
    with Session.connect(prepared(server)) as session:
        base = session.head().seq
        less = 0
        with writers(server) as writing:
            while writing(less > 0):
                claimed = session.head().seq - base
                session.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                less += transactions(session) < claimed
                session.execute("COMMIT")
    log.info("gtid_binlog_pos before the read: %d LESS", less)
    assert less > 0


def transaction_ends(config: SourceConfig, start: Position, count: int) -> list[int]:
    """The packed ends of the next `count` transactions behind a position, in order."""
    ends: list[int] = []

    def keep(batch: TransactionBatch) -> int:
        ends.extend(batch.txns["number"][: batch.ended].tolist())
        return 0

    stream = BinlogStream(config, start, DumpOptions(server_id=77))
    reader = Reader(
        shard=config.shard,
        database="no such database",
        patterns=TablePatterns(),
        start=start,
        catalog=NoCatalog(),
        keep=keep,
    )
    deadline = time.monotonic() + 120
    while len(ends) < count and time.monotonic() < deadline:
        stream.receive(0.2)
        stream.first, _ = reader.feed(stream.data, stream.index, stream.first, stream.count)
        reader.flush()
        stream.recycle()
    stream.close()
    assert len(ends) == count
    return ends
