"""Children's rows that may have come while a parent's change was open.

A server follows a foreign key when a statement changes the parent; the log has that change where
its transaction is committed. What is written to the child between the two stands before it in the
log. Who looks at foreign keys has to wait for the parent's row, so there is nothing between. But a
session with foreign_key_checks=0 does not wait, nor does one that brings the key. Its rows stay at
the server, while they would be changed if the log alone counted (measured on MariaDB 10.11 in READ
COMMITTED; docs/decisions/0029-foreign-keys.md).

Lives here: when that may have been so. Does not live here: what follows (`step`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ratchet.core.rounds import ChangeFile, Round
from ratchet.store.unchecked import Unchecked

# Seconds by which a row may be written behind the time that the log has of its transaction: a
# MariaDB's is that at which its last statement began.
_LATER: Final = 60
_SECOND: Final = 1_000_000


def unchecked_writes(rounds: Iterable[Round], known: Unchecked) -> dict[tuple[str, str], int]:
    """When tables were written last by such sessions, or got other keys, as far as it is news.

    Args:
        rounds: of a step.
        known: what was known before.
    """
    found: dict[tuple[str, str], int] = {}

    def see(table: str, shard: str, moment: int) -> None:
        if moment > max(known.get((table, shard), 0), found.get((table, shard), 0)):
            found[table, shard] = moment

    for value in rounds:
        ends = {piece.shard: piece.max_ts or piece.observed_at for piece in value.slices}
        for file in value.files:
            if file.unchecked:
                moment = ends.get(file.shard, value.committed_at)
                see(f"{file.keyspace}.{file.table}", file.shard, moment)
        for event in value.events:
            if event.kind == "ddl" and event.effect in {"foreign_key", "rows", "doubt"}:
                see(f"{event.keyspace}.{event.table}", event.shard, event.ts)
    return found


def first_began(files: Iterable[tuple[Round, ChangeFile]]) -> int:
    """When the first statement of parents' changes began, microseconds UTC; 0: not known."""
    moments = []
    for value, file in files:
        ends = [piece.max_ts for piece in value.slices if piece.shard == file.shard]
        moment = file.began * _SECOND
        # A session may set its clock; one that is ahead tells nothing.
        ahead = bool(ends) and ends[0] is not None and moment > ends[0] + _SECOND
        moments.append(0 if ahead else moment)
    return min(moments, default=0)


def written_meanwhile(
    tables: Sequence[str], shard: str, began: int, unchecked: Unchecked
) -> dict[str, str]:
    """Tables of which rows may have come behind that moment without a look, and why.

    Args:
        tables: of which rows change by foreign keys.
        shard: there.
        began: when the first parent's statement began, microseconds UTC; 0: not known.
        unchecked: see store.unchecked.
    """
    return {
        table: "a session wrote to it, or added the key, without checking foreign keys, and "
        "perhaps while the parent's change was not committed"
        for table in tables
        if (last := unchecked.get((table, shard))) is not None and last + _LATER * _SECOND >= began
    }
