"""Comparing few rows of mirror and source by their keys in this process, without Spark.

A start of Spark takes ten seconds and more; most tables in doubt are small, or differ in few rows.

Invariant: it finds what Spark's join finds (`compare.many_mismatches`): keys are equal as Spark
compares them, and one with a NULL equals none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from ratchet.snapshot.pairs import NO_SHARD, Pair
from ratchet.snapshot.prints import PRINT, SHARD, ShardOrigins


@dataclass(frozen=True, slots=True)
class _RowMatch:
    """A row of the mirror and one of the scan, by their numbers; None: there is none."""

    mirror: int | None
    scan: int | None
    alike: bool


class FewMismatches:
    """Keys for which mirror and scan differ, see `compare.Mismatches`.

    Args:
        mirror: rows of the mirror.
        source: rows of the scan.
        odd: those that meet and differ, all of a key behind one another.
        copies: for each row of the mirror, how many it has of the key.
        key: columns that identify a row.
        columns: the mirror's columns to bring back.
    """

    def __init__(
        self,
        mirror: pa.Table,
        source: pa.Table,
        odd: Sequence[_RowMatch],
        copies: Sequence[int],
        *,
        key: Sequence[str],
        columns: Sequence[str],
    ) -> None:
        self._mirror, self._source = mirror, source
        self._odd, self._copies = odd, copies
        self._key, self._columns = list(key), list(columns)
        self.count = len(odd)

    def groups(self, limit: int) -> Iterator[list[Pair]]:
        """At most so many of them, all rows of a key in one group."""
        found = self._odd[:limit]
        if found:
            yield self._pairs(found)

    def _pairs(self, meetings: Sequence[_RowMatch]) -> list[Pair]:
        ours = _taken(self._mirror, (one.mirror for one in meetings))
        theirs = _taken(self._source, (one.scan for one in meetings))
        rows = iter(ours.select([*self._columns, SHARD]).to_pylist())
        scans = iter(theirs.select([*self._key, SHARD]).to_pylist())
        pairs = []
        for one in meetings:
            row = None if one.mirror is None else next(rows)
            scan = None if one.scan is None else next(scans)
            known = row if row is not None else scan
            assert known is not None  # noqa: S101 - one of both is there
            pairs.append(
                Pair(
                    mirror=None if row is None else {name: row[name] for name in self._columns},
                    key={name: known[name] for name in self._key},
                    shard=known[SHARD] or NO_SHARD,
                    copies=0 if one.mirror is None else self._copies[one.mirror],
                    scanned=scan is not None,
                    alike=one.alike,
                )
            )
        return pairs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is to be given back."""


def no_mismatches() -> FewMismatches:
    """Nothing differs."""
    return FewMismatches(pa.table({}), pa.table({}), [], [], key=(), columns=())


def few_mismatches(
    mirror: pa.Table,
    source: pa.Table,
    *,
    key: Sequence[str],
    columns: Sequence[str],
    shard_in_key: bool,
    homes: ShardOrigins,
) -> FewMismatches:
    """Compare rows by key.

    Args:
        mirror: rows of the mirror, with `SHARD` and `PRINT`; of a key all rows or none.
        source: rows of the scan, with the key's columns, `SHARD` and `PRINT`; likewise.
        key: columns that identify a row.
        columns: the mirror's columns to bring back, the key's included.
        shard_in_key: whether two shards may hold the same key.
        homes: under which names a shard's rows may stand.
    """
    joined_by = [*key, SHARD] if shard_in_key else list(key)
    ours, theirs = _places(mirror, joined_by), _places(source, joined_by)
    our_prints, their_prints = mirror.column(PRINT).to_pylist(), source.column(PRINT).to_pylist()
    our_shards, their_shards = mirror.column(SHARD).to_pylist(), source.column(SHARD).to_pylist()
    copies = Counter(ours)
    scanned: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for n, place in enumerate(theirs):
        scanned[place].append(n)
    odd: list[_RowMatch] = []
    for m, place in enumerate(ours):
        met = [] if None in place else scanned.get(place, [])
        if not met:
            odd.append(_RowMatch(m, None, alike=False))
        for s in met:
            alike = our_prints[m] == their_prints[s]
            right = homes.is_right(their_shards[s], our_shards[m])
            if not (alike and copies[place] == 1 and right):
                odd.append(_RowMatch(m, s, alike))
    there = {place for place in ours if None not in place}
    odd += [_RowMatch(None, s, alike=False) for s, place in enumerate(theirs) if place not in there]
    return FewMismatches(
        mirror, source, odd, [copies[place] for place in ours], key=key, columns=columns
    )


def _taken(rows: pa.Table, numbers: Iterable[int | None]) -> pa.Table:
    return rows.take(pa.array([n for n in numbers if n is not None], pa.int64()))


def _places(rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))
