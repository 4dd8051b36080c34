"""A table of orders and its change log without a server, for benchmarks of the merge."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from ratchet.core.change import DELETE, FLOOR_IDX, INSERT, TOKEN_TYPE, UPDATE, change_schema
from ratchet.core.dumps import app_id
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, GtidRange, Round, ShardSlice
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.store.delta.tables import create_mirrored_table, mirrored_schema
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.layout import change_file_path
from ratchet.store.rounds import RoundLog
from ratchet.store.schemas import put_schema
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: Final = cast("SparkSession", None)  # of merges and upkeep that need none
UUID: Final = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SHARD: Final = "bench/-"
DUMP: Final = "d"
FILES: Final = 16  # at least
_APART: Final = 1_000_000_000
_FILE_ROWS: Final = 625_000  # at most
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
COLUMNS: Final = arrow_schema(SCHEMA, InvalidValuePolicy())
MOMENT: Final = 1_700_000_000_000_000


Ints = npt.NDArray[np.int64]
NONE: Final[Ints] = np.empty(0, np.int64)


class Orders:
    """A mirrored table of N rows in a lake, and what is written to it.

    Args:
        lake: a lake without it.
        rows: how many; their keys are 0 to rows - 1.
        number: which of several tables; its changes have sequence numbers of their own.
    """

    def __init__(self, lake: Lake, rows: int, number: int = 0) -> None:
        self.lake = lake
        self.log = RoundLog(lake)
        self._seq = 100 + number * _APART
        self._schema = replace(SCHEMA, table=f"{SCHEMA.table}{number or ''}")
        create(lake, rows, self._schema)
        self.state = Tables(lake).save(
            TableState(
                keyspace=self._schema.keyspace,
                table=self._schema.table,
                schema=self._schema,
                key=self._schema.key,
                phase="streaming",
                dump=DumpState(
                    id=_dump_of(self._schema),
                    start_round=1,
                    start={SHARD: _position(self._seq)},
                    done=True,
                ),
            )
        )
        put_schema(lake, self._schema)

    def commit(
        self, *, updates: Ints, inserts: Ints = NONE, deletes: Ints = NONE, at: int = MOMENT
    ) -> str:
        """Commit a round of changes of the keys; the path of its change file for Spark.

        Args:
            updates: keys of rows that are there.
            inserts: keys that are new.
            deletes: keys of rows that are there.
            at: when it was committed, microseconds UTC.
        """
        ids = np.concatenate([updates, inserts, deletes])
        kinds = ((UPDATE, updates), (INSERT, inserts), (DELETE, deletes))
        ops = np.concatenate([np.full(len(keys), op, "int8") for op, keys in kinds])
        first, number = self._seq + 1, self.log.last_number() + 1
        self._seq += (len(ids) + 999) // 1000
        path = change_file_path(
            self._schema.keyspace,
            self._schema.table,
            round_number=number,
            shard="-",
            schema=self._schema.fingerprint,
            part=0,
        )
        before, after = image(ids, number - 1), image(ids, number)
        rows = pa.Table.from_arrays(
            [
                pa.array(ops),
                _tokens(len(ids), first, f"{UUID}:{first}", 0),
                _null_where(before, ops == INSERT),
                _null_where(after, ops == DELETE),
            ],
            schema=change_schema(COLUMNS),
        )
        with self.lake.open_output(path) as out:
            pq.write_table(
                rows, out, compression="zstd", compression_level=1, row_group_size=65_536
            )
        file = ChangeFile(
            keyspace=self._schema.keyspace,
            table=self._schema.table,
            shard=SHARD,
            schema=self._schema.fingerprint,
            path=path,
            rows=len(ids),
            bytes=self.lake.size(path),
            min_seq=first,
            max_seq=self._seq,
            inserts=len(inserts),
            updates=len(updates),
            deletes=len(deletes),
            misfits={},
        )
        self.log.append(_round(number, first, self._seq, file, at))
        return self.lake.hadoop_uri(path)


def create(lake: Lake, rows: int, table: TableSchema = SCHEMA) -> None:
    """A table of so many rows, as a dump leaves it."""
    path = f"{table.keyspace}/{table.table}"
    create_mirrored_table(lake, path, COLUMNS, key=table.key, name=table.name, now=1)
    schema = mirrored_schema(COLUMNS, table=table.name)
    actions: list[AddAction | RemoveAction] = []
    files = max(FILES, rows // _FILE_ROWS)
    for part in range(files):
        ids = np.arange(part * rows // files, (part + 1) * rows // files, dtype="int64")
        rows_of = image(ids, 0)
        part_rows = pa.Table.from_arrays(
            [*rows_of.flatten(), _tokens(len(ids), 1, None, FLOOR_IDX + part)], schema=schema
        )
        name = f"part-{part}.parquet"
        with lake.open_output(f"{path}/{name}") as out:
            pq.write_table(part_rows, out, compression="zstd", row_group_size=131_072)
        stats = {
            "numRecords": len(ids),
            "minValues": {"id": int(ids[0])},
            "maxValues": {"id": int(ids[-1])},
            "nullCount": {"id": 0},
        }
        size = lake.size(f"{path}/{name}")
        actions.append(AddAction(name, size, {}, 1, True, json.dumps(stats)))
    DeltaTable(lake.delta_uri(path), storage_options=lake.storage_options).create_write_transaction(
        actions,
        "append",
        schema,
        commit_properties=CommitProperties(
            app_transactions=[Transaction(app_id(_dump_of(table)), 1)]
        ),
    )


def _dump_of(table: TableSchema) -> str:
    return f"{DUMP}-{table.table}"


def image(ids: Ints, version: int) -> pa.StructArray:
    """The rows of some keys, as a version has them."""
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


def _round(number: int, first: int, last: int, file: ChangeFile, at: int) -> Round:
    piece = ShardSlice(
        shard=SHARD,
        generation=0,
        start=_position(first - 1),
        end=_position(last),
        runs=(GtidRange(UUID, first, last, first),),
        transactions=last - first + 1,
        rows=file.rows,
        bytes=file.bytes,
        min_ts=MOMENT,
        max_ts=MOMENT,
        observed_at=at,
        caught_up=True,
    )
    return Round(number=number, committed_at=at, slices=(piece,), files=(file,), events=())


def _null_where(rows: pa.StructArray, missing: npt.NDArray[np.bool_]) -> pa.StructArray:
    return pa.StructArray.from_arrays(
        rows.flatten(), fields=list(rows.type), mask=pa.array(missing)
    )
