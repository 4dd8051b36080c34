"""How fast a table is dumped through vtgate, beside straight from the tablet's MySQL.

    python bench/vtgate_dump.py [--rows N] [--parallel P]

A private Vitess cluster of one shard holds N rows of six columns, as bench/dump.py has them. Chunks
are read by threads of this process, committed into a Delta table; the first dump of each way, which
loads the kernels, does not count. Beside it the same rows are drained raw over one connection.
There is no limit to hold: the figure says what vtgate and vttablet take on the way.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import pymysql

from lab.vitess import VitessCluster
from ratchet.core.shard import ShardId
from ratchet.snapshot.dump import Dumper
from ratchet.snapshot.reader import read_chunk
from ratchet.snapshot.records import (
    ChunkDone,
    DumpSettings,
    Progress,
    ShardSource,
    TableDumpRequest,
)
from ratchet.store.formats import open_lake
from ratchet.wire.session import Session, SourceConfig

ROUNDS: Final = 3
SHARD: Final = ShardId("commerce", "0")
DATABASE: Final = "vt_commerce"
_TABLE: Final = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR(40), code CHAR(8), amount INT,
                     placed TIMESTAMP(6) NULL, price DECIMAL(18,2)) CHARSET utf8mb4
"""
_FILL: Final = """
INSERT INTO orders WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %s)
SELECT n, CONCAT('customer ', n * 7919 %% 1000003), LPAD(n %% 99999999, 8, '0'), n %% 1000,
       FROM_UNIXTIME(1700000000 + n / 1000), n / 100 FROM s
"""


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--parallel", type=int, default=2)
    given = parser.parse_args()
    with VitessCluster() as cluster:
        cluster.add_keyspace("commerce", ["0"])
        ways = {"vtgate": _through(cluster), "MySQL": _straight(cluster, given.rows)}
        dumped, drained = (dict.fromkeys(ways, 0.0) for _ in range(2))
        for number in range(ROUNDS + 1):
            for name, config in ways.items():
                rate = given.rows / _dump(config, given.rows, given.parallel)
                dumped[name] = max(dumped[name], rate if number else 0.0)
                drained[name] = max(drained[name], given.rows / _drain(config))
    for name in ways:
        print(f"{name}: dump {dumped[name]:,.0f} rows/s, drain {drained[name]:,.0f} rows/s")
    return 0


def _through(cluster: VitessCluster) -> SourceConfig:
    return SourceConfig(
        shard=SHARD,
        host="127.0.0.1",
        port=cluster.mysql_port,
        user="root",
        database=DATABASE,
        target="commerce:0@primary",
        tls="disabled",
    )


def _straight(cluster: VitessCluster, rows: int) -> SourceConfig:
    """Fill the table, and let an account in at the tablet's MySQL."""
    tablet = cluster.tablets[1]
    with (
        pymysql.connect(
            unix_socket=str(tablet.socket), user="vt_dba", database=DATABASE, autocommit=True
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE USER bench@'%'")
        cursor.execute("GRANT ALL ON *.* TO bench@'%'")
        cursor.execute(_TABLE)
        cursor.execute("SET SESSION cte_max_recursion_depth = 10000000")
        cursor.execute(_FILL, (rows,))
        cursor.execute("ANALYZE TABLE orders")
    return SourceConfig(
        shard=SHARD, host="127.0.0.1", port=tablet.mysql_port, user="bench", database=DATABASE
    )


def _dump(config: SourceConfig, rows: int, parallel: int) -> float:
    """Seconds of a dump into a new lake."""
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-") as folder:
        counted = 0

        def note(record: Progress) -> None:
            nonlocal counted
            counted += record.chunk_rows if isinstance(record, ChunkDone) else 0

        begun = time.perf_counter()
        dumper = Dumper(
            open_lake(Path(folder) / "lake", now=0),
            {str(SHARD): ShardSource(config=config)},
            read_chunk,
            settings=DumpSettings(parallel=parallel),
            on_progress=note,
        )
        outcome = dumper.run(
            [TableDumpRequest(keyspace="commerce", table="orders", shards=(str(SHARD),))]
        )
        seconds = time.perf_counter() - begun
    assert outcome.done == ("commerce.orders",)
    assert counted == rows
    return seconds


def _drain(config: SourceConfig) -> float:
    begun = time.perf_counter()
    with Session.connect(config) as session, session.snapshot():
        for _ in session.stream_rows(f"SELECT * FROM `{DATABASE}`.`orders`"):
            pass
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
