"""What a merge must know of a side table before it can leave it unread, without Spark.

Asked once for each table when a run begins, so it decides how soon a thousand tables go on. Most of
it stands in the files' footers: a small merge writes tombstones of one stream, whose ranks its
statistics tell. Where they do not, four columns are read.

Lives here: reading it. Does not live here: what it means (`side.SideStats`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratchet.merge.reduce import Mark
from ratchet.merge.side import EMPTY, SHADOW, SideStats
from ratchet.store.delta.actions import DataFile
from ratchet.store.delta.log import replay
from ratchet.store.delta.parquet import parquet_file
from ratchet.store.delta.vectors import Positions, gone_rows, positions_of
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake

_SHARD, _KIND = "shard", "kind"
_GENERATION, _SEQ = "token.generation", "token.seq"
_COLUMNS: Final = (_SHARD, _KIND, _GENERATION, _SEQ)
_READERS: Final = 8
# Longer texts may be cut in a footer: then the least is no value of its own.
_WHOLE_TEXT: Final = 60


@dataclass(frozen=True, slots=True)
class _Part:
    """What some rows of one shard tell: the highest rank of those that are no shadows, if any."""

    shard: str
    highest: Mark | None
    shadows: bool


def read_side_stats(lake: Lake, path: str) -> SideStats:
    """What a side table says; it is empty if there is none.

    Args:
        lake: the lake.
        path: the side table's folder.

    Raises:
        LakeError: it cannot be read.
    """
    table = replay(lake, path)
    if table is None or not table.files:
        return EMPTY
    with ThreadPoolExecutor(min(_READERS, len(table.files)), "side-stats") as pool:
        parts = pool.map(lambda file: list(_of_file(lake, path, file)), table.files.values())
        return _together(part for found in parts for part in found)


def _together(parts: Iterable[_Part]) -> SideStats:
    highest: dict[str, Mark] = {}
    shadows = False
    for part in parts:
        shadows |= part.shadows
        if part.highest is not None:
            highest[part.shard] = max(part.highest, highest.get(part.shard, part.highest))
    return SideStats(highest=highest, shadows=shadows)


def _of_file(lake: Lake, table: str, file: DataFile) -> Iterator[_Part]:
    path = f"{table}/{file.path}"
    gone = positions_of(gone_rows(lake, table, file))
    with data_file_errors(lake, path), lake.open_input(path, size=file.size) as stream:
        parquet = parquet_file(lake, stream)
        footer, begin = parquet.metadata, 0
        names = [footer.schema.column(n).path for n in range(footer.num_columns)]
        places = [names.index(name) for name in _COLUMNS]
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            part = None if gone.size else _told(group, places)
            if part is None:
                rows = parquet.read_row_group(number, columns=list(_COLUMNS))
                yield from _looked_at(rows, gone, begin)
            else:
                yield part
            begin += group.num_rows


def _told(group: pq.RowGroupMetaData, places: list[int]) -> _Part | None:
    """What the footer tells of rows of one shard, one generation and one sort; None: too little."""
    found = [group.column(place).statistics for place in places]
    if any(one is None or not one.has_min_max or one.null_count for one in found):
        return None
    shard, kind, generation, seq = found
    same = all(one.min == one.max for one in (shard, generation))
    if not same or kind.min != kind.max or len(shard.min) > _WHOLE_TEXT:
        return None
    shadows = kind.max == SHADOW
    return _Part(str(shard.min), None if shadows else (generation.max, seq.max), shadows)


def _looked_at(rows: pa.Table, gone: Positions, begin: int) -> Iterator[_Part]:
    """The same of the rows themselves, without those at positions that are gone."""
    first, last = np.searchsorted(gone, [begin, begin + rows.num_rows])
    alive = np.ones(rows.num_rows, np.bool_)
    alive[gone[first:last] - begin] = False
    flat = rows.filter(pa.array(alive)).flatten()
    for value in pc.unique(flat[_SHARD]):
        mine = flat.filter(pc.equal(flat[_SHARD], value))
        dead = mine.filter(pc.not_equal(mine[_KIND], SHADOW))
        yield _Part(value.as_py(), _highest(dead), dead.num_rows < mine.num_rows)


def _highest(rows: pa.Table) -> Mark | None:
    if not rows.num_rows:
        return None
    newest: Any = pc.max(rows[_GENERATION])
    seqs = rows.filter(pc.equal(rows[_GENERATION], newest))[_SEQ]
    return newest.as_py(), pc.max(seqs).as_py()
