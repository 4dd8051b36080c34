"""The real merge and the reference do the same, step by step, whatever happens.

Every table here is small, every history random with a fixed seed. After each step the mirrored
table must be what `tests.model.reference` computes from the same batches: rows, shards and ranks.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import Column, ColumnType, TableSchema
from tests.merge_kit import Rank, Source, merger
from tests.model import reference
from tests.model.reference import Mirror, Place, Register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TWO = ("-80", "80-")

moment = datetime.datetime.fromisoformat

# Keys that are easily taken for one another: by a collation, by a float, by a trimming client.
ODD_KEYS: Sequence[tuple[Any, ...]] = (
    (Decimal(2**64 - 1), "a", b"\x00", moment("0001-01-01")),
    (Decimal(2**64 - 1), "A", b"\x00", moment("0001-01-01")),
    (Decimal(2**64 - 2), "a", b"\x00", moment("0001-01-01")),
    (Decimal(2**53 + 1), "a", b"\x00", moment("0001-01-01")),
    (Decimal(2**53), "a ", b"\x00", moment("0001-01-01")),
    (Decimal(2**53), "a", b"\x00\x00", moment("0001-01-01")),
    (Decimal(2**53), "a", b"", moment("0001-01-01")),
    (Decimal(2**53), "\u00e4'`\\", b"\xff", moment("2026-03-29T02:30:00.000001")),
    (Decimal(2**53), "a\u0308'`\\", b"\xff", moment("2026-03-29T02:30:00.000001")),
    (Decimal(0), "\U0001f600", b"\xf0", moment("9999-12-31T23:59:59.999999")),
    (Decimal(0), "\U0001f600", b"\xf0", moment("9999-12-31T23:59:59.999998")),
)
ODD = TableSchema(
    keyspace="shop",
    table="t",
    columns=(
        Column(name="token", type=ColumnType(name="bigint", unsigned=True), nullable=False),
        Column(name="shard", type=ColumnType(name="varchar", length=20, charset="utf8mb4")),
        Column(name="k`0", type=ColumnType(name="varbinary", length=20), nullable=False),
        Column(name="Dead", type=ColumnType(name="datetime", fraction=6), nullable=False),
        Column(name="v", type=ColumnType(name="varchar", length=40, charset="utf8mb4")),
    ),
    key=("token", "shard", "k`0", "Dead"),
)


class Watched(Source):
    """A source that runs the reference beside the merge, a batch for each step."""

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root, **options)
        self.contested = len(self.names) > 1 and not self.shard_in_key
        self.model = Mirror()
        self.waiting: list[reference.Batch] = []
        self._read: dict[Place, Register] | None = None

    def chunk(self, shard: str, **options: Any) -> None:
        """As it is, into the reference too."""
        self._read = {}
        super().chunk(shard, **options)
        self.model = replace(self.model, main={**self.model.main, **self._read})
        self._read = None

    def _say(self, place: Place, register: Register) -> None:
        if self._read is not None:
            self._read[place] = register
        super()._say(place, register)

    def _captured(self, name: str) -> None:
        log = self.logs[name]
        marks = {} if log.mark is None else {name: log.mark}
        # Backwards: an update in place says "gone" first and "here" then, with one rank.
        self.waiting.append(reference.reduced(reversed(log.said), marks))
        super()._captured(name)

    def catch_up(self, floors: dict[tuple[str, int], int] | None = None) -> None:
        """The reference's catch-up with what is waiting."""
        found = {(c.shard, c.number): c.floor.seq for c in self.dumped} | (floors or {})
        batch = self._batch()
        noted = reference.side_commit(self.model, batch, contested=False)
        raw = reference.catch_up_main(noted, batch, found)
        self.model = reference.merge(raw, reference.Batch(), contested=self.contested)

    def merged(self) -> None:
        """The reference's step with what is waiting."""
        self.model = reference.merge(self.model, self._batch(), contested=self.contested)

    def _batch(self) -> reference.Batch:
        parts, self.waiting = self.waiting, []
        return reference.Batch(
            reference.join(*(part.registers for part in parts)),
            reference.join_marks(*(part.marks for part in parts)),
        )

    def expected(self) -> dict[Place, tuple[Rank, Any]]:
        return {place: (row.rank, row.row) for place, row in self.model.main.items()}


def plain(number: int, value: str) -> dict[str, Any]:
    return {"id": number, "v": value}


def odd(number: int, value: str) -> dict[str, Any]:
    return {**dict(zip(ODD.key, ODD_KEYS[number], strict=True)), "v": value}


def write(source: Watched, chance: random.Random, shard: str) -> None:
    """A random transaction on a shard: up to four changes that its rows allow."""
    rows = dict(source.logs[source._name(shard)].rows)
    ops: list[tuple[Any, ...]] = []
    for _ in range(chance.randint(1, 4)):
        value = f"{shard} {source.clock} {len(ops)} \u00e9"
        new = odd(chance.randrange(len(ODD_KEYS)), value)
        held = chance.choice(sorted(rows, key=repr)) if rows else None
        kind = chance.choice(["put", "put", "del", "move"])
        if held is None or kind == "put":
            ops.append(("put", new))
            rows[source.key(new)] = new
        elif kind == "del":
            ops.append(("del", held))
            del rows[held]
        elif source.key(new) not in rows:
            ops.append(("move", held, new))
            del rows[held]
            rows[source.key(new)] = new
    times = [None, source.clock - 5_000_000, source.clock]
    source.tx(shard, *ops, ts=chance.choice(times))


def dump(source: Watched, chance: random.Random) -> None:
    """Two chunks per shard with writes before, between and behind them; floors that lag."""
    source.dump_begin()
    halves = [set(ODD_KEYS[half::2]) for half in (0, 1)]
    for half in halves:
        for shard in source.names:
            floor = source.position(shard)
            for _ in range(chance.randint(0, 2)):
                write(source, chance, shard)
            source.chunk(shard, floor=floor, only=lambda r, h=half: source.key(r) in h)
    for shard in source.names:
        write(source, chance, shard)
    source.dump_end()


@pytest.mark.parametrize(
    "shards",
    [
        pytest.param(("-",), id="one shard"),
        pytest.param(TWO, id="two shards", marks=pytest.mark.long),
    ],
)
def test_a_random_history_under_odd_keys(
    spark: SparkSession, tmp_path: Path, shards: tuple[str, ...]
) -> None:
    """Dump, catch-up, rounds of one or all shards, several rounds in a step, a truncation."""
    chance = random.Random(len(shards))
    source = Watched(tmp_path, schema=ODD, shards=shards)
    for shard in shards:
        source.tx(shard, *(("put", odd(n, "base")) for n in range(0, len(ODD_KEYS), 2)))
    source.round()
    source.waiting.clear()  # the dump shows it
    dump(source, chance)
    source.round()
    with merger(spark, source) as merge:
        merge.step()
        source.catch_up()
        source.assert_mirrored()
        for step in range(3):
            for _ in range(2):
                part = chance.sample(shards, chance.randint(1, len(shards)))
                for shard in part:
                    for _ in range(chance.randint(1, 3)):
                        write(source, chance, shard)
                source.round(*part)
            if step == 1:
                source.event(shards[0], "TRUNCATE TABLE t", truncate=True)
                write(source, chance, shards[0])
            source.round()
            merge.step()
            source.merged()
            source.assert_mirrored()


def streaming(spark: SparkSession, source: Watched, *rows: tuple[str, int, str]) -> None:
    """Dump those rows (shard, id, value) and catch up."""
    for shard, key, value in rows:
        source.tx(shard, ("put", plain(key, value)))
    source.round()
    source.waiting.clear()
    source.dump_all()
    source.tx(source.names[0], ("put", plain(1000, "x")), ("del", 1000))
    source.round()
    with merger(spark, source) as merge:
        merge.step()
    source.catch_up()
    source.assert_mirrored()


def test_a_floor_counts_by_what_it_contains(spark: SparkSession, tmp_path: Path) -> None:
    """The dump's server had run :15 before :14; by its number the floor would cover :14."""
    source = Watched(tmp_path)
    source.tx("-", *(("put", plain(n, "base")) for n in (1, 2)))
    source.round()
    source.waiting.clear()
    source.dump_begin()
    at = source.logs["shop/-"].seq
    uuid = source.logs["shop/-"].uuid
    floor = Position(executed=GtidSet("mysql", {uuid: ((1, at), (at + 2, at + 2))}))
    source.chunk("-", floor=floor, only=lambda row: row["id"] == 1)
    source.tx("-", ("put", plain(1, "lost by counting")))
    source.tx("-", ("put", plain(2, "x")))
    source.chunk("-", only=lambda row: row["id"] == 2)
    source.dump_end()
    source.round()
    with merger(spark, source) as merge:
        merge.step()
    source.catch_up({("shop/-", 0): at})
    source.assert_mirrored()
    assert dict(source.mirror()[1, "shop/-"][1])["v"] == "lost by counting"


def test_a_hidden_row_far_from_the_batch_stays_hidden(spark: SparkSession, tmp_path: Path) -> None:
    """With an old TRUNCATE all shadows are looked at, but the table by the batch's keys only."""
    source = Watched(tmp_path, shards=TWO)
    streaming(spark, source, ("-80", 1, "a"))
    source.event("-80", "TRUNCATE TABLE t", truncate=True)
    source.round()
    for shard in TWO:
        source.tx(shard, ("put", plain(1, shard)))
    source.round()
    with merger(spark, source) as merge:
        merge.step()
        source.merged()
        source.assert_mirrored()
        source.tx("-80", ("put", plain(500, "far away")))
        source.round()
        merge.step()
    source.merged()
    source.assert_mirrored()


@pytest.mark.quick_on("with changes")
@pytest.mark.parametrize("quiet", [False, True], ids=["with changes", "without changes"])
def test_a_kill_behind_the_catch_up(spark: SparkSession, tmp_path: Path, *, quiet: bool) -> None:
    """Merged again with more rounds: the shown row is deleted there, the hidden one comes up."""
    source = Watched(tmp_path, shards=TWO)
    for shard in TWO:
        source.tx(shard, ("put", plain(1, shard)), ("put", plain(2, shard)))
    source.round()
    source.waiting.clear()
    source.dump_begin()
    source.chunk("-80")
    if not quiet:
        source.tx("80-", ("put", plain(3, "x")))
    source.chunk("80-")
    source.dump_end()
    caught = source.state
    source.round()
    with merger(spark, source) as merge:
        merge.step()
    source.catch_up()
    source.assert_mirrored()
    for key, shard in sorted(source.mirror(), key=str):
        if key != 3:
            source.tx(shard, ("del", key))
    source.round()
    source.tables.save(caught)
    with merger(spark, source) as merge:
        while merge.step().worked:
            pass
    source.merged()
    source.assert_mirrored()
    assert {key for key, _ in source.mirror()} >= {1, 2}
