"""What is compared and picked in this process is what Spark compares and picks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ratchet.snapshot.keychanges
from ratchet.snapshot.compare import Mismatches, many_mismatches
from ratchet.snapshot.keychanges import Changes, changes_of_keys
from ratchet.snapshot.localjoin import few_mismatches
from ratchet.snapshot.pairs import Pair
from ratchet.snapshot.prints import PRINT, SHARD, ShardOrigins
from ratchet.store.segments import part_of
from tests.merge_kit import Source

KEY_TYPES = {
    "n": (pa.int64(), lambda rng: rng.randrange(6)),
    "text": (pa.string(), lambda rng: rng.choice(["a", "A", "a ", "", "é", "e\u0301"])),
    "bytes": (pa.binary(), lambda rng: rng.choice([b"", b"a", b"a\0", b"\xff"])),
    "decimal": (pa.decimal128(20, 2), lambda rng: Decimal(rng.randrange(4)) / 4),
    "time": (
        pa.timestamp("us", "UTC"),
        lambda rng: datetime(2026, 1, 1, 0, 0, rng.randrange(4), rng.randrange(2), UTC),
    ),
}


def pairs_of(found: Mismatches) -> tuple[int, list[Pair]]:
    """All of them, in an order of their own."""
    with found as odd:
        pairs = [pair for group in odd.groups(1000) for pair in group]
        return odd.count, sorted(pairs, key=repr)


@pytest.mark.parametrize("kinds", [("n",), ("text",), ("bytes",), ("decimal", "n"), ("time",)])
@pytest.mark.parametrize("counts", [(25, 25), (3, 0), (0, 3)])
@pytest.mark.parametrize("shard_in_key", [False, True])
@pytest.mark.parametrize(
    "homes", [ShardOrigins(None), ShardOrigins({"a": ["a"], "b": ["b", "a"]})], ids=["any", "homes"]
)
def test_the_same_rows_differ(
    spark: SparkSession,
    kinds: Sequence[str],
    homes: ShardOrigins,
    counts: tuple[int, int],
    *,
    shard_in_key: bool,
) -> None:
    """Doubled keys, rows without a shard, rows of one side only, other prints, wrong names."""
    rng = random.Random(repr((counts, kinds, shard_in_key, homes.names)))
    key = [f"key {kind}" for kind in kinds]
    types = [(name, KEY_TYPES[kind][0]) for name, kind in zip(key, kinds, strict=True)]

    def row(*more: Any) -> dict[str, Any]:
        values = [KEY_TYPES[kind][1](rng) for kind in kinds]
        return dict(zip([*key, SHARD, PRINT, "v"], [*values, *more], strict=True))

    ours = [
        row(rng.choice(["a", "b", None]), rng.randrange(2), rng.random()) for _ in range(counts[0])
    ]
    theirs = {}
    for _ in range(counts[1]):
        one = row(rng.choice("ab"), rng.randrange(2), None)
        theirs[tuple(one[name] for name in key), one[SHARD] if shard_in_key else ""] = one
    rest = [(SHARD, pa.string()), (PRINT, pa.int64())]
    mirror = pa.Table.from_pylist(ours, pa.schema([*types, *rest, ("v", pa.float64())]))
    source = pa.Table.from_pylist(list(theirs.values()), pa.schema([*types, *rest]))
    options: dict[str, Any] = {
        "key": key, "columns": [*key, "v"], "shard_in_key": shard_in_key, "homes": homes,
    }  # fmt: skip
    many = many_mismatches(spark.createDataFrame(mirror), spark.createDataFrame(source), **options)
    here = pairs_of(few_mismatches(mirror, source, **options))
    assert here == pairs_of(many)
    assert here[0]


@pytest.mark.parametrize("in_segments", [0, 0.5, 1])
def test_the_same_changes_are_picked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_segments: float
) -> None:
    rng = random.Random(5)
    source = Source(tmp_path)
    source.in_segments = in_segments
    rows: set[int] = set()
    for _ in range(6):
        for _ in range(20):
            key = rng.randrange(30)
            if key in rows and rng.random() < 0.4:
                rows.discard(key)
                source.tx("-", ("del", key))
            elif key in rows and (other := rng.randrange(30)) not in rows:
                rows = (rows - {key}) | {other}
                source.tx("-", ("move", key, {"id": other, "v": "moved"}))
            else:
                rows.add(key)
                source.tx("-", ("put", {"id": key, "v": f"{rng.random()}"}))
        source.round()
    files = [file for one in source.rounds.since(0) for file in one.files]
    parts = [file for file in files if part_of(file.path)]
    assert len(parts) == {0: 0, 1: len(files)}.get(in_segments, len(parts))
    changes = Changes(root=source.lake, files=files, reached={})

    def found(*keys: int) -> list[str]:
        wanted = [{"id": key} for key in keys]
        return sorted({repr(one) for one in changes_of_keys(spark, changes, wanted, ["id"])})

    here = [found(*keys) for keys in ((1,), (2, 7, 11), range(30), (99,))]
    monkeypatch.setattr(ratchet.snapshot.keychanges, "IN_PROCESS", 0)
    assert [found(*keys) for keys in ((1,), (2, 7, 11), range(30), (99,))] == here
    assert all(here[:3])
    assert not here[3]
