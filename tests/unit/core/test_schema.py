"""What a table's shape is written as, and the id that it has in file names."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import asdict, replace

from ratchet.core.schema import Column, ColumnType, TableSchema

SCHEMA = TableSchema(
    keyspace="shop",
    table="ö",
    columns=(
        Column(name="id", type=ColumnType(name="int", unsigned=True), nullable=False),
        Column(name="e", type=ColumnType(name="enum", charset="utf8mb4", members=("a", "'b"))),
        Column(name="d", type=ColumnType(name="decimal", precision=9, scale=2)),
        Column(name="t", type=ColumnType(name="datetime", fraction=3, legacy=True)),
        Column(name="v", type=ColumnType(name="varchar", length=9, charset="latin1")),
    ),
    key=("id",),
)


def test_what_is_written_is_read() -> None:
    assert TableSchema.from_json(json.loads(json.dumps(SCHEMA.to_json()))) == SCHEMA


def test_the_fields_are_all_there() -> None:
    """As earlier versions wrote them: a fingerprint is in the lakes' file names."""
    plain = asdict(SCHEMA)
    del plain["_fingerprint"]
    text = json.dumps(plain, sort_keys=True)
    assert json.dumps(SCHEMA.to_json(), sort_keys=True) == text
    assert SCHEMA.fingerprint == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_each_shape_has_its_own() -> None:
    first = SCHEMA.fingerprint
    other = replace(SCHEMA, key=())
    assert other.fingerprint != first
    assert replace(other, key=("id",)).fingerprint == first
    assert replace(SCHEMA) == SCHEMA
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA
