"""How fast VStream's rows are decoded, and captured: beside a client that only counts them.

    python bench/vstream.py [--rows N] [--rounds R]

A private Vitess cluster of one shard holds three stretches of log: N rows of six columns in
transactions of 1,000 rows, a tenth as many in transactions of one, and half as many with a JSON
document each. Each client follows the
same stretch over a VStream of its own, in turn, connecting included; best of R. One counts the row
changes with Google's protobuf classes and keeps nothing; the next decodes them: bytes of responses,
the kernels, Arrow; the last is a whole slice of Ratchet's capture, from the socket to closed change
files. All must find all rows; the sum of a column must be the server's.

Exit code 1 if a slice gets less than 80 % of the rows that the counting client gets. There is no
such limit for documents: they take the client the most to decode, and vtgate the least to send.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lab.vitess import VitessCluster
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.capture import capture_slice, close_streams
from ratchet.ingest.slices import CaptureRequest, SliceLimits
from ratchet.store.formats import open_lake
from ratchet.store.segments import open_changes
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig
from ratchet.wire.decode.kernels import vstream as kernels
from ratchet.wire.decode.vstream import VStreamRowDecoder
from ratchet.wire.vstreamproto import messages
from ratchet.wire.vtgate import VStream, VtgateConfig

LIMIT: Final = 0.8
PER: Final = 1000  # rows of a large transaction
FLUSH: Final = 8 << 20  # bytes that are decoded at once


@dataclass(frozen=True)
class Table:
    """A table to be filled and followed; its column `amount` is summed up.

    Attributes:
        schema: its description; its DDL is made of `declared`.
        declared: column -> type.
        row: the values of row n as SQL.
    """

    schema: TableSchema
    declared: dict[str, str]
    row: Callable[[int], str]

    @property
    def ddl(self) -> str:
        """The CREATE TABLE."""
        columns = ", ".join(f"{name} {kind}" for name, kind in self.declared.items())
        return f"CREATE TABLE {self.schema.table} ({columns})"


ID: Final = Column(name="id", type=ColumnType(name="bigint"), nullable=False)
AMOUNT: Final = Column(name="amount", type=ColumnType(name="int"))
ORDERS: Final = Table(
    schema=TableSchema(
        keyspace="commerce",
        table="orders",
        columns=(
            ID,
            Column(name="name", type=ColumnType(name="varchar", length=160, charset="utf8mb4")),
            Column(name="code", type=ColumnType(name="char", length=32, charset="utf8mb4")),
            AMOUNT,
            Column(name="placed", type=ColumnType(name="timestamp", fraction=6)),
            Column(name="price", type=ColumnType(name="decimal", precision=18, scale=2)),
        ),
        key=("id",),
    ),
    declared={
        "id": "BIGINT NOT NULL PRIMARY KEY", "name": "VARCHAR(40)", "code": "CHAR(8)",
        "amount": "INT", "placed": "TIMESTAMP(6) NULL", "price": "DECIMAL(18,2)",
    },
    row=lambda n: (
        f"({n},'customer number {n:09d}','ST{n % 7:06d}',{n * 7919 % 1000003},"
        f"'2024-01-01 00:{n // 60 % 60:02d}:{n % 60:02d}.{n % 1000000:06d}',"
        f"{n * 31 % 1000000}.{n % 100:02d})"
    ),
)  # fmt: skip
DOCUMENTS: Final = Table(
    schema=TableSchema(
        keyspace="commerce",
        table="documents",
        columns=(ID, AMOUNT, Column(name="doc", type=ColumnType(name="json"))),
        key=("id",),
    ),
    declared={"id": "BIGINT NOT NULL PRIMARY KEY", "amount": "INT", "doc": "JSON"},
    row=lambda n: (
        f"({n},{n * 7919 % 1000003},'"
        f'{{"name": "customer {n}", "city": "Town {n % 997}", "zip": {n % 100000}, '
        f'"tags": ["a", "b{n % 7}"], "open": {str(n % 2 == 0).lower()}, "half": 0.5}}\')'
    ),
)
ROW: Final = 12  # of proto/vstream.proto's EventType


def main() -> int:
    """Run the benchmark; 0 if the limit holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    good = True
    with VitessCluster() as cluster:
        cluster.add_keyspace("commerce", ["0"])
        for table in (ORDERS, DOCUMENTS):
            cluster.query(table.ddl, target="commerce")
        for label, table, rows, per in (
            ("bulk", ORDERS, given.rows, PER),
            ("single", ORDERS, given.rows // 10, 1),
            ("JSON", DOCUMENTS, given.rows // 2, PER),
        ):
            start = _executed(cluster)
            _write(cluster, table, rows, per)
            ratio = _compare(cluster, label, table, start=start, rows=rows, rounds=given.rounds)
            good &= table is DOCUMENTS or ratio >= LIMIT
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"limit of captured: {LIMIT}, {'kept' if good else 'MISSED'}")
    print(f"peak memory of this process {own:,.0f} MiB")
    return 0 if good else 1


def _executed(cluster: VitessCluster) -> str:
    ((_, found, _),) = cluster.query("SHOW GLOBAL GTID_EXECUTED FROM commerce", target="commerce")
    return f"MySQL56/{found}"


def _write(cluster: VitessCluster, table: Table, rows: int, per: int) -> None:
    name = table.schema.table
    newest = f"SELECT COALESCE(MAX(id) + 1, 0) FROM {name}"
    first = cluster.query(newest, target="commerce")[0][0]
    with cluster.connect("commerce", autocommit=True) as connection, connection.cursor() as cursor:
        for begin in range(first, first + rows, per):
            values = ",".join(map(table.row, range(begin, begin + per)))
            cursor.execute(f"INSERT INTO {name} VALUES {values}")


def _compare(
    cluster: VitessCluster, label: str, table: Table, *, start: str, rows: int, rounds: int
) -> float:
    config = VtgateConfig(host="127.0.0.1", port=cluster.grpc_port)

    def streamed(client: Callable[[VStream, int], int]) -> Callable[[], int]:
        def run() -> int:
            with VStream(config, [("commerce", "0", start)]) as stream:
                return client(stream, rows)

        return run

    clients: dict[str, Callable[[], int]] = {
        "counting": streamed(_count),
        "decoded": streamed(partial(_decode, table.schema)),
        "captured": lambda: _capture(cluster, config, start),
    }
    best = dict.fromkeys(clients, float("inf"))
    cpu = dict(best)
    ((wanted,),) = cluster.query(
        f"SELECT SUM(amount) FROM (SELECT amount FROM {table.schema.table} ORDER BY id DESC "
        f"LIMIT {rows}) last",
        target="commerce:0@primary",
    )
    for _ in range(rounds):
        for name, client in clients.items():
            before, used = time.perf_counter(), time.process_time()
            total = client()
            best[name] = min(best[name], time.perf_counter() - before)
            cpu[name] = min(cpu[name], time.process_time() - used)
            if name != "counting" and total != int(wanted):
                raise SystemExit(f"{name}: the sum is {total}, the server's is {wanted}")
    print(f"{label}: {rows:,} rows, best of {rounds}")
    for name, seconds in best.items():
        ratio = best["counting"] / seconds
        print(
            f"  {name:<9} {rows / seconds:>10,.0f} rows/s  CPU {cpu[name]:.2f} s  RATIO {ratio:.2f}"
        )
    return best["counting"] / best["captured"]


def _capture(cluster: VitessCluster, config: VtgateConfig, start: str) -> int:
    """One slice up to where the shard is now; the sum of what its files hold."""
    source = SourceConfig(
        shard=ShardId("commerce", "0"), host="127.0.0.1", port=cluster.mysql_port, user="root",
        database="vt_commerce", target="commerce:0@primary", tls="disabled",
    )  # fmt: skip
    head = GtidSet.parse("mysql", _executed(cluster).removeprefix("MySQL56/"))
    with tempfile.TemporaryDirectory() as folder:
        lake = open_lake(f"{folder}/lake", now=1)
        result = capture_slice(
            CaptureRequest(
                source=source,
                start=Position(executed=GtidSet.parse("mysql", start.removeprefix("MySQL56/"))),
                generation=0,
                round_number=1,
                lake=lake.root,
                patterns=TablePatterns(),
                limits=SliceLimits(max_bytes=1 << 40, max_seconds=600, stop_at=head),
                dump=DumpOptions(server_id=1),
                vtgate=config,
            )
        )
        close_streams()
        if result.error is not None:
            raise result.error
        tables = [
            pq.read_table(open_changes(lake, file.path), columns=["after"]) for file in result.files
        ]
        return sum(
            int(pc.sum(pc.struct_field(table["after"], "amount")).as_py()) for table in tables
        )


def _count(stream: VStream, rows: int) -> int:
    proto = messages()
    seen = 0
    while seen < rows:
        for event in proto.Response.FromString(stream.receive() or b"").events:
            if event.type == proto.ROW:
                seen += len(event.row_event.changes)
    return -1


def _decode(schema: TableSchema, stream: VStream, rows: int) -> int:
    decoder = VStreamRowDecoder(schema, InvalidValuePolicy())
    total = seen = size = 0
    waiting: list[bytes] = []
    while seen < rows:
        waiting.append(stream.receive() or b"")
        size += len(waiting[-1])
        seen += _changes(np.frombuffer(waiting[-1], np.uint8))[0]
        if size >= FLUSH or seen >= rows:
            buf = np.frombuffer(b"".join(waiting), np.uint8)
            waiting, size = [], 0
            decoded = decoder.decode(buf, *_changes(buf)[1:])
            total += int(pc.sum(decoded.after.field("amount")).as_py() or 0)
    return total


def _changes(buf: Any) -> tuple[int, Any, Any]:
    """How many row changes some responses hold, and where their row events begin and end."""
    count, _, _ = kernels.count_events(buf, 0, len(buf))
    places = np.empty((int(count), kernels.FIELDS), np.int64)
    kernels.index_events(buf, 0, len(buf), places)
    events = places[places[:, kernels.TYPE] == ROW]
    starts, ends = events[:, kernels.BODY].copy(), events[:, kernels.BODY_END].copy()
    return int(kernels.count_changes(buf, starts, ends)[0]), starts, ends


if __name__ == "__main__":
    sys.exit(main())
