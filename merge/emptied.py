"""Which rows went with partitions that a statement has dropped or emptied.

The log names the partitions, and nothing else. Which rows they held follows from how the table was
partitioned when a run looked last, and from all that the log has about the table since.

Lives here: that. Does not live here: looking (`jobs.watch.partitions`), what bounds mean
(`core.partitions`), taking the rows away (`remake`).

Invariant: a statement in between that is not understood to its last word refuses the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from ratchet.core.errors import DecodeError
from ratchet.core.gtid import parse_gtid
from ratchet.core.partitions import PartitionsUnclearError, RangeLayout, RowRange
from ratchet.core.position import Position
from ratchet.core.reshaping import NotComputableError
from ratchet.core.rounds import TableEvent
from ratchet.core.schema import TableSchema
from ratchet.core.sql.logged import logged_alteration
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.changeplaces import seqs_of
from ratchet.merge.swap import about, is_whole, refuse_rows_at
from ratchet.store.files import Lake
from ratchet.store.partitionlooks import PartitionLook, PartitionLooks
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import ShapeChange
from ratchet.store.tables import TableState

# What changes rows, and not where they belong.
_ROWS_ALONE: Final = frozenset({"untold", "bulk", "prepared"})
# Statements besides ALTER that were understood to make or drop an index, or to write rows anew.
_INDEXES: Final = re.compile(r"\s*(?:CREATE|DROP|OPTIMIZE)\s", re.IGNORECASE)
_OF_INDEXES: Final = frozenset({"key", "rebuild"})
_UNKNOWN: Final = "how it was partitioned is not known"


def emptied_rows(
    lake: Lake,
    state: TableState,
    names: Sequence[str],
    schema: TableSchema,
    policy: InvalidValuePolicy,
) -> RowRange:
    """The rows that were in some partitions when a statement emptied them.

    Args:
        lake: the lake.
        state: the table, stopped by the statement; on each of its shards, if there are several.
        names: of the partitions.
        schema: the table's shape by then.
        policy: decides about the lake's types.

    Raises:
        NotComputableError: that is not known for sure.
        LakeError: the lake cannot be read.
    """
    if state.change is None:
        raise NotComputableError("nothing tells what the change does")
    looks = PartitionLooks(lake).of(state.keyspace, state.table)
    try:
        ranges = {
            _layout_before(lake, state, one, looks.get(one.shard, ())).rows(names, schema, policy)
            for one in state.change.every
        }
    except PartitionsUnclearError as error:
        raise NotComputableError(str(error)) from error
    if len(ranges) > 1:
        raise NotComputableError("its shards have other partitions, each of its own")
    return ranges.pop()


def _layout_before(
    lake: Lake, state: TableState, change: ShapeChange, looks: Sequence[PartitionLook]
) -> RangeLayout:
    """How the table was partitioned on one shard when the statement came.

    Raises:
        PartitionsUnclearError: that is not known for sure.
    """
    why = PartitionsUnclearError(_UNKNOWN)
    for look in reversed(looks):
        try:
            return _followed(look, state, _events(lake, state, change, look))
        except PartitionsUnclearError as error:
            why = error
    raise why


def _events(
    lake: Lake, state: TableState, change: ShapeChange, look: PartitionLook
) -> list[TableEvent]:
    """What the log has about the table from a look on, up to the statement.

    Raises:
        PartitionsUnclearError: it does not have all, or the look came too late.
        NotComputableError: rows stand at the statement's own place.
    """
    log, since = RoundLog(lake), None if state.dump is None else state.dump.followed_from
    if since is None or max(since - 1, log.first_number()) > look.round or look.round < 1:
        raise PartitionsUnclearError(f"{_UNKNOWN} as far as the change log reaches back")
    rounds = [
        about(one, state.keyspace, [state.table], change.shard)
        for one in log.walk(look.round, change.round)
    ]
    # The stream has to go on from where it stood when the look began.
    then = log.streams_at(look.round).get(change.shard)
    first = next((piece for one in rounds[1:] for piece in one.slices), None)
    goes_on = (
        then is not None
        and first is not None
        and first.start.executed == then.position.executed
        and first.generation == then.generation
    )
    if not goes_on or not is_whole(rounds, change.shard):
        raise PartitionsUnclearError(f"{_UNKNOWN}: the log is not whole (a failover, or a gap)")
    found = [
        event
        for one in rounds
        if one.number > look.round
        for event in sorted(one.events, key=lambda event: event.seq)
    ]
    at = [
        number
        for number, event in enumerate(found)
        if event.statement == change.statement and _contains(change.position, event)
    ]
    if not at or _contains(look.position, found[at[-1]]):
        raise PartitionsUnclearError(_UNKNOWN)
    refuse_rows_at(found[at[-1]].seq, rounds[-1].files, partial(seqs_of, lake))
    begin = next(number for number in at if found[number].gtid == found[at[-1]].gtid)
    return found[:begin]


def _followed(look: PartitionLook, state: TableState, events: Sequence[TableEvent]) -> RangeLayout:
    """A layout behind what came since.

    Raises:
        PartitionsUnclearError: what a statement did to it is not known for sure.
    """
    layout = look.layout
    before: tuple[str, str] | None = None
    for event in events:
        own = event.gtid, event.statement
        if own == before and event.effect != "doubt":
            continue  # one statement may be several events
        if _contains(look.since, event):
            continue  # the server has shown what it did
        now = _behind(layout, event, state.table)
        if now is not layout and _contains(look.position, event):
            raise PartitionsUnclearError(f"{_UNKNOWN}: it was changed while a run looked")
        layout, before = now, own
    return layout


def _behind(layout: RangeLayout, event: TableEvent, table: str) -> RangeLayout:
    """A layout behind an event; the same one where it stays.

    Raises:
        PartitionsUnclearError: that is not known for sure.
    """
    if event.kind == "truncate" or event.effect in _ROWS_ALONE:
        return layout
    if event.effect in _OF_INDEXES and _INDEXES.match(event.statement):
        return layout
    found = logged_alteration(event.statement, table) if event.kind == "ddl" else None
    if found is None or event.effect == "doubt" or found.others:
        raise PartitionsUnclearError(f"{_UNKNOWN} behind {event.statement or event.reason}")
    if found.names_column(layout.column):
        raise PartitionsUnclearError(f"{layout.column}, by which it is partitioned, was changed")
    for step in found.partitions:
        if step.kind == "dropped" and step.names:
            layout = layout.without(step.names)
        elif step.kind == "reorganized" and step.names:
            layout = layout.reorganized(step.names)
        elif step.kind not in {"added", "emptied"}:
            raise PartitionsUnclearError(f"{_UNKNOWN} behind {event.statement}")
    return layout


def _contains(position: Position, event: TableEvent) -> bool:
    """Whether a position has an event's transaction.

    Raises:
        PartitionsUnclearError: it has no name of its own.
    """
    try:
        return position.executed.contains(parse_gtid(position.flavor, event.gtid))
    except DecodeError as error:
        raise PartitionsUnclearError(f"{_UNKNOWN}: a transaction has no name") from error
