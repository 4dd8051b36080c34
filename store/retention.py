"""Which files of a Delta table no version of its kept history names, and their removal.

Lives here: reading that from the table's log, removing the files, and how long the table's own log
remembers. Does not live here: when it is done (`jobs.run.merging`), and for how long old versions
are kept (the config).

By the log and one listing, without a job of Spark's, whose VACUUM takes a minute or two of a busy
machine for each table, and goes by the table's property whatever it is told.

Invariant: a file goes only if the newest version does not name it, and if no version that was the
newest one at any moment of the kept history did.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from ratchet.store import layout
from ratchet.store.delta.actions import RemovedFile, VectorDescriptor
from ratchet.store.delta.checkpoints import clean_log
from ratchet.store.delta.commits import check_epoch
from ratchet.store.delta.log import TableFiles, replay_with_removals
from ratchet.store.delta.tables import set_properties
from ratchet.store.delta.vectors import vector_path
from ratchet.store.files import Lake, LakeFile
from ratchet.store.rounds import RoundLog

# What the log does not name at all may be about to be committed: a file of a chunk that is being
# read, or of a merge that is being made. Or it was left by one that was killed.
UNNAMED_SECONDS: Final = 86_400.0
# The log remembers what was removed for so much longer than the files are kept. What it has
# forgotten is a file that it does not name.
_LOG_MARGIN: Final = 86_400.0
_BITE: Final = 200  # files that are removed between two looks at the clock

LOG_RETENTION: Final = "delta.logRetentionDuration"
FILE_RETENTION: Final = "delta.deletedFileRetentionDuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFiles:
    """What can go of a table.

    Attributes:
        expired: files that the log says were removed before the history began.
        unnamed: files that the log does not name, and that are old.
    """

    expired: tuple[LakeFile, ...]
    unnamed: tuple[LakeFile, ...]

    @property
    def all(self) -> tuple[LakeFile, ...]:
        """Both."""
        return (*self.expired, *self.unnamed)


def old_files(
    listed: Iterable[LakeFile],
    table: TableFiles,
    removals: Iterable[RemovedFile],
    *,
    path: str,
    since: int,
    unnamed_since: int,
) -> OldFiles:
    """Which of a table's files can go.

    Args:
        listed: files under the table's folder, listed before its log was read: what was committed
            in between is named by the log then.
        table: the newest version.
        removals: all that the log remembers.
        path: the table's folder.
        since: when the kept history begins, microseconds UTC.
        unnamed_since: files that nothing names go if they are older than this, microseconds UTC.
    """
    kept = set(table.files)
    kept |= _vectors(file.vector for file in table.files.values())
    gone: set[str] = set()
    for one in removals:
        # One without a time may be of yesterday.
        young = one.removed_at is None or one.removed_at >= since
        (kept if young else gone).update({one.path, *_vectors([one.vector])})
    expired, unnamed = [], []
    for file in listed:
        name = file.path[len(path) + 1 :]
        if _is_hidden(name) or name in kept:
            continue
        if name in gone:
            expired.append(file)
        elif 0 < file.modified_at < unnamed_since:
            unnamed.append(file)
    return OldFiles(expired=tuple(expired), unnamed=tuple(unnamed))


def remove_old_files(
    lake: Lake,
    path: str,
    *,
    keep: float,
    now: int,
    clock: Callable[[], float] = time.monotonic,
    bite: float = 1.0,
) -> Iterator[int]:
    """Remove what can go, a bite at a time; how many files went, behind each bite.

    Before each bite the epoch is looked at. A successor's files are in no list of before, but it
    may keep a longer history, in which the files of this one's list are needed.

    Args:
        lake: the lake.
        path: the table's folder.
        keep: how long old versions can be read, seconds.
        now: microseconds UTC.
        clock: seconds, rising.
        bite: seconds after which the next one is due.

    Raises:
        LateError: another run has taken the lake over.
        LakeError: the lake cannot be read or written.
    """
    listed = lake.list(path, unfinished=True)
    found = replay_with_removals(lake, path)
    if found is None:
        return
    table, removals = found
    old = old_files(
        listed,
        table,
        removals,
        path=path,
        since=now - int(keep * 1e6),
        unnamed_since=now - int(max(keep, UNNAMED_SECONDS) * 1e6),
    )
    names = [file.path for file in old.all]
    rounds = RoundLog(lake)
    removed, until = 0, clock() + bite
    for first in range(0, len(names), _BITE):
        check_epoch(lake, rounds.epoch(), layout.ROUNDS, "remove files of old versions")
        lake.delete_files(names[first : first + _BITE])
        removed += len(names[first : first + _BITE])
        if clock() >= until:
            yield removed
            removed, until = 0, clock() + bite
    yield removed
    # Two that thin out one log's checkpoints may keep others each.
    check_epoch(lake, rounds.epoch(), layout.ROUNDS, "remove old checkpoints")
    clean_log(lake, path, now=now)


def keep_history(lake: Lake, path: str, *, keep: float, now: int) -> bool:
    """Have the table's own log remember what is needed for its history; whether it had to be told.

    Without it the log forgets commits, and what they removed, after the time that its properties
    say: then old versions cannot be read, whatever files are left.

    Args:
        lake: the lake.
        path: the table's folder.
        keep: how long old versions can be read, seconds.
        now: microseconds UTC.

    Raises:
        LakeError: another process has just committed to the table.
    """
    value = history_interval(keep + _LOG_MARGIN)
    return set_properties(lake, path, {LOG_RETENTION: value, FILE_RETENTION: value}, now=now)


def history_interval(seconds: float) -> str:
    """A time as Delta's properties have it, rounded up to an hour."""
    return f"interval {math.ceil(seconds / 3600)} hours"


def _vectors(descriptors: Iterable[VectorDescriptor | None]) -> set[str]:
    found = {vector_path(one) for one in descriptors if one}
    return {unquote(name) for name in found if name is not None}


def _is_hidden(name: str) -> bool:
    """The log, and what Delta's own VACUUM does not touch either."""
    return any(part.startswith(("_", ".")) for part in name.split("/"))
