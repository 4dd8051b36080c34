"""Which part of a table a batch can touch: the range of its keys, read from the files' footers.

Delta skips the files of the table whose statistics lie outside of the range. A key column that has
no usable statistics gives no condition; a wrong one would lose changes, so only bytewise exact
types are used, and every image of every change is inside the range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.merge import sql
from ratchet.merge.shape import Shape
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake
from ratchet.store.segments import open_changes

MOST_FILES: Final = 64  # a footer costs a read; a batch of more files is wide anyway
_LONGEST_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The lowest and highest value of one key column."""

    column: str
    low: Any
    high: Any


def key_ranges(lake: Lake, paths: Sequence[str], shape: Shape) -> list[KeyBounds]:
    """The ranges of the key's columns over all images in those change files."""
    if not paths or len(paths) > MOST_FILES:
        return []
    footers = []
    for path in paths:
        with data_file_errors(lake, path, "change"), open_changes(lake, path) as stream:
            footers.append(pq.read_metadata(stream))
    found = (_range(footers, name, shape.columns.field(name).type) for name in shape.key)
    return [one for one in found if one is not None]


def condition(ranges: Iterable[KeyBounds], shape: Shape, *, row: str = "t") -> str:
    """The ranges as a condition with literals on a row of the table; "true" if there are none."""
    parts = []
    for one in ranges:
        column, kind = f"{row}.{sql.quoted(one.column)}", shape.columns.field(one.column).type
        parts.append(f"{column} >= {_literal(one.low, kind)}")
        parts.append(f"{column} <= {_literal(one.high, kind)}")
    return " AND ".join(parts) or "true"


def _range(footers: Sequence[pq.FileMetaData], name: str, kind: pa.DataType) -> KeyBounds | None:
    if not _usable(kind):
        return None
    lows, highs = [], []
    for statistics in _statistics(footers, name):
        if statistics is None:
            return None
        if statistics.has_min_max:
            lows.append(statistics.min)
            highs.append(statistics.max)
    if not lows or any(isinstance(v, str) and len(v) > _LONGEST_TEXT for v in (*lows, *highs)):
        return None
    # Python orders str by code point, which is also the order of UTF-8's bytes.
    return KeyBounds(name, min(lows), max(highs))


def _statistics(footers: Sequence[pq.FileMetaData], name: str) -> Iterator[pq.Statistics | None]:
    """Of that column in both images, by row group; None where they are missing."""
    wanted = {f"before.{name}", f"after.{name}"}
    for footer in footers:
        columns = [
            at for at in range(footer.num_columns) if footer.schema.column(at).path in wanted
        ]
        for group in range(footer.num_row_groups):
            for at in columns:
                chunk = footer.row_group(group).column(at)
                found = chunk.statistics if chunk.is_stats_set else None
                if found is None or not (found.has_min_max or found.null_count == chunk.num_values):
                    yield None
                else:
                    yield found
        if len(columns) != len(wanted):
            yield None


def _usable(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_string(kind)
    )


def _literal(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return f"{value}L"
    if pa.types.is_decimal(kind):
        return f"CAST('{value:f}' AS DECIMAL({kind.precision},{kind.scale}))"
    if pa.types.is_date(kind):
        return f"DATE'{value.isoformat()}'"
    if pa.types.is_timestamp(kind):
        text = value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        return f"TIMESTAMP_NTZ'{text}'" if kind.tz is None else f"TIMESTAMP'{text}Z'"
    return sql.text(value)
