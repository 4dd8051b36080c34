"""Small tables that are merged without Spark, and what is then in their logs and files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from ratchet.core.dumps import app_id
from ratchet.merge.batch import MergeBatch
from ratchet.merge.direct import DirectMergeResult, merge_directly
from ratchet.merge.shape import Shape
from ratchet.merge.side import SideStats
from ratchet.merge.table import MergeResult
from ratchet.store.delta.log import DataFile, TableFiles, replay
from tests.merge_kit import POLICY, Source, merger

pytestmark = pytest.mark.slow

Op = tuple[Any, ...]


def put(key: int, value: str) -> Op:
    return ("put", {"id": key, "v": value})


def streaming(
    folder: Path, *shards: str, in_key: bool = False, vectors: bool = True, **options: Any
) -> Source:
    """A table that was dumped with nothing in it, merged up to its dump."""
    source = Source(folder, shards=shards or ("-",), shard_in_key=in_key, **options)
    source.round()
    source.dump_begin(vectors=vectors)
    for name in source.names:
        source.chunk(name.partition("/")[2])
    source.dump_end()
    source.round()
    with pytest.MonkeyPatch.context() as patch, merger(None, source) as merging:
        patch.setattr("ratchet.merge.onetable.collapse", nothing_to_collapse)
        merging.step()
    return source


def nothing_to_collapse(_: Any, lake: Any, one: MergeBatch, known: SideStats) -> MergeResult:
    """Of several shards' dumps, which are empty: it would start a Spark."""
    files = replay(lake, one.path)
    assert files is not None
    return MergeResult(version=files.version, changed=0, side=known)


def of_ours(files: TableFiles) -> dict[str, DataFile]:
    """Data files that merges have written."""
    return {path: file for path, file in files.files.items() if path.startswith("merge-")}


def batch(source: Source, number: int | None = None, **other: Any) -> MergeBatch:
    """The changes of a round, by default the last."""
    state, number = source.state, number or source.rounds.last_number()
    files = source.rounds.since(number - 1)[0].files
    shape = Shape.of(
        source.schema,
        POLICY,
        key=state.key,
        many_shards=source.many_shards,
        shard_in_key=source.shard_in_key,
    )
    values: dict[str, Any] = {
        "shape": shape,
        "path": state.path,
        "side_path": state.side_path,
        "app_id": app_id(state),
        "round": number,
        "files": [file.path for file in files],
        "bytes": sum(file.bytes for file in files),
        "rows": sum(file.rows for file in files),
        "may_delete": any(file.deletes for file in files),
        "now": source.clock,
    }
    return MergeBatch(**{**values, **other})


def merged(source: Source, known: TableFiles | None = None, **other: Any) -> DirectMergeResult:
    """The last round, merged; its values are the mirror's."""
    done = merge_directly(source.lake, batch(source, **other), known)
    assert done is not None
    source.assert_mirrored()
    return done


def changed(source: Source, *ops: Op, **other: Any) -> DirectMergeResult:
    source.tx(source.names[0], *ops)
    source.round()
    return merged(source, **other)


def side_rows(source: Source) -> list[dict[str, Any]]:
    """What the side table has; nothing, if there is none."""
    if replay(source.lake, source.state.side_path) is None:
        return []
    table = DeltaTable(source.lake.delta_uri(source.state.side_path))
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    rows: list[dict[str, Any]] = pa.table(found).to_pylist()
    return sorted(rows, key=lambda row: (row["key"]["id"], row["shard"], row["round"]))


def actions(source: Source, version: int, *, side: bool = False) -> list[dict[str, Any]]:
    table = source.state.side_path if side else source.state.path
    return list(lines(Path(source.lake.root, table, "_delta_log", f"{version:020d}.json")))


def lines(path: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, Path(str(path).removeprefix("file:")).read_text().splitlines())
