"""A lake whose parts are of different ages: tables or cuts that know rounds which the log has not.

Rounds are counted, and what a table holds is a number. In a copy that was made while a run wrote,
or a backup of which a part was restored, the log of rounds can be older than the tables. Capture
then makes other rounds of the same numbers, and a table that "has" them would leave out their rows.

Lives here: looking for that before a round is captured, and for tables that are not there at all.
Does not live here: how far a table is (`progress`), a log that lacks older rounds (`store.rounds`).

Invariant: called before a run's first round, it leaves no table streaming that holds a later one
than the log's last.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ratchet.core.errors import TableFileError
from ratchet.core.shell import redump
from ratchet.merge.lostparts import lost_folder, remedy
from ratchet.merge.progress import Progress, TableBeginning
from ratchet.store import layout
from ratchet.store.anew import named_version
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.log import check_commit, drop_damaged_checkpoint, replay
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState
from ratchet.store.takeover import OTHER_AGES, refuse_later_epoch

log: Final = logging.getLogger("ratchet.jobs.run")

_LOOKS: Final = 16  # at a time


def _fault(
    lake: Lake, state: TableState, progress: Progress, cut: Cut | None, end: int
) -> tuple[str, str]:
    """Why a table must not stream on, as a sentence (empty: it may), and the remedy."""
    if gone := lost_folder(lake, state):
        return gone, remedy(state.name)
    try:
        begun = progress.begun(state)
        check_commit(lake, state.path, begun.version)
        if begun.epoch > lake.epoch:
            refuse_later_epoch(lake, state.path)
        older = _age(state, begun, cut, end) or _lost_of_side(lake, state)
    except TableFileError as error:
        return f"its log cannot be read: {error}", remedy(state.name)
    return older, f"{redump(state.name)} dumps it again"


def _age(state: TableState, begun: TableBeginning, cut: Cut | None, end: int) -> str:
    """Why a table is of another age than the rest, as a sentence; empty: it is not."""
    held = max(state.merged_round, begun.round)
    if held > end:
        return f"the table holds round {held}, but the log of rounds ends at {end}: {OTHER_AGES}"
    named = named_version(cut, state)
    if begun.version < named:
        return (
            f"its log ends at version {begun.version}, but the newest cut shows version {named}: "
            f"its newest versions were lost (a power failure, or {OTHER_AGES})"
        )
    return ""


def _lost_of_side(lake: Lake, state: TableState) -> str:
    """What a table's side table has lost, as a sentence; empty: nothing.

    Without its tombstones an older change could bring a row back.

    Raises:
        TableFileError: its log is damaged.
    """
    named = state.side_version if state.has_side else 0
    if not named or check_commit(lake, state.side_path, named):
        return ""
    files = replay(lake, state.side_path)
    ends = -1 if files is None else files.version
    if ends >= named:
        return ""
    return (
        f"its side table's log ends at version {ends}, but it had version {named}: "
        f"its newest versions were lost (a power failure, or {OTHER_AGES})"
    )


def refuse_other_ages(lake: Lake, progress: Progress) -> None:
    """Stop the tables that are ahead of the log of rounds, or damaged, or behind the newest cut.

    Args:
        lake: the lake, held. The newest cut is not ahead of the log (`refuse_older_rounds`).
        progress: what is learned of the tables here is not asked again.

    Raises:
        LakeError: a table knows a later take-over; or the lake cannot be read.
    """
    for path in (layout.ROUNDS, layout.CUTS):
        drop_damaged_checkpoint(lake, path)
    end = RoundLog(lake).last_number()
    cut = Cuts(lake).last()
    tables = Tables(lake)

    def look(state: TableState) -> None:
        why, hint = _fault(lake, state, progress, cut, end)
        if why:
            log.error("%s is stopped: %s", state.name, why)
            tables.stop(state, message=why, hint=hint, at_round=end)

    phases = {"streaming", "catching_up"}
    merged = [one for one in tables.list() if one.phase in phases or one.awaits_shards]
    with ThreadPoolExecutor(_LOOKS, "ages") as pool:
        for _ in pool.map(look, merged):
            pass
