"""What follows by foreign keys, against a tiny InnoDB: any schema, any changes, cut anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from cascade_model import Key, RefusedError, Row, Server

from ratchet.merge.cascades.explore import explore
from ratchet.merge.cascades.follow import CascadeEvent, Layout, Link, Outcome

pytestmark = pytest.mark.slow

COLUMNS = 4  # of each table: the key first, then others, all small numbers or NULL
TABLES = "abcd"


def link_of(key: Key, **more: Any) -> Link:
    return Link(
        name=key.name,
        child=key.child,
        columns=key.columns,
        parent=key.parent,
        parent_columns=key.parent_columns,
        on_delete=key.on_delete,
        on_update=key.on_update,
        padded=tuple(False for _ in key.columns),
        **more,
    )


class Mirror:
    """What a lake does: rows with ranks; a change applies if it is newer than its row."""

    def __init__(self, widths: Mapping[str, int]) -> None:
        self.widths = widths
        self.rows: dict[str, dict[Row, tuple[tuple[int, int, int], Row]]] = {
            table: {} for table in widths
        }

    def put(self, table: str, rank: Any, before: Row | None, after: Row | None) -> None:
        rows = self.rows[table]
        for row in (before, after):
            if row is not None:
                key = row[: self.widths[table]]
                if key in rows and rows[key][0] < rank:
                    del rows[key]
        if after is not None:
            rows.setdefault(after[: self.widths[table]], (rank, after))

    def plain(self, table: str) -> set[Row]:
        return {row for _, row in self.rows[table].values()}


class Known:
    """The rows of a mirror and the changes of a step, handed out as they are asked for."""

    def __init__(
        self, mirror: Mirror, events: list[CascadeEvent], widths: Mapping[str, int]
    ) -> None:
        self._mirror, self._events, self._widths = mirror, events, widths

    def roots(self) -> Iterable[CascadeEvent]:
        return [one for one in self._events if one.before is not None]

    def rows(self, link: Link, values: set[Row]) -> Iterator[CascadeEvent]:
        for rank, row in self._mirror.rows[link.child].values():
            if link.referring(row) in values:
                yield CascadeEvent(table=link.child, rank=rank, after=row, image=row)

    def changes(
        self, table: str, values: Mapping[Link, set[Row]], keys: set[Row]
    ) -> Iterator[CascadeEvent]:
        for one in self._events:
            found = [row for row in (one.before, one.after) if row is not None]
            by_key = any(row[: self._widths[table]] in keys for row in found)
            by_value = any(link.referring(row) in values[link] for link in values for row in found)
            if one.table == table and (by_key or by_value):
                yield one


def schema_of(draw: Random) -> tuple[list[Key], dict[str, int]]:
    """Up to five foreign keys over up to four tables; to themselves, to each other, overlapping."""
    tables = TABLES[: draw.choice((2, 3, 4))]
    widths = {table: draw.choice((1, 1, 2)) for table in TABLES}
    keys = []
    for number in range(draw.randint(1, 5)):
        child, parent = draw.choice(tables), draw.choice(tables)
        count = widths[parent] if draw.random() < 0.8 else draw.choice((1, 2))
        to_key = count == widths[parent] and draw.random() < 0.8
        columns = tuple(draw.sample(range(COLUMNS), count))
        rules = ("none", "cascade", "cascade")
        if min(columns) >= widths[child]:
            rules = ("none", "cascade", "cascade", "set null", "set null")
        keys.append(
            Key(
                name=f"k{number}",
                child=child,
                columns=columns,
                parent=parent,
                parent_columns=tuple(range(count))
                if to_key
                else tuple(draw.sample(range(COLUMNS), count)),
                on_delete=draw.choice(rules),  # type: ignore[arg-type]
                on_update=draw.choice(rules),  # type: ignore[arg-type]
            )
        )
    return keys, widths


def work(server: Server, draw: Random) -> None:
    """A statement that may be refused."""
    table = draw.choice(TABLES)
    rows = sorted(server.rows[table].values(), key=repr)
    checks = draw.random() < 0.9
    key = (draw.randint(0, 4), draw.randint(0, 2))
    values = (*key, *(draw.choice((None, 0, 1, 2, 3)) for _ in range(COLUMNS - 2)))
    what = draw.random()
    if what < 0.55 or not rows:
        server.change(table, None, fitting(server, table, values, draw), checks=checks)
        return
    before = draw.choice(rows)
    if what < 0.8:
        server.change(table, before, None, checks=checks)
        return
    places = draw.sample(range(COLUMNS), draw.choice((1, 1, 2)))
    after = tuple(values[n] if n in places else before[n] for n in range(COLUMNS))
    if after != before:
        server.change(table, before, after, checks=checks)


def fitting(server: Server, table: str, values: Row, draw: Random) -> Row:
    """Values that refer to parents that there are, for most of the keys."""
    found = list(values)
    for key in server.keys:
        parents = sorted(server.rows[key.parent].values(), key=repr)
        if key.child != table:
            continue
        parent = draw.choice(parents) if parents and draw.random() < 0.9 else (None,) * COLUMNS
        for place, at in zip(key.columns, key.parent_columns, strict=True):
            if parent[at] is not None or place >= server.key_width[table]:
                found[place] = parent[at]
    return tuple(found)


def history(seed: int) -> Counter[str]:
    """A server with a random schema is changed at random; the mirror follows, step by step."""
    draw = Random(seed)
    keys, widths = schema_of(draw)
    server = Server(draw.sample(keys, len(keys)), widths, draw.random() < 0.5)
    server.rows = {table: {} for table in TABLES}
    mirror = Mirror(widths)
    seq = logged = 0
    pending: list[CascadeEvent] = []
    seen: Counter[str] = Counter()
    for turn in range(120):
        with suppress(RefusedError):
            work(server, draw)
        for one in server.log[logged:]:
            seq += 1
            rank = (1, seq // 3, seq)
            pending.append(
                CascadeEvent(
                    table=one.table,
                    rank=rank,
                    before=one.before,
                    after=one.after,
                    token=rank,
                    image=one.after,
                    silent=one.silent,
                )
            )
        logged = len(server.log)
        if turn < 119 and draw.random() < 0.9:
            continue
        found = merged(mirror, pending, keys, widths)
        pending = []
        seen["derived"] += len(found.derived)
        for table in TABLES:
            if table in found.doubts:
                seen["doubts"] += 1
                current = server.rows[table].items()  # a comparison with the source mends it
                mirror.rows[table] = {key: ((1, seq // 3, seq), row) for key, row in current}
            else:
                seen["compared"] += 1
                assert mirror.plain(table) == set(server.rows[table].values()), (seed, table)
    return seen


@pytest.mark.parametrize("part", range(4))
def test_batches_cut_anywhere_equal_the_server(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(part * 250, part * 250 + 250):
        seen += history(seed)
    assert seen["derived"] > 1000
    assert seen["doubts"] < seen["compared"] / 10


def merged(
    mirror: Mirror, events: list[CascadeEvent], keys: list[Key], widths: Mapping[str, int]
) -> Outcome:
    """One step: what follows, and the newest of everything."""
    layouts = {
        table: Layout(tuple(f"c{n}" for n in range(COLUMNS)), tuple(range(widths[table])))
        for table in TABLES
    }
    found = explore(layouts, [link_of(key) for key in keys], Known(mirror, events, widths))
    changes = [(one.rank, one.table, one.before, one.after) for one in events]
    changes += [(one.cause, one.table, one.before, one.after) for one in found.derived]  # type: ignore[misc]
    for rank, table, before, after in sorted(changes, key=lambda one: one[0]):
        mirror.put(table, rank, before, after)
    return found
