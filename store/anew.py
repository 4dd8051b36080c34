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


def clear_place(lake: Lake, keyspace: str, table: str, path: str) -> bool:
    """Remove what a new dump cannot be filled in beside: a log that cannot be read, or a file.

    In an object store such a log stays until the new one has begun above it (`used_numbers`).

    Args:
        lake: the lake.
        keyspace: of the table.
        table: its name.
        path: of the folder that it is to have.

    Returns:
        Whether there was anything.

    Raises:
        LateError: another run has taken the lake over.
        LakeError: the lake cannot be read or written.
    """
    cleared = lake.clear_way(path)
    if is_readable(lake, path):
        return cleared
    if lake.is_local:
        if path == layout.table_path(keyspace, table):
            # Its numbers are known from here on, also to whoever goes on behind a kill.
            Removals(lake).begin(keyspace, table, last=highest_number(lake, path))
        _remove_log(lake, path, "remove a damaged log")
    return True


def end_removal(lake: Lake, keyspace: str, table: str) -> None:
    """Call before the dump of a table without a state begins: what was being removed goes first.

    A run that was told to remove the table may stand still before its first removal. A dump that
    went on in the log which it has seen would lose what it commits there; one that begins a log of
    its own has it in another folder (store.folders), and above its numbers (`used_numbers`).

    Raises:
        LateError: another run has taken the lake over.
        LakeError: the lake cannot be read or written.
    """
    if lake.is_local and Removals(lake).is_begun(keyspace, table):
        _remove_log(lake, layout.table_path(keyspace, table), "end a removal")


def used_numbers(lake: Lake, keyspace: str, table: str, path: str) -> int:
    """The highest number of a log that is not to go on; -1: there is none.

    A new log begins above all numbers that were ever used there. So it meets nothing of a process
    that stood still and wakes: what it removes in an object store goes by names, and Spark puts a
    commit behind the last one that it has read.

    Args:
        lake: the lake.
        keyspace: of the table.
        table: its name.
        path: of the folder that it is to have.

    Raises:
        LakeError: the lake cannot be read.
    """
    if path != layout.table_path(keyspace, table):
        return -1  # a folder of this dump alone
    removed, highest = Removals(lake).last(keyspace, table), highest_number(lake, path)
    if is_readable(lake, path) and (removed < 0 or highest > removed):
        return -1
    return max(removed, highest)


def forget_old_log(lake: Lake, keyspace: str, table: str, path: str, upto: int) -> None:
    """Remove what is left of a log above which a new one has begun, and the note of it.

    Args:
        lake: the lake.
        keyspace: of the table.
        table: its name.
        path: the table's folder.
        upto: see `used_numbers`.

    Raises:
        LateError: another run has taken the lake over.
        LakeError: the lake cannot be read or written.
    """
    if upto >= 0:
        hint = f"{path}/_delta_log/_last_checkpoint"
        listed = [file.path for file in lake.list(f"{path}/_delta_log")]
        old = [one for one in listed if one == hint or 0 <= _number_of(one) <= upto]
        check_epoch(lake, RoundLog(lake).epoch(), path, "remove an old log")
        lake.delete_files(old)
    removals = Removals(lake)
    if path == layout.table_path(keyspace, table) and removals.is_begun(keyspace, table):
        removals.end(keyspace, table)


def highest_number(lake: Lake, path: str) -> int:
    """The highest number in a table's log, of a commit or a checkpoint; -1: there is none."""
    return max((_number_of(one.path) for one in lake.list(f"{path}/_delta_log")), default=-1)


def _number_of(path: str) -> int:
    head = path.rpartition("/")[2].partition(".")[0]
    return int(head) if head.isdecimal() else -1


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
