"""The newest change of each key, and the merge rule between a change and a row's token."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.core.change import DELETE, FLOOR_IDX, INSERT, TOKEN_COLUMN, UPDATE, change_schema
from ratchet.core.errors import LakeError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.newest import ChangeFiles, NeedsSpark, NewestChanges, Oversized, newest
from ratchet.merge.shape import Shape
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake

pytestmark = pytest.mark.slow

BIGINT = ColumnType(name="bigint")
TEXT = ColumnType(name="varchar", length=40, charset="utf8mb4")
SCHEMA = TableSchema(
    keyspace="shop",
    table="t",
    columns=(
        Column(name="a", type=BIGINT, nullable=False),
        Column(name="shard", type=TEXT, nullable=False),
        Column(name="v", type=TEXT),
    ),
    key=("a", "shard"),
)


def shape(key: tuple[str, ...] = ("a",), *, shards: int = 1, in_key: bool = False) -> Shape:
    return Shape.of(
        SCHEMA, InvalidValuePolicy(), key=key, many_shards=shards > 1, shard_in_key=in_key
    )


def image(a: int | None, shard: str = "x", v: str | None = None) -> dict[str, Any]:
    return {"a": a, "shard": shard, "v": v}


def change(
    op: int, before: Any, after: Any, rank: Sequence[int], shard: str = "s1"
) -> dict[str, Any]:
    parts = dict(zip(("generation", "seq", "idx"), rank, strict=True))
    token = {"ts": 1, "shard": shard, "gtid": f"g:{rank[1]}", **parts}
    return {"op": op, "token": token, "before": before, "after": after}


def files(*contents: list[dict[str, Any]], columns: pa.Schema | None = None) -> ChangeFiles:
    """A change file each, of row groups of three rows."""
    schema = change_schema(columns or shape().columns)
    buffers = []
    for rows in contents:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink, row_group_size=3)
        buffers.append(sink.getvalue())
    return ChangeFiles(Lake.at("/nowhere"), [f"file {n}" for n in range(len(contents))], buffers)


def told(found: NewestChanges) -> list[tuple[Any, ...]]:
    """Key, shard, rank, whether it deletes, which change."""
    keys = [tuple(row.values()) for row in found.keys.to_pylist()]
    return list(
        zip(
            keys,
            found.shard.to_pylist(),
            map(tuple, found.rank.tolist()),
            found.dead.tolist(),
            found.source.tolist(),
            strict=True,
        )
    )


def test_kinds_of_change() -> None:
    """A change of key is a delete and an insert; the order is the keys'."""
    found = newest(
        files(
            [
                change(INSERT, None, image(5, v="in"), (0, 1, 0)),
                change(DELETE, image(4), None, (0, 1, 1)),
                change(UPDATE, image(3), image(2), (0, 1, 2)),
                change(UPDATE, image(1, v="o"), image(1, v="n"), (0, 2, 0)),
            ]
        ),
        shape(),
    )
    assert told(found) == [
        ((1,), "s1", (0, 2, 0), False, 3),
        ((2,), "s1", (0, 1, 2), False, 2),
        ((3,), "s1", (0, 1, 2), True, 2),
        ((4,), "s1", (0, 1, 1), True, 1),
        ((5,), "s1", (0, 1, 0), False, 0),
    ]
    assert found.leaves == ("a",)
    assert (found.changes, found.contested) == (4, False)


def test_each_part_of_the_rank_decides() -> None:
    """The first that differs does, whatever the order in the files is."""
    ranks = list(itertools.product((0, 1), repeat=3))
    for one, other in itertools.permutations(ranks, 2):
        found = newest(
            files(
                [change(INSERT, None, image(1, v="one"), one)],
                [change(UPDATE, image(1), image(1, v="other"), other)],
            ),
            shape(),
        )
        assert told(found) == [((1,), "s1", max(one, other), False, int(other > one))]


def test_no_changes() -> None:
    found = newest(files([]), shape(shards=2))
    assert len(found) == 0
    assert told(found) == []


KEYS = st.tuples(st.integers(0, 2), st.sampled_from("ab"))


@st.composite
def histories(draw: st.DrawFn, shards: int) -> list[list[dict[str, Any]]]:
    """Change files with changes of each rank once, of a key by one shard, in any order."""
    ranks = draw(st.permutations(list(itertools.product(range(2), repeat=3))))
    rows = []
    for rank in ranks:
        op = draw(st.sampled_from([INSERT, UPDATE, DELETE]))
        shard = f"s{draw(st.integers(1, shards))}"
        before, after = (draw(KEYS.map(lambda k: image(*k))) for _ in range(2))
        row = change(op, None if op == INSERT else before, None if op == DELETE else after, rank)
        row["token"]["shard"] = shard
        rows.append(row)
    cut = draw(st.integers(0, len(rows)))
    return [rows[:cut], rows[cut:]]


def expected(contents: list[list[dict[str, Any]]], key: tuple[str, ...], *, in_key: bool) -> Any:
    """Key -> (rank, whether it deletes, number of the change), and shards of each key."""
    best: dict[Any, Any] = {}
    shards: dict[Any, set[str]] = {}
    for number, row in enumerate(itertools.chain(*contents)):
        token = row["token"]
        rank = token["generation"], token["seq"], token["idx"]
        for name, dead in (("before", True), ("after", False)):
            if row[name] is None:
                continue
            place = tuple(row[name][column] for column in key)
            shards.setdefault(place, set()).add(token["shard"])
            place = (*place, token["shard"]) if in_key else place
            # Of one change, the row that it writes counts, not that it leaves the same key.
            candidate = (rank, not dead, number)
            best[place] = max(best.get(place, candidate), candidate)
    return {k: (rank, not alive, n) for k, (rank, alive, n) in best.items()}, shards


@pytest.mark.parametrize("key", [("a",), ("a", "shard"), ("shard",)])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_beside_a_plain_reduction(key: tuple[str, ...], data: st.DataObject) -> None:
    contents = data.draw(histories(1))
    found = newest(files(*contents), shape(key))
    best, _ = expected(contents, key, in_key=False)
    assert {k: (rank, dead, n) for k, _, rank, dead, n in told(found)} == best
    assert [k for k, *_ in told(found)] == sorted(best)


@settings(max_examples=60, deadline=None)
@given(contents=histories(2))
def test_shards_in_the_key(contents: list[list[dict[str, Any]]]) -> None:
    """Each has its own rows: the shard is the key's last column."""
    found = newest(files(*contents), shape(shards=2, in_key=True))
    best, _ = expected(contents, ("a",), in_key=True)
    assert {k: (rank, dead, n) for k, _, rank, dead, n in told(found)} == best
    assert [k[-1] for k, *_ in told(found)] == found.shard.to_pylist()
    assert found.leaves == ("a", f"{TOKEN_COLUMN}.shard")
    assert not found.contested


@settings(max_examples=100, deadline=None)
@given(contents=histories(2))
def test_two_shards_at_a_key(contents: list[list[dict[str, Any]]]) -> None:
    best, shards = expected(contents, ("a", "shard"), in_key=False)
    both = any(len(found) > 1 for found in shards.values())
    wanted = shape(("a", "shard"), shards=2)
    if both:
        with pytest.raises(NeedsSpark, match="two shards change a key"):
            newest(files(*contents), wanted)
        return
    found = newest(files(*contents), wanted)
    assert found.contested
    assert {k: (rank, dead, n) for k, _, rank, dead, n in told(found)} == best
    assert all({shard} == shards[k] for k, shard, *_ in told(found))


@pytest.mark.parametrize("op", [INSERT, UPDATE, DELETE])
def test_null_in_a_key(op: int) -> None:
    """Equality of NULLs is SQL's business; a change of key from or to NULL is one, too."""
    null, value = image(None), image(1)
    rows = {
        INSERT: [change(op, None, null, (0, 1, 0))],
        DELETE: [change(op, null, None, (0, 1, 0))],
        UPDATE: [change(op, null, value, (0, 1, 0))],
    }
    with pytest.raises(NeedsSpark, match="NULL"):
        newest(files(rows[op]), shape())
    with pytest.raises(NeedsSpark, match="NULL"):  # in one column of two
        newest(files(rows[op]), shape(("a", "shard")))


# --- the rule -------------------------------------------------------------------------------------

RANKS = list(itertools.product((0, 1, 2), repeat=3))
RANKS_NONE = np.zeros((0, 3), np.int64)


def of_ranks(
    ranks: Sequence[Sequence[int]], *, shards: int = 1, in_key: bool = False
) -> NewestChanges:
    """A key each, 0, 1, ...; the shards take turns."""
    rows = [
        change(INSERT, None, image(n), rank, f"s{n % shards + 1}") for n, rank in enumerate(ranks)
    ]
    return newest(files(rows), shape(shards=shards, in_key=in_key))


def test_newer_is_higher_in_the_first_part_that_differs() -> None:
    found = of_ranks(RANKS)
    pairs = list(itertools.product(range(len(RANKS)), repeat=2))
    number, row = (np.array(column) for column in zip(*pairs, strict=True))
    newer = found.is_newer(number, pa.array(["other"] * len(pairs)), np.array(RANKS)[row])
    assert newer.tolist() == [RANKS[a] > RANKS[b] for a, b in pairs]


def test_all_newer_is_never_wrong_and_knows_the_usual_case() -> None:
    """Above generation and seq; where only idx tells, the tokens are to be read."""
    found = of_ranks(RANKS)
    for numbers in itertools.combinations(range(len(RANKS)), 2):
        for generation, seq in itertools.product(range(4), repeat=2):
            answer = found.all_newer(np.array(numbers), None, generation, seq)
            rows = [r for r in RANKS if r[0] <= generation and r[1] <= seq]
            assert not answer or all(RANKS[n] > row for n in numbers for row in rows)
            lowest = min(RANKS[n][:2] for n in numbers)
            assert answer == (lowest > (generation, seq))


@pytest.mark.parametrize("quick", [True, False])
def test_a_row_of_another_shard(quick: bool) -> None:  # noqa: FBT001 - a test's parameter
    """Its rank means nothing to the change."""
    found = of_ranks([(0, 5, 0), (0, 5, 1)], shards=2)

    def newer(shards: list[str]) -> list[bool]:
        number = np.arange(len(shards))
        if quick:
            (one,) = set(shards)
            return [found.all_newer(number, one, 0, 4)]
        return found.is_newer(number, pa.array(shards), np.zeros((len(shards), 3))).tolist()

    assert all(newer(["s1"]))
    with pytest.raises(NeedsSpark, match="another shard"):
        newer(["s2"])
    with pytest.raises(NeedsSpark, match="another shard"):
        newer(["s1", "s1"])
    if not quick:
        assert newer(["s1", "s2"]) == [True, True]


def test_no_rows_are_of_no_other_shard() -> None:
    none = np.zeros(0, np.int64)
    found = of_ranks([(0, 1, 0)], shards=2).is_newer(none, pa.array([], pa.string()), RANKS_NONE)
    assert found.tolist() == []


def test_shards_that_a_footer_does_not_tell() -> None:
    contested, alone = of_ranks([(0, 5, 0)] * 2, shards=2), of_ranks([(0, 5, 0)])
    separate = of_ranks([(0, 5, 0)] * 2, shards=2, in_key=True)
    assert not contested.all_newer(np.array([0]), None, 0, 1)
    assert contested.all_newer(np.array([0]), "s1", 0, 1)
    assert alone.all_newer(np.array([0]), None, 0, 1)
    assert separate.all_newer(np.array([0]), None, 0, 1)


def test_dumped_rows_stand_where_their_floor_resolves_to() -> None:
    """By shard and chunk; an unknown chunk, and rows of the log, keep what their token says."""
    floors = {"s1": [None, 7, None], "s2": [3]}
    rows = [change(INSERT, None, image(1), (0, 5, 0), "s1")]
    found = newest(files(rows), shape(), floors=floors)
    assert not found.all_newer(np.array([0]), "s1", 0, 1), "the footer does not know"

    def newer(shard: str, seq: int, idx: int) -> bool:
        rank = np.array([(0, seq, idx)])
        (answer,) = found.is_newer(np.array([0]), pa.array([shard]), rank).tolist()
        assert rank.tolist() == [[0, seq, idx]], "what was given is left alone"
        return bool(answer)

    assert newer("s1", 4, FLOOR_IDX)  # no override
    assert not newer("s1", 4, FLOOR_IDX + 1)  # really 7
    assert newer("s1", 9, FLOOR_IDX + 1) is False
    assert newer("s1", 4, FLOOR_IDX + 2)
    assert newer("s1", 4, FLOOR_IDX + 3)  # no such chunk
    assert newer("s2", 9, FLOOR_IDX)  # really 3
    assert newer("s3", 4, FLOOR_IDX + 1)
    assert newer("s1", 4, 1)  # no row of a dump


@pytest.mark.parametrize("seed", range(30))
def test_changes_that_come_too_early_or_too_late(seed: int) -> None:
    """What is left out is as if it were not in the files; the numbers stay those of the files."""
    rng = random.Random(seed)
    rows = []
    for n in range(30):
        rank, shard = (rng.randrange(3), rng.randrange(6), n), rng.choice(("s1", "s2"))
        key = {"s1": 0, "s2": 10}[shard] + rng.randrange(4)
        op = rng.choice((INSERT, DELETE))
        before, after = (image(key), None) if op == DELETE else (None, image(key, v=f"{n}"))
        rows.append(change(op, before, after, rank, shard))
    until = {"s1": (2, rng.randrange(6))} if rng.random() < 0.7 else {}
    since = {("s1", 0): rng.randrange(6), ("s2", rng.randrange(3)): rng.randrange(6)}

    def counts(one: dict[str, Any]) -> bool:
        token = one["token"]
        stream, place = (token["shard"], token["generation"]), (token["generation"], token["seq"])
        early = stream in since and token["seq"] <= since[stream]
        return not early and (token["shard"] not in until or place < until[token["shard"]])

    kept = [n for n, one in enumerate(rows) if counts(one)]
    found = newest(files(rows), shape(shards=2), since=since, until=until)
    alone = newest(files([rows[n] for n in kept]), shape(shards=2))
    assert [one[:4] for one in told(found)] == [one[:4] for one in told(alone)]
    assert found.source.tolist() == [kept[n] for n in alone.source]
    assert found.changes == 30


def test_a_row_without_a_token() -> None:
    with pytest.raises(NeedsSpark, match="lost its token"):
        of_ranks([(0, 5, 0)]).is_newer(
            np.array([0]), pa.array([None], pa.string()), np.zeros((1, 3))
        )


# --- images ---------------------------------------------------------------------------------------


def four(last: str = "d") -> ChangeFiles:
    return files(
        [
            change(INSERT, None, image(1, v="a"), (0, 1, 0)),
            change(DELETE, image(2), None, (0, 1, 1)),
            change(INSERT, None, image(3, v="c"), (0, 1, 2)),
            change(INSERT, None, image(4, v="d"), (0, 1, 3)),
        ],
        [change(INSERT, None, image(5, v=last), (0, 1, 4))],
    )


@pytest.mark.parametrize("needed", list(itertools.product([False, True], repeat=5)))
def test_images_of_the_changes_that_are_needed(needed: tuple[bool, ...]) -> None:
    found = four("e").images(shape().columns, np.array(needed))
    whole = ["a", None, "c", "d", "e"]
    want = [v for v, wanted in zip(whole, needed, strict=True) if wanted]
    rows = found.to_pylist()
    assert [row["after"] and row["after"]["v"] for row in rows] == want
    idx = [n for n, wanted in enumerate(needed) if wanted]
    assert [row["token"]["idx"] for row in rows] == idx
    assert all(row["token"]["gtid"] == "g:1" for row in rows)


def test_weights_are_the_row_groups_means() -> None:
    """Of `after` alone, decoded."""
    one, other = four("e").weights(), four("x" * 10_000).weights()
    assert len(one) == len(other) == 5
    assert (other[:4] == one[:4]).all()
    assert 10_000 <= other[4] < 30_000


def test_images_that_are_too_much_at_once() -> None:
    """What is not needed does not count."""
    long, columns = "x" * 10_000, shape().columns
    most = four(long).images(columns, np.array([False] * 4 + [True])).nbytes
    assert four(long).images(columns, np.array([True] * 4 + [False]), most=most).num_rows == 4
    with pytest.raises(Oversized):
        four(long).images(columns, np.array([True] * 5), most=most)


def test_files_that_are_left_where_they_are(tmp_path: Path) -> None:
    lake = open_lake(tmp_path / "lake", now=1)
    held = four("e")
    for path, content in zip(held.paths, held.contents, strict=True):
        assert content is not None
        lake.create_file(path, content.to_pybytes())
    there = ChangeFiles.at(lake, held.paths)
    assert told(newest(there, shape())) == told(newest(held, shape()))
    needed = np.array([True, False, True, True, True])
    assert there.images(shape().columns, needed) == held.images(shape().columns, needed)
    with pytest.raises(LakeError, match="No such file"):
        ChangeFiles.at(lake, ["gone"]).weights()


def test_narrow_images() -> None:
    """Some of the columns only."""
    columns = pa.schema([shape().columns.field("a")])
    found = four("e").images(columns, np.ones(5, np.bool_), narrow=True)
    assert [row and row["a"] for row in found["after"].to_pylist()] == [1, None, 3, 4, 5]
    assert found["token"] == four("e").images(shape().columns, np.ones(5, np.bool_))["token"]


def test_a_column_that_an_older_file_lacks_and_one_that_is_no_more() -> None:
    old = pa.schema([("w", pa.int32()), ("a", pa.int64()), ("shard", pa.string())])
    rows = [change(INSERT, None, {"w": 1, "a": 7, "shard": "x"}, (0, 1, 0))]
    rows += [change(DELETE, {"w": 1, "a": 8, "shard": "x"}, None, (0, 1, 1))]
    one = files(rows, columns=old)
    assert [key for key, *_ in told(newest(one, shape()))] == [(7,), (8,)]
    found = one.images(shape().columns, np.array([True, True]))
    assert found["after"].to_pylist() == [{"a": 7, "shard": "x", "v": None}, None]


def test_a_damaged_file() -> None:
    whole = four()
    cut = ChangeFiles(
        Lake.at("/nowhere"), ["one", "two"], [whole.contents[0], whole.contents[1].slice(0, 100)]
    )
    with pytest.raises(LakeError, match="two"):
        newest(cut, shape())
    with pytest.raises(LakeError, match="two"):
        cut.images(shape().columns, np.ones(5, np.bool_))
