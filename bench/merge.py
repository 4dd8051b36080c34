"""How fast changes are merged: a merge step as `ratchet` makes it, beside a plain MERGE.

    python bench/merge.py [--rows N] [--updates U] [--rounds R]

Two equal Delta tables of N rows and six columns (BIGINT key, VARCHAR(40), CHAR(8), INT,
TIMESTAMP(6), DECIMAL(18,2)), deletion vectors on. In turn, in one warmed session, the same random
updates go into the one by `merge.rounds.Merger` (tuned settings, newest change per key, merge rule,
user metadata, a cut) and into the other by a MERGE as anybody would write it, with Spark's and
Delta's default settings, from the same change files. Both tables must hold the same in the end.
Wall time depends on what else the machine does; processor time of the JVM less so: both are shown,
each the best of R rounds. Memory is the highest of the JVM (its heap is 4 GiB) and of this process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, not installed

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from core.change import FLOOR_IDX, TOKEN_TYPE, UPDATE, change_schema
from core.gtid import GtidSet
from core.position import Position
from core.rounds import ChangeFile, Round, Run, ShardSlice
from core.schema import Column, ColumnType, TableSchema
from core.types import MisfitPolicy, arrow_schema
from merge.rounds import Merger
from merge.step import MergeOptions
from store.delta_tables import create_mirrored_table, mirrored_schema
from store.files import Lake, open_lake
from store.layout import change_file_path
from store.rounds import RoundLog
from store.schemas import put_schema
from store.tables import DumpState, Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UUID: Final = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SHARD: Final = "bench/-"
FILES: Final = 16
SCHEMA: Final = TableSchema(
    keyspace="bench",
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
COLUMNS: Final = arrow_schema(SCHEMA, MisfitPolicy())
MOMENT: Final = 1_700_000_000_000_000


@dataclass(frozen=True)
class Cost:
    """What one merge took: seconds on the clock, of processor time of the JVM and this process."""

    wall: float
    cpu: float


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--updates", type=int, action="append", help="1000000 and 10000 by default")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    spark = bench_session()
    home = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    try:
        bench = Bench(spark, home, given.rows)
        bench.run(10_000, rounds=2)  # JIT, class loading
        print(f"{given.rows:,} rows in {FILES} files; best of {given.rounds}")
        print("updates, keys  | ratchet: rows/s, wall s, cpu s | plain: the same        | ratio")
        asked = given.updates or [1_000_000, 10_000]
        for updates, close in [(u, c) for u in asked for c in (False, True)]:
            ours, plain = bench.run(min(updates, given.rows), rounds=given.rounds, close=close)
            print(
                f"{updates:9,} {'near' if close else 'any '} "
                f"| {updates / ours.wall:10,.0f} {ours.wall:7.2f} {ours.cpu:7.2f} "
                f"| {updates / plain.wall:8,.0f} {plain.wall:7.2f} {plain.cpu:7.2f} "
                f"| {plain.wall / ours.wall:6.2f} (cpu {plain.cpu / ours.cpu:.2f})"
            )
        bench.check()
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"peak memory: JVM {_high_water(bench.jvm):,.0f} MiB, this process {own:,.0f} MiB")
    finally:
        spark.stop()
        shutil.rmtree(home)
    return 0


class Bench:
    """Two lakes with equal tables."""

    def __init__(self, spark: SparkSession, home: Path, rows: int) -> None:
        self._spark = spark
        self._rows = rows
        self._random = np.random.default_rng(1)
        self._seq = 100
        gateway: Any = spark.sparkContext._jvm  # noqa: SLF001 - no other way to its pid
        self.jvm = int(gateway.java.lang.ProcessHandle.current().pid())
        self.ours = open_lake(home / "ours", now=1)
        self._plain = open_lake(home / "plain", now=1)
        self._log = RoundLog(self.ours)
        for lake in (self.ours, self._plain):
            _create(lake, rows)
        position = _position(self._seq)
        self._state = Tables(self.ours).save(
            TableState(
                keyspace=SCHEMA.keyspace,
                table=SCHEMA.table,
                schema=SCHEMA,
                key=SCHEMA.key,
                phase="streaming",
                dump=DumpState(id="d", start_round=1, start={SHARD: position}, done=True),
            )
        )
        put_schema(self.ours, SCHEMA)
        options = MergeOptions(policy=MisfitPolicy(), max_bytes=1 << 40)
        self._merger = Merger(spark, self.ours, options)

    def run(self, updates: int, *, rounds: int, close: bool = False) -> tuple[Cost, Cost]:
        """The best cost of merging that many updates: ours, and the plain way's."""
        ours, plain = [], []
        for _ in range(rounds):
            path = self.commit_round(updates, close=close)
            ours.append(self._cost(self.step))
            plain.append(self._cost(partial(self._plain_merge, path)))
        return _best(ours), _best(plain)

    def check(self) -> None:
        """Both tables hold the same."""
        sums = [
            self._spark.sql(
                f"SELECT count(*), sum(hash(*)) FROM delta.`{lake.hadoop_uri(self._state.path)}`"
            ).collect()
            for lake in (self.ours, self._plain)
        ]
        assert sums[0] == sums[1], sums

    def step(self) -> None:
        """Merge what was committed."""
        result = self._merger.step()
        assert result.changed

    def _plain_merge(self, path: str) -> None:
        """Default settings; the newest change per key, as every guide to MERGE says."""
        session = self._spark.newSession()
        session.read.parquet(path).createOrReplaceTempView("changes")
        session.sql(
            f"MERGE INTO delta.`{self._plain.hadoop_uri(self._state.path)}` t USING ("
            "SELECT after.*, token AS _token FROM (SELECT *, row_number() OVER (PARTITION BY "
            "after.id ORDER BY token.seq DESC, token.idx DESC) AS n FROM changes) WHERE n = 1) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def _cost(self, work: Callable[[], None]) -> Cost:
        wall, cpu = time.perf_counter(), _cpu(self.jvm) + time.process_time()
        work()
        used = _cpu(self.jvm) + time.process_time() - cpu
        return Cost(time.perf_counter() - wall, used)

    def commit_round(self, updates: int, *, close: bool = False) -> str:
        """Commit a round of random updates; the path of its change file for Spark.

        Args:
            updates: how many.
            close: of keys that follow each other, not of any.
        """
        ids = self._random.permutation(self._rows)[:updates].astype("int64")
        if close:
            ids = np.arange(updates, dtype="int64") + self._rows // 2
        first, number = self._seq + 1, self._log.last_number() + 1
        self._seq += (updates + 999) // 1000
        path = change_file_path(
            SCHEMA.keyspace,
            SCHEMA.table,
            round_number=number,
            shard="-",
            schema=SCHEMA.fingerprint,
            part=0,
        )
        rows = pa.Table.from_arrays(
            [
                pa.array(np.full(updates, UPDATE, dtype="int8")),
                _tokens(updates, first, f"{UUID}:{first}", 0),
                _image(ids, number - 1),
                _image(ids, number),
            ],
            schema=change_schema(COLUMNS),
        )
        with self.ours.open_output(path) as out:
            pq.write_table(rows, out, compression="lz4", row_group_size=65_536)
        size = self.ours.size(path)
        self._log.append(_round(number, first, self._seq, path, updates, size))
        return self.ours.hadoop_uri(path)


def _create(lake: Lake, rows: int) -> None:
    path = f"{SCHEMA.keyspace}/{SCHEMA.table}"
    create_mirrored_table(lake, path, COLUMNS, key=SCHEMA.key, name=SCHEMA.name, now=1)
    schema = mirrored_schema(COLUMNS, table=SCHEMA.name)
    actions: list[AddAction | RemoveAction] = []
    for part in range(FILES):
        ids = np.arange(part * rows // FILES, (part + 1) * rows // FILES, dtype="int64")
        image = _image(ids, 0)
        table = pa.Table.from_arrays(
            [*image.flatten(), _tokens(len(ids), 1, None, FLOOR_IDX + part)], schema=schema
        )
        name = f"part-{part}.parquet"
        with lake.open_output(f"{path}/{name}") as out:
            pq.write_table(table, out, compression="zstd", row_group_size=131_072)
        stats = {
            "numRecords": len(ids),
            "minValues": {"id": int(ids[0])},
            "maxValues": {"id": int(ids[-1])},
            "nullCount": {"id": 0},
        }
        size = lake.size(f"{path}/{name}")
        actions.append(AddAction(name, size, {}, 1, True, json.dumps(stats)))
    DeltaTable(lake.delta_uri(path)).create_write_transaction(actions, "append", schema)


def _image(ids: Any, version: int) -> pa.StructArray:
    count = len(ids)
    times = np.full(count, MOMENT + version, dtype="int64")
    arrays = [
        pa.array(ids),
        pa.array([f"customer {i} of version {version}" for i in ids]),
        pa.array(["code1234"] * count),
        pa.array((ids % 1000 + version).astype("int32")),
        pa.array(times).cast(pa.timestamp("us", tz="UTC")),
        pa.array(ids % 100_000).cast(pa.decimal128(21, 2)).cast(pa.decimal128(18, 2)),
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(COLUMNS))


def _tokens(count: int, first: int, gtid: str | None, idx: int) -> pa.StructArray:
    place = np.arange(count)
    per = 1000 if gtid else max(count, 1)
    arrays = [
        pa.array(np.full(count, MOMENT)).cast(pa.timestamp("us", tz="UTC")),
        pa.array([SHARD] * count),
        pa.array([gtid] * count, pa.string()),
        pa.array(np.zeros(count, dtype="int64")),
        pa.array((place // per + first).astype("int64")),
        pa.array((place % per if gtid else np.full(count, idx)).astype("int64")),
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(TOKEN_TYPE))


def _position(last: int) -> Position:
    return Position(executed=GtidSet("mysql", {UUID: ((1, last),)}))


def _round(  # noqa: PLR0917 - one call
    number: int, first: int, last: int, path: str, rows: int, size: int
) -> Round:
    file = ChangeFile(
        keyspace=SCHEMA.keyspace,
        table=SCHEMA.table,
        shard=SHARD,
        schema=SCHEMA.fingerprint,
        path=path,
        rows=rows,
        bytes=size,
        min_seq=first,
        max_seq=last,
        inserts=0,
        updates=rows,
        deletes=0,
        misfits={},
    )
    piece = ShardSlice(
        shard=SHARD,
        generation=0,
        start=_position(first - 1),
        end=_position(last),
        runs=(Run(UUID, first, last, first),),
        transactions=last - first + 1,
        rows=rows,
        bytes=size,
        min_ts=MOMENT,
        max_ts=MOMENT,
        observed_at=MOMENT,
        caught_up=True,
    )
    return Round(number=number, committed_at=MOMENT, slices=(piece,), files=(file,), events=())


def _best(costs: list[Cost]) -> Cost:
    return Cost(min(c.wall for c in costs), min(c.cpu for c in costs))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _high_water(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def bench_session() -> SparkSession:
    """Spark with the settings that anybody would have."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


if __name__ == "__main__":
    raise SystemExit(main())
