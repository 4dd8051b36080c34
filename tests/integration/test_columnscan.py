"""Some columns of a table, read with their keys: what is in the files, and when it is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lab.servers import Server, create_ratchet_user
from ratchet.core.errors import RetryableError
from ratchet.core.position import Position
from ratchet.core.reshaping import NotComputableError
from ratchet.core.shard import ShardId
from ratchet.snapshot.columnscan import ColumnScan, read_columns
from ratchet.snapshot.errors import ShapeChangedError
from ratchet.snapshot.records import DumpSettings, ShardSource
from ratchet.snapshot.scan import SCRATCH
from ratchet.snapshot.source import SourceCatalog, SourceTable
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.wire.session import Session, SourceConfig

ROWS = 1000
SHARD = "shop/-"
Read = Callable[..., ColumnScan]


class Case:
    """A table of a server, and a lake to read it into."""

    def __init__(self, server: Server, database: str, folder: Path) -> None:
        self.server, self.database = server, database
        columns = "`a.b` INT, id BIGINT UNSIGNED, a VARCHAR(20), g INT AS (id % 7) STORED, z DATE"
        digits = " UNION ALL ".join(f"SELECT {n} d" for n in range(10))
        self.execute(
            f"CREATE TABLE t ({columns}, PRIMARY KEY (a, id))",
            "SET sql_mode = ''",
            "INSERT INTO t (id, a, `a.b`, z) SELECT x.d + 10 * y.d + 100 * w.d, y.d, x.d, "
            f"'0000-00-00' FROM ({digits}) x, ({digits}) y, ({digits}) w",
        )
        create_ratchet_user(server, "secret", [database])
        config = SourceConfig(
            shard=ShardId("shop", "-"),
            host="127.0.0.1",
            port=server.port,
            user="ratchet",
            password="secret",
            database=database,
            tls="disabled",
        )
        self.source = ShardSource(config=config)
        self.lake: Lake = open_lake(folder, now=1)

    def execute(self, *statements: str) -> None:
        with self.server.connect(database=self.database, autocommit=True) as connection:
            for statement in statements:
                connection.cursor().execute(statement)

    def head(self) -> Position:
        with Session.connect(self.source.config) as session:
            return session.head()

    def table(self) -> SourceTable:
        return SourceCatalog({SHARD: self.source.config}).table(SHARD, "t")

    def read(self, *columns: str, table: SourceTable | None = None, **more: Any) -> ColumnScan:
        settings = DumpSettings(parallel=2, chunk_rows=more.pop("chunk_rows", None))
        return read_columns(
            self.lake,
            {SHARD: table or self.table()},
            {SHARD: self.source},
            columns=columns,
            places={SHARD: self.head()},
            settings=settings,
            now=2,
            **{"stop": threading.Event(), **more},
        )

    def found(self, scan: ColumnScan) -> pa.Table:
        files = [Path(self.lake.absolute(path)) for path in scan.files]
        return pa.concat_tables([pq.ParquetFile(path).read() for path in files])


@pytest.fixture
def case(mysql: Server, database: str, tmp_path: Path) -> Case:
    return Case(mysql, database, tmp_path / "lake")


def test_the_key_and_the_columns_are_read(case: Case) -> None:
    before = case.head()
    scan = case.read("g", "z", chunk_rows=300)
    assert (scan.rows, scan.misfits) == (ROWS, {"z": ROWS}), "a day that no calendar has is NULL"
    assert len(scan.files) > 1
    rows = case.found(scan)
    assert rows.column_names == ["a", "id", "g", "z", "_token"]
    assert {(int(row["id"]), row["g"]) for row in rows.to_pylist()} == {
        (number, number % 7) for number in range(ROWS)
    }
    assert scan.end[SHARD].executed.contains_all(before.executed)
    scan.remove(case.lake)
    assert case.lake.list(SCRATCH) == []


def test_the_end_is_behind_all_that_was_shown(case: Case) -> None:
    case.execute("UPDATE t SET a = 'later' WHERE id = 7")
    after = case.head()
    assert case.read("g").end[SHARD].executed.contains_all(after.executed)


@pytest.mark.parametrize("most", [100, 9_000])
def test_what_is_too_much_is_left(case: Case, most: int) -> None:
    """By the server's estimate before anything is read, or as soon as it is too much."""
    small = case.table()
    if most > 1_000:
        small = replace(small, size=replace(small.size, rows=1))
    with pytest.raises(NotComputableError, match="too much in g to be held in memory"):
        case.read("g", table=small, most=most, chunk_rows=100)
    assert case.lake.list(SCRATCH) == []


def test_it_ends_when_the_run_does(case: Case) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(RetryableError, match="told to stop"):
        case.read("g", stop=stop)
    assert case.lake.list(SCRATCH) == []


def test_a_table_that_is_altered_meanwhile(case: Case) -> None:
    known = case.table()
    case.execute("SET sql_mode = ''", "ALTER TABLE t MODIFY `a.b` BIGINT")
    with pytest.raises(ShapeChangedError):
        case.read("g", table=known)
    assert case.lake.list(SCRATCH) == []
