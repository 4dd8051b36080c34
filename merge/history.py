"""The change log of a table, as a frame: who changed which row, when, from what to what.

Lives here: which change files that is. Does not live here: reading them (`reduce`), who asks
(`jobs.inspect.sql`, a notebook).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.ancestry import NO_ANCESTRY
from ratchet.merge.plan import shape_of
from ratchet.merge.reduce import read_changes
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ratchet.store.tables import TableState


def read_history(
    session: SparkSession, lake: Lake, state: TableState, policy: InvalidValuePolicy
) -> DataFrame:
    """All changes of a table that are kept, since its dump began; those not merged yet among them.

    It is read while the frame is used, and fails if upkeep has removed its oldest files meanwhile,
    or those that it has put together (`bundle`): an hour after it was made at the earliest.

    Args:
        session: where the query runs.
        lake: the lake.
        state: the table.
        policy: decides about the lake's types; as in the run's config.

    Returns:
        Rows as core.change.change_schema has them, in the table's columns of now, in no order.

    Raises:
        LakeError: the lake cannot be read.
    """
    log = RoundLog(lake)
    last = log.last_number()
    first = max(1, log.first_number(), state.dump.start_round if state.dump else 0)
    paths = [
        file.path
        for value in log.walk(first, last)
        for file in value.files
        if (file.keyspace, file.table) == (state.keyspace, state.table)
    ]
    return read_changes(session, lake, paths, shape_of(state, policy, NO_ANCESTRY))
