"""Capture on real servers without Spark: rounds into a lake, and what the changes add up to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from change_kit import read_file

from lab.servers import RATCHET_PASSWORD, RATCHET_USER, Server, create_ratchet_user
from ratchet.core.change import DELETE
from ratchet.core.errors import RatchetError
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import Round, TableEvent
from ratchet.core.shard import ShardId
from ratchet.ingest.capture import capture_slice, close_streams
from ratchet.ingest.rounds import RoundOutcome, RoundTaker, local_runner
from ratchet.ingest.slices import CaptureRequest, SliceLimits
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.wire.binlog import DumpOptions, replica_server_id
from ratchet.wire.session import Session, SourceConfig

QUICK = SliceLimits(max_seconds=20, min_seconds=0.0)


def source_of(
    server: Server, database: str, shard: str = "-", *, triggers: bool = False, **more: Any
) -> SourceConfig:
    """A source config with the least-privileged account, which it creates.

    `triggers`: it sees them, as tables with VIRTUAL columns need on MariaDB.
    """
    create_ratchet_user(server, databases=[database], triggers=triggers)
    settings = {"host": server.host, "port": server.port, **more}
    return SourceConfig(
        shard=ShardId("shop", shard),
        user=RATCHET_USER,
        password=RATCHET_PASSWORD,
        database=database,
        **settings,
    )


class Capturer:
    """Takes rounds of one shard into a lake of its own."""

    def __init__(self, source: SourceConfig, folder: Path, **request: Any) -> None:
        """Begin at what the server has executed now."""
        self.source = source
        self.root = str(folder / "lake")
        self.lake = open_lake(self.root, now=1)
        self.log = RoundLog(self.lake)
        self.taker = RoundTaker(self.log, local_runner, heartbeat_commit_seconds=0.0)
        self.more = request
        with Session.connect(source) as session:
            self.begin: Position = session.beginning()

    @property
    def position(self) -> Position:
        """Where capture stands."""
        return self.taker.position(str(self.source.shard)) or self.begin

    def request(self, **changes: Any) -> CaptureRequest:
        """The next request."""
        options = DumpOptions(server_id=replica_server_id(self.root, self.source.shard))
        made = CaptureRequest(
            source=self.source,
            start=self.position,
            generation=1,
            round_number=self.taker.next_number,
            lake=self.root,
            patterns=TablePatterns(),
            limits=QUICK,
            dump=options,
        )
        return replace(made, **{**self.more, **changes})

    def take(self, **changes: Any) -> RoundOutcome:
        """One round; an error of the shard is raised."""
        outcome = self.taker.take([self.request(**changes)])
        for error in outcome.errors.values():
            raise error
        return outcome

    def fail(self, **changes: Any) -> RatchetError:
        """A slice that has to fail; its error."""
        result = capture_slice(self.request(**changes))
        assert result.error is not None
        return result.error

    def catch_up(self, *, seconds: float = 60.0, **changes: Any) -> list[Round]:
        """Rounds until everything is captured that the server has in its binlog now."""
        with Session.connect(self.source) as session:
            goal = session.head().executed
        deadline = time.monotonic() + seconds
        rounds = []
        while not self.position.executed.contains_all(goal):
            assert time.monotonic() < deadline, f"{self.position.executed} lacks {goal}"
            committed = self.take(**changes).committed
            rounds += [committed] if committed else []
        return rounds

    def changes(self, table: str) -> list[dict[str, Any]]:
        """All committed changes of a table, in the order of rounds and files."""
        found = []
        for one in self.log.since(0):
            for file in one.files:
                if file.table == table:
                    rows = read_file(self.lake, file).to_pylist()
                    assert len(rows) == file.rows == file.inserts + file.updates + file.deletes
                    found += rows
        return found

    def events(self) -> list[TableEvent]:
        """All committed table events."""
        return [event for one in self.log.since(0) for event in one.events]

    def final(self, table: str, key: str = "id") -> dict[Any, dict[str, Any]]:
        """The rows that the changes of a table end in, by key; checks their order on the way."""
        rows: dict[Any, dict[str, Any]] = {}
        before = (0, 0)
        for change in self.changes(table):
            place = change["token"]["seq"], change["token"]["idx"]
            assert place > before, f"{place} behind {before}"
            before = place
            if change["before"] is not None:
                gone = rows.pop(change["before"][key], None)
                assert gone is None or gone == change["before"]
            if change["op"] != DELETE:
                rows[change["after"][key]] = change["after"]
        return rows


TABLE = "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(500), n INT)"


def started(make_server: Callable[..., Server], flavor: str, **settings: Any) -> Server:
    """A server of the test's own with the table `d`.`t`."""
    server = make_server(flavor, **settings)
    server.execute("CREATE DATABASE d")
    server.execute(TABLE, database="d")
    return server


def run(server: Server, *statements: str, database: str = "d") -> None:
    """Run statements on one connection."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def server_rows(server: Server, database: str, table: str, key: str = "id") -> dict[Any, Any]:
    """A table's rows by key, as the server's own SELECT gives them."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM `{table}`")
        names = [column[0] for column in cursor.description or ()]
        found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {row[key]: row for row in found}


__all__ = [
    "QUICK",
    "Capturer",
    "close_streams",
    "run",
    "server_rows",
    "source_of",
    "started",
]
