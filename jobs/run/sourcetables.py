"""What a server says of one table, and where its log ends. Both are read from its primary."""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.core.errors import TableStoppedError
from ratchet.core.position import Position
from ratchet.snapshot.records import ShardSource
from ratchet.snapshot.source import SourceCatalog, SourceTable
from ratchet.store.tables import TableState
from ratchet.wire.session import Session


def source_table(
    shards: Mapping[str, ShardSource], state: TableState, shard: str = ""
) -> SourceTable | None:
    """The table on its server now; None: it is gone, or has no key any more.

    Args:
        shards: ShardId as text -> where it is read from.
        state: the table.
        shard: which; empty: where the statement was made that stopped it.
    """
    if not shard and state.change is not None:
        shard = state.change.shard
    if shard not in shards:
        return None
    catalog = SourceCatalog({shard: shards[shard].primary}, only=state.table)
    try:
        return catalog.table(shard, state.table)
    except TableStoppedError:
        return None


def log_head(shard: ShardSource) -> Position:
    """Where its log ends now."""
    with Session.connect(shard.primary) as session:
        return session.head()
