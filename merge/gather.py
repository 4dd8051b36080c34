"""What the rounds hold for one table, up to where it stops. Pure: no Spark, no files.

Lives here: a table's batch, and whether a statement or another shape stops the table on the way.
Does not live here: which round a step goes to (`plan`), carrying it out (`table`, `rounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ratchet.core.errors import TableStoppedError
from ratchet.core.position import Position
from ratchet.core.reshaping import retype
from ratchet.core.rounds import ChangeFile, Round, ShardSlice, TableEvent
from ratchet.core.schema import Column, TableSchema
from ratchet.core.shell import redump
from ratchet.core.sql.effects import MISPLACED, Change
from ratchet.core.sql.logged import table_changes
from ratchet.core.sql.swaps import swapped_in
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.cascades.reach import Reach, reach
from ratchet.merge.cascades.step import CascadeResult
from ratchet.merge.ddl import changes_of, key_lost, misfit, unproven
from ratchet.merge.older import Older, Stream, is_in_chunks, is_in_shape, older
from ratchet.merge.plan import takes_over
from ratchet.merge.reduce import Mark
from ratchet.store.rounds import StreamState
from ratchet.store.stops import Doubt, ShapeChange, StopReason
from ratchet.store.tables import TableState

SchemaOf = Callable[[str], TableSchema]  # by fingerprint

# Statements on the table itself; others may have changed its rows by what is in no shape.
_OF_SHAPE: Final = frozenset({"columns", "types", "key", "foreign_key", "rows"})
# What changes rows and no column.
_OF_ROWS: Final = frozenset({"prepared", "bulk", "restored", "untold"})
_UNTOLD: Final = "the types of its rows are not those of its dump, and no statement changed them"
_THERE: Final = "it adds a column that the mirror has"
_ABOVE: Final = (
    "a statement about {}, on which it depends by foreign keys, may have changed its rows"
)
_OTHERS: Final = "alter it in the same way on its other shards, and it may go on by itself; or "
_AGAIN: Final = (
    "look at the table, then {redump} dumps it again, while the run "
    "continues. If the table is gone permanently, exclude it in `tables`"
)


@dataclass(slots=True, kw_only=True)
class TableBacklog:
    """What the rounds hold for one table. Filled by `gather`, then only read.

    Attributes:
        round: the last round taken.
        files: change files to merge.
        since: (shard, generation) -> the last transaction that is left out, as the dump has it.
        until: shard -> first transaction that is left out, because the table stops there.
        truncated: shard -> (newest TRUNCATE, commit time in microseconds).
        lowest: shard -> where its changes begin.
        highest: shard -> where they end.
        logged: shard -> fingerprint of the shape of its newest row events (TableState.logged).
        added: see TableState.
        nulls: see TableState.
        retyped: see TableState.
        doubts: see TableState.
        generated: see TableState.
        keys_changed: whether its foreign keys have to be read again: they are others.
        keys_stale: the same: they may be.
        stopped: why the table stops in `round`, if it does.
        change: the change of its columns that stops it, if what it does may be computed; with the
            shards that came to it in earlier rounds.
        unsure: places (shard, seq) of statements that do not part the rows before them from those
            behind: some may have been read under the columns behind, or have the same `seq`.
        doubted: those of them of which capture says so.
    """

    round: int
    files: list[ChangeFile] = field(default_factory=list)
    since: dict[Stream, int] = field(default_factory=dict)
    until: dict[str, Mark] = field(default_factory=dict)
    truncated: dict[str, tuple[Mark, int]] = field(default_factory=dict)
    lowest: dict[str, Mark] = field(default_factory=dict)
    highest: dict[str, Mark] = field(default_factory=dict)
    logged: dict[str, str] = field(default_factory=dict)
    added: tuple[Column, ...] = ()
    nulls: dict[str, tuple[str, ...]] = field(default_factory=dict)
    retyped: tuple[str, ...] = ()
    doubts: dict[str, Doubt] = field(default_factory=dict)
    generated: bool | None = None
    keys_changed: bool = False
    keys_stale: bool = False
    stopped: StopReason | None = None
    change: ShapeChange | None = None
    unsure: set[tuple[str, int]] = field(default_factory=set)
    doubted: set[tuple[str, int]] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to merge."""
        return not (self.files or self.truncated)

    def add(self, follows: CascadeResult, streams: Mapping[str, StreamState]) -> None:
        """Take in what followed by foreign keys.

        Args:
            follows: for this table.
            streams: the live streams.
        """
        for file in follows.files:
            self.files.append(file)
            generation = streams[file.shard].generation
            low, high = (generation, file.min_seq), (generation, file.max_seq)
            self.lowest[file.shard] = min(low, self.lowest.get(file.shard, low))
            self.highest[file.shard] = max(high, self.highest.get(file.shard, high))
        for shard, doubt in follows.doubts.items():
            self.doubts[shard] = doubt.behind(self.doubts.get(shard))

    def learned(self, state: TableState) -> TableState:
        """The state with what these rounds tell of the table's shape."""
        return replace(
            state,
            logged=dict(self.logged),
            added=self.added,
            nulls=dict(self.nulls),
            retyped=self.retyped,
            doubts=dict(self.doubts),
            generated=self.generated,
            foreign_keys=None if self.keys_changed else state.foreign_keys,
            keys_stale=self.keys_stale,
            change=self.change,
        )

    @property
    def may_delete(self) -> bool:
        """Whether deletes or changes of key may be among the changes."""
        return any(file.deletes or file.updates for file in self.files)


def gather(
    state: TableState,
    rounds: Iterable[Round],
    schema_of: SchemaOf,
    policy: InvalidValuePolicy,
    *,
    above: Collection[str] = (),
) -> TableBacklog:
    """What those rounds hold for a table, up to where it stops.

    What stands before the dump's start is in every chunk: neither statements nor row changes of
    there count (merge.older).

    What a statement did counts where it stands, not where the next row comes: a table stops, or is
    in doubt until it has been compared with its source (`TableBacklog.doubts`).

    Of a table of several shards that one of them has stopped (`TableState.awaits_shards`) it is
    what the others have until they come to the statement.

    A table stops where a reshard's targets begin if what its shards wrote until then cannot be
    followed into them: with the shard in its key, during its catch-up, or in the midst of a step.

    Args:
        state: the table.
        rounds: consecutive rounds, in order.
        schema_of: reads a shape by its fingerprint.
        policy: decides about the lake's types.
        above: tables over which it hangs by foreign keys (`merge.cascades.graph`): what is done
            to them may change its keys and, without a word, its rows.
    """
    found = TableBacklog(
        round=0,
        logged=dict(state.logged),
        added=state.added,
        nulls=dict(state.nulls),
        retyped=state.retyped,
        doubts=dict(state.doubts),
        generated=state.generated,
        keys_stale=state.keys_stale,
        until=dict(state.marks),
        change=state.change if state.marks else None,
    )
    rounds = list(rounds)
    before = older(state, rounds)
    for value in rounds:
        first, found.round = found.round == 0, value.number
        for piece in value.slices:
            upto = before.get((piece.shard, piece.generation), Older())
            shard = _Shard(state, found, piece, upto, schema_of, policy, above)
            if takes_over(state, piece):
                shard.succeed(first=first)
            shard.take(value)
        if found.stopped and not _awaits(state, found):
            break
    return found


def _awaits(state: TableState, found: TableBacklog) -> bool:
    """Whether shards of a table that another one has stopped are still to come to the statement."""
    if not state.marks or state.dump is None or found.change is None:
        return False
    return not state.dump.start.keys() <= found.change.positions.keys()


@dataclass(frozen=True, slots=True)
class _Shard:
    """One shard's part of one round.

    Attributes:
        state: the table.
        found: what is filled.
        piece: that part.
        older: what of the stream the dump has.
        schema_of: see `gather`.
        policy: see `gather`.
        above: see `gather`.
    """

    state: TableState
    found: TableBacklog
    piece: ShardSlice
    older: Older
    schema_of: SchemaOf
    policy: InvalidValuePolicy
    above: Collection[str]

    @property
    def shard(self) -> str:
        return self.piece.shard

    @property
    def generation(self) -> int:
        return self.piece.generation

    def succeed(self, *, first: bool) -> None:
        """The stream descends from a shard that the table was dumped from.

        Args:
            first: whether it begins in the first of the rounds.
        """
        if self.state.shard_in_key:
            self._stop(0, "its shards were resharded, and their names are part of its key", "")
        elif self.state.phase == "catching_up" or not first:
            self._stop(0, "its shards were resharded before it was merged up to there", "")

    def take(self, value: Round) -> None:
        """Files and events in the order of the stream."""
        self._look_above(value)
        mine = (self.state.keyspace, self.state.table, self.shard)
        events = [e for e in value.events if (e.keyspace, e.table, e.shard) == mine]
        files = [f for f in value.files if (f.keyspace, f.table, f.shard) == mine]
        self.found.doubted |= {(e.shard, e.seq) for e in events if e.kind == "doubt"}
        self.found.unsure |= self.found.doubted | {
            (e.shard, e.seq) for e in events if any(f.min_seq <= e.seq <= f.max_seq for f in files)
        }
        items: list[tuple[int, int, TableEvent | ChangeFile]] = [
            *((event.seq, 0, event) for event in events),
            *((file.min_seq, 1, file) for file in files),
        ]
        for seq, _, item in sorted(items, key=lambda one: one[:2]):
            if (
                self.shard in self.found.until
                and (self.generation, seq) >= self.found.until[self.shard]
            ):
                return
            if isinstance(item, ChangeFile):
                if item.max_seq > self.older.upto:
                    self._file(item)
            elif item.kind == "unreadable":
                self._unreadable(item)
            elif self._counts(item):
                self._event(item)

    def _look_above(self, value: Round) -> None:
        """What statements did to tables over which this one hangs."""
        for event in value.events if self.above else ():
            name = f"{event.keyspace}.{event.table}"
            if name in self.above and event.shard == self.shard and event.seq > self.older.sure:
                far = reach(event)
                if far >= Reach.KEYS:
                    self.found.keys_stale = True
                if far >= Reach.ROWS:
                    self._doubt(_ABOVE.format(name), event.statement)

    def _counts(self, event: TableEvent) -> bool:
        """Whether the dump does not show what happened then anyhow."""
        if event.effect == "restored":
            return True  # what the dump has seen may have been taken back
        return event.seq > self.older.sure and not self._is_older(event)

    def _is_older(self, event: TableEvent) -> bool:
        """Whether the dump shows what a statement did that stands behind other changes of it."""
        if event.kind == "ddl" and event.effect in _OF_SHAPE:
            return is_in_shape(self.state, event)
        return is_in_chunks(self.state, event)

    def _unreadable(self, event: TableEvent) -> None:
        """From there on rows are left out; only the first place in a slice is told."""
        start = self.state.dump.start.get(self.shard) if self.state.dump else None
        known = start is not None and start.executed.contains_all(self.piece.end.executed)
        if not is_in_shape(self.state, event):
            self._stop(event.seq, event.statement, "", altered=False)
        elif not known:
            self._doubt(f"rows were left out, and its dump may lack some: {event.statement}", "")

    def _file(self, file: ChangeFile) -> None:
        reason = self._check(file.schema)
        if reason:
            change = self._retyped_to(file)
            self._stop(file.min_seq, f"its columns changed ({reason})", "", change=change)
            return
        found, shard = self.found, self.shard
        found.logged[shard] = file.schema
        found.retyped = tuple(one for one in found.retyped if one != shard)
        found.files.append(file)
        low, high = (self.generation, file.min_seq), (self.generation, file.max_seq)
        found.lowest[shard] = min(low, found.lowest.get(shard, low))
        found.highest[shard] = max(high, found.highest.get(shard, high))
        if file.min_seq <= self.older.upto:
            found.since[shard, self.generation] = self.older.upto

    def _event(self, event: TableEvent) -> None:
        if event.kind == "truncate":
            self.found.truncated[self.shard] = ((self.generation, event.seq), event.ts)
            return
        for change in changes_of(event):
            if event.kind == "doubt":
                if change.effect in {"columns", "types", "doubt"}:
                    what = "rows from before a statement may have been read under its new columns"
                    self._stop(event.seq, what, event.statement)
            elif change.effect in _OF_ROWS:
                self._doubt(change.reason, event.statement)
            else:
                self._changed(event, change)

    def _changed(self, event: TableEvent, change: Change) -> None:
        """One thing that a statement did. It counts at once, whether rows follow or not."""
        found, shard = self.found, self.shard
        lost = change.effect == "key" and not self._has_primary_key()
        if change.effect == "rows" or lost:
            # What is swapped in needs no rows of before, and `merge.swap` looks at those behind.
            swap = swapped_in(event.statement, event.table) is not None
            told = table_changes(event.statement, event.table)
            # Rows on both sides of it may be in one file: `merge.emptied` looks at those.
            empties = told is not None and bool(told.emptied)
            unsure = found.doubted if swap or empties else found.unsure
            place = self._place(event.seq, unsure)
            stands = (
                None
                if place is None
                else replace(place, statement=event.statement, time=event.time)
            )
            if not self._is_alone and (swap or self.above or self.state.foreign_keys != ()):
                stands = None
            # A dump reads by key as well: somebody has to look first.
            sure = change.reason != MISPLACED
            self._stop(event.seq, change.reason, event.statement, altered=sure, change=stands)
            return
        if change.effect == "rebuild":
            if found.generated is not False:
                self._doubt(change.reason, event.statement, by_shape=True, rebuilt=True)
            return
        if change.effect == "columns":
            self._come(event, change)
        elif change.effect == "types":
            self._retyped(event, change)
        elif change.effect != "key":
            if change.effect == "foreign_key":
                found.keys_changed = True
            elif not found.generated:
                found.generated = None  # it may have brought one
            self._doubt(change.reason, event.statement)
        # From here on a new shape is compared with the one before, value by value.
        found.logged.setdefault(shard, self.state.schema.fingerprint)

    def _come(self, event: TableEvent, change: Change) -> None:
        """Columns come, with NULL in all rows that were there."""
        found, shard = self.found, self.shard
        there = {column.name.casefold() for column in self._lake.columns}
        if any(name.casefold() in there for name in change.nulls):
            # With IF NOT EXISTS; or else it has gone without a word.
            self._doubt(_THERE, event.statement)
        if self._is_whole:
            # Not in a catch-up: a chunk read without the column may be newer than changes with it.
            found.nulls[shard] = tuple(sorted({*found.nulls.get(shard, ()), *change.nulls}))

    def _retyped(self, event: TableEvent, change: Change) -> None:
        found, shard = self.found, self.shard
        # Two with no row between them that would tell the types of the first.
        twice = shard in found.retyped
        found.retyped = (*(one for one in found.retyped if one != shard), shard)
        before = found.doubts.get(shard)
        untold = before is not None and not before.statement
        # What a generated column is made of, and collations, are in no shape.
        shown = found.generated is False and not twice and not untold
        told = change.reason, event.statement
        if before is not None and not before.by_shape:
            told = before.message, before.statement  # which says more
        self._doubt(*told, by_shape=shown)

    def _doubt(
        self,
        message: str,
        statement: str,
        *,
        by_shape: bool = False,
        rebuilt: bool = False,
    ) -> None:
        """The rows have to be compared at this round or behind it, whatever was in doubt before."""
        doubt = Doubt(
            message=message,
            statement=statement,
            round=self.found.round,
            by_shape=by_shape,
            rebuilt=rebuilt,
        )
        self.found.doubts[self.shard] = doubt.behind(self.found.doubts.get(self.shard))

    def _check(self, fingerprint: str) -> str | None:
        """Why rows of a shape do not fit; None if they do, perhaps with a doubt."""
        found = self.found
        if fingerprint == found.logged.get(self.shard, self.state.schema.fingerprint):
            self._proven()
            return None
        shape = self.schema_of(fingerprint)
        before = found.logged.get(self.shard)
        old = self.state.schema
        if before is not None and before != old.fingerprint:
            old = self.schema_of(before)
        lake = self._lake
        nulls = found.nulls.get(self.shard, ())
        try:
            reason = misfit(lake, shape, self.policy, known=old, nulls=nulls)
        except TableStoppedError as error:  # a type that has no rule
            return error.message
        if reason is None and before is not None:
            if old is self.state.schema and not shape.key:
                old = replace(old, key=())  # a key by a unique index is not in the log
            reason = key_lost(old, shape)
        if reason is not None:
            return reason
        why = unproven(old, shape)
        if why is None:
            self._proven()
        elif before is None:
            # No statement says so: one with sql_log_bin=0, or on another server before a failover.
            self._doubt(f"{_UNTOLD} ({why})", "", by_shape=True)
        else:
            doubt = found.doubts.get(self.shard)
            self._doubt(f"values may have changed ({why})", doubt.statement if doubt else "")
        known = {column.name for column in lake.columns}
        come = [column for column in shape.columns if column.name not in known]
        found.added = (*found.added, *come)
        return None

    @property
    def _lake(self) -> TableSchema:
        """The shape of the mirrored table, with the columns that have come until now."""
        schema = self.state.schema
        return replace(schema, columns=(*schema.columns, *self.found.added))

    def _proven(self) -> None:
        """The types behind a statement that changed them say that it kept all values.

        What no statement explains is left to a look at the server's own types.
        """
        doubt = self.found.doubts.get(self.shard)
        if doubt is not None and doubt.by_shape and doubt.statement and not doubt.rebuilt:
            del self.found.doubts[self.shard]

    def _has_primary_key(self) -> bool:
        """Whether the table's key is the primary key, which only other statements take away."""
        if self.state.primary is not None:
            return self.state.primary
        known = self.found.logged.get(self.shard)
        if known is None or known == self.state.schema.fingerprint:
            return False  # nothing has told yet whether the key is a primary key
        return bool(self.schema_of(known).key)

    def _place(self, seq: int, unsure: Collection[tuple[str, int]]) -> ShapeChange | None:
        """A change of shape at that place; None: what the mirror has there cannot be told alone."""
        state, dump = self.state, self.state.dump
        known = dump is not None and self.shard in dump.start and dump.kept is None
        if not known or not self._is_whole or state.shard_in_key or self.piece.ancestors:
            return None
        if (self.shard, seq) in unsure:
            return None
        if self.piece.start.flavor == "file":
            return None  # a place between two transactions has no name there
        position = Position(executed=self.piece.executed_at(seq))
        mark = None if self._is_alone else (self.generation, seq)
        return ShapeChange(shard=self.shard, position=position, round=self.found.round, mark=mark)

    @property
    def _is_alone(self) -> bool:
        """Whether the table is mirrored from this shard alone."""
        return self.state.dump is not None and tuple(self.state.dump.start) == (self.shard,)

    @property
    def _is_whole(self) -> bool:
        """Whether the table has every row of before, and none is read from its source."""
        state = self.state
        return state.phase == "streaming" or state.is_computed or bool(state.marks)

    def _retyped_to(self, file: ChangeFile) -> ShapeChange | None:
        """The change to what a file has, if it is one of types that hold the same values."""
        place = self._place(file.min_seq - 1, self.found.unsure)
        if (
            place is None
            or not self._is_alone
            or retype(self._lake, self.schema_of(file.schema), self.policy) is None
        ):
            return None
        return replace(place, shape=file.schema)

    def _stop(
        self,
        seq: int,
        message: str,
        statement: str,
        *,
        altered: bool = True,
        change: ShapeChange | None = None,
    ) -> None:
        found = self.found
        if found.stopped is None and not self.state.marks:
            found.change = change
        elif found.change is not None:  # another shard has come to its statement, too
            others = None if change is None else (*found.change.others, change)
            found.change = None if others is None else replace(found.change, others=others)
        where = f" on {self.shard}: {statement[:200]}" if statement else f" on {self.shard}"
        found.until[self.shard] = (self.generation, seq)
        waits = change is not None and change.mark is not None
        hint = _AGAIN.format(redump=redump(self.state.name))
        before = found.stopped or StopReason(
            message=message + where,
            hint=f"{_OTHERS}{hint}" if waits else hint,
            round=found.round,
            altered=altered,
        )
        found.stopped = replace(before, altered=before.altered and altered)
