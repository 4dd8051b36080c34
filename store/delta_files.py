"""Which data files a Delta table has, from its own log, and commits that change them.

Lives here: replaying the log, and putting commits there. Does not live here: whose commits count
(`commits`), what is in the files, who decides about them (`merge.direct`). Spark does the same for
all else; here it is done without its jobs, since a small merge would spend nearly all of its time
on them.

Invariant: a commit is made against exactly the version that was replayed; if another one came in
between, nothing of it counts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from ratchet.core.errors import LakeError
from ratchet.store.deletion_vectors import vector_id
from ratchet.store.delta_errors import delta_errors
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake

log: Final = logging.getLogger(__name__)

Action = dict[str, Any]

# What a commit made here keeps to. Of tables that ask for more it keeps its hands off.
_FEATURES: Final = {"deletionVectors", "timestampNtz", "appendOnly", "invariants"}
_FORBIDDEN: Final = (
    "delta.enableChangeDataFeed",
    "delta.enableRowTracking",
    "delta.enableInCommitTimestamps",
    "delta.appendOnly",
)
# The fields of an add action that are kept; checkpoints of Spark's have more of their own.
_ADD: Final = (
    "path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags",
    "deletionVector",
)  # fmt: skip
_NO_COLUMNS: Final = pa.schema([])
CHECKPOINT_EVERY: Final = 20  # commits, as `delta.checkpointInterval` of our tables says


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A data file of a table.

    Attributes:
        path: under the table's folder.
        add: its add action.
    """

    path: str
    add: Mapping[str, Any]

    @property
    def rows(self) -> int | None:
        """How many rows are in it, those that are gone included; None if it does not say."""
        return self.stats.get("numRecords")

    @property
    def gone(self) -> int:
        """How many of them its vector has."""
        return int((self.add.get("deletionVector") or {}).get("cardinality", 0))

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.add["size"])

    @cached_property  # every merge looks at those of all files, as long as these are in the table
    def stats(self) -> dict[str, Any]:
        """Its statistics; decimals are rounded."""
        found: dict[str, Any] = json.loads(self.add.get("stats") or "{}")
        return found


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
    """

    version: int
    files: Mapping[str, DataFile]
    apps: Mapping[str, int]
    schema: pa.Schema
    writable: bool
    vectors: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A data file, with the vector that it had, that a commit took out of a table.

    Attributes:
        path: under the table's folder.
        vector: its deletion vector's descriptor; None: it had none.
        removed_at: microseconds UTC; None: the log does not tell.
    """

    path: str
    vector: Mapping[str, Any] | None
    removed_at: int | None

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> Removal:
        """From a remove action."""
        moment = action.get("deletionTimestamp")
        return cls(
            path=unquote(action["path"]),
            vector=action.get("deletionVector"),
            removed_at=int(moment) * 1000 if moment else None,
        )


@dataclass(slots=True)
class _Replay:
    version: int = -1
    files: dict[str, DataFile] = field(default_factory=dict)
    apps: dict[str, int] = field(default_factory=dict)
    schema: pa.Schema = _NO_COLUMNS
    protocol: bool = False
    rules: bool = False
    vectors: bool = False

    @classmethod
    def of(cls, known: TableFiles) -> _Replay:
        return cls(
            version=known.version,
            files=dict(known.files),
            apps=dict(known.apps),
            schema=known.schema,
            protocol=known.writable,
            rules=known.writable,
            vectors=known.vectors,
        )

    def frozen(self) -> TableFiles:
        return TableFiles(
            version=self.version,
            files=self.files,
            apps=self.apps,
            schema=self.schema,
            writable=self.protocol and self.rules,
            vectors=self.vectors,
        )

    def take(self, actions: Iterable[Action]) -> None:
        """Apply a commit's actions; those of one file come in any order."""
        added = []
        for action in actions:
            for kind, value in action.items():
                if kind == "add":
                    added.append(value)
                elif kind == "remove":
                    found = self.files.get(unquote(value["path"]))
                    if found is not None and vector_id(found.add) == vector_id(value):
                        del self.files[found.path]
                elif kind == "txn":
                    self.apps[value["appId"]] = int(value["version"])
                elif kind == "metaData":
                    self._metadata(value)
                elif kind == "protocol":
                    self._protocol(value)
        for value in added:
            path = unquote(value["path"])
            add = {name: value[name] for name in _ADD if name in value}
            self.files[path] = DataFile(path=path, add=add)

    def _protocol(self, value: Action) -> None:
        features = set(value.get("writerFeatures") or ())
        self.protocol = int(value["minWriterVersion"]) in {2, 7} and features <= _FEATURES

    def _metadata(self, value: Action) -> None:
        settings = dict(value.get("configuration") or {})
        on = any(settings.get(name, "false").lower() == "true" for name in _FORBIDDEN)
        mapped = settings.get("delta.columnMapping.mode", "none") != "none"
        checked = any(name.startswith("delta.constraints.") for name in settings)
        self.rules = not (on or mapped or checked or value.get("partitionColumns"))
        self.vectors = settings.get("delta.enableDeletionVectors", "false").lower() == "true"
        self.schema = pa.schema(Schema.from_json(value["schemaString"]).to_arrow())


def replay(lake: Lake, path: str, known: TableFiles | None = None) -> TableFiles | None:
    """The table at its newest version; None if there is none.

    Args:
        lake: the lake.
        path: the table's folder.
        known: an older version of it, where one is at hand: only what came behind it is read then.

    Raises:
        LakeError: the log cannot be read.
    """
    state = _Replay()
    if known is None:
        version = _checkpointed(lake, path)
        if version is not None:
            state.take(_checkpoint(lake, path, version))
            state.version = version
    else:
        state = _Replay.of(known)
    while (actions := _commit_at(lake, path, state.version + 1)) is not None:
        state.take(actions)
        state.version += 1
    if state.version < 0:
        return None
    if known is not None and state.version == known.version:
        return known
    return state.frozen()


def replay_with_removals(lake: Lake, path: str) -> tuple[TableFiles, list[Removal]] | None:
    """The table at its newest version, and all that its log remembers to have been removed.

    Raises:
        LakeError: the log cannot be read.
    """
    state, removals = _Replay(), []
    version = _checkpointed(lake, path)
    if version is not None:
        state.take(_checkpoint(lake, path, version))
        state.version = version
        removals += _checkpointed_removals(lake, path, version)
    while (actions := _commit_at(lake, path, state.version + 1)) is not None:
        done = list(actions)
        state.take(done)
        state.version += 1
        removals += [Removal.of(one["remove"]) for one in done if "remove" in one]
    return None if state.version < 0 else (state.frozen(), removals)


def replay_to(lake: Lake, path: str, version: int) -> TableFiles | None:
    """The table at an older version; None if its log does not reach back so far.

    Raises:
        LakeError: the log cannot be read.
    """
    names = (file.path.rpartition("/")[2] for file in lake.list(f"{path}/_delta_log"))
    found = (name.split(".") for name in names if name.endswith(".checkpoint.parquet"))
    whole = [int(parts[0]) for parts in found if len(parts) == 3 and parts[0].isdigit()]
    state = _Replay()
    begin = max((one for one in whole if one <= version), default=None)
    if begin is not None:
        state.take(_checkpoint(lake, path, begin))
        state.version = begin
    while state.version < version:
        actions = _commit_at(lake, path, state.version + 1)
        if actions is None:
            return None
        state.take(actions)
        state.version += 1
    return state.frozen()


def put_commit(lake: Lake, path: str, version: int, actions: Sequence[Action]) -> bool:
    """Commit actions as a version; False if another process or thread has made that version.

    It looks at no epoch: only `store.commits` calls it.

    Args:
        lake: the lake.
        path: the table's folder.
        version: the one behind the version that the actions were made for.
        actions: all of the commit's, commitInfo first.

    Raises:
        LakeError: it cannot be written.
    """
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    return lake.create_file(_commit_path(path, version), text.encode())


def advanced(files: TableFiles | None, actions: Iterable[Action]) -> TableFiles:
    """The table behind a commit that has just been made, without reading it.

    Args:
        files: the version that the commit was made for; None: it is the first.
        actions: the commit's.
    """
    state = _Replay() if files is None else _Replay.of(files)
    state.take(actions)
    state.version += 1
    return state.frozen()


def keep_log_short(lake: Lake, path: str, version: int) -> None:
    """Write a checkpoint if one is due at this version, which has just been committed."""
    if version % CHECKPOINT_EVERY:
        return
    try:
        write_checkpoint(lake, path)
    except LakeError as error:
        # What was to be done is committed. The next one is due some commits from now.
        log.warning("%s: no checkpoint was written: %s", path, error)


def write_checkpoint(lake: Lake, path: str) -> None:
    """Put the state of the newest version into one file, and remove what of the log is too old.

    Spark does so behind commits of its own only.

    Raises:
        LakeError: it cannot be written. The table is none the worse for it.
    """
    with delta_errors("write a checkpoint", path):
        table = DeltaTable(lake.delta_uri(path), storage_options=lake.storage_options)
        table.create_checkpoint()
        table.cleanup_metadata()


def removed(file: DataFile, *, now: int) -> Action:
    """The action that takes a file, with its vector, out of the table.

    Args:
        file: as it is now.
        now: microseconds UTC.
    """
    kept = ("path", "partitionValues", "size", "tags", "deletionVector", "stats")
    same = {name: file.add[name] for name in kept if file.add.get(name) is not None}
    return {
        "remove": {
            **same,
            "deletionTimestamp": now // 1000,
            "dataChange": True,
            "extendedFileMetadata": True,
        }
    }


def marked(file: DataFile, vector: Mapping[str, Any]) -> Action:
    """The action that brings a file back with a vector."""
    stats = str(file.add.get("stats") or "")
    if '"tightBounds"' in stats:
        stats = stats.replace('"tightBounds":true', '"tightBounds":false')
    elif stats:
        # Spliced in: parsed and written again, a decimal would lose digits.
        stats = stats.rstrip()[:-1] + ',"tightBounds":false}'
    return {"add": {**file.add, "dataChange": True, "stats": stats, "deletionVector": dict(vector)}}


def added(name: str, *, size: int, stats: str, now: int) -> Action:
    """The action that adds a new file.

    Args:
        name: its path under the table's folder; needs no quoting.
        size: bytes.
        stats: store.stats.file_stats.
        now: microseconds UTC.
    """
    return {
        "add": {
            "path": name,
            "partitionValues": {},
            "size": size,
            "modificationTime": now // 1000,
            "dataChange": True,
            "stats": stats,
        }
    }


def commit_info(operation: str, *, read: int, isolation: str, now: int, **more: Any) -> Action:
    """What a commit made here says of itself: its first action.

    Args:
        operation: as Delta's history names it.
        read: the version that it was made for.
        isolation: Delta's name of the level.
        now: microseconds UTC.
        more: further fields.
    """
    info = {
        "timestamp": now // 1000,
        "operation": operation,
        "operationParameters": {},
        "readVersion": read,
        "isolationLevel": isolation,
        "isBlindAppend": False,
        "engineInfo": "Ratchet",
    }
    return {"commitInfo": {**info, **more}}


def unchanged(action: Action) -> Action:
    """The same action in a commit that changes no row of the table."""
    return {kind: {**value, "dataChange": False} for kind, value in action.items()}


def _commit_path(path: str, version: int) -> str:
    return f"{path}/_delta_log/{version:020d}.json"


def _commit_at(lake: Lake, path: str, version: int) -> Iterator[Action] | None:
    name = _commit_path(path, version)
    text = lake.read_file(name)
    if text is None:
        return None
    try:
        return iter([json.loads(line) for line in text.splitlines() if line.strip()])
    except ValueError as error:
        raise LakeError(
            "a commit of a Delta table cannot be read",
            operation="read a Delta commit",
            table=name,
            hint="the file is damaged: restore it, or dump the table again "
            "(`ratchet table CONFIG redump TABLE`)",
        ) from error


def _checkpointed(lake: Lake, path: str) -> int | None:
    """The version of the newest whole checkpoint; None if there is none of the plain kind."""
    last = lake.read_json(f"{path}/_delta_log/_last_checkpoint")
    if not isinstance(last, dict) or "parts" in last:
        return None
    version = int(last["version"])
    return version if lake.is_file(_checkpoint_path(path, version)) else None


def _checkpoint_path(path: str, version: int) -> str:
    return f"{path}/_delta_log/{version:020d}.checkpoint.parquet"


def _checkpoint(lake: Lake, path: str, version: int) -> Iterator[Action]:
    name = _checkpoint_path(path, version)
    with lake_errors("read a checkpoint", name), lake.open_input(name) as stream:
        file = pq.ParquetFile(stream)
        wanted = [n for n in ("add", "txn", "metaData", "protocol") if n in file.schema_arrow.names]
        for batch in file.iter_batches(columns=wanted):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                yield {kind: _plain(value) for kind, value in row.items() if value is not None}


def _checkpointed_removals(lake: Lake, path: str, version: int) -> list[Removal]:
    name = _checkpoint_path(path, version)
    fields = [f"remove.{one}" for one in ("path", "deletionTimestamp", "deletionVector")]
    with lake_errors("read a checkpoint", name), lake.open_input(name) as stream:
        found = pq.ParquetFile(stream)
        if "remove" not in found.schema_arrow.names:
            return []
        rows = (row["remove"] for batch in found.iter_batches(columns=fields)
                for row in batch.to_pylist())  # fmt: skip
        return [Removal.of(_plain(one)) for one in rows if one and one["path"] is not None]


def _plain(value: Any) -> Any:
    """Without the fields that are null: JSON leaves them out."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    return value
