"""How fast VStream's rows are decoded: beside a client that only counts them.

    python bench/vstream.py [--rows N] [--rounds R]

A private Vitess cluster of one shard holds two stretches of log: N rows of six columns in
transactions of 1,000 rows, and a tenth as many in transactions of one. Each client follows the
same stretch over a VStream of its own, in turn, connecting included; best of R. One counts the row
changes with Google's protobuf classes and keeps nothing; the other is Ratchet's: bytes of
responses, the kernels, Arrow. Both must find all rows; the sum of a column must be the server's.

Exit code 1 if Ratchet's gets less than 80 % of what the counting client gets (issue 4).
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np
import pyarrow.compute as pc

from core.schema import Column, ColumnType, TableSchema
from core.types import MisfitPolicy
from lab.vitess import VitessCluster
from wire.decode.kernels import vstream as kernels
from wire.decode.vstream import VStreamRowDecoder
from wire.vstreamproto import messages
from wire.vtgate import VStream, VtgateConfig

LIMIT: Final = 0.8
PER: Final = 1000  # rows of a large transaction
FLUSH: Final = 8 << 20  # bytes that are decoded at once
TABLE: Final = """
CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(40), code CHAR(8), amount INT,
                     placed TIMESTAMP(6) NULL, price DECIMAL(18,2))
"""
SCHEMA: Final = TableSchema(
    keyspace="commerce",
    table="orders",
    columns=(
        Column(name="id", type=ColumnType(name="bigint"), nullable=False),
        Column(name="name", type=ColumnType(name="varchar", length=160, charset="utf8mb4")),
        Column(name="code", type=ColumnType(name="char", length=32, charset="utf8mb4")),
        Column(name="amount", type=ColumnType(name="int")),
        Column(name="placed", type=ColumnType(name="timestamp", fraction=6)),
        Column(name="price", type=ColumnType(name="decimal", precision=18, scale=2)),
    ),
    key=("id",),
)
ROW: Final = 12  # of proto/vstream.proto's EventType


def main() -> int:
    """Run the benchmark; 0 if the limit holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    good = True
    with VitessCluster() as cluster:
        cluster.add_keyspace("commerce", ["0"])
        cluster.query(TABLE, target="commerce")
        for label, rows, per in (("bulk", given.rows, PER), ("single", given.rows // 10, 1)):
            start = _executed(cluster)
            _write(cluster, rows, per)
            good &= _compare(cluster, label, start, rows, given.rounds)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process {own:,.0f} MiB")
    return 0 if good else 1


def _executed(cluster: VitessCluster) -> str:
    ((_, found, _),) = cluster.query("SHOW GLOBAL GTID_EXECUTED FROM commerce", target="commerce")
    return f"MySQL56/{found}"


def _write(cluster: VitessCluster, rows: int, per: int) -> None:
    first = cluster.query("SELECT COALESCE(MAX(id) + 1, 0) FROM orders", target="commerce")[0][0]
    with cluster.connect("commerce", autocommit=True) as connection, connection.cursor() as cursor:
        for begin in range(first, first + rows, per):
            values = ",".join(
                f"({n},'customer number {n:09d}','ST{n % 7:06d}',{n * 7919 % 1000003},"
                f"'2024-01-01 00:{n // 60 % 60:02d}:{n % 60:02d}.{n % 1000000:06d}',"
                f"{n * 31 % 1000000}.{n % 100:02d})"
                for n in range(begin, begin + per)
            )
            cursor.execute(f"INSERT INTO orders VALUES {values}")


def _compare(cluster: VitessCluster, label: str, start: str, rows: int, rounds: int) -> bool:
    config = VtgateConfig(host="127.0.0.1", port=cluster.grpc_port)
    best = {"counting": float("inf"), "ratchet": float("inf")}
    cpu = dict(best)
    for _ in range(rounds):
        for name, client in (("counting", _count), ("ratchet", _decode)):
            before, used = time.perf_counter(), time.process_time()
            with VStream(config, [("commerce", "0", start)]) as stream:
                total = client(stream, rows)
            best[name] = min(best[name], time.perf_counter() - before)
            cpu[name] = min(cpu[name], time.process_time() - used)
    ((wanted,),) = cluster.query(
        f"SELECT SUM(amount) FROM (SELECT amount FROM orders ORDER BY id DESC LIMIT {rows}) last",
        target="commerce:0@primary",
    )
    if total != int(wanted):
        raise SystemExit(f"the sum of a column is {total}, the server's is {wanted}")
    ratio = best["counting"] / best["ratchet"]
    print(f"{label}: {rows:,} rows, best of {rounds}")
    for name, seconds in best.items():
        print(f"  {name:<9} {rows / seconds:>10,.0f} rows/s   CPU {cpu[name]:.2f} s")
    print(f"  RATIO {ratio:.2f} of counting (limit {LIMIT})")
    return ratio >= LIMIT


def _count(stream: VStream, rows: int) -> int:
    proto = messages()
    seen = 0
    while seen < rows:
        for event in proto.Response.FromString(stream.receive()).events:
            if event.type == proto.ROW:
                seen += len(event.row_event.changes)
    return -1


def _decode(stream: VStream, rows: int) -> int:
    decoder = VStreamRowDecoder(SCHEMA, MisfitPolicy())
    total = seen = size = 0
    waiting: list[bytes] = []
    while seen < rows:
        waiting.append(stream.receive())
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
