"""The records of the round log: what one committed round holds, and which shards it brought where.

A round is one bounded slice of every shard's stream, committed at once with its end positions. It
is the only checkpoint there is. `to_json`/`from_json` define the stored format (docs/formats.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ratchet.core.gtid import Gtid, GtidSet
from ratchet.core.position import Position

FORMAT_VERSION = 1
STATEMENT_LENGTH: Final = 2000  # characters kept of a statement, or of a reason

TableEventKind = Literal["ddl", "truncate", "doubt", "unreadable"]
# What a statement does to a table; see TableEvent.effect.
Effect = Literal[
    "",
    "columns",
    "types",
    "key",
    "foreign_key",
    "rows",
    "doubt",
    "rebuild",
    "prepared",
    "bulk",
    "restored",
    "untold",
]


@dataclass(frozen=True, slots=True)
class StatementTime:
    """When a statement began, as its session saw it: what CURRENT_TIMESTAMP is in it.

    Attributes:
        seconds: since the epoch, UTC.
        micros: of that second; None: the log does not tell.
        zone: its session's time_zone; empty: the log does not tell.
    """

    seconds: int
    micros: int | None = None
    zone: str = ""

    def to_json(self) -> list[Any]:
        """As plain JSON values; `StatementTime(*it)` reads it back."""
        return [self.seconds, self.micros, self.zone]


@dataclass(frozen=True, slots=True)
class GtidRange:
    """Transactions that follow each other in a stream and in their origin's numbers.

    Attributes:
        origin: GTID origin of all of them (see core.gtid).
        first: number of the first one.
        last: number of the last one.
        seq: `seq` of the first one in the stream; that of the others follows by adding one. For
            flavours `mariadb` and `file` a run may stand for numbers that were skipped.
    """

    origin: str
    first: int
    last: int
    seq: int

    def seq_of(self, gtid: Gtid) -> int | None:
        """The `seq` of that transaction if it is in this run."""
        if gtid.origin != self.origin or not self.first <= gtid.number <= self.last:
            return None
        return self.seq + gtid.number - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFile:
    """One Parquet file of the change log: one table, one schema, one shard, one round.

    Attributes:
        keyspace: keyspace of the table.
        table: name of the table.
        shard: shard that the changes were read from (ShardId as text).
        schema: fingerprint of its TableSchema, stored once under its id.
        path: relative to the lake's root.
        rows: row changes in the file (an update counts once).
        bytes: size of the file.
        min_seq: lowest `seq` inside.
        max_seq: highest `seq` inside.
        inserts: how many of the rows are inserts.
        updates: how many are updates.
        deletes: how many are deletes.
        misfits: column -> how many values its lake type could not hold (see core.types).
        silent: how many updates and deletes may have changed rows of other tables by foreign keys
            without a word in the log (core.change.SILENT_COLUMN); None: the file does not tell.
        began: when the first statement of these began, seconds since the epoch by its session's
            clock; 0: there is none, or the file does not tell.
        unchecked: how many inserts and updates came from sessions that did not look at foreign keys
            (on servers that do not log what they do by these).
    """

    keyspace: str
    table: str
    shard: str
    schema: str
    path: str
    rows: int
    bytes: int
    min_seq: int
    max_seq: int
    inserts: int
    updates: int
    deletes: int
    misfits: dict[str, int]
    silent: int | None = None
    began: int = 0
    unchecked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEvent:
    """Something that happened to a table as a whole, at one point of a shard's stream.

    Attributes:
        keyspace: keyspace of the table.
        table: name of the table.
        shard: shard it happened on.
        kind: "truncate" removes all rows written before it; "ddl" is any other statement that may
            have changed the table's shape or rows without row events; "doubt" stands beside a "ddl"
            where rows before the statement may have been read under the columns behind it;
            "unreadable" that from here on rows are left out which the mirror cannot take.
        statement: the statement as logged, cut at 2,000 characters; of "unreadable", why.
        effect: of a "ddl", what its whole text was understood to do when it was captured.
            "columns": columns come that are NULL in every row (`nulls`), nothing else.
            "types": columns may have other types, and values; the next shape tells.
            "key": an index is gone that may have made rows unique.
            "foreign_key": foreign keys come or go.
            "rows": rows or values are others, or columns are, in a way that no row event tells.
            "doubt": not understood completely, so any of these.
            "rebuild": its rows may have been written anew, and nothing else: generated columns may
            have been computed anew.
            "prepared": an XA transaction has changed rows that is committed here; its row events
            came when it was prepared, and were left out.
            "bulk": rows were inserted which the server may have taken back (MariaDB).
            "restored": no statement: the server's log was written anew, and may lack transactions
            that it had; or it says itself that changes are missing from it (an incident), or
            transactions are missing that the server has executed. Or as "untold", by a statement
            that has no GTID, or one of another transaction, which a dump may contain without it.
            "untold": rows were changed by a statement that was logged as its text, or were taken
            back behind their row events, or their row events lack columns; which, nothing tells.
            Empty in lakes of earlier versions: then the text kept here is all there is.
        reason: why, in words for people; empty for "columns".
        nulls: columns that come, and are NULL in all rows that were there.
        time: when a statement that speaks of the time began; None: it does not, or nothing tells.
        gtid: transaction, in the server's notation.
        seq: its `seq`.
        ts: commit time, microseconds since the epoch, UTC.
    """

    keyspace: str
    table: str
    shard: str
    kind: TableEventKind
    statement: str
    gtid: str
    seq: int
    ts: int
    effect: Effect = ""
    reason: str = ""
    nulls: tuple[str, ...] = ()
    time: StatementTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The end of a shard's stream: a reshard has sent its rows' writes to other shards.

    Attributes:
        sources: the shards (ShardId as text) that end by it, each in its own stream.
        targets: shard -> what it had executed when it took over: its stream goes on from there.
    """

    sources: tuple[str, ...]
    targets: Mapping[str, Position]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; `from_json` reads it back."""
        return {
            "sources": list(self.sources),
            "targets": positions_to_json(self.targets),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Journal:
        """Read what `to_json` wrote."""
        return cls(
            sources=tuple(data["sources"]),
            targets=positions_from_json(data["targets"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSlice:
    """What one round took from one shard.

    Attributes:
        shard: ShardId as text.
        generation: lineage generation of the stream.
        start: position before the slice; the end of the shard's slice in an earlier round.
        end: position behind the slice's last transaction.
        runs: the transactions in stream order, for resolving floors and finding GTIDs.
        transactions: how many there were (of all databases).
        rows: row changes of mirrored tables.
        bytes: binlog bytes read.
        min_ts: earliest commit time inside, microseconds UTC; None if no transaction. Like
            `max_ts` bounded by what can be (core.committimes): along a stream they never fall.
        max_ts: latest commit time inside.
        observed_at: capture's clock when the slice had been read (its files may have been closed
            later), microseconds UTC.
        caught_up: whether the stream had nothing more to give at that moment.
        journal: how the stream has ended with this slice; None: it goes on.
        held_ts: commit time of the next transaction, which was left for a later slice because the
            other shards are behind (`SliceLimits.not_after`), microseconds UTC; None: none was.
        ancestors: only where a reshard's target begins: shard -> the generation up to which
            everything written there is older than this stream.
        odd_ts: a commit time inside as the log has it that cannot be; None: none.
        seen: shard -> what the mirror has of it. The stream began before its shard took over from
            that one, so copies of this may still come behind the slice: they are left out.
    """

    shard: str
    generation: int
    start: Position
    end: Position
    runs: tuple[GtidRange, ...]
    transactions: int
    rows: int
    bytes: int
    min_ts: int | None
    max_ts: int | None
    observed_at: int
    caught_up: bool
    journal: Journal | None = None
    held_ts: int | None = None
    odd_ts: int | None = None
    ancestors: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, Position] = field(default_factory=dict)

    @classmethod
    def beginning(
        cls,
        shard: str,
        position: Position,
        *,
        generation: int,
        now: int,
        ancestors: Mapping[str, int] | None = None,
        seen: Mapping[str, Position] | None = None,
    ) -> ShardSlice:
        """The empty slice that begins a stream.

        Args:
            shard: ShardId as text.
            position: where the stream begins.
            generation: of the stream.
            now: microseconds UTC.
            ancestors: see the attribute.
            seen: see the attribute.
        """
        return cls(
            shard=shard,
            generation=generation,
            start=position,
            end=position,
            runs=(),
            transactions=0,
            rows=0,
            bytes=0,
            min_ts=None,
            max_ts=None,
            observed_at=now,
            caught_up=False,
            ancestors=ancestors or {},
            seen=seen or {},
        )

    def executed_at(self, seq: int) -> GtidSet:
        """The transactions of the stream up to a `seq` that is not before the slice.

        Of flavour `file` only those that the slice's runs name.
        """
        found = self.start.executed
        for run in self.runs:
            if run.seq > seq:
                break
            last = min(run.last, run.first + seq - run.seq)
            # In MariaDB's domains numbers only rise, so those that were skipped will not come.
            first = 1 if found.flavor == "mariadb" else run.first
            server = self.end.executed.servers.get(run.origin, 0)
            found = found.with_interval(run.origin, first, last, server)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One committed round.

    Attributes:
        number: from 1, without holes.
        committed_at: microseconds UTC, the capturing driver's clock.
        slices: one per shard that took part; a shard that is missing stands where it stood.
        files: the change files, all shards.
        events: table events, all shards, in stream order per shard.
        copies: shards of which the changes of tools' copies of mirrored tables were captured too
            (core.patterns.TablePatterns.copies). Earlier versions did not, and leave it out.
    """

    number: int
    committed_at: int
    slices: tuple[ShardSlice, ...]
    files: tuple[ChangeFile, ...]
    events: tuple[TableEvent, ...]
    copies: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; `from_json` reads it back."""
        return {
            "format": FORMAT_VERSION,
            "number": self.number,
            "committed_at": self.committed_at,
            "slices": [slice_to_json(s) for s in self.slices],
            "files": [_plain(f) for f in self.files],
            "events": [_event_to_json(e) for e in self.events],
            **({"copies": list(self.copies)} if self.copies else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Round:
        """Read what `to_json` wrote."""
        return cls(
            number=data["number"],
            committed_at=data["committed_at"],
            slices=tuple(slice_from_json(s) for s in data["slices"]),
            files=tuple(ChangeFile(**f) for f in data["files"]),
            events=tuple(map(_event_from_json, data["events"])),
            copies=tuple(data.get("copies", ())),
        )


def _event_to_json(event: TableEvent) -> dict[str, Any]:
    plain = _plain(event)
    del plain["time"]  # earlier versions do not know it
    return plain if event.time is None else {**plain, "time": event.time.to_json()}


def _event_from_json(data: dict[str, Any]) -> TableEvent:
    time = StatementTime(*data["time"]) if "time" in data else None
    return TableEvent(**{**data, "nulls": tuple(data.get("nulls", ())), "time": time})


def _plain(value: ChangeFile | TableEvent) -> dict[str, Any]:
    """The fields, which are plain; `asdict` would copy each, for 0.3 ms a shard and round."""
    return {name: getattr(value, name) for name in value.__slots__}


_OPTIONAL: Final = {"start", "end", "runs", "journal", "held_ts", "odd_ts", "ancestors", "seen"}


def slice_to_json(value: ShardSlice) -> dict[str, Any]:
    """A ShardSlice as plain JSON values."""
    return {
        **{name: getattr(value, name) for name in ShardSlice.__slots__ if name not in _OPTIONAL},
        **({} if value.held_ts is None else {"held_ts": value.held_ts}),
        **({} if value.odd_ts is None else {"odd_ts": value.odd_ts}),
        **({"journal": value.journal.to_json()} if value.journal else {}),
        **({"ancestors": dict(value.ancestors)} if value.ancestors else {}),
        **({"seen": positions_to_json(value.seen)} if value.seen else {}),
        "start": value.start.to_json(),
        "end": value.end.to_json(),
        "runs": [[run.origin, run.first, run.last, run.seq] for run in value.runs],
    }


def slice_from_json(data: dict[str, Any]) -> ShardSlice:
    """Read what `slice_to_json` wrote."""
    return ShardSlice(
        **{
            **data,
            "start": Position.from_json(data["start"]),
            "end": Position.from_json(data["end"]),
            "runs": tuple(GtidRange(*run) for run in data["runs"]),
            "journal": Journal.from_json(data["journal"]) if "journal" in data else None,
            "seen": positions_from_json(data.get("seen", {})),
        }
    )


def positions_to_json(value: Mapping[str, Position]) -> dict[str, Any]:
    """Positions by shard as plain JSON values."""
    return {shard: place.to_json() for shard, place in value.items()}


def positions_from_json(data: Mapping[str, Any]) -> dict[str, Position]:
    """Read what `positions_to_json` wrote."""
    return {shard: Position.from_json(place) for shard, place in data.items()}
