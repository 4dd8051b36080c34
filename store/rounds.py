"""The round log: which rounds are committed, and where every shard stands.

One Delta table, one row per round, written by `deltalake` (milliseconds, no Spark). Its commit is
the moment a round exists. Invariant: rounds are numbered from 1 without holes; two writers never
both commit the same number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from ratchet.core.errors import DecodeError, LakeError
from ratchet.core.position import Position
from ratchet.core.rounds import Journal, Round, ShardSlice, positions_from_json, positions_to_json
from ratchet.store import layout
from ratchet.store.delta.appendlog import DeltaLogTable, NumberRange, microseconds
from ratchet.store.failures import sound
from ratchet.store.files import Lake
from ratchet.store.formats import BUNDLES_FORMAT, PARTS_FORMAT, need_format
from ratchet.store.segments import SegmentPart, moved, object_of, part_of

APP_ID: Final = "ratchet.rounds"
_COMPACT_EVERY: Final = 100
_AT_ONCE: Final = 1000  # rounds that are read at a time; some KB each

_SCHEMA: Final = pa.schema(
    [
        pa.field("round", pa.int64(), nullable=False),
        pa.field("committed_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("min_ts", pa.timestamp("us", tz="UTC")),
        pa.field("max_ts", pa.timestamp("us", tz="UTC")),
        pa.field("positions", pa.string(), nullable=False),
        pa.field("record", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """Where a shard's stream stands.

    Attributes:
        position: the end of its newest slice.
        generation: lineage generation of the stream.
        ancestors: see core.rounds.ShardSlice; of the whole stream.
        begun: the round in which a reshard began it; 0 if none did.
        journal: how it has ended; None: it goes on.
        seen: see core.rounds.ShardSlice; of the newest slice.
        ts: what was committed on the shard before this moment is in the stream, as far as its
            server's clock can be trusted; microseconds UTC, 0 if unknown.
    """

    position: Position
    generation: int = 0
    ancestors: Mapping[str, int] = field(default_factory=dict)
    begun: int = 0
    journal: Journal | None = None
    seen: Mapping[str, Position] = field(default_factory=dict)
    ts: int = 0

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; `from_json` reads it back."""
        return {
            **self.position.to_json(),
            "generation": self.generation,
            **({"ancestors": dict(self.ancestors), "begun": self.begun} if self.ancestors else {}),
            **({"journal": self.journal.to_json()} if self.journal else {}),
            **({"seen": positions_to_json(self.seen)} if self.seen else {}),
            "ts": self.ts,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Read what `to_json` wrote; rounds of before there were generations hold positions."""
        return cls(
            position=Position.from_json(data),
            generation=data.get("generation", 0),
            ancestors=data.get("ancestors", {}),
            begun=data.get("begun", 0),
            journal=Journal.from_json(data["journal"]) if "journal" in data else None,
            seen=positions_from_json(data.get("seen", {})),
            ts=data.get("ts", 0),
        )


@dataclass(frozen=True, slots=True)
class _Last:
    round: Round
    streams: dict[str, StreamState]


class RoundLog:
    """The committed rounds of one lake. Not shared between threads."""

    def __init__(self, lake: Lake) -> None:
        self._table = DeltaLogTable(lake, layout.ROUNDS, _SCHEMA)
        self._last: _Last | None = None
        self._lake = lake
        self._has_parts = False

    def last(self) -> Round | None:
        """The newest committed round, also if another process wrote it."""
        found = self._read_last()
        return found.round if found else None

    def last_number(self) -> int:
        """Its number; 0 if there is none."""
        return self._table.version_of(APP_ID)

    def streams(self) -> dict[str, StreamState]:
        """Shard -> where its stream stands, over all rounds that ever were.

        Shards whose successors' streams have begun (after a reshard) are left out.
        """
        found = self._read_last()
        return dict(found.streams) if found else {}

    def generations(self) -> dict[str, int]:
        """The generations in `streams`."""
        return {shard: stream.generation for shard, stream in self.streams().items()}

    def positions(self) -> dict[str, Position]:
        """The positions in `streams`."""
        return {shard: stream.position for shard, stream in self.streams().items()}

    def streams_at(self, number: int) -> dict[str, StreamState]:
        """As `streams`, when that round was committed.

        Raises:
            LakeError: the round has been pruned, or the log is damaged.
        """
        # What is committed never changes: without a look, if it is at hand.
        last = self._last
        if last is None or last.round.number != number:
            last = self._read_last()
        if last is not None and last.round.number == number:
            return dict(last.streams)
        rows = self._rows(number, number)
        if not rows:
            raise LakeError(
                f"round {number} is not in the log",
                operation="read the round log",
                hint="it was pruned: ask for a newer round",
            )
        return _streams(rows[0]["positions"])

    def positions_at(self, number: int) -> dict[str, Position]:
        """The positions in `streams_at`."""
        return {shard: stream.position for shard, stream in self.streams_at(number).items()}

    def since(self, number: int) -> list[Round]:
        """The rounds with numbers above `number`, in order.

        Raises:
            LakeError: some of them have been pruned.
        """
        last = self.last_number()
        if number >= last:
            return []
        if self._last is not None and number == last - 1 and self._last.round.number == last:
            return [self._last.round]
        return list(self.walk(number + 1, last))

    def walk(self, first: int, last: int) -> Iterator[Round]:
        """The rounds `first` to `last`, in order, some at a time: there may be a fortnight's.

        Raises:
            LakeError: some of them have been pruned, or the log is damaged.
        """
        for begin in range(first, last + 1, _AT_ONCE):
            end = min(begin + _AT_ONCE - 1, last)
            rows = self._rows(begin, end)
            rounds = [_round(row) for row in rows]
            if len(rounds) < end + 1 - begin:
                raise LakeError(
                    f"rounds {begin} to {end} are needed, but the log has {len(rounds)} of them",
                    operation="read the round log",
                    hint="they were pruned before every table had merged them: "
                    "`ratchet dump CONFIG --again '*'` dumps all tables again",
                )
            if self._last is None or self._last.round.number < end:
                self._last = _Last(rounds[-1], _streams(rows[-1]["positions"]))
            yield from rounds

    def earliest_above(self, number: int) -> int | None:
        """The earliest commit time in rounds above `number`; microseconds UTC, None if none."""
        if number >= self.last_number():
            return None
        rows = self._table.read(columns=["min_ts"], where=NumberRange("round", number + 1))
        times = [row["min_ts"] for row in rows if row["min_ts"] is not None]
        return min((microseconds(time) for time in times), default=None)

    def first_number(self) -> int:
        """The oldest round still in the log; 0 if there is none."""
        return self._table.lowest("round") or 0

    def extent(self) -> tuple[int, int]:
        """How many rounds are in the log, and the size of their change files, bytes."""
        self.last_number()  # looks for new commits
        found = self._table.read_columns(columns=["bytes"])["bytes"]
        return len(found), int(pc.sum(found).as_py() or 0)

    def first_since(self, moment: int) -> int | None:
        """The oldest round in the log that was committed at or after a moment; None: none was.

        Args:
            moment: microseconds UTC.
        """
        self.last_number()  # looks for new commits
        return self._table.first_since("round", "committed_at", moment)

    def append(self, value: Round) -> None:
        """Commit a round. The first one with parts of segments raises the lake's format before.

        Raises:
            LakeError: its number is not the next one, or another process has just written it.
        """
        before = self._read_last()
        expected = before.round.number + 1 if before else 1
        if value.number != expected:
            self._table.refuse_late("commit a round")
            raise LakeError(
                f"round {value.number} cannot follow round {expected - 1}",
                operation="commit a round",
                hint="another `ratchet` is writing to this lake: stop one of them",
            )
        if not self._has_parts and any(part_of(file.path) for file in value.files):
            need_format(self._lake, PARTS_FORMAT)
            self._has_parts = True
        streams = _after(before.streams if before else {}, value)
        self._table.append(
            pa.Table.from_pylist([_row(value, streams)], schema=_SCHEMA),
            app_id=APP_ID,
            version=value.number,
            operation=f"commit round {value.number}",
        )
        self._last = _Last(value, streams)
        if value.number % _COMPACT_EVERY == 0:
            self._table.compact()

    def names(self, number: int, path: str) -> bool:
        """Whether a round names an object; not if it has been pruned."""
        self.last_number()  # looks for new commits
        rows = self._rows(number, number)
        return any(object_of(file.path) == path for r in rows for file in _round(r).files)

    def move_files(self, first: int, last: int, places: Mapping[str, SegmentPart]) -> None:
        """Say where the change files of some rounds lie now; nothing else of these changes.

        One commit. The lake's format is raised before: to earlier versions an object belongs to one
        round.

        Args:
            first: the first of the rounds.
            last: the last one.
            places: object -> where its copy lies; see segments.moved.

        Raises:
            LateError: another run has taken the lake over.
            LakeError: the log cannot be read or written.
        """
        need_format(self._lake, BUNDLES_FORMAT)

        def change(rows: pa.Table) -> pa.Table:
            at = rows.schema.get_field_index("record")
            records = [_moved_record(text, places) for text in rows["record"].to_pylist()]
            return rows.set_column(at, rows.schema.field(at), pa.array(records, pa.string()))

        self._table.rewrite(NumberRange("round", first, last), change)
        self._last = None  # it may be one of them

    def prune(self, before_round: int) -> None:
        """Forget the rounds below `before_round`; the newest one always stays."""
        keep_from = min(before_round, self.last_number())
        self._table.delete_below("round", keep_from)

    def epoch(self) -> int:
        """The newest epoch that was claimed; 0: none was."""
        return self._table.epoch()

    def claim(self, owner: str) -> None:
        """Claim the lake's epoch: rounds of earlier ones are refused from here on.

        Args:
            owner: of the lease, so that no two claims are the same.

        Raises:
            LateError: another run has claimed it, or a later one.
        """
        self._table.fence(owner)

    def _read_last(self) -> _Last | None:
        number = self.last_number()
        if number == 0:
            return None
        if self._last is None or self._last.round.number != number:
            with sound(f"{layout.ROUNDS}/ (its newest round)"):
                (row,) = self._rows(number, number)  # that one is never pruned
            self._last = _Last(_round(row), _streams(row["positions"]))
        return self._last

    def _rows(self, first: int, last: int) -> list[dict[str, Any]]:
        """The rows of those rounds that are in the log, in order, without holes.

        Raises:
            DamagedFileError: one is missing that was not pruned, or is there twice.
        """
        found = self._table.read(
            columns=["round", "positions", "record"], where=NumberRange("round", first, last)
        )
        found.sort(key=lambda row: int(row["round"]))
        numbers = [row["round"] for row in found]
        if numbers != list(range(first, last + 1)):
            with sound(f"{layout.ROUNDS}/ (its rounds {first} to {last})"):
                newest = self.last_number()
                oldest = min(self.first_number() or newest, newest)
                there = range(max(first, oldest), min(last, newest) + 1)
                if numbers != list(there):
                    raise DecodeError(f"of {_named(there)} it has {_named(numbers)}")
        return found


def _after(before: Mapping[str, StreamState], value: Round) -> dict[str, StreamState]:
    """The streams after a round."""
    replaced = {
        shard
        for piece in value.slices
        for shard, generation in piece.ancestors.items()
        if shard in before and before[shard].generation <= generation
    }
    kept = {shard: stream for shard, stream in before.items() if shard not in replaced}
    moved = {
        piece.shard: _moved(kept.get(piece.shard), piece, value.number) for piece in value.slices
    }
    return kept | moved


def _moved(before: StreamState | None, piece: ShardSlice, number: int) -> StreamState:
    if before is not None and before.generation == piece.generation:
        return replace(
            before,
            position=piece.end,
            journal=piece.journal,
            seen=piece.seen,
            ts=max(before.ts, piece.max_ts or 0),
        )
    return StreamState(
        position=piece.end,
        generation=piece.generation,
        ancestors=piece.ancestors,
        begun=number if piece.ancestors else 0,
        journal=piece.journal,
        seen=piece.seen,
        # A stream that is as new as this begins with what was executed just then, or earlier.
        ts=piece.max_ts or (0 if piece.ancestors else piece.observed_at),
    )


def _streams(text: str) -> dict[str, StreamState]:
    with sound(f"{layout.ROUNDS}/ (the positions of a round)"):
        return {shard: StreamState.from_json(data) for shard, data in json.loads(text).items()}


def _round(row: Mapping[str, Any]) -> Round:
    with sound(f"{layout.ROUNDS}/ (the record of a round)"):
        found = Round.from_json(json.loads(row["record"]))
        if found.number != row["round"]:
            raise DecodeError(f"it is that of round {found.number}, in the row of {row['round']}")
        return found


def _named(numbers: Sequence[int]) -> str:
    return f"rounds {numbers[0]} to {numbers[-1]}, {len(numbers)} in all" if numbers else "none"


def _moved_record(text: str, places: Mapping[str, SegmentPart]) -> str:
    """A round's record with the new places of its files; the rest is not looked at."""
    with sound(f"{layout.ROUNDS}/ (the record of a round)"):
        data = json.loads(text)
        for file in data["files"]:
            file["path"] = moved(file["path"], places)
    return json.dumps(data)


def _row(value: Round, streams: Mapping[str, StreamState]) -> dict[str, Any]:
    earliest = [s.min_ts for s in value.slices if s.min_ts is not None]
    latest = [s.max_ts for s in value.slices if s.max_ts is not None]
    return {
        "round": value.number,
        "committed_at": value.committed_at,
        "rows": sum(f.rows for f in value.files),
        "bytes": sum(f.bytes for f in value.files),
        "min_ts": min(earliest, default=None),
        "max_ts": max(latest, default=None),
        "positions": json.dumps({s: p.to_json() for s, p in streams.items()}, sort_keys=True),
        "record": json.dumps(value.to_json()),
    }
