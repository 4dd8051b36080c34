"""The verdict on a key after two looks: what differs, what is the same, and what is not told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from change_kit import in_a_segment

from ratchet.core.change import DELETE, INSERT, UPDATE, change_schema
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, Round, ShardSlice, TableEvent
from ratchet.snapshot.confirm import _verdict, floors_of, moved_keys, rounds_behind
from ratchet.snapshot.judge import PointRead
from ratchet.snapshot.piecewise import ComparisonSpec
from ratchet.snapshot.prints import RowHasher
from ratchet.snapshot.reread import RereadRows
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog

LEFT, RIGHT = "shop/-80", "shop/80-"
TYPES = pa.schema(
    [pa.field("id", pa.int64()), pa.field("a.b", pa.string()), pa.field("v", pa.int32())]
)
HOW = ComparisonSpec(
    printer=RowHasher(types=TYPES, key=("id", "a.b")),
    lacking=(),
    homes={LEFT: {LEFT, "shop/-"}, RIGHT: {RIGHT}},
    shard_in_key=False,
)


def at(number: int) -> Position:
    return Position(executed=GtidSet.parse("mariadb", f"0-1-{number}"))


ROW, OTHER = (1, "x", 5), (1, "x", 6)


@pytest.mark.parametrize(
    ("source", "mirrored", "verdict"),
    [
        ({LEFT: ROW}, [(LEFT, ROW)], ("same", ())),
        ({LEFT: ROW}, [("shop/-", ROW)], ("same", ())),  # written before the reshard
        ({LEFT: None}, [], ("same", ())),
        ({LEFT: ROW}, [], ("missing", ())),
        ({LEFT: None}, [(LEFT, ROW)], ("extra", ())),
        ({LEFT: ROW}, [(LEFT, OTHER)], ("changed", ("v",))),
        ({LEFT: ROW}, [(RIGHT, ROW)], ("changed", ("_token.shard",))),
        ({LEFT: ROW}, [("", ROW)], ("changed", ("_token.shard",))),
        ({LEFT: ROW}, [(LEFT, ROW), (LEFT, ROW)], ("doubled", ())),
        ({LEFT: None}, [(LEFT, ROW), (LEFT, ROW)], ("doubled", ())),
        # Two shards have it: one row is chosen by clocks, and it must be one of them.
        ({LEFT: ROW, RIGHT: OTHER}, [(RIGHT, OTHER)], ("same", ())),
        ({LEFT: ROW, RIGHT: OTHER}, [(LEFT, OTHER)], ("moving", ())),
        ({LEFT: ROW, RIGHT: OTHER}, [], ("missing", ())),
    ],
)
def test_verdicts(source: Any, mirrored: Any, verdict: Any) -> None:
    assert _verdict(source, mirrored, HOW) == verdict


@pytest.fixture
def log(tmp_path: Path) -> RoundLog:
    """Rounds 1 to 40, each of which ends at its own number on both shards."""
    log = RoundLog(open_lake(tmp_path / "lake", now=1))
    for number in range(1, 41):
        slices = [
            ShardSlice(
                shard=shard, generation=0, start=at(number - 1) if number > 1 else at(1),
                end=at(number), runs=(), transactions=1, rows=1, bytes=1, min_ts=1, max_ts=1,
                observed_at=1, caught_up=True,
            )
            for shard in (LEFT, RIGHT)
        ]  # fmt: skip
        log.append(Round(number=number, committed_at=1, slices=tuple(slices), files=(), events=()))
    return log


@pytest.mark.parametrize(
    ("floors", "upto", "first"),
    [
        ({LEFT: 40}, 40, None),
        ({LEFT: 39}, 40, 40),
        ({LEFT: 35, RIGHT: 38}, 40, 36),
        ({LEFT: 35, RIGHT: 38}, 37, 36),
        ({LEFT: 1}, 40, 2),  # further back than is looked at first
        ({LEFT: 38}, 30, None),
    ],
)
def test_rounds_that_a_read_may_not_have_shown(
    log: RoundLog, floors: dict[str, int], upto: int, first: int | None
) -> None:
    found = [r.number for r in rounds_behind(log, {s: at(n) for s, n in floors.items()}, upto)]
    assert found == ([] if first is None else list(range(first, upto + 1)))


def test_the_floor_of_several_reads_is_what_all_of_them_have_shown() -> None:
    looks = [PointRead(row=None, floor=at(number)) for number in (7, 5, 9)]
    seen = {LEFT: {(n,): look for n, look in enumerate(looks)}}
    assert floors_of(RereadRows(seen=seen, end={})) == {LEFT: at(5)}


def change_file(lake: Lake, table: str, changes: Sequence[tuple[int, Any, Any]]) -> ChangeFile:
    token = {"ts": None, "shard": LEFT, "gtid": "0-1-1", "generation": 0, "seq": 1, "idx": 0}
    rows = [
        {"op": op, "token": token, "before": before, "after": after}
        for op, before, after in changes
    ]
    path = f"changes-{table}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=change_schema(TYPES)), lake.absolute(path))
    return ChangeFile(
        keyspace="shop", table=table, shard=LEFT, schema="s", path=path, rows=len(rows), bytes=1,
        min_seq=1, max_seq=1, inserts=0, updates=0, deletes=0, misfits={},
    )  # fmt: skip


def image(key: int, value: int = 0) -> dict[str, Any]:
    return {"id": key, "a.b": f"{key}", "v": value}


def marks(*keys: int) -> list[int]:
    batch = pa.RecordBatch.from_pylist([image(key) for key in keys], TYPES)
    return sorted(map(int, HOW.keys_of(batch, [LEFT])))


def event(table: str) -> TableEvent:
    return TableEvent(
        keyspace="shop", table=table, shard=LEFT, kind="ddl", statement="ANALYZE", gtid="0-1-1",
        seq=1, ts=1,
    )  # fmt: skip


@pytest.mark.parametrize("apart", [True, False])
def test_keys_that_the_log_changes(tmp_path: Path, *, apart: bool) -> None:
    lake = open_lake(tmp_path / "lake", now=1)
    file = change_file(
        lake,
        "t",
        [
            (INSERT, None, image(1)),
            (UPDATE, image(2), image(3)),
            (DELETE, image(4), None),
            (UPDATE, image(1), image(1, 5)),
        ],
    )
    other = change_file(lake, "u", [(INSERT, None, image(9))])
    file = file if apart else in_a_segment(lake, file)

    def moved(*events: TableEvent, parents: set[tuple[str, str]] | None = None) -> Any:
        one = Round(number=1, committed_at=1, slices=(), files=(file, other), events=events)
        return moved_keys(lake, [one], ("shop", "t"), parents or set(), HOW)

    assert sorted(map(int, moved())) == marks(1, 2, 3, 4)
    assert moved(event("u")) is not None
    assert moved(event("t")) is None, "a statement may have changed any row"
    assert moved(parents={("shop", "u")}) is None, "so may a row of a parent"
    assert moved(event("p"), parents={("shop", "p")}) is None
    assert np.array_equal(moved_keys(lake, [], ("shop", "t"), set(), HOW), [])  # type: ignore[arg-type]
