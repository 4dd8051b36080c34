"""Where to cut a table: ranges of its key that are read side by side.

Lives here: estimates, and splitting a range in two. Does not live here: the SQL of a key (`keys`),
how much of a range one task reads at a time (`reader`), who reads what (`dump`).

Invariant: the ranges that a range is split into hold exactly its keys. Nothing here depends on
which rows exist at the moment: the log has whatever is written after the dump began, so a cut
needs no consistent read, and a range may turn out to be empty.

A range is cut in two ways:
- Where the first column in which its first and its last row differ is an integer: at a number,
  found by bisection over the server's own estimates (EXPLAIN, some 0.3 ms each). So neither
  huge gaps nor 64 bits without sign cost more than a few steps.
- Otherwise by walking: the key `n` rows behind the beginning. The server reads these rows once more
  for that, so only as many are walked as a reader needs to be busy for a few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ratchet.snapshot.keys import Bound, ChunkRange, KeyPlan, Query, string_literal
from ratchet.wire.decode.answers import as_count, as_text, or_null, single, single_value
from ratchet.wire.session import quoted

SMALLEST: Final = 50_000  # rows: a range below it is not worth another task
WALK: Final = 400_000  # rows walked at most to find a cut
_STEPS: Final = 72  # of bisection: 64 bits, and some for estimates that waver
_LOPSIDED: Final = 0.02  # a half with less than this share is not worth being a range
_EVEN: Final = 0.1  # how far from the middle a cut may be


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """What the server believes of a table.

    Attributes:
        rows: estimated rows.
        row_bytes: estimated bytes of a row; 0 if unknown.
        engine: its storage engine, in upper case; empty if unknown.
    """

    rows: int
    row_bytes: int
    engine: str = ""


def table_size(query: Query, plan: KeyPlan) -> TableSize:
    """The server's estimates for a whole table, and its engine."""
    found = query(
        "SELECT COALESCE(TABLE_ROWS, 0), COALESCE(AVG_ROW_LENGTH, 0), COALESCE(ENGINE, '')"
        " FROM information_schema.TABLES"
        f" WHERE TABLE_SCHEMA = {string_literal(plan.database)}"
        f" AND TABLE_NAME = {string_literal(plan.table)}"
    )
    rows, row_bytes, engine = single(found, as_count, as_count, as_text) if found else (0, 0, "")
    return TableSize(rows=rows, row_bytes=row_bytes, engine=engine.upper())


def estimate(query: Query, plan: KeyPlan, keys: ChunkRange) -> int:
    """About how many rows a range has, by the server's optimizer.

    The index is only suggested: told to use it, MySQL does not look how much is in the range.
    """
    table = f"{quoted(plan.database)}.{quoted(plan.table)} USE INDEX ({quoted(plan.index)})"
    select = f"SELECT 1 FROM {table}{plan.where(keys)}{plan.order()}"
    rows = query(f"EXPLAIN FORMAT=TRADITIONAL {select}")
    return max((_explained_rows(row) for row in rows), default=0)


def _explained_rows(row: tuple[Any, ...]) -> int:
    # MySQL: ..., ref, rows, filtered, Extra (12 columns); MariaDB: ..., ref, rows, Extra (10).
    rows = row[-3:-2] if len(row) == 12 else row[-2:-1]
    return single_value([rows], or_null(as_count)) or 0


def key_at(
    query: Query, plan: KeyPlan, keys: ChunkRange, *, offset: int = 0, backwards: bool = False
) -> Bound | None:
    """The key of the row `offset` rows behind a range's first row; None if there is none."""
    rows = query(
        f"SELECT {plan.texts} FROM {plan.source}{plan.where(keys)}"
        f"{plan.order(backwards=backwards)} LIMIT 1 OFFSET {offset}"
    )
    return plan.bound(rows[0]) if rows else None


def split(
    query: Query, plan: KeyPlan, keys: ChunkRange, *, smallest: int = SMALLEST
) -> tuple[ChunkRange, ...]:
    """Cut a range in two, or find that it needs no cut.

    Args:
        query: runs a statement on the server.
        plan: how the table is walked.
        keys: the range.
        smallest: rows below which a half would not be worth it.

    Returns:
        Nothing if the range holds no row now, the range itself if it is small or cannot be cut, or
        two ranges in the key's order.
    """
    if not plan.walkable:
        return (keys,)
    first = key_at(query, plan, keys)
    last = key_at(query, plan, keys, backwards=True)
    if first is None or last is None:
        return ()
    rows = estimate(query, plan, keys)
    if rows < 2 * smallest:
        return (keys,)
    cut = _number_between(query, plan, keys, first, last) or _walk(query, plan, keys, rows)
    if cut is None:
        return (keys,)
    return (ChunkRange(after=keys.after, upto=cut), ChunkRange(after=cut, upto=keys.upto))


def first_ranges(
    query: Query, plan: KeyPlan, count: int, *, smallest: int = SMALLEST
) -> tuple[ChunkRange, ...]:
    """The whole table in up to `count` ranges of about the same size, in the key's order."""
    ranges = [(estimate(query, plan, ChunkRange()), ChunkRange())]  # rows (0: leave it), range
    while len(ranges) < count:
        at = max(range(len(ranges)), key=lambda i: ranges[i][0])
        rows, largest = ranges[at]
        if rows == 0:
            break
        halves = split(query, plan, largest, smallest=smallest)
        if len(halves) == 2:
            ranges[at : at + 1] = [(estimate(query, plan, half), half) for half in halves]
        else:
            ranges[at] = (0, largest)
    return tuple(keys for _, keys in ranges)


def _number_between(
    query: Query, plan: KeyPlan, keys: ChunkRange, first: Bound, last: Bound
) -> Bound | None:
    """A cut at an integer with about half of the rows before it; None if there is none."""
    at = next((i for i, (a, b) in enumerate(zip(first, last, strict=True)) if a != b), None)
    if at is None or plan.columns[at].kind != "integer":
        return None
    start, stop = int(first[at]), int(last[at])
    falling = start > stop
    low, high = (stop + 1, start) if falling else (start, stop - 1)
    best: tuple[float, Bound] | None = None
    for _ in range(_STEPS):
        if low > high:
            break
        middle = (low + high) // 2
        bound = (*first[:at], str(middle))
        # Both sides: InnoDB never estimates more than half of the table's rows for a range.
        left = estimate(query, plan, ChunkRange(after=keys.after, upto=bound))
        right = estimate(query, plan, ChunkRange(after=bound, upto=keys.upto))
        share = left / max(1, left + right)
        if best is None or abs(share - 0.5) < abs(best[0] - 0.5):
            best = (share, bound)
        if abs(share - 0.5) <= _EVEN:
            break
        # In a falling index the rows before the cut are those above the number.
        if (share < 0.5) != falling:
            low = middle + 1
        else:
            high = middle - 1
    if best is None or not _LOPSIDED <= best[0] <= 1 - _LOPSIDED:
        return None
    return best[1]


def _walk(query: Query, plan: KeyPlan, keys: ChunkRange, rows: int) -> Bound | None:
    return key_at(query, plan, keys, offset=min(WALK, max(1, rows // 2)) - 1)
