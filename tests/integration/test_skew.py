"""Rows that move from a fast shard to a slow one: no committed round lacks them for long."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from capture_kit import close_streams, run, source_of
from change_kit import read_file

from lab.servers import Server
from ratchet.core.change import DELETE, INSERT
from ratchet.core.patterns import TablePatterns
from ratchet.core.rounds import Round
from ratchet.ingest.rounds import RoundTaker, Runner, local_runner
from ratchet.ingest.slices import CaptureRequest, CaptureResult
from ratchet.jobs.capture.capturing import CaptureRunner, CaptureSettings, Stream
from ratchet.jobs.config.selection import RoundBarrier
from ratchet.jobs.topology.begin import executed, record_starts
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.wire.binlog import replica_server_id
from ratchet.wire.session import SourceConfig

FAST, SLOW = "-80", "80-"
ROWS = 40
SPAN = range(0, 900, 3)
THRESHOLD, SLACK = 2.0, 0.5
SECOND = 1_000_000
STUMBLE = 5  # the number of that round
_ROUNDS = itertools.count()


@pytest.fixture(autouse=True)
def _streams_closed() -> Iterator[None]:
    yield
    close_streams()


def slowed(requests: Sequence[CaptureRequest]) -> Sequence[CaptureResult]:
    """The local runner, with one shard that reads one transaction in a slice."""
    return local_runner(
        [
            replace(one, limits=replace(one.limits, max_bytes=1))
            if one.source.shard.shard == SLOW
            else one
            for one in requests
        ]
    )


def stumbling(requests: Sequence[CaptureRequest]) -> Sequence[CaptureResult]:
    """The local runner; in one round, a leap by then, a shard gets through one transaction only."""
    return slowed(requests) if next(_ROUNDS) == STUMBLE else local_runner(requests)


def move_rows(servers: dict[str, Server], database: str) -> None:
    """Each second of some past minute one row moves: an insert there, and a delete here."""
    began = int(time.time()) - 600
    for name, statement in (
        (SLOW, "INSERT INTO t VALUES ({})"),
        (FAST, "DELETE FROM t WHERE id={}"),
    ):
        # MariaDB logs the session's time, so the log spans as long as a real one would.
        moves = [(f"SET timestamp = {began + n}", statement.format(n)) for n in range(ROWS)]
        run(servers[name], *itertools.chain(*moves), database=database)


def capturing_of(
    lake: Lake, sources: list[SourceConfig], max_skew: float | None, runner: Runner
) -> CaptureRunner:
    settings = CaptureSettings(
        lake=lake.root, round_seconds=0.1, round_bytes=1 << 30, heartbeat=5,
        max_skew=max_skew, clock_bound=SLACK,
    )  # fmt: skip
    streams = {
        str(source.shard): Stream(
            source=source,
            server_id=replica_server_id(lake.root, source.shard),
        )
        for source in sources
    }
    taker = RoundTaker(RoundLog(lake), runner, heartbeat_commit_seconds=0.0)
    return CaptureRunner(
        streams, settings, taker, patterns=lambda _: TablePatterns(), known=lambda _: ("t",),
        turnstile=RoundBarrier(), observer=lambda _: None,
    )  # fmt: skip


def capture(lake: Lake, sources: list[SourceConfig], max_skew: float | None) -> frozenset[str]:
    """Take rounds until all moves are committed; the shards that were held back on the way."""
    capturing = capturing_of(lake, sources, max_skew, slowed)
    held = capturing.skew.held
    for _ in range(10 * ROWS):
        if capturing.rows == 2 * ROWS:
            break
        assert not capturing.round(()).failures
        held |= capturing.skew.held
    return held


def committed_ahead(read: dict[str, int]) -> int:
    """Seconds that the newest committed row is later than the oldest that is not; 0: none lacks.

    By the rows themselves: what a slice says of its reach may be older than what capture knows,
    since rounds that hold nothing are not committed.

    Args:
        read: shard -> how many of the rows at `SPAN`'s moments are committed.
    """
    newest = [SPAN[count - 1] for count in read.values() if count]
    lacking = [SPAN[count] for count in read.values() if count < len(SPAN)]
    return max(0, max(newest) - min(lacking)) if newest and lacking else 0


def moves_of(lake: Lake, one: Round, op: int) -> dict[int, int]:
    """The ids that a round inserts on the slow shard or deletes on the fast one -> commit time."""
    found = {}
    for file in one.files:
        for change in read_file(lake, file).to_pylist():
            if change["op"] == op:
                row = change["before"] or change["after"]
                found[row["id"]] = int(change["token"]["ts"].timestamp()) * SECOND
    return found


def worst_skew(lake: Lake) -> float:
    """Over all rounds: seconds that a delete is ahead of the shard that lacks its insert."""
    inserted: dict[int, int] = {}
    deleted: dict[int, int] = {}
    worst = 0
    for one in RoundLog(lake).since(1):
        inserted |= moves_of(lake, one, INSERT)
        deleted |= moves_of(lake, one, DELETE)
        read = max(inserted.values(), default=0)
        missing = [ts for number, ts in deleted.items() if number not in inserted]
        if missing:
            worst = max(worst, max(missing) - read)
    assert len(inserted) == len(deleted) == ROWS
    return worst / SECOND


def test_a_row_that_moves_is_not_missing_for_longer_than_the_threshold(
    mariadb: Server, make_server: Callable[..., Server], database: str, tmp_path: Path
) -> None:
    """With the bound; and without it the same run shows rows that are gone for much longer."""
    servers = {FAST: mariadb, SLOW: make_server("mariadb")}
    servers[SLOW].execute(f"CREATE DATABASE {database}")
    for server in servers.values():
        run(server, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    filled = f"INSERT INTO t SELECT seq FROM seq_0_to_{ROWS - 1}"
    run(servers[FAST], filled, database=database)
    sources = [source_of(server, database, name) for name, server in servers.items()]
    starts = executed({one.shard: one for one in sources}, [str(one.shard) for one in sources])
    move_rows(servers, database)
    worst, held = {}, {}
    for name, max_skew in (("bound", THRESHOLD), ("free", None)):
        lake = open_lake(tmp_path / name, now=1)
        record_starts(RoundLog(lake), starts, now=1)
        held[name] = capture(lake, sources, max_skew)
        worst[name] = worst_skew(lake)
    assert f"shop/{FAST}" in held["bound"]  # the other one too, if the machine paused this one
    assert not held["free"]
    assert worst["bound"] <= THRESHOLD + SLACK
    assert worst["free"] > 10


def test_shards_that_keep_up_with_each_other_catch_up_in_leaps(
    mariadb: Server, make_server: Callable[..., Server], database: str, tmp_path: Path
) -> None:
    """A quarter of an hour that nobody read: few rounds, and none breaks the bound.

    Not even where a leap was too long for one of them: such a round is not committed.
    """
    servers = {FAST: mariadb, SLOW: make_server("mariadb")}
    servers[SLOW].execute(f"CREATE DATABASE {database}")
    for server in servers.values():
        run(server, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    sources = [source_of(server, database, name) for name, server in servers.items()]
    starts = executed({one.shard: one for one in sources}, [str(one.shard) for one in sources])
    began = int(time.time()) - 1000
    for server in servers.values():
        writes = [(f"SET timestamp = {began + n}", f"INSERT INTO t VALUES ({n})") for n in SPAN]
        run(server, *itertools.chain(*writes), database=database)
    lake = open_lake(tmp_path / "lake", now=1)
    record_starts(RoundLog(lake), starts, now=1)
    capturing = capturing_of(lake, sources, THRESHOLD, stumbling)
    while capturing.rows < 2 * len(SPAN):
        assert not capturing.round(()).failures
    committed = RoundLog(lake).since(1)
    assert len(committed) < len(SPAN) / 3
    read = {str(source.shard): 0 for source in sources}
    for one in committed:
        for file in one.files:
            read[file.shard] += file.rows
        assert committed_ahead(read) <= THRESHOLD + SLACK
    assert set(read.values()) == {len(SPAN)}
