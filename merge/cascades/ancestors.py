"""What statements about a table mean for those that hang on it by foreign keys.

Lives here: over which tables a table hangs, and what an event of one of them says of it. Does not
live here: what changes of their rows lead to (`merge.cascades.step`), reading the keys
(`jobs.foreignkeys`).

A statement about a parent changes foreign keys without a word about the child: a key goes with the
table that it refers to, under each new name. So no event of the child tells that its keys are
others now; those of its parents do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

from core.rounds import TableEvent
from merge.ddl import changes_of
from store.tables import TableState

# Effects after which a table's rows are those that its row events tell of, under the same name.
_TOLD: Final = frozenset({"columns", "types", "key", "foreign_key", "rebuild"})


class Reach(IntEnum):
    """How far an event of a table reaches those that hang on it.

    NOT: not at all.
    KEYS: their keys may be others now.
    ROWS: and what they led to meanwhile may not be known.
    """

    NOT = 0
    KEYS = 1
    ROWS = 2


def ancestors(states: Iterable[TableState]) -> dict[str, frozenset[str]]:
    """Table -> the tables over which it hangs by foreign keys, directly or over others.

    Args:
        states: all tables'; names are keyspace.table. Tables that hang on none are left out.
    """
    parents = {
        state.name: {
            f"{state.keyspace}.{key.parent}"
            for key in state.foreign_keys or ()
            if key.changes_rows and not key.parent_database
        }
        for state in states
    }
    return {name: _above(name, parents) for name, own in parents.items() if own}


def _above(name: str, parents: Mapping[str, set[str]]) -> frozenset[str]:
    found: set[str] = set()
    todo = [name]
    while todo:
        for parent in parents.get(todo.pop(), ()):
            if parent not in found:
                found.add(parent)
                todo.append(parent)
    return frozenset(found - {name})


def reach(event: TableEvent) -> Reach:
    """What an event of a table means for those that hang on it."""
    if event.kind == "truncate":
        return Reach.NOT  # the servers refuse it where it would reach them, or leave them alone
    if event.kind != "ddl":
        return Reach.ROWS
    effects = {change.effect for change in changes_of(event)}
    return Reach.KEYS if effects <= _TOLD else Reach.ROWS
