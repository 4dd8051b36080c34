"""Streams that begin behind a gap: what of the tables has to be dumped again.

When a shard is gone before its stream was read to the end, its heirs' streams begin now, and what
was written in between is in no stream. It can have changed any row of the heirs, and none of other
shards: so only the heirs are read again where the rows of the others can be told from theirs.

Invariant: the tables' states say so before the heirs' streams begin. Killed in between, the gap is
found once more; the other way round the tables would stream on with rows that nothing corrects.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from ratchet.core.rounds import ShardSlice
from ratchet.jobs.topology.begin import begin_streams
from ratchet.jobs.topology.lineage import keyspace_of
from ratchet.store.crashpoints import reach
from ratchet.store.cuts import Cuts
from ratchet.store.dumpstates import DumpState, RetainedRows
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.store.stops import StopReason
from ratchet.store.tables import Tables, TableState

log: Final = logging.getLogger("ratchet.jobs.run")


def begin_after_a_gap(
    lake: Lake,
    rounds: RoundLog,
    keyspace: str,
    heirs: Collection[ShardSlice],
    *,
    now: int,
    spared: Mapping[str, StopReason | None] | None = None,
) -> None:
    """Send a keyspace's tables to a new dump, and begin the heirs' streams.

    Args:
        lake: the lake.
        rounds: its round log.
        keyspace: whose shards have a gap.
        heirs: the slices that begin the streams of all shards that took over.
        now: microseconds UTC.
        spared: keyspace.table of those that need no dump -> what they wait for, if for anything.

    Raises:
        LakeError: the lake cannot be written.
    """
    streams = {s: one for s, one in rounds.streams().items() if keyspace_of(s) == keyspace}
    tables, cut, first = Tables(lake), Cuts(lake).last(), rounds.first_number()
    streams_at = cache(rounds.streams_at)  # most tables stand at one round
    for state in tables.list(keyspace):
        if state.phase not in {"dumping", "catching_up", "streaming"}:
            continue
        if spared is not None and state.name in spared:
            if why := spared[state.name]:
                merged = why.round - 1
                tables.save(replace(state, phase="stopped", stopped=why, merged_round=merged))
            continue
        # The state of a table that nothing happens to lags behind the cut that it is in.
        shown = cut.round if cut and cut.shows(state.name) else 0
        merged = max(state.merged_round, shown)
        then = streams_at(merged) if 0 < first <= merged else {}
        dump = dump_of_heirs(state, streams, heirs, merged=merged, then=then)
        tables.save(replace(state, phase="dumping" if dump else "new", dump=dump))
        what = f"only {', '.join(dump.read)}" if dump else "of all its shards"
        log.info("%s needs a new dump, %s", state.name, what)
    reach("heal.states_saved")
    begin_streams(rounds, heirs, now=now)


def dump_of_heirs(
    state: TableState,
    streams: Mapping[str, StreamState],
    heirs: Collection[ShardSlice],
    *,
    merged: int,
    then: Mapping[str, StreamState],
) -> DumpState | None:
    """The dump that reads the heirs alone; None where all shards have to be read.

    Rows stand under the name of the shard that wrote them last, or under one of those that it
    descends from. If a shard that goes on shares such a name with the heirs, it is not known whose
    the rows are. And only a table that is merged up to where its shards' streams are of today can
    keep rows: what an earlier reshard left to do is done by the merge alone.

    Args:
        state: the table.
        streams: the keyspace's streams, the heirs' not among them.
        heirs: the slices that begin the heirs' streams.
        merged: the round up to which the table is merged for sure.
        then: the streams at that round; empty if it is not known any more.
    """
    if state.phase != "streaming" or state.dump is None:
        return None
    begun = {piece.shard: piece.end for piece in heirs}
    gone = {name for piece in heirs for name in piece.ancestors} | begun.keys()
    going = {s: one for s, one in streams.items() if one.journal is None and s not in gone}
    names = {name for shard, one in going.items() for name in (shard, *one.ancestors)}
    known = all(s in then and then[s].generation == one.generation for s, one in going.items())
    if not going or not known or names & gone:
        return None
    return DumpState(
        id=uuid.uuid4().hex[:12],
        start_round=merged + 1,
        start={**{shard: then[shard].position for shard in going}, **begun},
        kept=RetainedRows(names=tuple(sorted(names)), dump=state.dump.id, since=state.dump.since),
    )
