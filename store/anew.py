"""Tables that are to be dumped anew, and what of them stays readable meanwhile.

Lives here: that decision. Does not live here: the dump (`snapshot`), the moment at which a new one
is shown (`merge`).

Invariant: what a cut shows of a table stays as it is until a whole new dump takes its place. Only a
table that no cut shows is filled where it stands.
"""

from __future__ import annotations

from dataclasses import replace

from ratchet.core.errors import TableFileError
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.log import replay
from ratchet.store.files import STAGED_FORMAT, Lake, need_format
from ratchet.store.tables import TableState


def to_be_dumped(lake: Lake, state: TableState) -> TableState:
    """The state of a table that waits for a new dump. To be saved.

    Raises:
        LakeError: the lake cannot be read or written.
    """
    anew = replace(state, phase="new", dump=None, stopped=None, change=None)
    return replace(anew, standing=standing_of(lake, state))


def standing_of(lake: Lake, state: TableState) -> int | None:
    """Which version is to be shown of a table while it is dumped anew; None: there is none.

    Raises:
        LakeError: the lake cannot be read or written.
    """
    version = _shown(Cuts(lake).last(), state)
    if version is None or not _can_be_read(lake, state.shown_path):
        return None
    need_format(lake, STAGED_FORMAT)
    return version


def _can_be_read(lake: Lake, path: str) -> bool:
    """Whether there is a table; one that is damaged may be why there is to be a new dump."""
    try:
        return replay(lake, path) is not None
    except TableFileError:
        return False


def _shown(cut: Cut | None, state: TableState) -> int | None:
    if state.standing is not None:
        return state.standing
    # Where its dump was under way, the table itself was being filled.
    is_whole = state.dump is not None and state.phase in {"streaming", "stopped"}
    return cut.tables.get(state.name) if cut is not None and is_whole else None
