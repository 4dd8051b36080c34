"""How fast a table is dumped into Delta: rows per second, beside just draining SELECT *.

    python bench/dump.py [--rows N] [--flavor mariadb|mysql] [--parallel P] [--tables T]
                         [--kind orders|signatures] [--connectorx PYTHON]

A private server holds N rows of six columns (BIGINT key, VARCHAR(40), CHAR(8), INT, TIMESTAMP(6),
DECIMAL(18,2)), or (`signatures`) those that VReplication's copy was once measured with, 16,777,216
of them: BIGINT with gaps, VARCHAR(40) with 40 hex digits, CHAR(8), the key of the first and last.
With --tables they are in so many tables, dumped at once. The dump runs as `ratchet dump` runs it:
chunks read in Spark tasks, committed into a Delta table; the first time in a fresh session (Spark's
workers start, kernels load), then again. Between the dumps the same rows are drained raw over one
connection, nothing decoded, and behind them, given a Python that has connectorx, read by that into
Arrow and written as plain Parquet. The best of each counts; the rows in the lake are counted and
summed up by Spark, and must agree with the server. Memory is that of this process and Spark's
Python workers: pages that several of them share counted once (the kernel's PSS), and for each
process (RSS, which counts them several times). What the server had to bear: its highest number of
connections and length of InnoDB's history list.

Exit code 1 if the dump is below 300,000 rows/s or that memory is above 2 GiB.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

from bench.lib.rows import order
from bench.lib.watch import Watch
from lab.servers import MariadbServer, MysqlServer, Server
from lab.template import root_password
from ratchet.core.shard import ShardId
from ratchet.jobs.config.settings import SnapshotSection
from ratchet.jobs.engine.jars import ivy_folder
from ratchet.snapshot.dump import Dumper
from ratchet.snapshot.records import DumpSettings, ShardSource, TableDumpRequest
from ratchet.snapshot.tasks import spark_reader
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.wire.session import Session, SourceConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT: Final = 300_000
AIM: Final = 600_000
MEMORY_LIMIT: Final = 2 << 30
DATABASE: Final = "bench"
SHARD: Final = "shop/-"
_CONNECTORX: Final = """
import sys, time
import connectorx, pyarrow.parquet
url, query, file = sys.argv[1:]
began = time.perf_counter()
rows = connectorx.read_sql(url, query, return_type="arrow", partition_on="id", partition_num=4)
pyarrow.parquet.write_table(rows, file)
print(rows.num_rows, time.perf_counter() - began)
"""


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes:
        columns: its definition.
        row: the text of a row, for LOAD DATA.
        sums: what tells whether two copies are the same, in SQL that Spark and servers share.
        rows: how many by default.
    """

    columns: str
    row: Callable[[int], str]
    sums: str
    rows: int


def _signature(n: int) -> str:
    text = hashlib.sha1(b"%d" % n, usedforsecurity=False).hexdigest()
    return f"{n + n // 5}\t{text}\t{text[:8]}\n"


KINDS: Final = {
    "orders": Kind(
        columns="id BIGINT PRIMARY KEY, name VARCHAR(40), code CHAR(8), amount INT, "
        "placed TIMESTAMP(6) NULL, price DECIMAL(18,2)",
        row=order,
        sums="COUNT(*), SUM(id), SUM(amount), SUM(price), SUM(LENGTH(name)), "
        "COUNT(DISTINCT placed)",
        rows=2_000_000,
    ),
    "signatures": Kind(
        columns="id BIGINT NOT NULL, sig VARCHAR(40) NOT NULL, c CHAR(8) NOT NULL DEFAULT '', "
        "PRIMARY KEY (id, c)",
        row=_signature,
        sums="COUNT(*), SUM(id), SUM(CRC32(sig)), SUM(CRC32(c))",
        rows=16_777_216,
    ),
}


def main() -> int:
    """Run the benchmark; 0 if the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, help="by default as many as the kind has")
    parser.add_argument("--flavor", choices=["mariadb", "mysql"], action="append")
    parser.add_argument("--parallel", type=int, default=SnapshotSection().readers)
    parser.add_argument("--kind", choices=KINDS, default="orders")
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--connectorx", metavar="PYTHON", help="a Python that has connectorx")
    given = parser.parse_args()
    spark = bench_session()
    try:
        good = [_bench(flavor, given, spark) for flavor in given.flavor or ["mariadb", "mysql"]]
    finally:
        spark.stop()
    return 0 if all(good) else 1


def _bench(flavor: str, given: argparse.Namespace, spark: SparkSession) -> bool:
    server_of = {"mariadb": MariadbServer, "mysql": MysqlServer}[flavor]
    kind = KINDS[given.kind]
    rows = given.rows or kind.rows
    folder = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    try:
        with server_of(buffer_pool="2G") as server:
            tables = [f"t{n}" for n in range(given.tables)]
            for n, table in enumerate(tables):
                fill_server(server, rows // given.tables, folder / "rows.tsv", kind, table)
                server.execute(f"SELECT COUNT(*) FROM {table}", database=DATABASE)
                print(f"{table}: filled, {n + 1} of {len(tables)}", file=sys.stderr)
            rows = rows // given.tables * given.tables
            lake = open_lake(folder / "lake", now=0)
            dumps, drains, costs = [], [], []
            peers: list[float] = []
            with _Burden(server) as burden, _Memory() as memory:
                for _ in range(given.rounds):
                    before = cpu_seconds(os.getpid())
                    dumps.append(rows / dump_once(server, lake, given.parallel, spark, tables))
                    costs.append(cpu_seconds(os.getpid()) - before)
                    drains.append(rows / _drain(server, tables))
            if given.connectorx:
                seconds = [
                    _connectorx(given.connectorx, server, tables, folder)
                    for _ in range(given.rounds)
                ]
                peers = [rows / one for one in seconds]
            _check(server, lake, spark, kind, tables)
            version = server.version
    finally:
        shutil.rmtree(folder)
    best, drain = max(dumps[1:]), max(drains)
    print(
        f"{flavor} {version}, {rows:,} rows of {given.kind} in {len(tables)} tables, "
        f"{given.parallel} chunks side by side"
    )
    print(f"  first dump of the session   {dumps[0]:>12,.0f} rows/s")
    print(f"  dump into Delta, best of {given.rounds - 1}  {best:>12,.0f} rows/s")
    print(f"  dump into Delta, worst      {min(dumps[1:]):>12,.0f} rows/s")
    print(f"  draining one connection     {drain:>12,.0f} rows/s")
    print(f"  RATIO {best / drain:.2f} of draining")
    if peers:
        print(
            f"  connectorx, plain Parquet   {max(peers):>12,.0f} rows/s (worst {min(peers):,.0f})"
        )
        print(f"  RATIO {best / max(peers):.2f} of connectorx")
    cost = min(costs) * 1e6 / rows
    print(f"  CPU per million rows        {cost:>12.2f} s (server, Python and JVM together)")
    print(
        f"  peak memory outside the JVM {memory.peak >> 20:>12,} MiB (driver and Spark's workers; "
        f"{memory.plain_peak >> 20:,} MiB if shared pages count for each)"
    )
    print(
        f"  the server's connections, at most {burden.connections}; history list {burden.history}"
    )
    good = best >= LIMIT and memory.peak <= MEMORY_LIMIT
    print(f"  {'OK' if good else 'TOO LITTLE'}: limit {LIMIT:,} rows/s and 2,048 MiB; aim {AIM:,}")
    return good


def fill_server(server: Server, rows: int, file: Path, kind: Kind, table: str) -> None:
    """Make a table, with that many rows."""
    with file.open("w") as out:
        out.writelines(map(kind.row, range(rows)))
    server.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    server.execute(f"CREATE TABLE {table} ({kind.columns}) CHARSET utf8mb4", database=DATABASE)
    server.execute(f"LOAD DATA INFILE '{file}' INTO TABLE {table}", database=DATABASE)
    server.execute(f"ANALYZE TABLE {table}", database=DATABASE)
    file.unlink()


def source_of(server: Server) -> SourceConfig:
    """How to connect."""
    return SourceConfig(
        shard=ShardId.parse(SHARD),
        host=server.host,
        port=server.port,
        user=server.admin_user,
        password=root_password(),
        database=DATABASE,
        tls="disabled",
    )


def dump_once(
    server: Server, lake: Lake, parallel: int, spark: SparkSession, tables: Sequence[str]
) -> float:
    """Dump the tables afresh; seconds."""
    dumper = Dumper(
        lake,
        {SHARD: ShardSource(config=source_of(server))},
        spark_reader(spark),
        settings=DumpSettings(parallel=parallel),
    )
    started = time.perf_counter()
    dumper.run(
        [TableDumpRequest(keyspace="shop", table=t, shards=(SHARD,), again=True) for t in tables]
    )
    return time.perf_counter() - started


def _drain(server: Server, tables: Sequence[str]) -> float:
    with Session.connect(source_of(server)) as session:
        started = time.perf_counter()
        for table in tables:
            with session.stream_rows(f"SELECT * FROM {table}") as rows:
                for _ in rows:
                    pass
        return time.perf_counter() - started


def _connectorx(python: str, server: Server, tables: Sequence[str], folder: Path) -> float:
    """Seconds of reading the tables one after the other; imports are not counted."""
    url = f"mysql://{server.admin_user}:{root_password()}@{server.host}:{server.port}/{DATABASE}"
    seconds = 0.0
    for table in tables:
        file = folder / "connectorx.parquet"
        query = f"SELECT * FROM {table}"
        found = subprocess.run(
            [python, "-c", _CONNECTORX, url, query, str(file)],
            check=True,
            capture_output=True,
            text=True,
        )
        seconds += float(found.stdout.split()[1])
        file.unlink()
    return seconds


def _check(
    server: Server, lake: Lake, spark: SparkSession, kind: Kind, tables: Sequence[str]
) -> None:
    for name in tables:
        table = f"delta.`{lake.hadoop_uri(f'shop/{name}')}`"
        found = tuple(spark.sql(f"SELECT {kind.sums} FROM {table}").collect()[0])
        (expected,) = server.execute(f"SELECT {kind.sums} FROM {name}", database=DATABASE)
        if [str(value) for value in found] != [str(value) for value in expected]:
            raise SystemExit(f"the lake has {found}, the server {expected}")


class _Burden(Watch):
    """The most that the server ever bore at a look: connections, InnoDB's history list."""

    _QUERY: Final = (
        "SELECT (SELECT COUNT(*) FROM information_schema.processlist WHERE user <> 'system user'), "
        "(SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len')"
    )

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.connections = self.history = 0
        self._server = server

    def look(self) -> None:
        """Once more."""
        ((connections, history),) = self._server.execute(self._QUERY)
        self.connections = max(self.connections, int(str(connections)))
        self.history = max(self.history, int(str(history)))


class _Memory(Watch):
    """The most memory that this process and its children but the JVM ever held together."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self.plain_peak = 0

    def look(self) -> None:
        """Once more."""
        shared, plain = _python_memory(os.getpid())
        self.peak, self.plain_peak = max(self.peak, shared), max(self.plain_peak, plain)


def _python_memory(root: int) -> tuple[int, int]:
    """PSS and RSS of a process and the Python processes below it, bytes."""
    parents: dict[int, int] = {}
    pythons: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().rsplit(")", 1)
        except OSError:
            continue  # it ended just now
        pid = int(stat.parent.name)
        parents[pid] = int(rest.split()[1])
        if name.partition("(")[2].startswith("python"):
            pythons.add(pid)
    shared, plain, wave = 0, 0, {root}
    while wave:
        for pid in wave & pythons:
            sizes = _sizes(pid)
            shared += sizes.get("Pss", 0)
            plain += sizes.get("Rss", 0)
        wave = {pid for pid, parent in parents.items() if parent in wave}
    return shared, plain


def cpu_seconds(root: int) -> float:
    """CPU time of a process and all below it that live: server, Spark's JVM and its workers."""
    times: dict[int, tuple[int, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended just now
        times[int(stat.parent.name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    total, wave = 0, {root}
    while wave:
        total += sum(times[pid][1] for pid in wave if pid in times)
        wave = {pid for pid, (parent, _) in times.items() if parent in wave}
    return total / os.sysconf("SC_CLK_TCK")


def _sizes(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return {}  # it ended just now
    return {
        line.split(":")[0]: int(line.split()[1]) << 10
        for line in lines
        if line.startswith(("Pss:", "Rss:"))
    }


def bench_session() -> SparkSession:
    """A session with Delta, as small as it can be."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[8]").appName("bench")
    for name, value in {
        "spark.jars.ivy": str(ivy_folder()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }.items():
        builder = builder.config(name, value)
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


if __name__ == "__main__":
    sys.exit(main())
