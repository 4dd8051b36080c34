"""The beginning of a dump that reads no source: its rows come from the lake.

Lives here: the state of a table that is being made so. Does not live here: where its rows come from
(`remake`: from those that were shown; `fromlog`: from the change log of a copy).

Invariant: the state says that a table is being made before anything of it is in the lake. Killed in
between, it is made anew, in another folder.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from ratchet.core.reshaping import NotComputableError
from ratchet.store.anew import standing_of
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import COMPUTED_FORMAT, need_format
from ratchet.store.staged import remove_given_up
from ratchet.store.stops import ShapeChange
from ratchet.store.tables import Tables, TableState


def begin(lake: Lake, state: TableState, change: ShapeChange, *, first_round: int) -> TableState:
    """Note that a table is being made behind a change of it; its shape is that of before.

    Args:
        lake: the lake.
        state: the table: stopped by the change, or half made by a run that was killed.
        change: what stopped it: the table is made as it is at that place.
        first_round: the first one whose change files are needed until it is made.

    Returns:
        The state as saved.

    Raises:
        NotComputableError: no cut shows the table.
        LakeError: the lake cannot be read or written.
    """
    standing = standing_of(lake, state)
    if standing is None:
        raise NotComputableError("no cut shows it")
    need_format(lake, COMPUTED_FORMAT)
    place = change.positions
    dump = DumpState(
        id=uuid.uuid4().hex[:12],
        start_round=first_round,
        start=place,
        end=place,
        made={} if state.dump is None else state.dump.made,
        computed=True,
        known_from=None if state.dump is None else state.dump.followed_from,
    )
    making = replace(state, phase="dumping", dump=dump, stopped=None, standing=standing)
    making = Tables(lake).save(making)
    remove_given_up(lake, making)
    return making
