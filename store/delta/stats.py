"""File statistics for Delta, from the footer that the Parquet writer has made anyway.

Lives here: the JSON of an AddAction's `stats`. Invariant: what it says of a file is true for every
reader: a bound that cannot be written down exactly is widened or left out, since a wrong one hides
rows.

As Delta's protocol asks: timestamps in ISO 8601 (to milliseconds, so the lower bound is cut and the
upper one raised), decimals as numbers, strings cut to 32 characters with a last character above all
others behind a cut upper bound, nothing for binary columns. Strings are ordered by their UTF-8
bytes, as Spark does; the source's collation plays no part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow.parquet as pq

MAX_TEXT: Final = 32
_ABOVE: Final = "\U0010ffff"
_YEARS: Final = (1000, 9998)  # what every reader's parser takes
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(slots=True)
class _Column:
    low: Any = None
    high: Any = None
    nulls: int | None = 0
    known: bool = True


def file_stats(footer: pq.FileMetaData, columns: Iterable[str]) -> str:
    """The `stats` of a file as JSON text.

    Args:
        footer: the file's own metadata.
        columns: top-level columns of simple types to describe.
    """
    places = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    found = {name: _column(footer, places[name]) for name in columns if name in places}
    low = {n: text for n, c in found.items() if (text := _json(c.low, upper=False)) is not None}
    high = {n: text for n, c in found.items() if (text := _json(c.high, upper=True)) is not None}
    nulls = {n: str(c.nulls) for n, c in found.items() if c.nulls is not None}
    parts = [f'"numRecords":{footer.num_rows}']
    for title, values in (("minValues", low), ("maxValues", high), ("nullCount", nulls)):
        inside = ",".join(f"{json.dumps(name)}:{text}" for name, text in values.items())
        parts.append(f'"{title}":{{{inside}}}')
    return f"{{{','.join(parts)}}}"


def _column(footer: pq.FileMetaData, place: int) -> _Column:
    result = _Column()
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(place)
        stats = chunk.statistics
        if stats is None:
            return _Column(nulls=None, known=False)
        if result.nulls is not None:
            result.nulls = result.nulls + stats.null_count if stats.has_null_count else None
        if stats.has_min_max and result.known:
            low, high = stats.min, stats.max
            result.low = low if result.low is None else min(result.low, low)
            result.high = high if result.high is None else max(result.high, high)
        elif not stats.has_null_count or stats.null_count < chunk.num_values:
            result.known = False  # there are values that this row group does not tell
            result.low = result.high = None
    return result


def _json(value: Any, *, upper: bool) -> str | None:
    """A bound as JSON text; None if it is left out."""
    text = None
    if isinstance(value, int):
        text = str(value)
    elif isinstance(value, Decimal):
        text = f"{value:f}"
    elif isinstance(value, str):
        text = _text(value, upper=upper)
    elif isinstance(value, datetime):
        text = _moment(value, upper=upper)
    elif isinstance(value, date) and _YEARS[0] <= value.year <= _YEARS[1]:
        text = f'"{value.isoformat()}"'
    return text


def _text(value: str, *, upper: bool) -> str | None:
    if len(value) <= MAX_TEXT:
        return json.dumps(value)
    if not upper:
        return json.dumps(value[:MAX_TEXT])
    return None if value[MAX_TEXT] == _ABOVE else json.dumps(value[:MAX_TEXT] + _ABOVE)


def _moment(value: datetime, *, upper: bool) -> str | None:
    if not _YEARS[0] <= value.year <= _YEARS[1]:
        return None
    zone = "" if value.tzinfo is None else "Z"
    plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    cut = plain.replace(microsecond=plain.microsecond // 1000 * 1000)
    if upper and cut != plain:
        cut += _MILLISECOND
    return f'"{cut.isoformat(timespec="milliseconds")}{zone}"'
