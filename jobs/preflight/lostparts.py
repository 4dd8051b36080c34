"""Partitions that are gone at a server: whether its log says so.

A DROP PARTITION that fails half-way, as by a crash, takes rows away and is in no log. One that is
in the log counts at its place, so it is no reason to compare the table.

Lives here: that question. Does not live here: which partitions are gone (`restarts`), what a logged
statement does to rows (`merge`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ratchet.core.partitions import folded
from ratchet.core.position import Position
from ratchet.core.rounds import TableEvent
from ratchet.core.shard import ShardId
from ratchet.core.sql.logged import logged_alteration
from ratchet.merge.swap import about
from ratchet.store.rounds import RoundLog

_BLOCK: Final = 256  # rounds that are read at a time, from the newest on


def is_read_to(log: RoundLog, shard: str, end: Position | None) -> bool:
    """Whether a shard's log has been read up to a position; None: there is none to be compared.

    Raises:
        LakeError: the lake cannot be read.
    """
    now = log.positions().get(shard)
    return end is None or (now is not None and now.executed.contains_all(end.executed))


def untold(
    log: RoundLog, shard: str, gone: Mapping[str, Collection[str]], *, since: int
) -> dict[str, str]:
    """Why tables may lack rows of whose going no statement tells.

    Args:
        log: the rounds; read up to where the partitions were gone.
        shard: ShardId as text.
        gone: table -> names of partitions.
        since: in this round, or behind it, they went.

    Raises:
        LakeError: the lake cannot be read.
    """
    keyspace = ShardId.parse(shard).keyspace
    left = {table: set(names) for table, names in gone.items()}
    end, first = log.last_number(), max(since, log.first_number(), 1)
    while end >= first and any(left.values()):
        begin = max(first, end - _BLOCK + 1)
        for one in log.walk(begin, end):
            for event in about(one, keyspace, [*left], shard).events:
                left[event.table] -= _told(event, left[event.table])
        end = begin - 1
    return {
        table: f"partitions of it are gone: {', '.join(sorted(names))}"[:200]
        for table, names in left.items()
        if names
    }


def _told(event: TableEvent, names: Collection[str]) -> set[str]:
    """Those of the partitions of which an event says where they went."""
    if event.kind != "ddl" or not names:
        return set()
    found = logged_alteration(event.statement, event.table)
    if found is None:  # by itself it stops the table, or puts it in doubt
        return set(names) if event.effect in {"rows", "doubt"} else set()
    named = {folded(name) for step in found.partitions for name in step.names}
    whole = any(not step.names and step.kind != "added" for step in found.partitions)
    return {name for name in names if whole or folded(name) in named}
