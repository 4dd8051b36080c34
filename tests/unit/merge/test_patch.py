"""What a small batch makes of a table, found without a job, beside what the merge makes of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import ratchet.merge.patch
from ratchet.core.change import TOKEN_COLUMN
from ratchet.core.errors import LakeError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.ancestry import NO_ANCESTRY
from ratchet.merge.gather import gather
from ratchet.merge.patch import Patch, patch
from ratchet.merge.plan import shape_of
from ratchet.merge.reduce import Mark
from ratchet.store.cuts import Cuts
from ratchet.store.segments import object_of
from tests.merge_kit import POLICY, Source, freeze, merger
from tests.unit.merge.test_directly import put, some, streaming

pytestmark = pytest.mark.slow


def found(source: Source, **other: Any) -> Patch | None:
    """Of all rounds behind the newest cut."""
    cut = Cuts(source.lake).last()
    assert cut is not None
    state = source.state
    gathered = gather(
        state, source.rounds.since(cut.round), lambda _: source.schema, InvalidValuePolicy()
    )
    values: dict[str, Any] = {
        "lowest": gathered.lowest,
        "merged": {s: (one.generation, one.position.seq) for s, one in cut.shards.items()},
        "table": (state.path, cut.tables[state.name]),
        "side_path": state.side_path,
    }
    return patch(
        source.lake,
        shape_of(state, POLICY, NO_ANCESTRY),
        gathered.files,
        **{**values, **other},
    )


def shown(source: Source, what: Patch) -> dict[Any, Any]:
    """The cut's table with the patch, as `Source.expected` tells of it."""
    cut, state = Cuts(source.lake).last(), source.state
    assert cut is not None
    table = DeltaTable(source.lake.delta_uri(state.path), version=cut.tables[state.name])
    rows = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    goes = [tuple(row.values()) for row in what.keys.to_pylist()]
    assert len(set(goes)) == len(goes)
    left = [row for row in pa.table(rows).to_pylist() if key(source, row, what) not in set(goes)]
    assert {key(source, row, what) for row in what.rows.to_pylist()} <= set(goes)
    return dict(registers(source, [*left, *what.rows.to_pylist()]))


def key(source: Source, row: dict[str, Any], what: Patch) -> tuple[Any, ...]:
    values = tuple(row[name] for name in source.schema.key)
    with_shard = what.keys.num_columns > len(values)
    return (*values, row[TOKEN_COLUMN]["shard"]) if with_shard else values


def registers(source: Source, rows: list[dict[str, Any]]) -> Iterator[tuple[Any, Any]]:
    seen = set()
    for row in rows:
        token = row.pop(TOKEN_COLUMN)
        place = (source.key(row), token["shard"])
        assert place not in seen
        seen.add(place)
        yield place, ((token["generation"], token["seq"], token["idx"]), freeze(row))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shards", ["one", "apart", "in the key"])
def test_random_histories(tmp_path: Path, seed: int, shards: str) -> None:
    """Several rounds ahead of the merge, rounds of some shards alone."""
    rng = random.Random(f"{seed} {shards}")
    names = ["-"] if shards == "one" else ["-80", "80-"]
    source = streaming(tmp_path, *names, in_key=shards == "in the key")
    with merger(None, source) as merging:
        for _ in range(12):
            for _ in range(rng.randint(1, 3)):
                for n, name in enumerate(names):
                    keys = list(range(12)) if shards != "apart" else list(range(n, 24, 2))
                    for _ in range(rng.randint(0, 3)):
                        some(source, name, keys, rng, deletes=True)
                source.round(*rng.sample(names, rng.randint(1, len(names))))
            source.tx(names[0], put(0, "in any case"))
            source.round(names[0])
            patched = found(source)
            assert patched is not None
            assert shown(source, patched) == source.expected()
            merging.step()
            source.assert_mirrored()


def test_nothing_comes_where_all_goes(tmp_path: Path) -> None:
    source = streaming(tmp_path)
    source.tx("-", put(1, "x"), put(2, "y"))
    source.round()
    with merger(None, source) as merging:
        merging.step()
    source.tx("-", ("del", 1), ("del", 2))
    source.round()
    patched = found(source)
    assert patched is not None
    assert (patched.keys.to_pydict(), patched.rows.num_rows) == ({"k0": [1, 2]}, 0)
    assert shown(source, patched) == {}


# --- what takes more than the keys ----------------------------------------------------------------


def test_changes_that_come_again(tmp_path: Path) -> None:
    """From the end of what is merged on they are known to be new; not a transaction before it."""
    source = streaming(tmp_path)
    for value in "abc":
        source.tx("-", put(1, value))
    source.round()
    with merger(None, source) as merging:
        merging.step()
    source.tx("-", put(1, "d"))
    source.round()
    cut = Cuts(source.lake).last()
    assert cut is not None
    seq = cut.shards["shop/-"].position.seq
    assert found(source) is not None
    for lowest, is_behind in (((0, seq + 1), True), ((0, seq), False), ((1, 0), True)):
        marks: dict[str, Mark] = {"shop/-": lowest}
        assert (found(source, lowest=marks) is not None) == is_behind
    assert found(source, lowest={"shop/new": (0, 99)}) is None  # nothing is known of that shard
    source.deliver_again("-", 0, 3)
    source.round()
    assert found(source) is None


def test_a_row_of_another_shard(tmp_path: Path) -> None:
    """Which of the two is shown is for the registers to say."""
    source = streaming(tmp_path, "-80", "80-")
    source.tx("-80", put(1, "left"))
    source.round()
    with merger(None, source) as merging:
        merging.step()
    source.tx("-80", put(1, "left again"))
    source.tx("80-", put(2, "right"))
    source.round()
    assert found(source) is not None
    source.tx("80-", put(1, "right"))
    source.round()
    assert found(source) is None


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_shadows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    """Where the side table may have shadows, a row that goes may let one come forth."""
    source = streaming(tmp_path, "-80", "80-")
    source.tx("-80", put(1, "left"), put(2, "left"))
    source.round()
    source.tx("-80", ("del", 2))
    source.round()
    monkeypatch.setattr("ratchet.merge.direct.TOMBSTONE", kind)
    with merger(None, source) as merging:
        merging.step()
    source.tx("-80", put(1, "again"))
    source.round()
    assert (found(source) is None) == (kind == 2)


def test_a_step_is_under_way(tmp_path: Path) -> None:
    """Rows of other shards are looked for in the version that is shown, no other."""
    source = streaming(tmp_path, "-80", "80-")
    source.tx("-80", put(1, "left"))
    source.round()
    cut = Cuts(source.lake).last()
    assert cut is not None
    path, version = source.state.path, cut.tables[source.state.name]
    assert found(source, table=(path, version)) is not None
    assert found(source, table=(path, version - 1)) is None


def test_keys_that_arrow_compares_otherwise(tmp_path: Path) -> None:
    schema = TableSchema(
        keyspace="shop",
        table="t",
        columns=(Column(name="f", type=ColumnType(name="double"), nullable=False),),
        key=("f",),
    )
    source = streaming(tmp_path, schema=schema)
    source.tx("-", ("put", {"f": 0.5}))
    source.round()
    assert found(source) is None


def test_a_batch_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = streaming(tmp_path)
    source.tx("-", put(1, "x"), put(2, "y"))
    source.round()
    source.tx("-", put(3, "z"))
    source.round()
    monkeypatch.setattr(ratchet.merge.patch, "MOST_ROWS", 3)
    assert found(source) is not None
    monkeypatch.setattr(ratchet.merge.patch, "MOST_ROWS", 2)
    assert found(source) is None


def test_a_change_file_that_is_gone(tmp_path: Path) -> None:
    source = streaming(tmp_path)
    source.tx("-", put(1, "x"))
    number = source.round()
    (file,) = source.rounds.since(number - 1)[0].files
    source.lake.delete(object_of(file.path))
    with pytest.raises(LakeError):
        found(source)
