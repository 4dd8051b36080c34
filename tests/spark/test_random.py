"""Random histories: what Spark merges is what the reference says, batch by batch.

One table holds hundreds of small independent worlds side by side (the first part of the key is the
world's number), so that a few merges try all of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ratchet.core.schema import Column, ColumnType, TableSchema
from tests.merge_kit import DIRECT, Source, assert_side_stats, dump_beside_changes, merger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLDS = 300
KEYS = 3
BIGINT = ColumnType(name="bigint")
SCHEMA = TableSchema(
    keyspace="shop",
    table="t",
    columns=(
        Column(name="w", type=BIGINT, nullable=False),
        Column(name="id", type=BIGINT, nullable=False),
        Column(name="v", type=ColumnType(name="varchar", length=40, charset="utf8mb4")),
    ),
    key=("w", "id"),
)


@pytest.fixture(autouse=True, params=["direct", "spark"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything twice: small batches merged in this process, and all of them by Spark."""
    token = DIRECT.set(request.param == "direct")
    yield
    DIRECT.reset(token)


def transaction(source: Source, shard: str, rng: random.Random, number: int) -> None:
    """Some changes in some worlds; the commit time may run against the log."""
    rows = source.logs[f"shop/{shard}"].rows
    ops: list[tuple[Any, ...]] = []
    for world in rng.sample(range(WORLDS), 60):
        have = [k for k in range(KEYS) if (world, k) in rows]
        lack = [k for k in range(KEYS) if (world, k) not in rows]
        choice = rng.random()
        if lack and choice < 0.4:
            ops.append(("put", row(world, rng.choice(lack), shard, number)))
        elif have and choice < 0.7:
            ops.append(("put", row(world, rng.choice(have), shard, number)))
        elif have and lack and choice < 0.85:
            new = row(world, rng.choice(lack), shard, number)
            ops.append(("move", (world, rng.choice(have)), new))
        elif have:
            ops.append(("del", (world, rng.choice(have))))
    skew = rng.choice((0, 0, -5_000_000, 5_000_000))
    source.tx(shard, *ops, ts=source.clock + skew)


def of_part(part: int, found: dict[str, Any]) -> bool:
    return bool(found["w"] % 2 == part)


def row(world: int, key: int, shard: str, number: int) -> dict[str, Any]:
    return {"w": world, "id": key, "v": f"{shard} {number}"}


@pytest.mark.parametrize(
    ("seed", "shards", "shard_in_key"),
    [
        (1, ("-",), False),
        pytest.param(2, ("-80", "80-"), False, marks=pytest.mark.long),
        pytest.param(3, ("-40", "40-80", "80-"), False, marks=pytest.mark.long),
        pytest.param(4, ("-80", "80-"), True, marks=pytest.mark.long),
    ],
)
def test_random_histories(
    spark: SparkSession, tmp_path: Path, seed: int, shards: tuple[str, ...], *, shard_in_key: bool
) -> None:
    """Dump in chunks between transactions, rounds of some shards, replays, truncations."""
    rng = random.Random(seed)
    source = Source(tmp_path, schema=SCHEMA, shards=shards, shard_in_key=shard_in_key)

    def write(count: int) -> None:
        for _ in range(count):
            transaction(source, rng.choice(shards), rng, source.clock)

    write(8)
    dump_beside_changes(source, rng, write, [partial(of_part, part) for part in range(2)])
    with merger(spark, source) as merge:
        merge.step()
        source.assert_mirrored()
        for number in range(4):
            write(6)
            if number == 2:
                source.event(shards[0], "TRUNCATE TABLE t", truncate=True)
                write(3)
            if number == 3:
                source.deliver_again(shards[-1], rng.randrange(50), 400)
            source.round(*rng.sample(shards, rng.randint(1, len(shards))))
            merge.step()
            source.assert_mirrored()
            assert_side_stats(spark, source)
