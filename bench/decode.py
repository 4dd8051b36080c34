"""How fast rows are decoded: the kernels against mysql-replication, on one stream, in one run.

    python bench/decode.py [--rows N] [--flavor mariadb|mysql]

A private server writes N rows of six columns (BIGINT key, VARCHAR(40), CHAR(8), INT, TIMESTAMP(6),
DECIMAL(18,2)) into its binlog. Both readers then follow that binlog over the socket from the same
place; mysql-replication, being slow, only for its first rows. Rounds alternate, the best of each
counts, and the first rows of both must be equal. Text rows of the same table are read by SELECT.

Exit code 1 if the ratio is below the limit of 25.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import numpy as np
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

from core.change import INSERT
from core.position import Position
from core.shard import ShardId
from core.types import MisfitPolicy
from lab.accounts import RATCHET_PASSWORD, RATCHET_USER, create_ratchet_user
from lab.servers import MariadbServer, MysqlServer, Server
from wire.binlog import BinlogStream, DumpOptions
from wire.decode.catalog import read_schemas
from wire.decode.rows import RowImageDecoder
from wire.decode.tablemap import parse_table_map
from wire.decode.text import TextRowDecoder
from wire.decode.warm import warm
from wire.session import Session, SourceConfig

LIMIT: Final = 25
AIM: Final = 75
DATABASE: Final = "bench"
ROUNDS: Final = 3
COMPARED: Final = 1000
_TABLE_MAP, _INSERTS = 19, (23, 30)
_HEADER: Final = 19
_DEFINITION: Final = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR(40), code CHAR(8), amount INT,
                     placed TIMESTAMP(6) NULL, price DECIMAL(18,2)) CHARSET utf8mb4
"""
_NUMBERS: Final = {
    "mariadb": "SELECT seq AS n FROM seq_{first}_to_{last}",
    "mysql": "WITH RECURSIVE s AS (SELECT {first} AS n UNION ALL SELECT n + 1 FROM s "
    "WHERE n < {last}) SELECT /*+ SET_VAR(cte_max_recursion_depth = 1000000) */ n FROM s",
}
_FILL: Final = """
INSERT INTO orders
SELECT n, CONCAT('customer number ', n), LPAD(n % 9999, 8, 'c'),
       CAST(n * 7919 % 1000003 AS SIGNED) - 500000,
       FROM_UNIXTIME(1700000000 + n * 0.370001), n * 1.37 - 5000
  FROM ({numbers}) AS numbers
"""


@dataclass(frozen=True)
class Found:
    """One reading of the rows.

    Attributes:
        rows: how many there were.
        seconds: in all.
        first: the first ones, as values.
        decoding: seconds spent in the decoder, where that was measured.
    """

    rows: int
    seconds: float
    first: list[tuple[Any, ...]]
    decoding: float = 0.0

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


def fill(server: Server, rows: int) -> None:
    """Make the table and its rows."""
    server.execute(_DEFINITION, database=DATABASE)
    for first in range(1, rows + 1, 50_000):
        last = min(first + 49_999, rows)
        numbers = _NUMBERS[server.flavor].format(first=first, last=last)
        server.execute(_FILL.format(numbers=numbers), database=DATABASE)


def events(stream: BinlogStream) -> Iterator[tuple[np.ndarray[Any, Any], Any]]:
    """Batches of new events as they arrive: the buffer and their records."""
    while True:
        if stream.is_full:
            stream.recycle()
        stream.receive(1.0)
        if stream.count > stream.first:
            found = stream.index[stream.first : stream.count]
            stream.first = stream.count
            yield stream.data, found


def kernels(config: SourceConfig, start: Position, rows: int) -> Found:
    """All rows over the socket into Arrow, connecting included, as for the other reader."""
    began = time.perf_counter()
    stream = BinlogStream(config, start, DumpOptions(server_id=(1 << 30) + 4711))
    decoder: RowImageDecoder | None = None
    done, first = 0, None
    try:
        for data, found in events(stream):
            maps = found[found["type"] == _TABLE_MAP]
            if decoder is None and maps.size:
                body = data[maps["start"][0] + _HEADER : maps["end"][0]].tobytes()
                decoder = RowImageDecoder(parse_table_map(body, keyspace="k"), MisfitPolicy())
            inserts = found[np.isin(found["type"], _INSERTS)]
            if decoder is None or not inserts.size:
                continue
            # Version 2 events have a length of extra data behind the post-header: 2, so none.
            post = np.where(inserts["type"] == _INSERTS[0], 8, 10)
            starts = inserts["start"] + _HEADER + post
            images = decoder.decode(data, starts, inserts["end"], INSERT).after
            assert images is not None
            first = images.slice(0, COMPARED) if first is None else first
            done += len(images)
            if done >= rows:
                break
        seconds = time.perf_counter() - began
    finally:
        stream.close()
    assert first is not None
    return Found(done, seconds, [tuple(row.values()) for row in first.to_pylist()])


def mysql_replication(server: Server, file: str, offset: int, rows: int) -> Found:
    """The first `rows` rows by BinLogStreamReader, as Python values."""
    began = time.perf_counter()
    reader = BinLogStreamReader(
        connection_settings={
            "host": server.host,
            "port": server.port,
            "user": RATCHET_USER,
            "passwd": RATCHET_PASSWORD,
        },
        server_id=(1 << 30) + 4712,
        resume_stream=True,
        log_file=file,
        log_pos=offset,
        only_events=[WriteRowsEvent],
        only_schemas=[DATABASE],
    )
    done = 0
    first: list[tuple[Any, ...]] = []
    for event in reader:
        found = event.rows
        if len(first) < COMPARED:
            first += [tuple(row["values"].values()) for row in found]
        done += len(found)
        if done >= rows:
            break
    seconds = time.perf_counter() - began
    reader.close()
    return Found(done, seconds, first[:COMPARED])


def text_rows(config: SourceConfig, *, decode: bool) -> Found:
    """All rows of SELECT; without `decode` they are only received."""
    with Session.connect(config) as session:

        def query(sql: str, args: Any) -> Any:
            return session.query(sql, args)

        schema = read_schemas(query, keyspace="k", database=DATABASE)["orders"]
        decoder = TextRowDecoder(schema, MisfitPolicy())
        sql = f"SELECT {', '.join(decoder.select_list)} FROM orders"
        rows, first, in_decoder = 0, None, 0.0
        began = time.perf_counter()
        for data, start, end in session.stream_rows(sql):
            if not decode:
                continue
            mark = time.perf_counter()
            batch = decoder.decode(data, start, end).batch
            in_decoder += time.perf_counter() - mark
            first = batch.slice(0, COMPARED) if first is None else first
            rows += batch.num_rows
        seconds = time.perf_counter() - began
    if first is None:
        return Found(0, seconds, [])
    return Found(rows, seconds, [tuple(row.values()) for row in first.to_pylist()], in_decoder)


def same_values(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """Whether both read the same. Theirs has TIMESTAMPs without a zone, in this process's one."""

    def plain(row: tuple[Any, ...], *, local: bool) -> tuple[Any, ...]:
        placed = row[4].astimezone(UTC) if local else row[4]
        return (*row[:4], placed, row[5])

    count = min(len(ours), len(theirs))  # of ours, those of the first batch that arrived
    expected = [plain(row, local=True) for row in theirs[:count]]
    return count > 0 and [plain(row, local=False) for row in ours[:count]] == expected


def report(what: str, found: Found) -> None:
    """One line."""
    print(f"  {what:<28} {found.rate:>12,.0f} rows/s   ({found.rows:,} in {found.seconds:.2f} s)")


def run(server: Server, rows: int, baseline_rows: int) -> bool:
    """Measure and print; whether the limit was held."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    create_ratchet_user(server, databases=[DATABASE])
    config = SourceConfig(
        shard=ShardId("k", "-"),
        host=server.host,
        port=server.port,
        user=RATCHET_USER,
        password=RATCHET_PASSWORD,
        database=DATABASE,
    )
    with Session.connect(config) as session:
        start = session.executed()
        file, offset = session.binlog_end()
    fill(server, rows)
    print(f"{server.flavor} {server.version}, {rows:,} rows of 6 columns, best of {ROUNDS} rounds")
    print(f"  kernels ready after {warm():.2f} s")
    ours: list[Found] = []
    theirs: list[Found] = []
    for _ in range(ROUNDS):
        ours.append(kernels(config, start, rows))
        theirs.append(mysql_replication(server, file, offset, baseline_rows))
    best, base = (max(found, key=lambda one: one.rate) for found in (ours, theirs))
    if not same_values(best.first, base.first):
        raise SystemExit(f"the readers do not agree: {best.first[:2]} and {base.first[:2]}")
    report("kernels, socket to Arrow", best)
    report("mysql-replication", base)
    drained = min(text_rows(config, decode=False).seconds for _ in range(ROUNDS))
    print(f"  text rows, only received     {rows / drained:>12,.0f} rows/s")
    text = max((text_rows(config, decode=True) for _ in range(ROUNDS)), key=lambda one: one.rate)
    print(f"  text rows, decoding alone    {rows / text.decoding:>12,.0f} rows/s")
    report("text rows, socket to Arrow", text)
    count = min(len(text.first), len(best.first))
    if text.first[:count] != best.first[:count]:
        raise SystemExit("the log and the text rows do not agree about the first rows")
    ratio = best.rate / base.rate
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  peak memory of this process  {peak:>12,.0f} MiB")
    print(f"  RATIO {ratio:.0f}x of mysql-replication (limit {LIMIT}x, aim {AIM}x)")
    return ratio >= LIMIT


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--baseline-rows", type=int, default=50_000)
    parser.add_argument("--flavor", choices=["mariadb", "mysql"], default="mariadb")
    given = parser.parse_args()
    kind = {"mariadb": MariadbServer, "mysql": MysqlServer}[given.flavor]
    with kind() as server:
        return 0 if run(server, given.rows, min(given.rows, given.baseline_rows)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
