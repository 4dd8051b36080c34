"""A mirrored table together with a small batch of changes that are not merged yet, without a job.

`overlay` lets Spark rank what the changes and the table say of a key: a join, a window and a
shuffle, some ten seconds for 10,000 changes. Along one stream ranks only rise, though: changes that
come behind everything that is merged win against every row, so all there is to know is their keys
and their newest images, and both are found in this process (`newest`).

Lives here: when that is so, which rows make way and which come, and the frame of it. Does not live
here: which changes there are (`fresh`), the way for all others (`overlay`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.core.change import TOKEN_COLUMN
from ratchet.core.rounds import ChangeFile
from ratchet.merge import sql
from ratchet.merge.delta import view
from ratchet.merge.lookup import look
from ratchet.merge.newest import (
    ChangeFiles,
    Images,
    NeedsSpark,
    NewestChanges,
    Oversized,
    has_inexact_key,
    newest,
)
from ratchet.merge.reduce import Mark
from ratchet.merge.shape import Shape, spark_schema
from ratchet.merge.side import SHADOW
from ratchet.store.delta.log import replay
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_HELD: Final = 512 << 20  # bytes of rows, decoded
MOST_ROWS: Final = 1 << 19  # changes: their rows are part of the query's plan


@dataclass(frozen=True, slots=True)
class Patch:
    """What some changes make of a table.

    Attributes:
        keys: k0, k1 ... (and `shard`, where it is part of the key): rows of these keys make way.
        rows: the rows that come: the table's columns and the token.
    """

    keys: pa.Table
    rows: pa.Table


def patch(
    lake: Lake,
    shape: Shape,
    files: Sequence[ChangeFile],
    *,
    lowest: Mapping[str, Mark],
    merged: Mapping[str, Mark],
    table: tuple[str, int],
    side_path: str,
) -> Patch | None:
    """What the changes in those files make of a table; None if that takes more than their keys.

    Args:
        lake: the lake.
        shape: the table's shape; its streams descend from no others.
        files: the changes.
        lowest: shard -> where the changes begin.
        merged: shard -> where its stream stood when the table's version was committed: nothing in
            the table or in its side table has a higher rank (of a repair: merge.repair).
        table: its folder and version.
        side_path: its side table's folder.

    Raises:
        LakeError: a file cannot be read.
    """
    behind = all(shard in merged and mark > merged[shard] for shard, mark in lowest.items())
    if not behind or has_inexact_key(shape) or sum(file.rows for file in files) > MOST_ROWS:
        return None
    try:
        changes = ChangeFiles.load(lake, [file.path for file in files])
        found = newest(changes, shape)
        if shape.contested:
            _meet_own_rows(lake, found, table, side_path)
        come = ~found.dead
        images = Images.of(changes, found, come, shape.columns, most=_MOST_HELD)
    except (NeedsSpark, Oversized):
        return None
    return Patch(found.keys, images.rows(np.flatnonzero(come)))


def patched(session: SparkSession, table: DataFrame, found: Patch, shape: Shape) -> DataFrame:
    """The table as it will be once those changes are merged: its columns and `_token`.

    Args:
        session: where the query runs; the table's.
        table: the mirrored table.
        found: of the changes.
        shape: the table's shape.
    """
    names = [*shape.columns.names, TOKEN_COLUMN]
    keys = _frame(session, found.keys.rename_columns(_key_names(shape, found.keys)))
    match = [shape.row_has_key("t", "c")]
    if "shard" in keys.columns:
        match.append(f"t.{sql.TOKEN}.shard <=> c.shard")
    columns = ", ".join(f"t.{sql.quoted(name)}" for name in names)
    kept = session.sql(
        f"SELECT /*+ BROADCAST(c) */ {columns} FROM {view(table)} t LEFT ANTI JOIN {view(keys)} c "
        f"ON {' AND '.join(match)}"
    )
    return kept.unionAll(_frame(session, found.rows)) if found.rows.num_rows else kept


def _frame(session: SparkSession, rows: pa.Table) -> DataFrame:
    return session.createDataFrame(rows, schema=spark_schema(rows.schema))


def _key_names(shape: Shape, keys: pa.Table) -> list[str]:
    names = shape.key_list.split(", ")
    return [*names, "shard"] if keys.num_columns > len(names) else names


def _meet_own_rows(
    lake: Lake, found: NewestChanges, table: tuple[str, int], side_path: str
) -> None:
    """That no change meets a row or a shadow of another shard: two shards' ranks say nothing.

    Raises:
        NeedsSpark: it may.
    """
    path, version = table
    files = replay(lake, path)
    if files is None or files.version != version:
        raise NeedsSpark("a merge is under way")
    look(lake, path, found, files)
    if may_have_shadows(lake, side_path):
        raise NeedsSpark("shadows")


def may_have_shadows(lake: Lake, path: str) -> bool:
    """Whether a side table's files may have shadows, by their footers."""
    files = replay(lake, path)
    for file in files.files.values() if files else ():
        name = f"{path}/{file.path}"
        with data_file_errors(lake, name), lake.open_input(name, size=file.size) as stream:
            footer = pq.read_metadata(stream)
        places = [n for n in range(footer.num_columns) if footer.schema.column(n).path == "kind"]
        for group in range(footer.num_row_groups):
            found = [footer.row_group(group).column(n).statistics for n in places]
            if not found or any(
                one is None or not one.has_min_max or one.min <= SHADOW <= one.max for one in found
            ):
                return True
    return False
