"""Which rows have to be known to tell what follows from row changes, found by asking for them.

Lives here: `explore`, which follows what is known, sees whose children were looked for, has those
read, and begins anew until nothing new was looked for. Does not live here: reading (`rows`).

Invariant: in the last time round, all rows that the foreign keys can have reached were known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from ratchet.merge.cascades.follow import (
    CascadeEvent,
    DerivedChange,
    Layout,
    Link,
    Outcome,
    Rank,
    Row,
    follow,
)

_Place = tuple[Rank, str]

MOST_ROWS: Final = 2_000_000  # that are held at a time


class TooManyError(Exception):
    """More rows than can be held."""


class KnownRows(Protocol):
    """Where rows and row changes come from. More than was asked for may come, never less."""

    def roots(self) -> Iterable[CascadeEvent]:
        """All changes by which rows of children may change."""

    def rows(self, link: Link, values: set[Row]) -> Iterable[CascadeEvent]:
        """Rows of the child as they were found, with those values in the key's columns."""

    def changes(
        self, table: str, values: Mapping[Link, set[Row]], keys: set[Row]
    ) -> Iterable[CascadeEvent]:
        """Row changes of the child, of those values or keys before or after them."""


def explore(
    layouts: Mapping[str, Layout],
    links: Sequence[Link],
    known: KnownRows,
    *,
    hazy: frozenset[str] = frozenset(),
    most: int = MOST_ROWS,
) -> Outcome:
    """What follows from all that is known of one shard.

    Args:
        layouts: see `follow`.
        links: see `follow`.
        known: see KnownRows.
        hazy: see `follow`.
        most: rows and changes that are held.

    Raises:
        TooManyError: there are more.
    """
    roots: dict[_Place, CascadeEvent] = {(one.rank, one.table): one for one in known.roots()}
    rows: dict[tuple[str, Row], CascadeEvent] = {}
    loaded: dict[Link, set[Row]] = {}
    keys: dict[str, set[Row]] = {}
    changes: dict[_Place, CascadeEvent] = {}
    while True:
        if len(rows) + len(roots) + len(changes) > most:
            raise TooManyError
        events = [*rows.values(), *(roots | changes).values()]
        # A row that was found comes before a change of the same rank: that is of another row.
        found = follow(layouts, links, sorted(events, key=lambda one: one.rank), hazy=hazy)
        new = _new_keys(layouts, rows.values(), found, keys)
        asked = {link: values - loaded.get(link, set()) for link, values in found.asked.items()}
        if not any(asked.values()) and not any(new.values()):
            return found
        for link, values in asked.items():
            if values:
                loaded.setdefault(link, set()).update(values)
                for row in known.rows(link, values):
                    place = _key(layouts[link.child], row.after)
                    rows[link.child, place] = row
                    new.setdefault(link.child, set()).add(place)
        for table in {*new, *(link.child for link, values in asked.items() if values)}:
            keys.setdefault(table, set()).update(new.get(table, set()))
            wanted = {link: values for link, values in loaded.items() if link.child == table}
            for change in known.changes(table, wanted, keys[table]):
                changes[change.rank, change.table] = change


def _new_keys(
    layouts: Mapping[str, Layout],
    rows: Iterable[CascadeEvent],
    found: Outcome,
    known: Mapping[str, set[Row]],
) -> dict[str, set[Row]]:
    """The keys of rows that were met, or that foreign keys gave them, and are new."""
    new: dict[str, set[Row]] = {}
    met: list[CascadeEvent | DerivedChange] = [*rows, *found.derived]
    for one in met:
        for row in (one.before, one.after):
            if row is not None:
                new.setdefault(one.table, set()).add(_key(layouts[one.table], row))
    return {table: keys - known.get(table, set()) for table, keys in new.items()}


def _key(layout: Layout, row: Row | None) -> Row:
    return () if row is None else tuple(row[at] for at in layout.key)
