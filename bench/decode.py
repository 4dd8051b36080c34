"""How fast rows are decoded: the kernels against mysql-replication, on one stream, in one run.

    python bench/decode.py [--rows N] [--flavor mariadb|mysql] [--shape NAME ...]

A private server writes N rows into its binlog: of six mixed columns (BIGINT key, VARCHAR(40),
CHAR(8), INT, TIMESTAMP(6), DECIMAL(18,2)), or of another shape (`SHAPES`), which has fewer rows
where they are wide. Both readers then follow that binlog over the socket from the same place;
mysql-replication, being slow, only for its first rows. Rounds alternate, the best of each counts.
Text rows of the same table are read by SELECT: their first values must be those of the log; of the
mixed columns those of mysql-replication as well.

Exit code 1 if the ratio of the mixed columns is below the limit of 25.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import numpy as np
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

from lab.accounts import RATCHET_PASSWORD, RATCHET_USER, create_ratchet_user
from lab.servers import MariadbServer, MysqlServer, Server
from ratchet.core.change import INSERT
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.wire.binlog import BinlogStream, DumpOptions
from ratchet.wire.decode.catalog import read_schemas
from ratchet.wire.decode.rows import RowImageDecoder
from ratchet.wire.decode.tablemap import parse_table_map
from ratchet.wire.decode.text import TextRowDecoder
from ratchet.wire.decode.warm import warm
from ratchet.wire.session import Session, SourceConfig

LIMIT: Final = 25
AIM: Final = 75
DATABASE: Final = "bench"
ROUNDS: Final = 3
COMPARED: Final = 1000
_TABLE_MAP, _INSERTS = 19, (23, 30)
_HEADER: Final = 19
_NUMBERS: Final = {
    "mariadb": "SELECT seq AS n FROM seq_{first}_to_{last}",
    "mysql": "WITH RECURSIVE s AS (SELECT {first} AS n UNION ALL SELECT n + 1 FROM s "
    "WHERE n < {last}) SELECT /*+ SET_VAR(cte_max_recursion_depth = 1000000) */ n FROM s",
}


@dataclass(frozen=True)
class Shape:
    """A table of one kind of rows.

    Attributes:
        columns: name -> its type, and what row number `n` has in it. The key is `id`, which is n.
        part: of the rows of mixed columns so many are written: rows of this kind take longer.
    """

    columns: Mapping[str, tuple[str, str]]
    part: float = 1.0

    @property
    def definition(self) -> str:
        """The table."""
        inner = ", ".join(f"{name} {kind}" for name, (kind, _) in self.columns.items())
        return f"CREATE TABLE orders (id BIGINT PRIMARY KEY, {inner}) CHARSET utf8mb4"

    def filling(self, numbers: str) -> str:
        """The statement that writes rows of those numbers."""
        values = ", ".join(value for _, value in self.columns.values())
        return f"INSERT INTO orders SELECT n, {values} FROM ({numbers}) AS numbers"


_DOCUMENT: Final = (
    'CONCAT(\'{"name": "customer \', n, \'", "tags": [1, 2.5, "three", null], "price": \', n / 8, '
    '\', "paid": true, "address": {"street": "no. \', n, \'", "zip": \', 10000 + n % 90000, \'}}\')'
)
_WIDE: Final = {
    "INT": "n * {c} % 1000003",
    "VARCHAR(20)": "CONCAT('text ', n % 1000, ' of {c}')",
    "DECIMAL(12,3)": "n % 100000 + {c} / 8",
    "DATETIME": "'2024-01-01' + INTERVAL (n % 100000 * {c}) SECOND",
}
SHAPES: Final = {
    "mixed": Shape(
        {
            "name": ("VARCHAR(40)", "CONCAT('customer number ', n)"),
            "code": ("CHAR(8)", "LPAD(n % 9999, 8, 'c')"),
            "amount": ("INT", "CAST(n * 7919 % 1000003 AS SIGNED) - 500000"),
            "placed": ("TIMESTAMP(6) NULL", "FROM_UNIXTIME(1700000000 + n * 0.370001)"),
            "price": ("DECIMAL(18,2)", "n * 1.37 - 5000"),
        }
    ),
    "narrow": Shape({"amount": ("INT", "n * 7919 % 1000003")}),
    "decimals": Shape(
        {
            "small": ("DECIMAL(9,4)", "n % 99999 + 0.0625"),
            "money": ("DECIMAL(18,2)", "n * 1.37 - 5000"),
            "large": ("DECIMAL(38,10)", "n * 1234567890123.0987654321"),
        }
    ),
    "charsets": Shape(
        {
            "western": ("VARCHAR(40) CHARSET latin1", "CONCAT('Größe ', n)"),
            "cyrillic": ("VARCHAR(40) CHARSET cp1251", "CONCAT('товар ', n)"),
            "chinese": ("VARCHAR(40) CHARSET gbk", "CONCAT('客户 ', n)"),
            "japanese": ("VARCHAR(40) CHARSET ujis", "CONCAT('顧客 ', n)"),
        },
        part=0.5,
    ),
    "json": Shape({"document": ("JSON", _DOCUMENT)}, part=0.2),
    "wide": Shape(
        {
            f"c{c}": (kind, value.format(c=c))
            for c, (kind, value) in zip(range(1, 200), cycle(_WIDE.items()), strict=False)
        },
        part=0.04,
    ),
}


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


def fill(server: Server, shape: Shape, rows: int) -> None:
    """Make the table and its rows."""
    server.execute(shape.definition, database=DATABASE)
    for first in range(1, rows + 1, 50_000):
        last = min(first + 49_999, rows)
        numbers = _NUMBERS[server.flavor].format(first=first, last=last)
        server.execute(shape.filling(numbers), database=DATABASE)


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
                decoder = RowImageDecoder(parse_table_map(body, keyspace="k"), InvalidValuePolicy())
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
        decoder = TextRowDecoder(schema, InvalidValuePolicy())
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


def run(server: Server, name: str, rows: int, baseline_rows: int) -> bool:
    """Measure and print; whether the limit was held."""
    shape = SHAPES[name]
    server.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    server.execute(f"CREATE DATABASE {DATABASE}")
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
        fill(server, shape, rows)
        # Events of one file only: a private server's is larger than that.
        log_bytes = session.binlog_end()[1] - offset
    count = len(shape.columns) + 1
    print(f"{server.flavor} {server.version}, {name}: {rows:,} rows of {count} columns, "
          f"{log_bytes / rows:,.0f} bytes each in the log, best of {ROUNDS} rounds")  # fmt: skip
    print(f"  kernels ready after {warm():.2f} s")
    ours: list[Found] = []
    theirs: list[Found] = []
    for _ in range(ROUNDS):
        ours.append(kernels(config, start, rows))
        theirs.append(mysql_replication(server, file, offset, baseline_rows))
    best, base = (max(found, key=lambda one: one.rate) for found in (ours, theirs))
    if name == "mixed" and not same_values(best.first, base.first):
        raise SystemExit(f"the readers do not agree: {best.first[:2]} and {base.first[:2]}")
    report("kernels, socket to Arrow", best)
    values, volume = best.rate * count, best.rate * log_bytes / rows
    print(f"  which is                     {values:>12,.0f} values/s, {volume / 1e6:,.0f} MB/s")
    report("mysql-replication", base)
    drained = min(text_rows(config, decode=False).seconds for _ in range(ROUNDS))
    print(f"  text rows, only received     {rows / drained:>12,.0f} rows/s")
    text = max((text_rows(config, decode=True) for _ in range(ROUNDS)), key=lambda one: one.rate)
    print(f"  text rows, decoding alone    {rows / text.decoding:>12,.0f} rows/s")
    report("text rows, socket to Arrow", text)
    both = min(len(text.first), len(best.first))
    if not both or text.first[:both] != best.first[:both]:
        raise SystemExit("the log and the text rows do not agree about the first rows")
    ratio = best.rate / base.rate
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  peak memory of this process  {peak:>12,.0f} MiB")
    bounds = f" (limit {LIMIT}x, aim {AIM}x)" if name == "mixed" else ""
    print(f"  RATIO {ratio:.0f}x of mysql-replication{bounds}")
    return name != "mixed" or ratio >= LIMIT


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--baseline-rows", type=int, default=50_000)
    parser.add_argument("--flavor", choices=["mariadb", "mysql"], default="mariadb")
    parser.add_argument("--shape", choices=[*SHAPES, "all"], action="append")
    given = parser.parse_args()
    kind = {"mariadb": MariadbServer, "mysql": MysqlServer}[given.flavor]
    names = given.shape or ["mixed"]
    with kind() as server:
        create_ratchet_user(server, databases=[DATABASE])
        good = []
        for name in SHAPES if "all" in names else names:
            part = SHAPES[name].part
            rows, baseline = int(given.rows * part), int(given.baseline_rows * part)
            good.append(run(server, name, rows, min(rows, baseline)))
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main())
