"""Tables that are to be dumped anew, what of them stays readable meanwhile, and what has to go.

Lives here: these decisions. Does not live here: the dump (`snapshot`), the moment at which a new
one is shown (`merge`).

Invariant: what a cut shows of a table stays as it is until a whole new dump takes its place. Only a
table that no cut shows is filled where it stands.
"""

from __future__ import annotations

from dataclasses import replace

from ratchet.core.errors import TableFileError
from ratchet.store import layout
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.commits import check_epoch
from ratchet.store.delta.log import replay
from ratchet.store.files import Lake
from ratchet.store.formats import STAGED_FORMAT, need_format
from ratchet.store.removals import Removals
from ratchet.store.rounds import RoundLog
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
    newest = None if version is None else _newest(lake, state.shown_path)
    if version is None or newest is None:
        return None
    need_format(lake, STAGED_FORMAT)
    return min(version, newest)


def named_version(cut: Cut | None, state: TableState) -> int:
    """The version of a streaming table that a cut names: its log cannot end before it; 0: none.

    Args:
        cut: the newest one.
        state: the table.
    """
    if cut is None or state.phase != "streaming" or state.is_staged or not cut.shows(state.name):
        return 0
    is_of = state.dump is not None and state.dump.start_round <= cut.round
    return cut.tables[state.name] if is_of else 0


def clear_place(lake: Lake, path: str) -> bool:
    """Remove what a new dump cannot be filled in beside: a log that cannot be read, or a file.

    Args:
        lake: the lake.
        path: of the folder that the table is to have.

    Returns:
        Whether there was anything.

    Raises:
        LateError: another run has taken the lake over.
        LakeError: the lake cannot be read or written.
    """
    cleared = lake.clear_way(path)
    if is_readable(lake, path):
        return cleared

    _remove_log(lake, path, "remove a damaged log")
    return True


def end_removal(lake: Lake, keyspace: str, table: str) -> None:
    """Call before the dump of a table without a state begins: what was being removed goes first.

    A run that was told to remove the table may stand still before its first removal. A dump that
    went on in the log which it has seen would lose what it commits there; one that begins a log of
    its own has it in another folder (store.folders).

    Raises:
        LateError: another run has taken the lake over.
        LakeError: the lake cannot be read or written.
    """
    removals = Removals(lake)
    if removals.is_begun(keyspace, table):
        _remove_log(lake, layout.table_path(keyspace, table), "end a removal")
        removals.end(keyspace, table)


def _remove_log(lake: Lake, path: str, operation: str) -> None:
    def look() -> None:
        check_epoch(lake, RoundLog(lake).epoch(), path, operation)

    look()
    lake.clear_way(f"{path}/_delta_log")
    lake.delete_seen(f"{path}/_delta_log", look)


def is_readable(lake: Lake, path: str) -> bool:
    """Whether a table's log can be read, or there is none; not so where it is damaged.

    Raises:
        LakeError: the lake cannot be read.
    """
    try:
        files = replay(lake, path)
    except TableFileError:
        return False
    # One whose removal was broken off lacks its first commits: its last ones would come to stand
    # among those of a new table.
    return files is not None or not lake.list(f"{path}/_delta_log")


def _newest(lake: Lake, path: str) -> int | None:
    """A table's newest version, or None: a damaged log may be why there is to be a new dump.

    A lost version may be the reason as well; then it is older than the one that a cut names.
    """
    try:
        files = replay(lake, path)
    except TableFileError:
        return None
    return None if files is None else files.version


def _shown(cut: Cut | None, state: TableState) -> int | None:
    if state.standing is not None:
        return state.standing
    # Where its dump was under way, the table itself was being filled.
    is_whole = state.phase in {"streaming", "stopped"} and (state.dump or state.is_unreadable)
    return cut.tables.get(state.name) if cut is not None and is_whole else None
