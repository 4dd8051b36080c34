"""A tiny InnoDB: tables with foreign keys, changed row by row, as an oracle for merge.cascades.

It logs what InnoDB logs (the rows that statements change, not what foreign keys do by them), and it
refuses what InnoDB refuses: keys that are taken, values without a parent.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Literal

Row = tuple[Any, ...]


class RefusedError(Exception):
    """The statement fails and leaves no trace."""


@dataclass(frozen=True)
class Key:
    """A foreign key of the model."""

    name: str
    child: str
    columns: tuple[int, ...]
    parent: str
    parent_columns: tuple[int, ...]
    on_delete: Literal["none", "cascade", "set null"]
    on_update: Literal["none", "cascade", "set null"]


@dataclass(frozen=True)
class Logged:
    """A row change that is in the log."""

    table: str
    before: Row | None
    after: Row | None
    silent: bool


@dataclass
class Server:
    """The server: rows by primary key (the first `widths` columns).

    Attributes:
        keys: the foreign keys, in the order in which they are looked at.
        key_width: table -> how many of its columns are its key.
        deep: whether a child's own children come before its siblings.
    """

    keys: list[Key]
    key_width: dict[str, int]
    deep: bool = True
    rows: dict[str, dict[Row, Row]] = field(default_factory=dict)
    log: list[Logged] = field(default_factory=list)

    def change(self, table: str, before: Row | None, after: Row | None, *, checks: bool) -> None:
        """A statement of one row; logs it, or raises RefusedError and changes nothing."""
        saved = copy.deepcopy(self.rows)
        try:
            self._change(table, before, after, checks=checks)
        except RefusedError:
            self.rows = saved
            raise
        self.log.append(Logged(table, before, after, checks))

    def _change(self, table: str, before: Row | None, after: Row | None, *, checks: bool) -> None:
        orphans = self._orphans()
        self._put(table, before, after)
        if not checks:
            return
        todo = self._effects(table, before, after, frozenset())
        while todo:
            key, old, new, path = todo.pop(-1 if self.deep else 0)
            for row in list(self.rows[key.child].values()):
                if tuple(row[at] for at in key.columns) != old:
                    continue
                changed = _changed(key, row, old, new)
                if new is not None and (key.child == table or key.child in path):
                    raise RefusedError  # InnoDB refuses updates that come back to a table
                self._put(key.child, row, changed)
                todo += self._effects(key.child, row, changed, path | {table, key.child})
        if self._orphans() - orphans:
            raise RefusedError

    def _put(self, table: str, before: Row | None, after: Row | None) -> None:
        current = self.rows[table]
        if before is not None:
            del current[self._key(table, before)]
        if after is not None:
            if self._key(table, after) in current or None in self._key(table, after):
                raise RefusedError
            current[self._key(table, after)] = after

    def _effects(
        self, table: str, before: Row | None, after: Row | None, path: frozenset[str]
    ) -> list[tuple[Key, Row, Row | None, frozenset[str]]]:
        if before is None:
            return []
        found = []
        for key in self.keys:
            old = tuple(before[at] for at in key.parent_columns) if key.parent == table else (None,)
            new = None if after is None else tuple(after[at] for at in key.parent_columns)
            rule = key.on_delete if new is None else key.on_update
            if None not in old and old != new and rule != "none":
                found.append((key, old, new, path))
        return found if not self.deep else found[::-1]

    def _orphans(self) -> set[tuple[str, Row]]:
        found = set()
        for key in self.keys:
            there = {
                tuple(row[at] for at in key.parent_columns)
                for row in self.rows[key.parent].values()
            }
            for row in self.rows[key.child].values():
                values = tuple(row[at] for at in key.columns)
                if None not in values and values not in there:
                    found.add((key.name, row))
        return found

    def _key(self, table: str, row: Row) -> Row:
        return row[: self.key_width[table]]


def _changed(key: Key, row: Row, old: Row, new: Row | None) -> Row | None:
    rule = key.on_delete if new is None else key.on_update
    if rule == "cascade" and new is None:
        return None
    values = list(row)
    for place, a, b in zip(key.columns, old, new or old, strict=True):
        if rule == "set null":
            values[place] = None
        elif a != b:
            values[place] = b
    return tuple(values)
