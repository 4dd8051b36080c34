"""The dump when things go wrong: kills, stops, servers that fail, tables that change, wide rows.

Each test ends in a comparison with the server's own rows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fix_dump import (
    SHARD,
    Dump,
    dump_commits,
    dump_files,
    make_table,
    wanted,
)
from fix_e2e import assert_identical, mirror_rows

from lab.servers import Server
from ratchet.core.errors import RetryableError, TableStoppedError
from ratchet.snapshot.reader import ChunkRequest, ChunkResult, read_chunk
from ratchet.snapshot.records import (
    ChunkDone,
    DumpSettings,
    Progress,
    TableDone,
    TableRestarted,
    Waiting,
)
from ratchet.snapshot.throttle import Throttle, ThrottleLimits
from ratchet.store.files import Lake
from ratchet.store.tables import Tables

_SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from ratchet.core.shard import ShardId
from lab.template import root_password
from ratchet.snapshot.dump import Dumper
from ratchet.snapshot.reader import read_chunk
from ratchet.snapshot.records import DumpSettings, ShardSource, TableDumpRequest
from ratchet.store.formats import open_lake
from ratchet.wire.session import SourceConfig
lake, port, database = sys.argv[1:]
config = SourceConfig(shard=ShardId("shop", "-"), host="127.0.0.1", port=int(port), user="root",
                      password=root_password(),
                      database=database, tls="disabled")
settings = DumpSettings(chunk_rows=70, commit_seconds=0.0)
dumper = Dumper(open_lake(lake, now=0), {"shop/-": ShardSource(config=config)}, read_chunk,
                settings=settings)
dumper.run([TableDumpRequest(keyspace="shop", table="t", shards=("shop/-",))])
"""


@pytest.mark.parametrize(
    "point",
    [
        "dump.before_chunk",
        "dump.before_chunk:5",
        "dump.after_read:4",
        "dump.before_commit",
        "dump.before_commit:3",
        "dump.after_commit",
        "dump.after_commit:4",
        "dump.before_done",
    ],
)
def test_killed_and_resumed(dump: Dump, server: Server, database: str, point: str) -> None:
    """Killed at any point, the next run reads only what is missing, and no row is there twice."""
    make_table(server, database)
    command = [sys.executable, "-c", _SCRIPT, dump.lake.root, str(server.port), database]
    killed = subprocess.run(
        command, env={**os.environ, "RATCHET_CRASH_AT": point}, capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    committed = max((commit.rows for commit in dump_commits(dump.lake)), default=0)
    assert dump.run(wanted()).done == ("shop.t",)
    assert sum(chunk.chunk_rows for chunk in dump.chunks()) == 1000 - committed
    assert_identical(Path(dump.lake.root), [server], database, ["t"])
    known, there = dump_files(dump.lake)
    assert known == there
    assert {commit.dump for commit in dump_commits(dump.lake)} == {dump_commits(dump.lake)[0].dump}


def test_stopped_and_resumed(dump: Dump, server: Server, database: str) -> None:
    """Told to stop, a dump commits what it has read and begins no chunk; the next one goes on."""
    make_table(server, database)
    dump.on_record = lambda record: dump.stop.set() if isinstance(record, ChunkDone) else None
    assert dump.run(wanted()).left == ("shop.t",)
    first = sum(chunk.chunk_rows for chunk in dump.chunks())
    assert dump_commits(dump.lake)[0].rows == first < 1000
    dump.stop.clear()
    dump.on_record = lambda _: None
    assert dump.run(wanted()).done == ("shop.t",)
    assert sum(chunk.chunk_rows for chunk in dump.chunks()) == 1000 - first
    assert_identical(Path(dump.lake.root), [server], database, ["t"])
    assert dump.run(wanted()).done == ("shop.t",)
    assert dump.chunks() == []


def test_altered_while_dumped(dump: Dump, server: Server, database: str) -> None:
    """A table that gets a column in the middle is dumped anew by itself, in its new shape."""
    make_table(server, database)
    statements = ["ALTER TABLE t ADD COLUMN extra INT NOT NULL DEFAULT 7"]

    def alter(record: Progress) -> None:
        if isinstance(record, ChunkDone) and record.rows > 300 and statements:
            server.execute(statements.pop(), database=database)

    dump.on_record = alter
    assert dump.run(wanted()).done == ("shop.t",)
    assert [r.table for r in dump.records if isinstance(r, TableRestarted)] == ["shop.t"]
    assert {row["extra"] for row in mirror_rows(Path(dump.lake.root), "shop", "t")} == {7}
    assert_identical(Path(dump.lake.root), [server], database, ["t"])
    known, there = dump_files(dump.lake)
    assert known == {name for name in there if dump_commits(dump.lake)[0].dump in name}


@pytest.mark.quick_on("mysql")
def test_wide_rows_in_bounded_memory(lake: Lake, server: Server, database: str) -> None:
    """Rows of 1.5 MB end chunks by their bytes, in a process that never holds many of them."""
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)", database=database)
    server.execute("INSERT INTO t VALUES (0, 'small')", database=database)
    for n in range(1, 150):
        server.execute(f"INSERT INTO t SELECT {n}, REPEAT(x'{n:02x}00', 750000)", database=database)
    script = (
        _SCRIPT.replace("chunk_rows=70", "chunk_bytes=20_000_000, parallel=1").replace(
            "dumper.run(",
            "import resource\n"
            "rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
            "before = rss()\n"
            "dumper.run(",
        )
        + "print(rss() - before)\n"
    )
    command = [sys.executable, "-c", script, lake.root, str(server.port), database]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert int(done.stdout) < 250
    sizes = [chunk.rows for commit in dump_commits(lake) for chunk in commit.chunks]
    assert sum(sizes) == 150
    assert len(sizes) >= 4
    assert max(sizes) * 1.5 < 60
    assert_identical(Path(lake.root), [server], database, ["t"])


def test_server_that_fails_for_a_while(dump: Dump, server: Server, database: str) -> None:
    """A chunk whose connection is lost is read again; the dump says what it waits for."""
    make_table(server, database)
    failures = [RetryableError("gone", source=SHARD) for _ in range(2)]

    def read(request: ChunkRequest) -> ChunkResult:
        if failures:
            raise failures.pop()
        return read_chunk(request)

    dump.read = read
    assert dump.run(wanted()).done == ("shop.t",)
    assert [r.reason for r in dump.records if isinstance(r, Waiting)] == [
        "gone (source shop/-)"
    ] * 2
    assert_identical(Path(dump.lake.root), [server], database, ["t"])


def test_server_that_stays_away(dump: Dump, server: Server, database: str) -> None:
    """When patience ends, the dump ends with the server's error, and keeps what it has."""
    make_table(server, database)
    dump.settings = DumpSettings(chunk_rows=70, patience=0.0, parallel=1)
    calls = iter(range(100))

    def read(request: ChunkRequest) -> ChunkResult:
        if next(calls) >= 3:
            raise RetryableError("gone", source=SHARD)
        return read_chunk(request)

    dump.read = read
    with pytest.raises(RetryableError, match="gone"):
        dump.run(wanted())
    assert dump_commits(dump.lake)[0].rows == 210
    dump.read = read_chunk
    dump.run(wanted())
    assert_identical(Path(dump.lake.root), [server], database, ["t"])


def test_one_table_stops_and_the_others_go_on(dump: Dump, server: Server, database: str) -> None:
    """A table without a key and one that is dropped in the middle do not hold up a third."""
    make_table(server, database)
    make_table(server, database, table="dropped")
    server.execute("CREATE TABLE keyless (v INT)", database=database)

    def drop(record: Progress) -> None:
        if isinstance(record, ChunkDone) and record.table == "shop.dropped":
            server.execute("DROP TABLE IF EXISTS dropped", database=database)

    dump.on_record = drop
    outcome = dump.run(wanted("keyless"), wanted("dropped"), wanted())
    assert outcome.done == ("shop.t",)
    assert set(outcome.failed) == {"shop.keyless", "shop.dropped"}
    assert all(isinstance(error, TableStoppedError) for error in outcome.failed.values())
    assert "!keyless" in outcome.failed["shop.keyless"].hint
    state = Tables(dump.lake).load("shop", "dropped")
    assert state is not None
    assert state.phase == "stopped"
    assert_identical(Path(dump.lake.root), [server], database, ["t"])
    assert set(dump.run(wanted("dropped")).failed) == {"shop.dropped"}


def test_a_table_that_its_server_cannot_read_stops_alone(
    dump: Dump, server: Server, database: str
) -> None:
    """An error that no rule knows, of one table: its data is gone, the others' is not."""
    for table in ("t", "kept"):
        make_table(server, database, table=table)
    server.execute("ALTER TABLE t DISCARD TABLESPACE", database=database)
    outcome = dump.run(wanted("t"), wanted("kept"))
    assert outcome.done == ("shop.kept",)
    (error,) = outcome.failed.values()
    assert isinstance(error, TableStoppedError)
    assert error.table == "shop.t"
    assert "1814" in error.message
    assert "`ratchet table CONFIG redump 'shop.t'`" in error.hint
    state = Tables(dump.lake).load("shop", "t")
    assert state is not None
    assert state.phase == "stopped"


def test_throttled_dump_takes_its_time(dump: Dump, server: Server, database: str) -> None:
    """With a rate, chunks wait until the rows read so far are due, and the reason is reported."""
    make_table(server, database, 300)
    limits = ThrottleLimits(rows_per_second=150, threads_running=10_000)
    dump.settings = DumpSettings(chunk_rows=100, throttle=Throttle(limits), parallel=1)
    dump.run(wanted())
    waits = [record.reason for record in dump.records if isinstance(record, Waiting)]
    assert any("ahead of snapshot.max_rows_per_second (150)" in reason for reason in waits)
    (done,) = [record for record in dump.records if isinstance(record, TableDone)]
    assert done.seconds > 1.0
