"""Errors, positions, schemas and round records survive their round trips."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

from ratchet.core.errors import LakeError, PositionLostError, RatchetError
from ratchet.core.gtid import Gtid, GtidSet
from ratchet.core.position import LastTransaction, Position
from ratchet.core.rounds import ChangeFile, GtidRange, Round, ShardSlice, TableEvent
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.shard import ShardId

POSITION = Position(
    executed=GtidSet.parse("mariadb", "0-1-100"), server="1@h:3306", file="bin.000001", offset=4
)


def test_error_keeps_its_parts_across_processes() -> None:
    """Errors cross from Spark's workers to the driver with every part."""
    error = PositionLostError(
        "purged", operation="open", source="shop/-80", position="0-1-5", hint="dump again"
    )
    back = pickle.loads(pickle.dumps(error))
    assert back.fields() == error.fields()
    assert back.exit_code == 5
    assert "shop/-80" in str(back)


def test_exit_codes_are_distinct_by_class() -> None:
    """Scripts branch on the exit code, so no two leaf classes share one."""
    leaves = []
    stack = [RatchetError]
    while stack:
        cls = stack.pop()
        stack.extend(cls.__subclasses__())
        if cls.__module__ == "ratchet.core.errors" and "exit_code" in vars(cls):
            leaves.append(cls.exit_code)
    assert len(leaves) == len(set(leaves))
    assert LakeError.exit_code == 7


def test_position_round_trip() -> None:
    """A position reads back from JSON as itself, also one that was written before it had `last`."""
    last = LastTransaction(
        gtid=Gtid("0", 100, 1), committed=5_000_000, file="bin.000001", offset=77
    )
    for one in (POSITION, replace(POSITION, last=last)):
        assert Position.from_json(json.loads(json.dumps(one.to_json()))) == one
    old = {key: value for key, value in POSITION.to_json().items() if key != "last"}
    assert Position.from_json(old) == POSITION


def test_run_finds_its_transactions() -> None:
    """A run answers for exactly its own numbers."""
    run = GtidRange("0", 5, 9, 105)
    assert run.seq_of(Gtid("0", 7)) == 107
    assert run.seq_of(Gtid("0", 10)) is None
    assert run.seq_of(Gtid("1", 7)) is None


def test_round_round_trip() -> None:
    """The stored record of a round reads back as itself."""
    piece = ShardSlice(
        shard="shop/-",
        generation=0,
        start=POSITION,
        end=POSITION,
        runs=(GtidRange("0", 1, 100, 1),),
        transactions=100,
        rows=2,
        bytes=3,
        min_ts=1,
        max_ts=2,
        observed_at=3,
        caught_up=True,
    )
    file = ChangeFile(
        keyspace="shop",
        table="t",
        shard="shop/-",
        schema="0" * 16,
        path="p",
        rows=1,
        bytes=2,
        min_seq=3,
        max_seq=4,
        inserts=1,
        updates=0,
        deletes=0,
        misfits={"d": 1},
    )
    event = TableEvent(
        keyspace="shop",
        table="t",
        shard="shop/-",
        kind="ddl",
        statement="alter table t",
        gtid="0-1-7",
        seq=7,
        ts=1,
    )
    value = Round(number=1, committed_at=9, slices=(piece,), files=(file,), events=(event,))
    assert Round.from_json(json.loads(json.dumps(value.to_json()))) == value
    held = replace(value, slices=(replace(piece, held_ts=4),))
    assert Round.from_json(json.loads(json.dumps(held.to_json()))) == held
    assert "held_ts" not in value.to_json()["slices"][0]  # rounds of older versions are read alike


def test_schema_round_trip_and_fingerprint() -> None:
    """A schema reads back as itself, and any change of it shows in the fingerprint."""
    schema = TableSchema(
        keyspace="shop",
        table="t",
        columns=(
            Column(name="id", type=ColumnType(name="bigint", unsigned=True), nullable=False),
            Column(name="e", type=ColumnType(name="enum", charset="utf8mb4", members=("a", "b"))),
        ),
        key=("id",),
    )
    back = TableSchema.from_json(json.loads(json.dumps(schema.to_json())))
    assert back == schema
    assert back.fingerprint == schema.fingerprint
    longer = TableSchema(keyspace="shop", table="t", columns=schema.columns[:1], key=("id",))
    assert longer.fingerprint != schema.fingerprint


def test_shard_id_text() -> None:
    """Keyspace and shard travel together in one text."""
    assert ShardId.parse(str(ShardId("shop", "-80"))) == ShardId("shop", "-80")
