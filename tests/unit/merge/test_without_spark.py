"""Whole histories without a Spark: dumps in chunks, catch-ups, truncations, large rows.

What falls back to Spark fails here, as there is none.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ratchet.merge.direct
import ratchet.merge.lookup
from ratchet.core.change import FLOOR_IDX
from ratchet.merge.newest import NeedsSpark, before_marks, settled
from ratchet.store.delta.log import replay
from tests.merge_kit import Source, dump_beside_changes, merger
from tests.unit.merge.test_directly import of_ours, put, streaming

pytestmark = pytest.mark.slow


def change_some(source: Source, shard: str, rng: random.Random, number: int) -> None:
    rows = source.logs[f"shop/{shard}"].rows
    ops: list[tuple[Any, ...]] = []
    for key in rng.sample(range(40), 6):
        if key not in rows or rng.random() < 0.5:
            ops.append(put(key, f"{shard} {number}"))
        elif rng.random() < 0.5 and key + 40 not in rows:
            ops.append(("move", key, {"id": key + 40, "v": f"{shard} moved {number}"}))
        else:
            ops.append(("del", key))
    source.tx(shard, *ops)


def of_part(part: int, row: dict[str, Any]) -> bool:
    return bool(row["id"] % 3 == part)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("shards", [("-",), ("-80", "80-")])
@pytest.mark.parametrize("seed", range(4))
def test_random_histories(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    shards: tuple[str, ...],
    *,
    large: bool,
) -> None:
    """Several dumps, rounds between their chunks, truncations at any time."""
    if large:
        for bound in ("MOST_HELD", "MOST_ROW_BYTES", "_PIECE_BYTES"):
            monkeypatch.setattr(ratchet.merge.direct, bound, 60)
    rng = random.Random(seed)
    source = Source(tmp_path, shards=shards, shard_in_key=len(shards) > 1)

    def write(count: int) -> None:
        for _ in range(count):
            change_some(source, rng.choice(shards), rng, source.clock)

    write(5)
    dump_beside_changes(source, rng, write, [partial(of_part, part) for part in range(3)])
    with merger(None, source) as merging:
        merging.step()
        source.assert_mirrored()
        for number in range(8):
            write(rng.randrange(4))
            if number % 3 == 1:
                source.event(rng.choice(shards), "TRUNCATE TABLE t", truncate=True)
                write(rng.randrange(3))
            source.round(*rng.sample(shards, rng.randint(1, len(shards))))
            merging.step()
            source.assert_mirrored()


def test_an_empty_table_and_a_truncation_alone(tmp_path: Path) -> None:
    """The mark is kept: what is older and comes again must not come back."""
    source = streaming(tmp_path)
    with merger(None, source) as merging:
        source.event("-", "TRUNCATE TABLE t", truncate=True)
        source.round()
        merging.step()
        source.assert_mirrored()
        source.tx("-", put(1, "a"), put(2, "b"))
        source.round()
        merging.step()
        source.event("-", "TRUNCATE TABLE t", truncate=True)
        source.round()
        merging.step()
        source.assert_mirrored()
    files = replay(source.lake, source.state.path)
    assert files is not None
    assert of_ours(files) == {}, "of a file that is empty nothing is kept"


def test_a_truncation_is_recorded_as_spark_does(tmp_path: Path) -> None:
    source = streaming(tmp_path)
    with merger(None, source) as merging:
        source.tx("-", put(1, "a"))
        source.event("-", "TRUNCATE TABLE t", truncate=True)
        source.tx("-", put(2, "b"))
        source.round()
        merging.step()
    source.assert_mirrored()
    marks = side_marks(source)
    assert [(one["shard"], one["kind"], one["key"], one["row"]) for one in marks] == [
        ("shop/-", 3, None, None)
    ]
    assert marks[0]["token"]["idx"] == 0
    assert marks[0]["token"]["gtid"] is None


def side_marks(source: Source) -> list[dict[str, Any]]:
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(source.lake.delta_uri(source.state.side_path))
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t WHERE kind = 3")
    rows: list[dict[str, Any]] = pa.table(found.read_all()).to_pylist()
    return rows


def test_more_rows_than_may_be_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = streaming(tmp_path)
    with merger(None, source) as merging:
        source.tx("-", put(1, "a"), put(2, "b"))
        source.round()
        merging.step()
    files = replay(source.lake, source.state.path)
    assert files is not None
    ask = partial(
        ratchet.merge.lookup.look_for_truncated, source.lake, source.state.path, files, floors={}
    )
    monkeypatch.setattr(ratchet.merge.lookup, "MOST_TOKENS", 1)
    with pytest.raises(NeedsSpark, match="too many rows"):
        ask(marks={"shop/-": (9, 9)})
    monkeypatch.setattr(ratchet.merge.lookup, "MOST_TOKENS", 2)
    (found,) = ask(marks={"shop/-": (9, 9)})
    assert found.at.tolist() == [0, 1]
    assert ask(marks={"shop/other": (9, 9)}) == []


def test_before_marks_by_generation_and_seq_and_shard() -> None:
    ranks = [(g, s, i) for g in (0, 1, 2) for s in (4, 5, 6) for i in (0, 9)]
    shard = pa.array(["a", "b", None] * 6)
    found = before_marks(shard, np.array(ranks), {"a": (1, 5), "b": (0, 6)})
    for one, rank, name in zip(found, ranks, shard.to_pylist(), strict=True):
        mark = {"a": (1, 5), "b": (0, 6)}.get(name)
        assert one == (mark is not None and rank[:2] < mark)


def test_settled_leaves_what_it_was_given() -> None:
    rank = np.array([(0, 5, FLOOR_IDX), (0, 5, 0)])
    shard = pa.array(["a", "a"])
    assert settled(shard, rank, {"a": [9]}).tolist() == [[0, 9, FLOOR_IDX], [0, 5, 0]]
    assert rank.tolist() == [[0, 5, FLOOR_IDX], [0, 5, 0]]
    assert settled(shard, rank, {}) is rank
