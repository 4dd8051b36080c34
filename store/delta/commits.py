"""Commits of ours to Delta tables, bound to the epoch of whoever holds the lake.

Lives here: the check that no later epoch stands in a table, the fence that puts one there, and the
transaction ids that Spark commits under. Does not live here: how an epoch is come by (`takeover`),
the log itself (`log`).

A process can stand still between any two of its steps, for longer than its lease lasts, so that a
look at the lease proves nothing about the write behind it. What refuses a late write is the write:

- A commit of ours is made against exactly one version, and that version says which epoch is the
  newest. A later one than ours ends the commit.
- Delta puts Spark's commits on top of others that came in between. So Spark commits under an id
  that has the epoch in it, which is *opened* by a commit of ours before; the fence *closes* all
  that are open: it gives them the highest version there is. Delta skips a write under a closed id
  that starts later, and refuses one that is under way.

Invariant: once a table is fenced for an epoch, no process of an earlier one changes its rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ratchet.core.errors import BugError, LakeError
from ratchet.store.delta.actions import Action, AppTransaction, CommitInfo, rewrite_info
from ratchet.store.delta.checkpointfiles import checkpoint_path
from ratchet.store.delta.checkpoints import write_checkpoint
from ratchet.store.delta.errors import CommitConflictError, TableGoneError
from ratchet.store.delta.log import (
    TableFiles,
    apply_commit,
    put_commit,
    put_first_commit,
    replay,
)
from ratchet.store.files import Lake

EPOCH: Final = "ratchet.epoch"
OPENED: Final = -1  # the version of an id that nothing was committed under
CLOSED: Final = 2**63 - 1  # the version of an id that nothing can be committed under any more


class LateError(LakeError):
    """Another run has taken the lake over; what this one was about to write counts no more."""


def late(path: str, operation: str) -> LateError:
    """What is raised where a later epoch stands."""
    return LateError(
        "another run has taken this lake over while this one stood still",
        operation=operation,
        table=path,
        hint="let only one of the two run; what this one had committed by then stays valid, and "
        "the other one continues from there",
    )


def check_epoch(lake: Lake, newest: int, path: str, operation: str) -> None:
    """Call before a write, with the newest epoch that stands where it is written.

    Raises:
        LateError: it is later than the lake's.
        BugError: the lake is not held at all.
    """
    if newest <= lake.epoch:
        return
    if not lake.epoch:
        raise BugError("a lake that nobody holds is only read", operation=operation, table=path)
    raise late(path, operation)


def commit_files(
    lake: Lake, path: str, files: TableFiles | None, actions: Sequence[Action]
) -> TableFiles | None:
    """Commit actions on top of a version, which is fenced by it if it was not.

    Args:
        lake: the lake.
        path: the table's folder.
        files: the version that the actions were made for; None: there is no table yet.
        actions: all of the commit's, commitInfo first.

    Returns:
        The table behind the commit; None if another process or thread has made that version, and
        nothing of it counts.

    Raises:
        LateError: a later epoch than the lake's stands in the table.
        CommitConflictError: the table was removed since, and made anew.
        LakeError: it cannot be written.
    """
    check_epoch(lake, epoch_of(files), path, "commit to a Delta table")
    every = _fenced(lake, files, actions)
    number = 0 if files is None else files.version + 1
    last = b"" if files is None else files.last
    done = put_commit(lake, path, number, every, last=last)
    return apply_commit(path, files, every) if done else None


def begin_log(lake: Lake, path: str, number: int, actions: Sequence[Action]) -> bool:
    """Begin a table's log with a version whose number nobody has used there.

    Whoever was halted before it removed what stood there, or committed to it, knows lower numbers.
    The log begins with a checkpoint, so that no reader looks at what is before it, once the file
    that names the newest checkpoint is gone.

    Args:
        lake: the lake.
        path: the table's folder.
        number: of the version; above 0.
        actions: of its commit, commitInfo first.

    Returns:
        Whether it was done; False if another process has just made that version.

    Raises:
        LakeError: it cannot be written. What there is of it is above every number, too.
    """
    every = _fenced(lake, None, actions)
    # What is in a checkpoint has no number in it.
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        scratch = Lake.at(folder)
        put_first_commit(scratch, "t", 0, every)
        write_checkpoint(scratch, "t")
        whole = scratch.read_file(checkpoint_path("t", 0)) or b""
    # Killed between the two, the log is one that begins in its midst, and is begun once more.
    return put_first_commit(lake, path, number, every) and lake.create_file(
        checkpoint_path(path, number), whole
    )


def _fenced(lake: Lake, files: TableFiles | None, actions: Sequence[Action]) -> list[Action]:
    """The actions, with those that fence a version for the lake's epoch."""
    own = {action.app_id for action in actions if isinstance(action, AppTransaction)}
    now = next((one.made_at for one in actions if isinstance(one, CommitInfo)), 0)
    fences = [
        AppTransaction(app_id=app, version=version, updated_at=now)
        for app, version in _fence(lake, files).items()
        if app not in own
    ]
    return [*actions, *fences]


def fence(
    lake: Lake, path: str, *, now: int, owner: str = "", known: TableFiles | None = None
) -> TableFiles | None:
    """Refuse what earlier epochs write to a table from here on; None if there is no table.

    Of two processes that do so for one epoch, naming themselves, one gets it.

    Args:
        lake: the lake, whose epoch it is.
        path: the table's folder.
        now: microseconds UTC.
        owner: whose the epoch is to be alone.
        known: the table, where it has just been read.

    Raises:
        LateError: a later epoch stands in it, or the very one that was to be somebody's.
        LakeError: it cannot be read or written.
    """
    files = replay(lake, path) if known is None else known
    while files is not None and epoch_of(files) < lake.epoch:
        # With its name in it no two commits are the same: an object store takes those for one.
        info = replace(rewrite_info("FENCE", read=files.version, now=now), owner=owner)
        try:
            done = commit_files(lake, path, files, [info])
        except (CommitConflictError, TableGoneError):
            # Whoever is to be fenced has removed it meanwhile, as a staged one that is shown now.
            files = replay(lake, path)
            continue
        if done is not None:
            return done
        files = replay(lake, path, files)
    if owner:
        raise late(path, "claim an epoch")
    check_epoch(lake, epoch_of(files), path, "fence a table")
    return files


def opened(lake: Lake, path: str, app_id: str, *, now: int) -> str:
    """The transaction id under which Spark may commit to a table; it can be closed from here on.

    Args:
        lake: the lake.
        path: the table's folder; there is a table.
        app_id: whose transaction versions are counted.
        now: microseconds UTC.

    Raises:
        LateError: a later epoch stands in it.
        LakeError: it cannot be read or written.
    """
    if not lake.epoch:
        return app_id
    mine = f"{app_id}@{lake.epoch}"
    files = replay(lake, path)
    while files is not None:
        check_epoch(lake, epoch_of(files), path, "commit to a Delta table")
        if mine in files.apps:
            break
        actions: list[Action] = [
            rewrite_info("OPEN", read=files.version, now=now),
            AppTransaction(app_id=mine, version=OPENED, updated_at=now),
        ]
        if commit_files(lake, path, files, actions) is not None:
            break
        files = replay(lake, path, files)
    return mine


def progress(version_of: Callable[[str], int | None], app_id: str) -> int | None:
    """The newest version that was committed for an id, by us or under an id of Spark's.

    Args:
        version_of: transaction versions by id.
        app_id: whose.
    """
    epoch = version_of(EPOCH)
    by_spark = version_of(f"{app_id}@{epoch}") if epoch else None
    found = [one for one in (version_of(app_id), by_spark) if one is not None and one != OPENED]
    return max(found, default=None)


def committed(files: TableFiles, app_id: str) -> int | None:
    """As `progress`, of a table that was replayed."""
    return progress(files.apps.get, app_id)


def epoch_of(files: TableFiles | None) -> int:
    """The epoch that stands in a table; 0 if none does."""
    return 0 if files is None else files.apps.get(EPOCH, 0)


def _fence(lake: Lake, files: TableFiles | None) -> Mapping[str, int]:
    """The transaction versions by which a table is fenced: none if it is."""
    if lake.epoch <= epoch_of(files):
        return {}
    versions = {EPOCH: lake.epoch}
    apps = files.apps if files is not None else {}
    for app, version in apps.items():
        plain, _, epoch = app.rpartition("@")
        if not plain or not epoch.isdigit() or version == CLOSED:
            continue
        versions[app] = CLOSED
        # How far Spark has come is carried over to the id that is never closed.
        if version > max(versions.get(plain, OPENED), apps.get(plain, OPENED)):
            versions[plain] = version
    return versions
