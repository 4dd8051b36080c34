"""Dumps without Spark, on the shared servers, for tests.

`lake`: an empty lake. `dump`: a dump of the test's database on one shard, in chunks of 70 rows,
read in this process; it keeps what was reported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lab.servers import Server
from lab.template import root_password
from ratchet.core.dumps import DumpCommit
from ratchet.core.shard import ShardId
from ratchet.snapshot.dump import Dumper, DumpOutcome
from ratchet.snapshot.reader import ChunkRequest, ChunkResult, read_chunk
from ratchet.snapshot.records import (
    ChunkDone,
    DumpSettings,
    Progress,
    ShardSource,
    TableDumpRequest,
)
from ratchet.snapshot.sessions import close_sessions
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.wire.session import SourceConfig

SHARD = "shop/-"


def config_of(server: Server, database: str, shard: str = SHARD) -> SourceConfig:
    return SourceConfig(
        shard=ShardId.parse(shard),
        host=server.host,
        port=server.port,
        user="root",
        password=root_password(),
        database=database,
        tls="disabled",
    )


def wanted(table: str = "t", *, again: bool = False) -> TableDumpRequest:
    return TableDumpRequest(keyspace="shop", table=table, shards=(SHARD,), again=again)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """An empty lake; sessions of this thread are closed behind the test."""
    yield open_lake(tmp_path / "lake", now=0)
    close_sessions()


class Dump:
    """A dump of one shard, and what it reported."""

    def __init__(self, lake: Lake, config: SourceConfig) -> None:
        self.lake = lake
        self.shards = {str(config.shard): ShardSource(config=config)}
        self.records: list[Progress] = []
        self.settings = DumpSettings(chunk_rows=70)
        self.stop = threading.Event()
        self.on_record: Callable[[Progress], None] = lambda _: None
        self.read: Callable[[ChunkRequest], ChunkResult] = read_chunk

    def run(self, *wanted: TableDumpRequest) -> DumpOutcome:
        """Dump, and keep the records of this run."""
        self.records = []
        dumper = Dumper(
            self.lake,
            self.shards,
            self.read,
            settings=self.settings,
            on_progress=self._note,
            stop=self.stop,
        )
        return dumper.run(wanted)

    def _note(self, record: Progress) -> None:
        self.records.append(record)
        self.on_record(record)

    def chunks(self) -> list[ChunkDone]:
        """The chunks of the last run."""
        return [record for record in self.records if isinstance(record, ChunkDone)]


@pytest.fixture
def dump(lake: Lake, server: Server, database: str) -> Dump:
    """A dump of the test's database on one shard, in chunks of 70 rows."""
    return Dump(lake, config_of(server, database))


def make_table(server: Server, database: str, rows: int = 1000, table: str = "t") -> None:
    server.execute(
        f"CREATE TABLE `{table}` (id INT UNSIGNED PRIMARY KEY, name VARCHAR(40) CHARSET latin1,"
        " amount DECIMAL(18,2), at TIMESTAMP(6) NULL)",
        database=database,
    )
    insert_rows(server, database, range(rows), table)


def insert_rows(server: Server, database: str, ids: range, table: str = "t") -> None:
    values = ", ".join(f"({n * 3}, 'näme {n}', {n}.25, '2024-01-01 00:00:00.{n:06}')" for n in ids)
    if values:
        server.execute(f"INSERT INTO `{table}` VALUES {values}", database=database)


def dump_commits(lake: Lake, table: str = "t") -> list[DumpCommit]:
    history = DeltaTable(f"{lake.root}/shop/{table}").history()
    found = (DumpCommit.from_text(commit.get("userMetadata")) for commit in history)
    return [commit for commit in found if commit is not None]


def dump_files(lake: Lake, table: str = "t") -> tuple[set[str], set[str]]:
    """(files in the table, Parquet files in its folder)."""
    actions = pa.table(DeltaTable(f"{lake.root}/shop/{table}").get_add_actions())
    there = {p.name for p in Path(f"{lake.root}/shop/{table}").glob("*.parquet")}
    return set(actions["path"].to_pylist()), there
