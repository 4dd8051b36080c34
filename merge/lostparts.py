"""A table of which a part is gone or damaged: its folder, its side table's, a file of their logs.

Nothing brings that back but a new dump, and no other table is the worse for it.

Lives here: looking for that. Does not live here: captured changes that are gone (`failures`), rows
that differ (`repair`), what is older than the rest (`ages`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ratchet.core.errors import LakeAwayError, LakeError, TableFileError, TableLostError
from ratchet.core.shell import redump
from ratchet.merge.contents import unreadable
from ratchet.merge.failures import UnreadFileError
from ratchet.merge.plan import app_id
from ratchet.store.delta.errors import UnreadTableError
from ratchet.store.delta.log import TableFiles, replay
from ratchet.store.delta.vectors import vector_path
from ratchet.store.files import Lake
from ratchet.store.staged import taken
from ratchet.store.tables import TableState


def lost_folder(lake: Lake, state: TableState, *, side: bool = True) -> str:
    """Which of a table's folders is gone, as a sentence; empty: none. A look or two, no more.

    Args:
        lake: the lake.
        state: the table.
        side: whether what only a merge needs counts: its side table, a new dump behind it.

    Raises:
        LakeError: the lake cannot be read.
    """
    if not state.is_past_dump:
        return ""
    if not _is_there(lake, state.shown_path):
        return f"the Delta table {state.shown_path} is gone"
    if not side:
        return ""
    if why := _lost_dump(lake, state):
        return why
    if state.has_side and not _is_there(lake, state.side_path):
        return f"its side table {state.side_path} is gone"
    return ""


def _lost_dump(lake: Lake, state: TableState) -> str:
    """Why its new dump cannot take the place of what is shown, as a sentence; empty: it can."""
    if not state.is_staged:
        return ""
    try:
        shown = taken(lake, state.shown_path, app_id(state))
    except TableFileError as error:
        return f"the log of {state.shown_path} cannot be read: {error.message}"
    if shown is not None or _is_there(lake, state.path):
        return ""
    return f"its new dump, {state.path}, is gone"


@contextmanager
def stopping_the_lost(lake: Lake, state: TableState) -> Iterator[None]:
    """Read a table within: where that fails since a part of it is gone, it is the table's affair.

    Args:
        lake: the lake.
        state: the table.

    Raises:
        TableLostError: a part of it is gone or damaged.
        LakeError: something else is wrong with the lake.
        UnreadFileError: Spark could not read a file of it, which is sound.
    """
    try:
        yield
    except (LakeError, UnreadFileError) as error:
        lost = lost_parts(lake, state, error)
        if lost is None:
            raise
        raise lost from error


def lost_parts(
    lake: Lake, state: TableState, error: Exception, changes: Sequence[str] = ()
) -> TableLostError | None:
    """Why a table cannot be merged any more: a part of it is gone or damaged.

    To be asked when its merge has failed: all files are looked for. Not where the lake is away for
    the moment, which says nothing about the table.

    Args:
        lake: the lake.
        state: the table.
        error: what its merge has failed with.
        changes: the change files that it was to read.

    Raises:
        LakeError: the lake cannot be read.
    """
    if isinstance(error, LakeAwayError):
        return None
    why = lost_folder(lake, state)
    if not why:
        why = next(filter(None, (_lost_of(lake, p) for p in (state.path, state.side_path))), "")
    if not why and isinstance(error, TableFileError):
        why = error.message
    if not why and isinstance(error, UnreadFileError | UnreadTableError):
        why = _unreadable_of(lake, state, changes)
    if not why:
        return None
    return TableLostError(why, operation="merge a table", table=state.name, hint=remedy(state.name))


def refuse_lost(lake: Lake, state: TableState, operation: str, *, side: bool = True) -> None:
    """Call before a table is read or changed by somebody who does not merge it.

    Args:
        lake: the lake.
        state: the table.
        operation: what is about to be done.
        side: see lost_folder; not for who asks for rows alone.

    Raises:
        LakeError: one of its folders is gone, or the lake cannot be read.
    """
    why = lost_folder(lake, state, side=side)
    if why:
        raise LakeError(why, operation=operation, table=state.name, hint=remedy(state.name))


def remedy(table: str) -> str:
    """What to do about a table, keyspace.table, of which a part is gone."""
    return (
        f"{redump(table)} dumps it again, while the others continue; only `ratchet` may remove "
        "files of a lake"
    )


def _is_there(lake: Lake, path: str) -> bool:
    if lake.is_local:
        return lake.exists(f"{path}/_delta_log")
    return bool(lake.list(f"{path}/_delta_log"))


def _lost_of(lake: Lake, path: str) -> str:
    """What of a table is gone or cannot be read, as a sentence; empty: nothing."""
    try:
        lost = sorted(_lost_files(lake, path))
    except TableFileError as error:
        return error.message
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return f"files of it are gone: {lost[0]}{more}" if lost else ""


def _unreadable_of(lake: Lake, state: TableState, changes: Sequence[str]) -> str:
    """Which file cannot be read, as a sentence; empty: all of them can. All are read for it."""
    paths = list(changes)
    for folder in dict.fromkeys((state.shown_path, state.path, state.side_path)):
        table = replay(lake, folder)
        paths += [f"{folder}/{file.path}" for file in table.files.values()] if table else []
    return unreadable(lake, paths)


def _lost_files(lake: Lake, path: str) -> Iterator[str]:
    table = replay(lake, path)
    if table is None:
        return
    there = {file.path for file in lake.list(path)}
    for name in _named(table):
        whole = f"{path}/{name}"
        if whole not in there and not lake.is_file(whole):
            yield whole


def _named(table: TableFiles) -> Iterator[str]:
    """The files that a table's log names, relative to its folder."""
    for file in table.files.values():
        yield file.path
        vectors = None if file.vector is None else vector_path(file.vector)
        if vectors is not None:
            yield vectors
