"""A table's rounds as values: files, events and shapes of two shards, and what they come to."""

from __future__ import annotations

from dataclasses import replace

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, Round, ShardSlice, TableEvent
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.gather import (
    TableBacklog,
    gather,
)
from ratchet.store.dumpstates import DumpState
from ratchet.store.tables import TableState

UUID, OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "3e11fa47-71ca-11e1-9e33-c80aa9429563"

A, B = "shop/-80", "shop/80-"

SCHEMA = TableSchema(
    keyspace="shop",
    table="t",
    columns=(
        Column(name="id", type=ColumnType(name="bigint"), nullable=False),
        Column(name="v", type=ColumnType(name="varchar", length=40, charset="utf8mb4")),
    ),
    key=("id",),
)

WIDER = replace(
    SCHEMA,
    columns=(SCHEMA.columns[0], replace(SCHEMA.columns[1], type=ColumnType(name="longtext"))),
)

MORE = replace(SCHEMA, columns=(*SCHEMA.columns, Column(name="n", type=ColumnType(name="int"))))

KNOWN = {schema.fingerprint: schema for schema in (SCHEMA, WIDER, MORE)}


def position(last: int) -> Position:
    return Position(executed=GtidSet("mysql", {UUID: ((1, last),)}))


STATE = TableState(
    keyspace="shop",
    table="t",
    schema=SCHEMA,
    key=("id",),
    phase="streaming",
    dump=DumpState(id="d", start_round=1, start={A: position(10), B: position(10)}),
    generated=False,
)


def file(shard: str, low: int, high: int, schema: TableSchema = SCHEMA, **more: int) -> ChangeFile:
    return ChangeFile(
        keyspace="shop",
        table="t",
        shard=shard,
        schema=schema.fingerprint,
        path=f"{shard}/{low}",
        rows=1,
        bytes=more.get("size", 100),
        min_seq=low,
        max_seq=high,
        inserts=1,
        updates=more.get("updates", 0),
        deletes=0,
        misfits={},
    )


def event(shard: str, seq: int, statement: str, *, truncate: bool = False) -> TableEvent:
    return TableEvent(
        keyspace="shop",
        table="t",
        shard=shard,
        kind="truncate" if truncate else "ddl",
        statement=statement,
        gtid=f"{UUID}:{seq}",
        seq=seq,
        ts=seq * 1000,
    )


def make_round(number: int, *items: ChangeFile | TableEvent, generation: int = 0) -> Round:
    piece = ShardSlice(
        shard=A,
        generation=generation,
        start=position(10),
        end=position(99),
        runs=(),
        transactions=1,
        rows=1,
        bytes=1,
        min_ts=None,
        max_ts=None,
        observed_at=1,
        caught_up=True,
    )
    return Round(
        number=number,
        committed_at=1,
        slices=(piece, replace(piece, shard=B)),
        files=tuple(i for i in items if isinstance(i, ChangeFile)),
        events=tuple(i for i in items if isinstance(i, TableEvent)),
    )


def gathered(*rounds: Round, state: TableState = STATE) -> TableBacklog:
    return gather(state, rounds, KNOWN.__getitem__, InvalidValuePolicy())


def shapes(*more: TableSchema) -> dict[str, TableSchema]:
    """As read from the lake: equal, and other objects."""
    return {schema.fingerprint: replace(schema) for schema in (*KNOWN.values(), *more)}
