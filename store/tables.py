"""The state of each mirrored table: its phase, its dump, how far it is merged.

One JSON file per table, a note (`store.notes`). It is not the truth: what a Delta table holds is
said by its own transaction versions, so a state that lags behind a kill is corrected, never trusted
over them.

A run asks for all states each second: it lists the files, and reads those that have changed.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from ratchet.core.errors import DamagedFileError
from ratchet.core.foreignkeys import ForeignKey
from ratchet.core.position import Position
from ratchet.core.rounds import StatementTime
from ratchet.core.schema import Column, TableSchema
from ratchet.core.shell import redump
from ratchet.store import layout
from ratchet.store.failures import sound
from ratchet.store.files import Lake, LakeFile
from ratchet.store.notes import Notes

# A file may change twice between two ticks of its store's clock (a second for some), and that
# clock may be behind ours: what changed within this time, microseconds, is read again.
_SETTLED: Final = 60_000_000
_PARSED: Final = 4 << 20  # bytes of files whose states are kept; a state never changes
_THEN: Final = "; then "
_FIRST: Final = 150  # characters that are kept of the first of several statements

Phase = Literal["new", "dumping", "catching_up", "streaming", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedRows:
    """What a dump leaves in its table: the rows of shards that it does not read.

    Attributes:
        names: those shards and all that they descend from; rows stand under any of these names.
        dump: id of the dump before, whose side table has their hidden rows.
        since: the round from which on the table's rows are from streams that are known: the first
            one of the dump before, or of the one that it kept rows of.
    """

    names: tuple[str, ...]
    dump: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpState:
    """A table's dump.

    Attributes:
        id: unique; names the dump in the Delta commits of its chunks.
        start_round: the first round that may hold changes the chunks lack.
        start: shard -> a position that every chunk is sure to contain; of shards that are not read,
            the one that their rows stand at.
        end: shard -> a position that contains everything any chunk may have seen; None until the
            last chunk has been read.
        done: whether every chunk is committed.
        shaped: shard -> a position whose statements on the table itself are in its shape and in
            every chunk, though rows of before may not be; only where that is behind `start`.
        kept: the rows that were left in the table; None: it was emptied.
        made: shard -> server id and CREATE_TIME there when it began; of an earlier version nothing.
        computed: whether its rows come from those that the mirror had, not from the source.
    """

    id: str
    start_round: int
    start: dict[str, Position]
    end: dict[str, Position] | None = None
    done: bool = False
    shaped: dict[str, Position] = field(default_factory=dict)
    kept: RetainedRows | None = None
    made: dict[str, str] = field(default_factory=dict)
    computed: bool = False

    @property
    def read(self) -> tuple[str, ...]:
        """The shards that are dumped."""
        kept = () if self.kept is None else self.kept.names
        return tuple(shard for shard in self.start if shard not in kept)

    @property
    def since(self) -> int:
        """The first round of the dump that the oldest rows may be of."""
        return self.start_round if self.kept is None else self.kept.since

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "id": self.id,
            "start_round": self.start_round,
            "start": _positions_to_json(self.start),
            "end": None if self.end is None else _positions_to_json(self.end),
            "done": self.done,
            "shaped": _positions_to_json(self.shaped),
            "kept": None if self.kept is None else asdict(self.kept),
            "made": self.made,
            "computed": self.computed,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DumpState:
        """Read what `to_json` wrote."""
        end, kept = data["end"], data.get("kept")
        return cls(
            id=data["id"],
            start_round=data["start_round"],
            start=_positions_from_json(data["start"]),
            end=None if end is None else _positions_from_json(end),
            done=data["done"],
            shaped=_positions_from_json(data.get("shaped", {})),
            kept=None if kept is None else RetainedRows(**{**kept, "names": tuple(kept["names"])}),
            made=data.get("made", {}),
            computed=data.get("computed", False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRecovery:
    """A table of which some rows are being read again, because a server has lost what changed them.

    Attributes:
        round: the one in which the streams of those shards begin anew; all before is merged.
        parted: shard -> the last round whose end its server still has.
    """

    round: int
    parted: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeChange:
    """Where and how a table's columns changed, while all of before is merged and nothing behind.

    What it does to the rows may be computed from those that the mirror has (`merge.remake`).

    Of a table of several shards it is the statement on one of them. The others are merged up to
    theirs once all have come to it.

    Attributes:
        shard: on which it was made.
        position: its transactions up to there are those that are merged; the change is inside.
        round: the round in which it stands.
        statement: the ALTER TABLE as logged; empty: what changed is told by `shape` alone.
        shape: fingerprint of the shape that the row events have from there on; empty: see above.
        mark: generation and `seq` of the statement: nothing of the shard is merged from there on;
            None: the table is mirrored from this shard alone.
        others: the same of further shards, in the order in which they came to it.
        time: when the statement began, if it speaks of the time; None: nothing tells.
    """

    shard: str
    position: Position
    round: int
    statement: str = ""
    shape: str = ""
    mark: tuple[int, int] | None = None
    others: tuple[ShapeChange, ...] = ()
    time: StatementTime | None = None

    @property
    def every(self) -> tuple[ShapeChange, ...]:
        """This one and the others."""
        return (self, *self.others)

    @property
    def positions(self) -> dict[str, Position]:
        """Where the shards stand that have come to it."""
        return {one.shard: one.position for one in self.every}

    @property
    def first_round(self) -> int:
        """The first round with changes that the table lacks."""
        return min(one.round for one in self.every)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; `from_json` reads it back."""
        return {
            "shard": self.shard,
            "position": self.position.to_json(),
            "round": self.round,
            "statement": self.statement,
            "shape": self.shape,
            # Earlier versions know changes of one shard only.
            **({} if self.mark is None else {"mark": self.mark}),
            **({} if self.time is None else {"time": self.time.to_json()}),
            **({"others": [one.to_json() for one in self.others]} if self.others else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ShapeChange:
        """Read what `to_json` wrote."""
        read = {**data, "position": Position.from_json(data["position"])}
        if "mark" in data:
            generation, seq = data["mark"]
            read["mark"] = int(generation), int(seq)
        if "time" in data:
            read["time"] = StatementTime(*data["time"])
        read["others"] = tuple(map(cls.from_json, data.get("others", ())))
        return cls(**read)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReason:
    """Why a table stopped.

    Attributes:
        message: one sentence.
        hint: the remedy.
        round: the round in which it happened; rounds below it are merged.
        healing: what is left to do, of a table that `ratchet heal` lets go on.
        differs: whether its rows were found to differ from the source, and nothing else is wrong:
            `ratchet repair` lets it go on. Its doubts stay, so it does not count as right before.
        altered: whether a statement or another shape stopped it, which a new dump takes in.
    """

    message: str
    hint: str
    round: int
    healing: RowRecovery | None = None
    differs: bool = False
    altered: bool = False

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StopReason:
        """Read what `asdict` made."""
        healing = data.get("healing")
        return cls(**{**data, "healing": None if healing is None else RowRecovery(**healing)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why a table counts as right again only when it has been compared with its source.

    Attributes:
        message: one sentence: what happened.
        statement: the statement as logged, cut; empty if it was none.
        round: the round in which it happened: a comparison at this round or behind it decides.
        by_shape: whether the columns' types behind the statement can take the doubt away without
            a look at the rows (merge.ddl.unproven).
        rebuilt: whether all that happened is that its rows may have been written anew: they are as
            they were unless a STORED column is computed otherwise in another session.
    """

    message: str
    statement: str
    round: int
    by_shape: bool = False
    rebuilt: bool = False

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Doubt:
        """Read what `asdict` made; earlier versions kept whether rows may differ as well."""
        return cls(**{name: value for name, value in data.items() if name != "expected"})

    def behind(self, before: Doubt | None) -> Doubt:
        """This doubt of a table that was in doubt before: both are to be settled."""
        if before is None:
            return self
        message, statement = self.message, self.statement
        if before.statement not in {"", statement}:
            message = message if before.by_shape else before.message
            # The first may be the one that changed rows.
            first = before.statement.partition(_THEN)[0]
            statement = f"{first[:_FIRST]}{_THEN}{statement}" if statement else before.statement
        return Doubt(
            message=message,
            statement=statement,
            round=max(self.round, before.round),
            by_shape=self.by_shape and before.by_shape,
            rebuilt=self.rebuilt and before.rebuilt,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """One mirrored table.

    Attributes:
        keyspace: its keyspace.
        table: its name.
        schema: its shape when it was dumped, on all shards.
        key: columns that identify a row; `schema.key` unless the config says otherwise.
        shard_in_key: whether two shards may hold the same key (config `key: shard+primary`).
        phase: new -> dumping -> catching_up -> streaming; stopped from anywhere.
        dump: the dump under way or the last one; None before the first.
        merged_round: everything up to this round is in the Delta table (a lower bound).
        stopped: the reason, in phase stopped.
        logged: shard -> fingerprint of the shape that the shard's row events had last.
        added: columns that came since the dump, in the order in which they came.
        nulls: shard -> columns that a statement has brought there, with NULL in all rows.
        retyped: shards of which a column's type may have changed, with no row event since.
        doubts: shard -> what put the table in doubt there. It goes on, but counts as right only
            when it has been compared with its source.
        generated: whether it may have generated columns, whose values can change with any type or
            collation that they are made of; None: not known (an earlier version, or a statement
            that was not understood).
        primary: whether `key` is a primary key at the source; None: written by an earlier version.
        foreign_keys: those by which the server changes rows of this table without saying so in
            its log; None: not read yet.
        keys_stale: whether a statement may have changed them since they were read.
        sided: id of the dump whose side table was there when the state was saved; others may have
            one, since not every merge makes it.
        side_version: a version that this side table had by then, or a later one.
        standing: version of its Delta table that is shown while it is dumped anew into a staged
            one; None: the dump, if there is one, fills the table itself.
        change: what stopped it, or is being computed; None: nothing of that kind did.
        is_unreadable: whether its file is damaged: it is stopped, and nothing else is known of it.
            No file says so.
    """

    keyspace: str
    table: str
    schema: TableSchema
    key: tuple[str, ...]
    shard_in_key: bool = False
    phase: Phase = "new"
    dump: DumpState | None = None
    merged_round: int = 0
    stopped: StopReason | None = None
    logged: dict[str, str] = field(default_factory=dict)
    added: tuple[Column, ...] = ()
    nulls: dict[str, tuple[str, ...]] = field(default_factory=dict)
    retyped: tuple[str, ...] = ()
    doubts: dict[str, Doubt] = field(default_factory=dict)
    generated: bool | None = None
    primary: bool | None = None
    foreign_keys: tuple[ForeignKey, ...] | None = None
    keys_stale: bool = False
    sided: str = ""
    side_version: int = 0
    standing: int | None = None
    change: ShapeChange | None = None
    is_unreadable: bool = False

    @property
    def whole(self) -> TableSchema:
        """The shape of the mirrored table: as it was dumped, and the columns that came since."""
        return replace(self.schema, columns=(*self.schema.columns, *self.added))

    @property
    def name(self) -> str:
        """keyspace.table, for messages."""
        return f"{self.keyspace}.{self.table}"

    def in_doubt(self, doubt: Doubt) -> TableState:
        """The state with one more doubt, on every shard that it was dumped from."""
        shards = self.dump.start if self.dump else ()
        doubts = {shard: doubt.behind(self.doubts.get(shard)) for shard in shards}
        return replace(self, doubts=self.doubts | doubts)

    @property
    def is_past_dump(self) -> bool:
        """Whether what is captured is merged into it, or about to be."""
        return self.phase in {"catching_up", "streaming"}

    @property
    def has_side(self) -> bool:
        """Whether there is a side table of its dump, for certain."""
        return self.dump is not None and self.sided == self.dump.id

    @property
    def marks(self) -> dict[str, tuple[int, int]]:
        """Shard -> generation and `seq` of its statement: nothing is merged from there on."""
        changes = () if self.phase != "stopped" or self.change is None else self.change.every
        return {one.shard: one.mark for one in changes if one.mark is not None}

    @property
    def awaits_shards(self) -> bool:
        """Whether it was stopped by a statement that not all of its shards have come to yet."""
        left = set(() if self.dump is None else self.dump.start) - self.marks.keys()
        altered = self.stopped is not None and self.stopped.altered
        return altered and bool(self.marks) and bool(left) and self.standing is None

    @property
    def is_doubtful(self) -> bool:
        """Whether it streams on without counting as right."""
        return self.phase == "streaming" and bool(self.doubts)

    @property
    def is_staged(self) -> bool:
        """Whether its dump is made behind the table that is shown."""
        return self.standing is not None and self.dump is not None

    @property
    def is_computed(self) -> bool:
        """Whether its dump is made from the rows that the mirror had, at one place in the log."""
        return self.dump is not None and self.dump.computed

    @property
    def path(self) -> str:
        """The Delta table that is dumped and merged into, relative to the lake's root."""
        if self.dump is None or not self.is_staged:
            return self.shown_path
        return layout.staged_path(self.keyspace, self.table, self.dump.id)

    @property
    def shown_path(self) -> str:
        """The Delta table that people read, relative to the lake's root."""
        return layout.table_path(self.keyspace, self.table)

    @property
    def side_path(self) -> str:
        """The side table of the newest dump, relative to the lake's root."""
        dump = "none" if self.dump is None else self.dump.id
        return layout.side_path(self.keyspace, self.table, dump)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "keyspace": self.keyspace,
            "table": self.table,
            "schema": self.schema.to_json(),
            "key": list(self.key),
            "shard_in_key": self.shard_in_key,
            "phase": self.phase,
            "dump": None if self.dump is None else self.dump.to_json(),
            "merged_round": self.merged_round,
            "stopped": None if self.stopped is None else asdict(self.stopped),
            "logged": self.logged,
            "added": [column.to_json() for column in self.added],
            "nulls": {shard: list(names) for shard, names in self.nulls.items()},
            "retyped": list(self.retyped),
            "doubts": {shard: asdict(doubt) for shard, doubt in self.doubts.items()},
            "generated": self.generated,
            "primary": self.primary,
            "foreign_keys": None
            if self.foreign_keys is None
            else [key.to_json() for key in self.foreign_keys],
            "keys_stale": self.keys_stale,
            "sided": self.sided,
            "side_version": self.side_version,
            "standing": self.standing,
            "change": None if self.change is None else self.change.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TableState:
        """Read what `to_json` wrote."""
        stopped = data["stopped"]
        return cls(
            keyspace=data["keyspace"],
            table=data["table"],
            schema=TableSchema.from_json(data["schema"]),
            key=tuple(data["key"]),
            shard_in_key=data["shard_in_key"],
            phase=data["phase"],
            dump=None if data["dump"] is None else DumpState.from_json(data["dump"]),
            merged_round=data["merged_round"],
            stopped=None if stopped is None else StopReason.from_json(stopped),
            logged=data.get("logged", {}),
            added=tuple(Column.from_json(one) for one in data.get("added", ())),
            nulls={shard: tuple(names) for shard, names in data.get("nulls", {}).items()},
            retyped=tuple(data.get("retyped", ())),
            doubts={shard: Doubt.from_json(one) for shard, one in data.get("doubts", {}).items()},
            generated=data.get("generated"),
            primary=data.get("primary"),
            foreign_keys=None
            if data.get("foreign_keys") is None
            else tuple(ForeignKey.from_json(one) for one in data["foreign_keys"]),
            keys_stale=data.get("keys_stale", False),
            sided=data.get("sided", ""),
            side_version=data.get("side_version", 0),
            standing=data.get("standing"),
            change=None if data.get("change") is None else ShapeChange.from_json(data["change"]),
        )


class Tables:
    """The table states of one lake. Every call looks at the files, whoever wrote them.

    Args:
        lake: the lake.
        clock: microseconds UTC.
    """

    def __init__(
        self, lake: Lake, clock: Callable[[], int] = lambda: time.time_ns() // 1000
    ) -> None:
        self._lake = lake
        self._notes = Notes(lake)
        self._clock = clock
        self._known: dict[LakeFile, TableState] = {}

    def load(self, keyspace: str, table: str) -> TableState | None:
        """The state of one table; None if it was never seen."""
        return self._read(self._notes.path(layout.state_path(keyspace, table)))

    def save(self, state: TableState) -> TableState:
        """Replace the table's state; gives it back."""
        path = layout.state_path(state.keyspace, state.table)
        text = self._lake.write_json(self._notes.own(path), state.to_json())
        _parsed.keep(text, state)
        return state

    def remove(self, state: TableState) -> None:
        """Forget the table. Its Delta table stays where it is."""
        self._lake.delete(self._notes.own(layout.state_path(state.keyspace, state.table)))

    def list(self, keyspace: str | None = None) -> list[TableState]:
        """All states, by path; of one keyspace if named."""
        under = (
            layout.TABLES if keyspace is None else f"{layout.TABLES}/{layout.encode_part(keyspace)}"
        )
        settled = self._clock() - _SETTLED
        states: dict[LakeFile, TableState] = {}
        for file in self._lake.list(self._notes.path(under)):
            if file.path.endswith(".json"):
                state = self._known.get(file) or self._read(file.path)
                if state is not None:
                    states[file] = state
        self._known = {file: one for file, one in states.items() if 0 < file.modified_at < settled}
        return list(states.values())

    def _read(self, path: str) -> TableState | None:
        text = self._lake.read_file(path)
        if text is None:
            return None
        try:
            with sound(path):
                return _parsed.of(text)
        except DamagedFileError as error:
            named = layout.table_of_state(path)
            if named is None:
                raise
            return _damaged(*named, error.message)

    def stop(
        self,
        state: TableState,
        *,
        message: str,
        hint: str,
        at_round: int,
        altered: bool = False,
    ) -> TableState:
        """Put a table into phase stopped; see StopReason."""
        why = StopReason(message=message, hint=hint, round=at_round, altered=altered)
        return self.save(replace(state, phase="stopped", stopped=why))


def _damaged(keyspace: str, table: str, message: str) -> TableState:
    """What a state counts as that cannot be read: the other tables are none the worse for it."""
    hint = f"the next start of the run dumps the table again; {redump(f'{keyspace}.{table}')} now"
    why = StopReason(message=message, hint=hint, round=0)
    return TableState(
        keyspace=keyspace,
        table=table,
        schema=TableSchema(keyspace=keyspace, table=table, columns=(), key=()),
        key=(),
        phase="stopped",
        stopped=why,
        is_unreadable=True,
    )


class _ParsedStates:
    """The states in files. Each part of a run looks at all files, and few of them have changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: OrderedDict[bytes, TableState] = OrderedDict()
        self._bytes = 0

    def of(self, text: bytes) -> TableState:
        """The state in a file's text."""
        with self._lock:
            known = self._states.get(text)
            if known is not None:
                self._states.move_to_end(text)
                return known
        state = TableState.from_json(json.loads(text))
        self.keep(text, state)
        return state

    def keep(self, text: bytes, state: TableState) -> None:
        """A state that is in a file by now."""
        with self._lock:
            self._bytes += 0 if text in self._states else len(text)
            self._states[text] = state
            while self._bytes > _PARSED:
                self._bytes -= len(self._states.popitem(last=False)[0])


_parsed = _ParsedStates()


def _positions_to_json(positions: dict[str, Position]) -> dict[str, Any]:
    return {shard: position.to_json() for shard, position in sorted(positions.items())}


def _positions_from_json(data: dict[str, Any]) -> dict[str, Position]:
    return {shard: Position.from_json(value) for shard, value in data.items()}
