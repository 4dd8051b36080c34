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

from ratchet.core.errors import LakeError
from ratchet.core.shell import redump
from ratchet.merge.lostparts import lost_folder, remedy
from ratchet.merge.progress import Progress
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState
from ratchet.store.takeover import NEWER_COPY, OTHER_AGES, refuse_later_epoch

log: Final = logging.getLogger("ratchet.jobs.run")

_LOOKS: Final = 16  # at a time


def refuse_other_ages(lake: Lake, progress: Progress) -> None:
    """Stop the tables that are ahead of the log of rounds, or whose folders are gone, by name.

    Args:
        lake: the lake, held.
        progress: what is learned of the tables here is not asked again.

    Raises:
        LakeError: the newest cut is ahead of the log, or a table knows a later take-over; or the
            lake cannot be read.
    """
    end = RoundLog(lake).last_number()
    cut = Cuts(lake).last()
    if cut is not None and cut.round > end:
        raise LakeError(
            f"the newest cut shows round {cut.round}, but the log of rounds ends at {end}",
            operation="begin a run",
            hint=f"{OTHER_AGES}: {NEWER_COPY}",
        )
    tables = Tables(lake)

    def look(state: TableState) -> None:
        gone = lost_folder(lake, state)
        if gone:
            log.error("%s is stopped: %s", state.name, gone)
            tables.stop(state, message=gone, hint=remedy(state.name), at_round=end)
            return
        committed, epoch = progress.begun(state)
        if epoch > lake.epoch:
            refuse_later_epoch(lake, state.path)
        held = max(state.merged_round, committed)
        if held > end:
            why = f"the table holds round {held}, but the log of rounds ends at {end}: {OTHER_AGES}"
            hint = f"{redump(state.name)} dumps it again"
            log.error("%s is stopped: %s", state.name, why)
            tables.stop(state, message=why, hint=hint, at_round=end)

    merged = [one for one in tables.list() if one.phase in {"streaming", "catching_up"}]
    with ThreadPoolExecutor(_LOOKS, "ages") as pool:
        for _ in pool.map(look, merged):
            pass
