"""What statements about a table mean for those that hang on it by foreign keys.

Lives here: what an event of a table says of those that hang on it. Does not live here: which these
are (`merge.cascades.graph`), what changes of its rows lead to (`merge.cascades.step`), reading the
keys (`jobs.preflight.foreignkeys`).

A statement about a parent changes foreign keys without a word about the child: a key goes with the
table that it refers to, under each new name. So no event of the child tells that its keys are
others now; those of its parents do.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ratchet.core.rounds import TableEvent
from ratchet.merge.ddl import changes_of

# Effects after which a table's rows are those that its row events tell of, under the same name.
_TOLD: Final = frozenset({"columns", "types", "key", "rebuild"})


class Reach(IntEnum):
    """How far an event of a table reaches those that hang on it.

    NOT: not at all.
    KEYS: their keys may be others now.
    ROWS: and what they led to meanwhile may not be known.
    """

    NOT = 0
    KEYS = 1
    ROWS = 2


def reach(event: TableEvent) -> Reach:
    """What an event of a table means for those that hang on it."""
    if event.kind == "truncate":
        return Reach.NOT  # the servers refuse it where it would reach them, or leave them alone
    if event.kind != "ddl":
        return Reach.ROWS
    effects = {change.effect for change in changes_of(event)}
    return Reach.KEYS if effects <= _TOLD else Reach.ROWS
