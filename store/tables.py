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
from ratchet.core.schema import Column, TableSchema
from ratchet.core.shell import redump
from ratchet.store import layout
from ratchet.store.dumpstates import DumpState
from ratchet.store.failures import sound
from ratchet.store.files import Lake, LakeFile
from ratchet.store.notes import Notes
from ratchet.store.stops import Doubt, ShapeChange, StopReason

# A file may change twice between two ticks of its store's clock (a second for some), and that
# clock may be behind ours: what changed within this time, microseconds, is read again.
_SETTLED: Final = 60_000_000
_PARSED: Final = 4 << 20  # bytes of files whose states are kept; a state never changes

Phase = Literal["new", "dumping", "catching_up", "streaming", "stopped"]


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
    def is_of_one_place(self) -> bool:
        """Whether it is computed, and nothing of it was read: it is a cut wherever it stops."""
        return self.is_computed and self.dump is not None and self.dump.start == self.dump.end

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
                state = _parsed.of(text)
                if layout.state_path(state.keyspace, state.table) != layout.plain_path(path):
                    raise ValueError(f"it is that of {state.name}")  # put in this one's place
                return state
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
