"""A Delta table that takes another one's place, in one commit.

A table that is dumped anew is filled behind the one that people read. When it is complete, the
files of the staged table get a second place in the folder of the shown one, and one commit there
takes its old files out and the new ones in, with their columns. Nobody ever sees half of either.

Lives here: that, and which folders of earlier dumps are left. Does not live here: when it is done,
and what a table's state says (`merge`).

Invariant: the shown table has the staged one's transaction versions from that commit on, and before
it none of them, so that it is done once, whatever is killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from ratchet.core.dumps import FORMAT_VERSION
from ratchet.core.errors import BugError
from ratchet.store import layout
from ratchet.store.crashpoints import reach
from ratchet.store.delta.actions import (
    Action,
    AppTransaction,
    DataFile,
    TableProtocol,
    rewrite_info,
)
from ratchet.store.delta.checkpoints import checkpoint_if_due
from ratchet.store.delta.commits import EPOCH, check_epoch, commit_files, committed, epoch_of
from ratchet.store.delta.errors import delta_errors
from ratchet.store.delta.log import TableFiles, replay, replay_existing
from ratchet.store.delta.tables import changed_metadata, open_delta, upgrade_actions
from ratchet.store.delta.vectors import vector_path
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import TableState

_DOING: Final = "put a new dump in a table's place"
_COPIES: Final = 16  # at a time
_STATS: Final = "delta.dataSkipping"  # properties that say what files keep statistics of


def take_place(
    lake: Lake, staged: str, shown: str, *, app_id: str, version: int, now: int
) -> TableFiles:
    """Give a table the columns and rows of a staged one; done before, it changes nothing.

    Args:
        lake: the lake.
        staged: folder of the table that is complete, and that nobody writes to any more.
        shown: folder of the one whose place it takes, which keeps its history.
        app_id: whose transaction version says that it was done.
        version: that version.
        now: microseconds UTC.

    Returns:
        The shown table, behind that commit or a later one.

    Raises:
        LateError: another run has taken the lake over.
        LakeError: one of the tables is gone, or the lake cannot be read or written.
    """
    new = replay_existing(lake, staged, _DOING)
    before = replay_existing(lake, shown, _DOING)
    while committed(before, app_id) is None:
        check_epoch(lake, epoch_of(before), shown, _DOING)
        copy_data_files(lake, new.files.values(), staged, shown)
        reach("staged.after_copies")
        actions = _actions(
            lake, new, before, staged, shown, app_id=app_id, version=version, now=now
        )
        done = commit_files(lake, shown, before, list(actions))
        if done is not None:
            reach("staged.after_commit")
            checkpoint_if_due(lake, shown, done.version)
            return done
        before = replay_existing(lake, shown, _DOING)  # a fence, or somebody who sets properties
    return before


def taken(lake: Lake, shown: str, app_id: str) -> int | None:
    """The transaction version under which a staged table took a table's place; None: not yet."""
    files = replay(lake, shown)
    return None if files is None else committed(files, app_id)


def remove_given_up(lake: Lake, state: TableState) -> None:
    """Remove what dumps have left behind a table that were given up before they were complete.

    Args:
        lake: the lake.
        state: the table, as saved; the dump that it names stays.

    Raises:
        LateError: another run has taken the lake over.
        LakeError: the lake cannot be read or written.
    """
    given_up = other_folders(lake, state, layout.STAGED)
    if given_up:
        # Listed before the look: what a successor's dump has made since is not among them.
        check_epoch(lake, RoundLog(lake).epoch(), state.path, "remove what old dumps left")
    for folder in given_up:
        lake.delete_folder(folder)


def other_folders(lake: Lake, state: TableState, kind: str) -> list[str]:
    """The folders that a table's dumps have had, but for those of the dump of now.

    Args:
        lake: the lake.
        state: the table.
        kind: `layout.SIDE` or `layout.STAGED`.
    """
    folder = f"{kind}/{layout.table_path(state.keyspace, state.table)}"
    found = {file.path[len(folder) + 1 :].split("/")[0] for file in lake.list(folder)}
    every = {f"{folder}/{name}" for name in found}
    return sorted(every - {state.side_path, state.path})


def copy_data_files(lake: Lake, files: Iterable[DataFile], source: str, target: str) -> None:
    """Give data files a second place, with their vectors; those that have it stay as they are.

    Args:
        lake: the lake.
        files: of the table in `source`.
        source: its folder.
        target: the folder of the other table.

    Raises:
        LakeError: a file is gone, or the lake cannot be read or written.
    """
    names = set[str]()
    for file in files:
        names.add(file.path)
        if file.vector is not None and (path := vector_path(file.vector)) is not None:
            names.add(path)
    there = {file.path for file in lake.list(target)}
    missing = sorted(name for name in names if f"{target}/{name}" not in there)
    with ThreadPoolExecutor(_COPIES, "staged-copies") as pool:
        for _ in pool.map(lambda name: lake.copy(f"{source}/{name}", f"{target}/{name}"), missing):
            pass


def _actions(
    lake: Lake,
    new: TableFiles,
    before: TableFiles,
    staged: str,
    shown: str,
    *,
    app_id: str,
    version: int,
    now: int,
) -> Iterator[Action]:
    source, target = open_delta(lake, staged), open_delta(lake, shown)
    if source is None or target is None:
        raise BugError("a table that was replayed is not there", operation=_DOING, table=shown)
    with delta_errors(_DOING, shown):
        wanted, theirs = source.protocol(), source.metadata()
        have, meta = target.protocol(), target.metadata()
        columns = source.schema().to_json()
    note = json.dumps({"ratchet": FORMAT_VERSION, "replaced": staged.rpartition("/")[2]})
    yield rewrite_info("WRITE", read=before.version, now=now, note=note)
    yield from upgrade_actions(
        have,
        TableProtocol(
            reader=wanted.min_reader_version,
            writer=wanted.min_writer_version,
            reader_features=tuple(wanted.reader_features or ()),
            writer_features=tuple(wanted.writer_features or ()),
        ),
    )
    kept = {name: one for name, one in meta.configuration.items() if not name.startswith(_STATS)}
    yield changed_metadata(meta, columns, {**kept, **theirs.configuration})
    # Files of the shown table may have been carried over: they stay, as no commit may take away
    # what it adds.
    stay = {
        path
        for path, file in new.files.items()
        if path in before.files and before.files[path].vector == file.vector
    }
    yield from (file.removed(now=now) for path, file in before.files.items() if path not in stay)
    yield from (
        replace(file, changes_data=True) for path, file in new.files.items() if path not in stay
    )
    for app in sorted(_ids(new) - {app_id}):
        count = committed(new, app)
        if count is not None:
            yield AppTransaction(app_id=app, version=count, updated_at=now)
    yield AppTransaction(app_id=app_id, version=version, updated_at=now)


def _ids(files: TableFiles) -> set[str]:
    """The ids whose transaction versions it has, without those of single epochs."""
    plain = set()
    for app in files.apps:
        name, _, epoch = app.rpartition("@")
        plain.add(name if name and epoch.isdigit() else app)
    return plain - {EPOCH}
