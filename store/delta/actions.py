"""The actions of Delta's log: what its PROTOCOL.md calls so, as values.

Lives here: each action that Ratchet reads or writes, from and to the JSON of a commit. Does not
live here: the log that they stand in (`log`), whether a commit counts (`commits`).

Invariant: what another writer said of a file is given back as it was, to the letter: its URI, its
statistics (a decimal that is parsed and written again loses digits), its tags. Kinds of actions and
fields that nothing here depends on are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

ENGINE: Final = "Ratchet"
SERIALIZABLE: Final = "Serializable"
SNAPSHOT_ISOLATION: Final = "SnapshotIsolation"  # of commits that change no row


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorDescriptor:
    """Where a deletion vector stands.

    Attributes:
        storage: "u": in a file under the table's folder, "i": in `place` itself, "p": elsewhere.
        place: the file's UUID, or the vector, in base 85; or a URI.
        offset: where in the file it begins, bytes; None: it is not in a file.
        size: bytes.
        rows: how many rows it has.
    """

    storage: str
    place: str
    offset: int | None
    size: int
    rows: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> VectorDescriptor:
        """From the `deletionVector` of an action."""
        offset = value.get("offset")
        return cls(
            storage=str(value["storageType"]),
            place=str(value["pathOrInlineDv"]),
            offset=None if offset is None else int(offset),
            size=int(value["sizeInBytes"]),
            rows=int(value["cardinality"]),
        )

    def to_json(self) -> dict[str, Any]:
        """As an action has it."""
        return {
            "storageType": self.storage,
            "pathOrInlineDv": self.place,
            **({} if self.offset is None else {"offset": self.offset}),
            "sizeInBytes": self.size,
            "cardinality": self.rows,
        }

    @property
    def name(self) -> str:
        """What tells it from others of the same file."""
        return f"{self.storage}{self.place}@{self.offset}"


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A data file of a table: an add action.

    Attributes:
        uri: its path under the table's folder as the log has it, with percent signs.
        size: bytes.
        modified_at: when it was written, milliseconds UTC.
        stats_text: its statistics, JSON; "": none.
        vector: which of its rows are gone; None: none.
        partition: values of the table's partition columns.
        tags: what other writers noted.
        changes_data: whether the commit changes rows with it, and does not only move them.
    """

    uri: str
    size: int
    modified_at: int
    stats_text: str = ""
    vector: VectorDescriptor | None = None
    partition: Mapping[str, str | None] = field(default_factory=dict)
    tags: Mapping[str, str | None] | None = None
    changes_data: bool = True

    @classmethod
    def new(cls, name: str, *, size: int, stats: str, now: int) -> DataFile:
        """One that was just written.

        Args:
            name: its path under the table's folder; needs no quoting.
            size: bytes.
            stats: `stats.file_stats`.
            now: microseconds UTC.
        """
        return cls(uri=name, size=size, modified_at=now // 1000, stats_text=stats)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DataFile:
        """From an add action."""
        return cls(
            uri=value["path"],
            size=int(value["size"]),
            modified_at=int(value.get("modificationTime") or 0),
            stats_text=value.get("stats") or "",
            vector=_vector(value),
            partition=value.get("partitionValues") or {},
            tags=value.get("tags"),
            changes_data=bool(value.get("dataChange", True)),
        )

    def to_json(self) -> dict[str, Any]:
        """The add action."""
        value: dict[str, Any] = {
            "path": self.uri,
            "partitionValues": dict(self.partition),
            "size": self.size,
            "modificationTime": self.modified_at,
            "dataChange": self.changes_data,
            **({"stats": self.stats_text} if self.stats_text else {}),
            **({"tags": dict(self.tags)} if self.tags is not None else {}),
        }
        if self.vector is not None:
            value["deletionVector"] = self.vector.to_json()
        return {"add": value}

    @cached_property
    def path(self) -> str:
        """Its path under the table's folder."""
        return unquote(self.uri)

    @property
    def rows(self) -> int | None:
        """How many rows are in it, those that are gone included; None if it does not say."""
        return self.stats.get("numRecords")

    @property
    def gone(self) -> int:
        """How many of them its vector has."""
        return 0 if self.vector is None else self.vector.rows

    @cached_property  # every merge looks at those of all files, as long as these are in the table
    def stats(self) -> dict[str, Any]:
        """Its statistics; decimals are rounded."""
        found: dict[str, Any] = json.loads(self.stats_text or "{}")
        return found

    def with_vector(self, vector: VectorDescriptor) -> DataFile:
        """It as it comes back with a vector: its statistics are bounds from then on."""
        stats = self.stats_text
        if '"tightBounds"' in stats:
            stats = stats.replace('"tightBounds":true', '"tightBounds":false')
        elif stats:
            # Spliced in: parsed and written again, a decimal would lose digits.
            stats = stats.rstrip()[:-1] + ',"tightBounds":false}'
        return replace(self, vector=vector, stats_text=stats, changes_data=True)

    def removed(self, *, now: int) -> RemovedFile:
        """What takes it, with its vector, out of the table.

        Args:
            now: microseconds UTC.
        """
        return RemovedFile(
            uri=self.uri,
            vector=self.vector,
            removed_at=now,
            size=self.size,
            stats_text=self.stats_text,
            partition=self.partition,
            tags=self.tags,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile:
    """A data file, with the vector that it had, that a commit took out of a table.

    Attributes:
        uri: as that of the file.
        vector: its deletion vector; None: it had none.
        removed_at: microseconds UTC; None: the log does not tell.
        size: bytes; None: the log does not tell.
        stats_text: as that of the file.
        partition: as that of the file.
        tags: as those of the file.
        changes_data: as that of the file.
    """

    uri: str
    vector: VectorDescriptor | None
    removed_at: int | None
    size: int | None = None
    stats_text: str = ""
    partition: Mapping[str, str | None] = field(default_factory=dict)
    tags: Mapping[str, str | None] | None = None
    changes_data: bool = True

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RemovedFile:
        """From a remove action."""
        moment, size = value.get("deletionTimestamp"), value.get("size")
        return cls(
            uri=value["path"],
            vector=_vector(value),
            removed_at=int(moment) * 1000 if moment else None,
            size=None if size is None else int(size),
            stats_text=value.get("stats") or "",
            partition=value.get("partitionValues") or {},
            tags=value.get("tags"),
            changes_data=bool(value.get("dataChange", True)),
        )

    def to_json(self) -> dict[str, Any]:
        """The remove action."""
        value: dict[str, Any] = {
            "path": self.uri,
            "partitionValues": dict(self.partition),
            **({} if self.size is None else {"size": self.size}),
            **({} if self.tags is None else {"tags": dict(self.tags)}),
            **({} if self.vector is None else {"deletionVector": self.vector.to_json()}),
            **({"stats": self.stats_text} if self.stats_text else {}),
            **({} if self.removed_at is None else {"deletionTimestamp": self.removed_at // 1000}),
            "dataChange": self.changes_data,
            "extendedFileMetadata": True,
        }
        return {"remove": value}

    @property
    def path(self) -> str:
        """Its path under the table's folder."""
        return unquote(self.uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppTransaction:
    """How far an application has come: a txn action.

    Attributes:
        app_id: whose versions are counted.
        version: the newest.
        updated_at: microseconds UTC; None: the log does not tell.
    """

    app_id: str
    version: int
    updated_at: int | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AppTransaction:
        """From a txn action."""
        moment = value.get("lastUpdated")
        return cls(
            app_id=value["appId"],
            version=int(value["version"]),
            updated_at=None if moment is None else int(moment) * 1000,
        )

    def to_json(self) -> dict[str, Any]:
        """The txn action."""
        when = {} if self.updated_at is None else {"lastUpdated": self.updated_at // 1000}
        return {"txn": {"appId": self.app_id, "version": self.version, **when}}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata:
    """What a table says of itself: a metaData action.

    Attributes:
        id: a UUID.
        schema_text: its columns, Delta's JSON.
        configuration: its properties.
        name: for people; None: it has none.
        description: for people; None: it has none.
        partition_columns: names.
        created_at: milliseconds UTC; None: it does not tell.
    """

    id: str
    schema_text: str
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    partition_columns: tuple[str, ...] = ()
    created_at: int | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TableMetadata:
        """From a metaData action."""
        return cls(
            id=str(value["id"]),
            schema_text=value["schemaString"],
            configuration=dict(value.get("configuration") or {}),
            name=value.get("name"),
            description=value.get("description"),
            partition_columns=tuple(value.get("partitionColumns") or ()),
            created_at=value.get("createdTime"),
        )

    def to_json(self) -> dict[str, Any]:
        """The metaData action."""
        return {
            "metaData": {
                "id": self.id,
                "name": self.name,
                "description": self.description,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": self.schema_text,
                "partitionColumns": list(self.partition_columns),
                "configuration": dict(self.configuration),
                "createdTime": self.created_at,
            }
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProtocol:
    """What readers and writers of a table must know: a protocol action.

    Attributes:
        reader: the version that readers must know.
        writer: the version that writers must know.
        reader_features: by name; None: the version says it all.
        writer_features: by name; None: the version says it all.
    """

    reader: int
    writer: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TableProtocol:
        """From a protocol action."""
        readers, writers = value.get("readerFeatures"), value.get("writerFeatures")
        return cls(
            reader=int(value["minReaderVersion"]),
            writer=int(value["minWriterVersion"]),
            reader_features=None if readers is None else tuple(readers),
            writer_features=None if writers is None else tuple(writers),
        )

    def to_json(self) -> dict[str, Any]:
        """The protocol action."""
        value: dict[str, Any] = {"minReaderVersion": self.reader, "minWriterVersion": self.writer}
        if self.reader_features is not None:
            value["readerFeatures"] = list(self.reader_features)
        if self.writer_features is not None:
            value["writerFeatures"] = list(self.writer_features)
        return {"protocol": value}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """What a commit made here says of itself: its first action.

    Attributes:
        operation: as Delta's history names it.
        made_at: microseconds UTC.
        read: the version that it was made for; None: it read none.
        isolation: Delta's name of the level; None: none is told.
        blind: whether it adds rows without having looked at any.
        note: `userMetadata`, for readers of the table's history.
        owner: of a fence: whose the epoch is to be alone, "": nobody's; None: it is no fence.
    """

    operation: str
    made_at: int
    read: int | None = None
    isolation: str | None = None
    blind: bool = False
    note: str | None = None
    owner: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The commitInfo action."""
        return {
            "commitInfo": {
                "timestamp": self.made_at // 1000,
                "operation": self.operation,
                "operationParameters": {},
                **({} if self.read is None else {"readVersion": self.read}),
                **({} if self.isolation is None else {"isolationLevel": self.isolation}),
                "isBlindAppend": self.blind,
                "engineInfo": ENGINE,
                **({} if self.note is None else {"userMetadata": self.note}),
                **({} if self.owner is None else {"owner": self.owner}),
            }
        }


FileAction = DataFile | RemovedFile
StateAction = FileAction | AppTransaction | TableMetadata | TableProtocol
Action = StateAction | CommitInfo

_KINDS: Final[Mapping[str, Any]] = {
    "add": DataFile.from_json,
    "remove": RemovedFile.from_json,
    "txn": AppTransaction.from_json,
    "metaData": TableMetadata.from_json,
    "protocol": TableProtocol.from_json,
}
STATE_KINDS: Final = tuple(_KINDS)


def actions_of(line: Mapping[str, Any]) -> Iterator[StateAction]:
    """The actions of one line of a commit, or of one row of a checkpoint, that make up a table.

    Raises:
        KeyError: one lacks a field that it must have.
        ValueError: a number is none.
    """
    for kind, value in line.items():
        read = _KINDS.get(kind)
        if read is not None and value is not None:
            yield read(value)


def rewrite_info(operation: str, *, read: int, now: int, note: str | None = None) -> CommitInfo:
    """The first action of a commit that depends on all of the version that it was made for.

    Args:
        operation: as Delta's history names it.
        read: the version that it was made for.
        now: microseconds UTC.
        note: `userMetadata`; None: none.
    """
    return CommitInfo(
        operation=operation, made_at=now, read=read, isolation=SERIALIZABLE, note=note
    )


def _vector(value: Mapping[str, Any]) -> VectorDescriptor | None:
    found = value.get("deletionVector")
    return VectorDescriptor.from_json(found) if found else None
