"""What InnoDB does to the rows of children when rows of parents change, as a pure function.

Lives here: going through row changes in the order of a shard's stream, and the changes that follow
from them by foreign keys. Does not live here: where rows come from (`rows`), what is done with what
follows (`step`).

Invariant: whatever cannot be told for certain is named in `Outcome.doubts`, and so is every table
that hangs on it. InnoDB takes the foreign keys of a row one after the other; where the result would
hang on which comes first, that is a doubt, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ratchet.core.foreignkeys import Rule

Row = tuple[Any, ...]  # values in the order of Layout.columns
Rank = tuple[int, int, int]  # generation, seq, idx

_ORDER: Final = "one change reached a row by several foreign keys, and their order decides"
_UNTOLD: Final = "the log does not show whether foreign keys were followed"
_TAKEN: Final = "foreign keys gave a row a key that another one has"
_MOVING: Final = "a row was read while foreign keys changed it"


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table that matter.

    Attributes:
        columns: their names.
        key: places of the key's columns; empty for a table of which no rows are kept.
    """

    columns: tuple[str, ...]
    key: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A foreign key, with places in the layouts instead of names.

    Attributes:
        name: the constraint's name.
        child: the table that has it.
        columns: places in the child's rows.
        parent: the table that it refers to.
        parent_columns: places in the parent's rows, in the order of `columns`.
        on_delete: see core.foreignkeys.
        on_update: see core.foreignkeys.
        padded: for each column whether spaces at the end do not count.
        unclear: see core.foreignkeys.
        blurred: see core.foreignkeys.
    """

    name: str
    child: str
    columns: tuple[int, ...]
    parent: str
    parent_columns: tuple[int, ...]
    on_delete: Rule
    on_update: Rule
    padded: tuple[bool, ...]
    unclear: str = ""
    blurred: str = ""

    def referred(self, row: Row) -> Row:
        """The values of a parent's row that children may have."""
        return tuple(row[at] for at in self.parent_columns)

    def referring(self, row: Row) -> Row:
        """The values of a child's row."""
        return tuple(row[at] for at in self.columns)

    def compared(self, values: Row) -> Row | None:
        """The values as they are compared; None: one is NULL, and equals nothing."""
        if None in values:
            return None
        return tuple(
            value.rstrip(" ") if padded and isinstance(value, str) else value
            for value, padded in zip(values, self.padded, strict=True)
        )

    def rule(self, old: Row, new: Row | None) -> Rule:
        """What a change of a parent's row does to the children of its values before.

        Args:
            old: `referred` before.
            new: `referred` after it; None: the row is gone.
        """
        if None in old or new == old:
            return "none"
        return self.on_delete if new is None else self.on_update

    def changed(self, row: Row, old: Row, new: Row | None, rule: Rule) -> Row | None:
        """A child's row as the rule leaves it; None: it is deleted."""
        if rule == "cascade" and new is None:
            return None
        values = list(row)
        for place, before, after in zip(self.columns, old, new or old, strict=True):
            if rule == "set null":
                values[place] = None
            elif before != after:
                values[place] = after
        return tuple(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeEvent:
    """Something that happens to a row, or to all rows of a table.

    Attributes:
        table: whose.
        rank: when.
        before: the row before; None: there was none.
        after: the row after; None: there is none.
        token: of the change, for what follows from it; None: nothing does, a row was found so.
        image: where all columns of `after` are found.
        silent: whether InnoDB followed foreign keys; None: the log does not tell.
        truncates: all rows of the table go.
        hazy: the row was read at some moment at or behind `rank`.
    """

    table: str
    rank: Rank
    before: Row | None = None
    after: Row | None = None
    token: tuple[Any, ...] | None = None
    image: Any = None
    silent: bool | None = True
    truncates: bool = False
    hazy: bool = False


@dataclass(frozen=True, slots=True)
class DerivedChange:
    """A change that followed from another one.

    Attributes:
        table: whose.
        cause: the token of that one.
        before: the row before.
        after: the row after; None: it is deleted.
        image: where the other columns of `after` are found.
    """

    table: str
    cause: tuple[Any, ...]
    before: Row
    after: Row | None
    image: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows.

    Attributes:
        derived: in the order of what it follows from.
        doubts: table -> why what follows for it is not certain.
        asked: for each key, the values of which the children were looked for.
    """

    derived: Sequence[DerivedChange]
    doubts: Mapping[str, str]
    asked: Mapping[Link, set[Row]]


@dataclass(slots=True, eq=False)
class _Live:
    """A row as it is now.

    Attributes:
        row: its values.
        image: where its other values are found.
        hazy: see CascadeEvent.
        first: its values before the change that is followed; None: that has not touched it.
        hits: by which keys that change reached it, and whether each deletes it.
    """

    row: Row
    image: Any
    hazy: bool = False
    gone: bool = False
    first: Row | None = None
    hits: list[tuple[Link, bool]] = field(default_factory=list)


class _Follower:
    def __init__(
        self, layouts: Mapping[str, Layout], links: Sequence[Link], hazy: frozenset[str]
    ) -> None:
        self.derived: list[DerivedChange] = []
        self.doubts: dict[str, str] = {}
        self.asked: dict[Link, set[Row]] = {}
        self._layouts = layouts
        self._hazy = hazy
        self._by_parent: dict[str, list[Link]] = {}
        self._by_child: dict[str, list[Link]] = {}
        for link in sorted(links, key=lambda one: (one.name, one.child)):
            self._by_parent.setdefault(link.parent, []).append(link)
            self._by_child.setdefault(link.child, []).append(link)
        self._rows: dict[str, dict[Row, _Live]] = {
            name: {} for name, layout in layouts.items() if layout.key
        }
        self._index: dict[Link, dict[Row, dict[_Live, None]]] = {link: {} for link in links}
        # Of the change that is followed: rows that it touched, and by the values they had before.
        self._touched: dict[_Live, str] = {}
        self._were: dict[tuple[Link, Row], list[_Live]] = {}
        self._used: dict[str, set[tuple[Link, bool]]] = {}  # child -> its keys, whether they move
        self._moved: set[str] = set()  # tables whose children's values were changed by a cascade
        self._read: set[str] = set()  # tables of which hazy rows were met

    def take(self, event: CascadeEvent) -> None:
        if event.truncates:
            for live in list(self._rows.get(event.table, {}).values()):
                self._remove(event.table, live)
            return
        if event.table in self._rows:
            self._apply(event)
        if event.token is None or event.before is None or event.silent is False:
            return
        self._follow(event)
        self._settle(event.token)

    def _apply(self, event: CascadeEvent) -> None:
        """The row as the log, or the lake, has it: that counts more than what was derived."""
        rows, key = self._rows[event.table], self._layouts[event.table].key
        for row in (event.before, event.after):
            if row is not None:
                known = rows.get(tuple(row[at] for at in key))
                if known is not None:
                    self._remove(event.table, known)
        if event.after is not None:
            self._add(event.table, _Live(event.after, event.image, event.hazy))

    def _add(self, table: str, live: _Live) -> None:
        key = tuple(live.row[at] for at in self._layouts[table].key)
        other = self._rows[table].get(key)
        if other is not None:
            self._doubt(table, _TAKEN)
            self._remove(table, other)
        self._rows[table][key] = live
        for link in self._by_child.get(table, ()):
            values = link.compared(link.referring(live.row))
            if values is not None:
                self._index[link].setdefault(values, {})[live] = None

    def _remove(self, table: str, live: _Live) -> None:
        key = tuple(live.row[at] for at in self._layouts[table].key)
        if self._rows[table].get(key) is live:
            del self._rows[table][key]
        for link in self._by_child.get(table, ()):
            values = link.compared(link.referring(live.row))
            if values is not None:
                found = self._index[link].get(values, {})
                found.pop(live, None)
                if not found:
                    self._index[link].pop(values, None)

    def _follow(self, event: CascadeEvent) -> None:
        if event.before is None:
            return
        todo: list[tuple[str, Row, Row | None]] = [(event.table, event.before, event.after)]
        while todo:
            table, old, new = todo.pop()
            for link in self._by_parent.get(table, ()):
                before = link.referred(old)
                after = None if new is None else link.referred(new)
                rule = link.rule(before, after)
                values = link.compared(before)
                if rule != "none" and values is not None:
                    told = event.silent is not None
                    todo += self._reach(link, rule, values, (before, after), told=told)

    def _reach(
        self, link: Link, rule: Rule, values: Row, change: tuple[Row, Row | None], *, told: bool
    ) -> list[tuple[str, Row, Row | None]]:
        """Do what a key's rule says to the rows that have those values; what that changes."""
        if link.unclear or link.child not in self._rows:
            self._doubt(link.child, link.unclear)
            return []
        self.asked.setdefault(link, set()).add(values)
        reached = self._index[link].get(values, {})
        gone = [one for one in self._were.get((link, values), ()) if one not in reached]
        if (reached or gone) and not told:
            self._doubt(link.child, _UNTOLD)
        if rule == "cascade" and change[1] is not None:
            self._moved.add(link.child)
            if reached:
                self._used.setdefault(link.child, set()).add((link, True))
        elif reached:
            self._used.setdefault(link.child, set()).add((link, False))
        for live in gone:
            self._note(live, link, deletes=change[1] is None and rule == "cascade")
        done = []
        for live in list(reached):
            if any(known is link for known, _ in live.hits):
                self._doubt(link.child, _ORDER)
            elif (new := link.changed(live.row, *change, rule)) != live.row:
                done.append((link.child, live.row, new))
                self._change(link, live, new)
        return done

    def _change(self, link: Link, live: _Live, new: Row | None) -> None:
        self._touch(link.child, live)
        self._note(live, link, deletes=new is None)
        if live.hazy:
            self._read.add(link.child)
        self._remove(link.child, live)
        if new is None:
            live.gone = True
            return
        if link.blurred:
            self._doubt(link.child, link.blurred)
        live.row = new
        self._add(link.child, live)

    def _touch(self, table: str, live: _Live) -> None:
        if live.first is not None:
            return
        live.first = live.row
        self._touched[live] = table
        links = self._by_child[table]
        if len(links) > 1:  # only then can the order decide
            for link in links:
                values = link.compared(link.referring(live.row))
                if values is not None:
                    self._were.setdefault((link, values), []).append(live)

    def _note(self, live: _Live, link: Link, *, deletes: bool) -> None:
        """Whether it matters which of the keys that reach a row comes first."""
        if any(known is link for known, _ in live.hits):
            return
        live.hits.append((link, deletes))
        if len(live.hits) == 1 or all(deletes for _, deletes in live.hits):
            return
        places = [place for known, _ in live.hits for place in known.columns]
        apart = len(places) == len(set(places))
        any_deletes = any(deletes for _, deletes in live.hits)
        updated = {at for known, deletes in live.hits if not deletes for at in known.columns}
        matters = any(
            not updated.isdisjoint(below.parent_columns)
            for below in self._by_parent.get(link.child, ())
        )
        if not apart or (any_deletes and matters):
            self._doubt(link.child, _ORDER)

    def _settle(self, token: tuple[Any, ...]) -> None:
        """One change for each row, whatever a change did to it."""
        for live, table in self._touched.items():
            after = None if live.gone else live.row
            if live.first is not None and after != live.first:
                self.derived.append(DerivedChange(table, token, live.first, after, live.image))
            live.first, live.hits = None, []
        for table, used in self._used.items():
            # A value that one key gives a row may be one that another key looks for.
            if any(moves for _, moves in used) and _overlap([link for link, _ in used]):
                self._doubt(table, _ORDER)
        if self._touched:
            self._touched, self._were, self._used = {}, {}, {}

    def finish(self) -> None:
        for table in self._read & self._moved & self._hazy:
            self._doubt(table, _MOVING)

    def _doubt(self, table: str, why: str) -> None:
        """The table, if there is a reason, and all that hang on it."""
        if why:
            self.doubts.setdefault(table, why)
        below = f"it depends on {table} by foreign keys, and not all of their changes are known"
        for name in descendants(table, self._by_parent):
            self.doubts.setdefault(name, below)


def descendants(table: str, by_parent: Mapping[str, Iterable[Link]]) -> set[str]:
    """The tables whose rows may change when those of a table do; without itself."""
    found: set[str] = set()
    todo = [table]
    while todo:
        for link in by_parent.get(todo.pop(), ()):
            if link.child not in found and link.child != table:
                found.add(link.child)
                todo.append(link.child)
    return found


def follow(
    layouts: Mapping[str, Layout],
    links: Sequence[Link],
    events: Iterable[CascadeEvent],
    *,
    hazy: frozenset[str] = frozenset(),
) -> Outcome:
    """What follows from row changes of one shard.

    Args:
        layouts: of each table in `links`. Those with a key are tables whose rows are known: all
            that may matter are among the events. What happens to rows of others is a doubt for
            the tables below them.
        links: the foreign keys.
        events: in the order of their ranks: rows as they were found, and row changes.
        hazy: tables of which a row that is `hazy`, and was reached, cannot be trusted if values of
            its columns were changed by a cascade among these events.
    """
    follower = _Follower(layouts, links, hazy)
    for event in events:
        follower.take(event)
    follower.finish()
    return Outcome(follower.derived, follower.doubts, follower.asked)


def _overlap(links: Sequence[Link]) -> bool:
    places = [place for link in set(links) for place in link.columns]
    return len(places) != len(set(places))
