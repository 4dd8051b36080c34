"""The changes of some keys, out of change files.

Lives here: `Changes`, and picking those of some keys: here, or in Spark where there are many. Does
not live here: what they say of a key (`judge`), where the files come from
(`jobs.inspect.changelog`, `jobs.inspect.scratch`).

Invariant: both ways give the same changes; one that moves a row to another key is of both keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile
from ratchet.snapshot.rows import Row, frozen_row
from ratchet.store.delta.tables import quoted
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake
from ratchet.store.segments import open_changes, part_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_PROCESS: Final = 2_000_000  # changes that are looked through here: a second or two
_IMAGES: Final = ("before", "after")

Key = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed in a table after the mirror's cut.

    Attributes:
        files: change files that hold it, all of one shape.
        root: where these lie.
        reached: shard -> everything up to here is in the files.
        disturbed: why rows may have changed without row changes (a DDL statement, a TRUNCATE);
            empty if they have not. What differs is unsettled then.
    """

    root: Lake
    files: Sequence[ChangeFile] = ()
    reached: Mapping[str, Position]
    disturbed: str = ""


def changes_of_keys(
    spark: SparkSession, changes: Changes, keys: Sequence[Key], key: Sequence[str]
) -> list[dict[str, Any]]:
    """The changes that have one of these keys before or after them; one may come twice.

    Args:
        spark: the session.
        changes: the changes.
        keys: values of the key's columns.
        key: their names.

    Returns:
        Rows as core.change.change_schema has them.

    Raises:
        LakeError: a file is damaged, or cannot be read.
    """
    if not (changes.files and keys):
        return []
    here = list(changes.files)
    found: list[dict[str, Any]] = []
    if sum(file.rows for file in here) > IN_PROCESS:
        # Spark cannot read parts of segments, but those are small, each by itself.
        here = [file for file in here if part_of(file.path) is not None]
        there = [file.path for file in changes.files if part_of(file.path) is None]
        found += _by_spark(spark, changes.root, there, keys, key) if there else []
    wanted = {frozen_row(one, key) for one in keys}
    for path in (file.path for file in here):
        with (
            data_file_errors(changes.root, path, "change"),
            open_changes(changes.root, path) as stream,
        ):
            found += _picked(pq.ParquetFile(stream), keys, wanted, key)
    return found


def _picked(
    file: pq.ParquetFile, keys: Sequence[Key], wanted: set[Row | None], key: Sequence[str]
) -> Iterator[dict[str, Any]]:
    # Most groups of most files have none, and their images need not be read.
    leaves = [f"{image}.{name}" for image in _IMAGES for name in key]
    for group in range(file.num_row_groups):
        # Not by a dataset, which takes a point in a name for a field of a struct.
        images = file.read_row_group(group, columns=leaves)
        hits = [_may_have(images.column(image), keys, key) for image in _IMAGES]
        rows = pc.or_(*hits)
        if pc.any(rows).as_py():
            for change in file.read_row_group(group).filter(rows).to_pylist():
                if any(frozen_row(change[image], key) in wanted for image in _IMAGES):
                    yield change


def _may_have(images: pa.ChunkedArray, keys: Sequence[Key], key: Sequence[str]) -> pa.ChunkedArray:
    """Which images have in each column of the key a value that one of the keys has there."""
    found = pc.is_valid(images)
    for name in key:
        values = pc.struct_field(images, [name])
        some = pa.array([one[name] for one in keys], values.type)
        found = pc.and_(found, pc.is_in(values, value_set=some))
    return found


def _by_spark(
    spark: SparkSession, root: Lake, paths: Sequence[str], keys: Sequence[Key], key: Sequence[str]
) -> list[dict[str, Any]]:
    from pyspark.sql import functions as fn

    frame = spark.read.parquet(*map(root.hadoop_uri, paths))
    found: list[dict[str, Any]] = []
    for image in _IMAGES:
        columns = [fn.col(f"{image}.{quoted(name)}") for name in key]
        kinds = frame.select(*columns).schema
        wanted = spark.createDataFrame([tuple(k[name] for name in key) for k in keys], kinds)
        names = [f"ratchet_key_{n}" for n in range(len(key))]
        on = [fn.col(name) == column for name, column in zip(names, columns, strict=True)]
        hits = frame.join(fn.broadcast(wanted.toDF(*names)), on, "left_semi")
        found += hits.toArrow().to_pylist()
    return found
