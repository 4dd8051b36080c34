"""Which data files a Delta table has, from its own log, and commits that change them.

Lives here: replaying the log, and putting commits there. Does not live here: whose commits count
(`commits`), what is in the files, who decides about them (`merge.direct`). Spark does the same for
all else; here it is done without its jobs, since a small merge would spend nearly all of its time
on them.

Invariant: a commit is made against exactly the version that was replayed; if another one came in
between, nothing of it counts. Nor does it if the log is another one since, of a table that was
removed and made anew, where the same versions come again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from deltalake import Schema

from ratchet.core.errors import DAMAGE, LakeError, TableFileError
from ratchet.store.delta.actions import (
    Action,
    AppTransaction,
    CommitInfo,
    DataFile,
    RemovedFile,
    TableMetadata,
    TableProtocol,
    actions_of,
)
from ratchet.store.delta.checkpointfiles import (
    checkpoint_actions,
    checkpoint_path,
    checkpoint_removals,
    checkpoint_versions,
    commit_path,
    newest_checkpoint,
)
from ratchet.store.delta.errors import TableGoneError, conflict
from ratchet.store.failures import (
    damage_hint,
    damage_kind,
    lost_file_hint,
)
from ratchet.store.files import Lake

log: Final = logging.getLogger(__name__)

# What a commit made here keeps to. Of tables that ask for more it keeps its hands off.
_FEATURES: Final = {"deletionVectors", "timestampNtz", "appendOnly", "invariants"}
_FORBIDDEN: Final = (
    "delta.enableChangeDataFeed",
    "delta.enableRowTracking",
    "delta.enableInCommitTimestamps",
    "delta.appendOnly",
)
_NO_COLUMNS: Final = pa.schema([])
# A version that was read longer ago may have lost the commits behind it to their retention (an hour
# and more), and would look like the newest.
_STALE: Final = 600.0
_COUNT: Final = "ratchetLines"  # in a commit's commitInfo
_LOST: Final = 3  # commits in a row that a broken disk may have lost in the midst of a log


def _uptime() -> float:
    """Seconds, also those that a machine was suspended for."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """A table at one version.

    Attributes:
        version: which.
        files: its data files by path.
        apps: app id -> newest transaction version.
        schema: its columns.
        writable: whether commits made here keep all the table's rules.
        vectors: whether files may get deletion vectors.
        read_at: when it was found to be the newest one, seconds since the machine's start.
        last: what its newest commit says, as a digest; empty: that is not there any more.
    """

    version: int
    files: Mapping[str, DataFile]
    apps: Mapping[str, int]
    schema: pa.Schema
    writable: bool
    vectors: bool
    read_at: float = field(default_factory=_uptime, compare=False)
    last: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class _Commit:
    """One commit: what it does to the state, and a digest of its text."""

    actions: Sequence[Action]
    mark: bytes


@dataclass(slots=True)
class _Replay:
    path: str
    version: int = -1
    files: dict[str, DataFile] = field(default_factory=dict)
    apps: dict[str, int] = field(default_factory=dict)
    schema: pa.Schema = _NO_COLUMNS
    protocol: bool = False
    rules: bool = False
    vectors: bool = False
    last: bytes = b""

    @classmethod
    def of(cls, path: str, known: TableFiles) -> _Replay:
        return cls(
            path=path,
            version=known.version,
            files=dict(known.files),
            apps=dict(known.apps),
            schema=known.schema,
            protocol=known.writable,
            rules=known.writable,
            vectors=known.vectors,
            last=known.last,
        )

    def frozen(self) -> TableFiles:
        return TableFiles(
            version=self.version,
            files=self.files,
            apps=self.apps,
            schema=self.schema,
            writable=self.protocol and self.rules,
            vectors=self.vectors,
            last=self.last,
        )

    def commit(self, one: _Commit) -> None:
        """Go on to the next version."""
        self.version += 1
        self.take(one.actions)
        self.last = one.mark

    def take(self, actions: Iterable[Action]) -> None:
        """Apply a commit's actions, of which no two remove or add the same, in any order.

        Raises:
            TableFileError: they do not fit what is there: the commit is another one's, or one
                before it is. To readers a file is what the log calls it together with its vector,
                so they would go on to show what nobody removed.
        """
        added = []
        for action in actions:
            match action:
                case DataFile():
                    added.append(action)
                case RemovedFile():
                    found = self.files.pop(action.path, None)
                    self._need(found is not None and _same_vector(found, action))
                case AppTransaction():
                    self.apps[action.app_id] = action.version
                case TableMetadata():
                    self._metadata(action)
                case TableProtocol():
                    self._protocol(action)
                case CommitInfo():
                    pass
        for file in added:
            was = self.files.get(file.path)
            self._need(was is None or _same_vector(was, file))
            self.files[file.path] = file

    def _need(self, fits: bool) -> None:  # noqa: FBT001 - it says what is needed
        if not fits:
            raise _damaged_commit(
                commit_path(self.path, self.version), "does not fit the commits before it"
            )

    def _protocol(self, value: TableProtocol) -> None:
        features = set(value.writer_features or ())
        self.protocol = value.writer in {2, 7} and features <= _FEATURES

    def _metadata(self, value: TableMetadata) -> None:
        settings = value.configuration
        on = any(settings.get(name, "false").lower() == "true" for name in _FORBIDDEN)
        mapped = settings.get("delta.columnMapping.mode", "none") != "none"
        checked = any(name.startswith("delta.constraints.") for name in settings)
        self.rules = not (on or mapped or checked or value.partition_columns)
        self.vectors = settings.get("delta.enableDeletionVectors", "false").lower() == "true"
        self.schema = pa.schema(Schema.from_json(value.schema_text).to_arrow())


def replay(lake: Lake, path: str, known: TableFiles | None = None) -> TableFiles | None:
    """The table at its newest version; None if there is none.

    Args:
        lake: the lake.
        path: the table's folder.
        known: an older version of it, where one is at hand: only what came behind it is read then.

    Raises:
        LakeError: the log cannot be read.
    """
    if known is not None and _uptime() > known.read_at + _STALE:
        known = _still_reachable(lake, path, known)
    while True:
        state = _begin(lake, path) if known is None else _Replay.of(path, known)
        if _read_behind(lake, path, state):
            break
        known = None
    if state.version < 0:
        return None
    if known is not None and state.version == known.version:
        return known
    return state.frozen()


def _read_behind(lake: Lake, path: str, state: _Replay) -> bool:
    """Read on to the newest version; False if the log has become another one meanwhile.

    A table's can be removed and made anew: its first commits would be those of the old log, and the
    last ones those of the new log, without the epoch that stands between. So the one that the
    reading began with is looked at once more.
    """
    begin, mark = state.version, state.last
    for one in _commits_behind(lake, path, begin):
        state.commit(one)
        if not mark:
            begin, mark = state.version, one.mark
    if state.version == begin or damage_kind(path) is not TableFileError:
        return True  # who commits behind a single one looks at it
    text = lake.read_file(commit_path(path, begin))
    return text is not None and _mark(text) == mark


def replay_existing(lake: Lake, path: str, operation: str) -> TableFiles:
    """The table at its newest version.

    Args:
        lake: the lake.
        path: the table's folder.
        operation: what it is read for.

    Raises:
        LakeError: there is no such table, or its log cannot be read.
    """
    files = replay(lake, path)
    if files is None:
        raise LakeError(
            f"the Delta table {path} is gone", operation=operation, hint=lost_file_hint(path)
        )
    return files


def replay_with_removals(lake: Lake, path: str) -> tuple[TableFiles, list[RemovedFile]] | None:
    """The table at its newest version, and all that its log remembers to have been removed.

    Raises:
        LakeError: the log cannot be read.
    """
    version = newest_checkpoint(lake, path)
    state = _Replay(path) if version is None else _at_checkpoint(lake, path, version)
    removals = [] if version is None else checkpoint_removals(lake, path, version)
    for commit in _commits_behind(lake, path, state.version):
        state.commit(commit)
        removals += [one for one in commit.actions if isinstance(one, RemovedFile)]
    return None if state.version < 0 else (state.frozen(), removals)


def _begin(lake: Lake, path: str) -> _Replay:
    """The state at the newest checkpoint, or that before the first commit.

    A damaged checkpoint of rounds or cuts is passed over where their commits reach back behind it.
    A table's is not: Spark and deltalake would still meet it.

    Raises:
        TableFileError: it is damaged.
        LakeError: the log cannot be read.
    """
    version = newest_checkpoint(lake, path)
    if version is None:
        return _Replay(path)
    try:
        return _at_checkpoint(lake, path, version)
    except TableFileError as error:
        if damage_kind(path) is TableFileError:
            raise
        state = _without(lake, path, version)
        if state is None:
            raise
        log.warning("%s, %s: its commits are read instead", error.table, error.message)
        return state


def drop_damaged_checkpoint(lake: Lake, path: str) -> None:
    """Remove the newest checkpoint of a log where it is damaged and the commits tell the same.

    For whoever holds the lake: deltalake, which cleans the log, would meet it.

    Raises:
        LakeError: the log cannot be read or written.
    """
    version = newest_checkpoint(lake, path)
    if version is None:
        return
    try:
        _at_checkpoint(lake, path, version)
    except TableFileError:
        if _without(lake, path, version) is not None:
            named = f"{path}/_delta_log/_last_checkpoint"
            lake.delete_files([named, checkpoint_path(path, version)])


def _at_checkpoint(lake: Lake, path: str, version: int) -> _Replay:
    text = lake.read_file(commit_path(path, version))
    state = _Replay(path, version=version, last=b"" if text is None else _mark(text))
    state.take(checkpoint_actions(lake, path, version))
    return state


def _without(lake: Lake, path: str, version: int) -> _Replay | None:
    """The state at a version without its checkpoint; None if the log does not tell it any more."""
    older = sorted((one for one in checkpoint_versions(lake, path) if one < version), reverse=True)
    for begin in (*older, None):
        try:
            state = _Replay(path) if begin is None else _at_checkpoint(lake, path, begin)
        except TableFileError:
            continue
        if _read_on(lake, path, state, version):
            return state
    return None


def _read_on(lake: Lake, path: str, state: _Replay, version: int) -> bool:
    """Apply the commits up to a version; False if one of them is gone."""
    while state.version < version:
        found = _commit_at(lake, path, state.version + 1)
        if found is None:
            return False
        state.commit(found)
    return True


def replay_to(lake: Lake, path: str, version: int) -> TableFiles | None:
    """The table at an older version; None if its log does not reach back so far.

    Raises:
        LakeError: the log cannot be read.
    """
    begin = max((one for one in checkpoint_versions(lake, path) if one <= version), default=None)
    state = _Replay(path) if begin is None else _at_checkpoint(lake, path, begin)
    return state.frozen() if _read_on(lake, path, state, version) else None


def check_commit(lake: Lake, path: str, version: int) -> bool:
    """Whether one commit of a table is there; an old one stands in a checkpoint only.

    Raises:
        TableFileError: it is damaged.
        LakeError: the lake cannot be read.
    """
    return _commit_at(lake, path, version) is not None


def put_commit(
    lake: Lake, path: str, version: int, actions: Sequence[Action], *, last: bytes = b""
) -> bool:
    """Commit actions as a version; False if another process or thread has made that version.

    It looks at no epoch: only `store.delta.commits` calls it.

    Args:
        lake: the lake.
        path: the table's folder.
        version: the one behind the version that the actions were made for.
        actions: all of the commit's, commitInfo first.
        last: `TableFiles.last` of the version that they were made for; empty: it may be any. Behind
            another one nothing is committed. In a folder nobody can put that one there meanwhile,
            in an object store somebody can, between the look at it and the commit.

    Raises:
        CommitConflictError: the log is another one since.
        TableGoneError: there is none any more.
        LakeError: it cannot be written.
    """
    if not version:
        return put_first_commit(lake, path, version, actions)
    name, text = commit_path(path, version), _text(actions)

    def look(before: bytes | None) -> None:
        if before is None and lake.is_local and not lake.exists(f"{path}/_delta_log"):
            # A folder that is made now would have a log that begins in its midst.
            raise TableGoneError(
                f"the Delta table {path} is gone",
                operation="commit to a Delta table",
                hint=lost_file_hint(path),
            )
        if last and (before is None or _mark(before) != last):
            raise conflict(path, "commit to a table that was removed and made anew")

    return lake.create_behind(name, text, commit_path(path, version - 1), look)


def put_first_commit(lake: Lake, path: str, version: int, actions: Sequence[Action]) -> bool:
    """Commit actions as the version that a log begins with; see `put_commit`."""
    return lake.create_file(commit_path(path, version), _text(actions))


def _text(actions: Sequence[Action]) -> bytes:
    """A commit as it stands in the log; the first line says how many there are to come.

    A file that lost its last lines, as by a broken disk, would be a whole commit else.
    """
    values = [action.to_json() for action in actions]
    if values and "commitInfo" in values[0]:
        values[0]["commitInfo"][_COUNT] = len(values)
    return "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in values).encode()


def _mark(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def apply_commit(path: str, files: TableFiles | None, actions: Iterable[Action]) -> TableFiles:
    """The table behind a commit that has just been made, without reading it.

    Args:
        path: the table's folder.
        files: the version that the commit was made for; None: it is the first.
        actions: the commit's.
    """
    state = _Replay(path) if files is None else _Replay.of(path, files)
    every = list(actions)
    state.commit(_Commit(every, _mark(_text(every))))
    return state.frozen()


def _still_reachable(lake: Lake, path: str, known: TableFiles) -> TableFiles | None:
    """A version of long ago, if the commits behind it cannot have been removed yet."""
    version = newest_checkpoint(lake, path)
    if version is not None and version > known.version:
        return None
    return replace(known, read_at=_uptime())


def _commits_behind(lake: Lake, path: str, version: int) -> Iterator[_Commit]:
    """The commits behind a version, in order.

    Raises:
        TableFileError: one is damaged, or missing before another one. Who commits next would fill
            the gap, and older versions would then show rows without what was lost.
        LakeError: the log cannot be read.
    """
    while True:
        version += 1
        found = _commit_at(lake, path, version)
        if found is None and _goes_on(lake, path, version):
            found = _commit_at(lake, path, version)  # it may have been made between the looks
            if found is None:
                raise _damaged_commit(commit_path(path, version), "is missing")
        if found is None:
            return
        yield found


def _goes_on(lake: Lake, path: str, version: int) -> bool:
    """Whether a table's log has a commit close behind one. An object store loses none."""
    if not lake.is_local or damage_kind(path) is not TableFileError:
        return False
    return any(lake.exists(commit_path(path, version + more)) for more in range(1, _LOST + 1))


def _commit_at(lake: Lake, path: str, version: int) -> _Commit | None:
    name = commit_path(path, version)
    text = lake.read_file(name)
    if text is None:
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines and damage_kind(path) is TableFileError:
        # As a power failure may leave it: no commit of a table says nothing. What rounds and cuts
        # have lost that way is found out by the tables that are ahead (merge.ages).
        raise _damaged_commit(name)
    try:
        values = [json.loads(line) for line in lines]
        actions = [action for value in values for action in actions_of(value)]
        said = values[0].get("commitInfo", {}).get(_COUNT, len(lines)) if values else 0
    except DAMAGE as error:
        raise _damaged_commit(name) from error
    if said != len(lines):
        raise _damaged_commit(name, f"has {len(lines)} of its {said} lines")
    return _Commit(actions, _mark(text))


def _damaged_commit(name: str, what: str = "cannot be read") -> TableFileError:
    return TableFileError(
        f"a commit of a Delta table {what}",
        operation="read a Delta commit",
        table=name,
        hint=damage_hint(name),
    )


def _same_vector(file: DataFile, action: DataFile | RemovedFile) -> bool:
    one, other = file.vector, action.vector
    return (one and one.name) == (other and other.name)
