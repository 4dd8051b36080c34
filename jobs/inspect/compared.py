"""What a comparison of a whole table came to: as a line for people, and as a record for the lake.

Does not live here: comparing (`verify`, `background`), the record's file (`store.comparisons`).
"""

from __future__ import annotations

from typing import Final

from ratchet.jobs.inspect.verify import describe
from ratchet.jobs.reporting.text import counted
from ratchet.snapshot.verify import VerifyResult
from ratchet.store.comparisons import Comparison
from ratchet.store.tables import TableState

_EXAMPLES: Final = 3


def record_of(state: TableState, result: VerifyResult, *, since: int, until: int) -> Comparison:
    """The record of a comparison at one cut.

    Args:
        state: the table.
        result: what came of it.
        since: when it began, microseconds UTC.
        until: when it ended.
    """
    return Comparison(
        keyspace=state.keyspace,
        table=state.table,
        dump=state.dump.id if state.dump else "",
        since=since,
        until=until,
        round=result.round,
        positions={shard: str(p.executed) for shard, p in result.positions.items()},
        rows=result.source_rows,
        differences=result.differences,
        unsettled=sum(result.unsettled.values()),
        kinds=dict(result.kinds),
        examples=tuple(describe(one) for one in result.examples),
    )


def shown(result: VerifyResult) -> str:
    """What differs, in a line for people."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(result.kinds.items()))
    some = "; ".join(describe(one) for one in result.examples[:_EXAMPLES])
    more = " ..." if result.differences > _EXAMPLES else ""
    return f"{counted(result.differences, 'row')} ({kinds}): {some}{more}"
