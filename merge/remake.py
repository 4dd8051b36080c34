"""A table behind a change of its columns or partitions, computed from the rows of the mirror.

At the place of an ALTER TABLE in the log the mirror holds every row. So what the statement does to
them can be done here, without a second read of the source. The result is a dump like any other: it
is made behind the table that is shown, catches up from that place, and takes its place in one
commit (`store.staged`).

Lives here: whether it can be computed, and the pass over the table's files. Does not live here:
what happens to a row (`core.reshaping`), when it is done (`jobs.run.dumping`).

Invariant: the state says that a table is being computed before anything of it is in the lake, and
that it catches up when all of it is. Killed in between, it is computed anew, in another folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from ratchet.core.change import TOKEN_COLUMN
from ratchet.core.dumps import app_id
from ratchet.core.errors import LakeError
from ratchet.core.position import Position
from ratchet.core.reshaping import (
    FindValues,
    NotComputableError,
    NotYetComputableError,
    Reshaping,
    reshape,
    retype,
    without_rows,
)
from ratchet.core.rounds import StatementTime
from ratchet.core.schema import TableSchema
from ratchet.core.sql.effects import REBUILT, TableChanges
from ratchet.core.sql.logged import table_changes
from ratchet.core.types import InvalidValuePolicy
from ratchet.core.types.constants import is_now
from ratchet.merge.asking import AskedColumns
from ratchet.merge.emptied import emptied_rows
from ratchet.merge.gather import gather
from ratchet.merge.liverows import LiveRows
from ratchet.merge.making import begin
from ratchet.merge.sidestats import read_side_stats
from ratchet.merge.swap import is_whole
from ratchet.store.crashpoints import reach
from ratchet.store.delta.actions import Action, AppTransaction, DataFile, rewrite_info
from ratchet.store.delta.commits import commit_files
from ratchet.store.delta.datafiles import write_data_file
from ratchet.store.delta.log import TableFiles, replay_existing
from ratchet.store.delta.tables import create_mirrored_table, stats_columns
from ratchet.store.files import Lake
from ratchet.store.formats import ASKED_FORMAT, CARRIED_FORMAT, need_format
from ratchet.store.rounds import RoundLog
from ratchet.store.schemas import get_schema
from ratchet.store.staged import copy_data_files
from ratchet.store.stops import Doubt, ShapeChange
from ratchet.store.tables import Tables, TableState

_DOING: Final = "compute a table behind a change of its columns"
_FILE: Final = 128 << 20  # bytes of the files that one new file is made of

_SYSTEM: Final = "SYSTEM"  # time_zone of a session that has none of its own

Describe = Callable[[TableState], TableSchema | None]
FindZone = Callable[[TableState, StatementTime], str]


def reshaping_of(
    lake: Lake,
    state: TableState,
    policy: InvalidValuePolicy,
    describe: Describe,
    find_zone: FindZone = lambda *_: "",
) -> Reshaping:
    """What the change that stopped a table does to its rows.

    Args:
        lake: the lake.
        state: the table.
        policy: decides about the lake's types.
        describe: what the source's server says of a table now; asked where columns come, and no
            row was written since.
        find_zone: the time zone of the server that has the statement, as in "+00:00"; empty: it is
            not sure that it always was that. Asked where a column gets the server's time.

    Raises:
        NotComputableError: its rows have to be read from the source.
        NotYetComputableError: a shard has not come to the statement.
    """
    change = state.change
    if change is None or state.dump is None:
        raise NotComputableError("nothing tells what the change does")
    rounds = RoundLog(lake)
    if rounds.first_number() > change.round:
        raise NotComputableError("the change log does not reach back to it any more")
    if not _is_held(rounds.positions(), change):
        raise NotComputableError("its server has lost it since (a failover)")
    if change.statement:
        return _of_statement(lake, state, change, policy, describe, find_zone)
    base = _as_logged(lake, state, change.shard)
    shape = get_schema(lake, state.keyspace, state.table, change.shape)
    found = retype(base, shape, policy)
    if found is None:
        raise NotComputableError("values of its new types are not those of the old ones")
    return found


def _of_statement(  # noqa: PLR0917 - one call
    lake: Lake,
    state: TableState,
    change: ShapeChange,
    policy: InvalidValuePolicy,
    describe: Describe,
    find_zone: FindZone,
) -> Reshaping:
    told = _told(change, state)
    if change.mark is not None:
        _refuse_unlike(lake, state, change, told)
    if told.emptied:
        base = _as_logged(lake, state, change.shard)
        gone = emptied_rows(lake, state, told.emptied, base, policy)
        return without_rows(base, gone, policy)
    if set(state.key) != set(state.schema.key) and (told.renamed or told.key):
        raise NotComputableError("its key is one that the config names")
    shards = change.positions
    pending = {n.casefold() for s, names in _pending(state).items() if s in shards for n in names}
    if any(one.name.casefold() in pending for one in told.added):
        # IF NOT EXISTS: it has come already, and no row has shown it yet.
        raise NotComputableError("it names a column that the table had before")
    described = None
    if told.added or told.key:
        described = _shape_behind(lake, state, change) or describe(state)
    time = _time(state, change, told, find_zone)
    base = _as_logged(lake, state, change.shard)
    found = reshape(base, told, described=described, policy=policy, time=time)
    if told.key:
        _refuse_key(state, change, found, described)
    return found


def _refuse_key(
    state: TableState, change: ShapeChange, reshaping: Reshaping, described: TableSchema | None
) -> None:
    """See that a table's rows can be told apart by another key from a statement on.

    Raises:
        NotComputableError: that is not sure.
    """
    key = reshaping.schema.key
    if described is None or set(described.key) != set(key):
        raise NotComputableError("nothing tells that this is its key now")
    if change.mark is not None:
        raise NotComputableError("two shards may have a row of its new key")
    if state.foreign_keys != ():
        raise NotComputableError("foreign keys may change its rows")


def _time(
    state: TableState, change: ShapeChange, told: TableChanges, find_zone: FindZone
) -> StatementTime | None:
    """When a statement began, in the zone that its session had; None: on each shard at another."""
    time = change.time if change.mark is None else None
    if time is None or time.zone != _SYSTEM or not any(map(is_now, told.added)):
        return time
    return replace(time, zone=find_zone(state, time))


def refuse_unlogged(
    lake: Lake, state: TableState, heads: Mapping[str, Position], policy: InvalidValuePolicy
) -> None:
    """Shards that have the columns of the others without the statement in their log.

    Args:
        lake: the lake.
        state: the table, some of whose shards have not come to the statement.
        heads: shard -> where its log ended when it had these columns; of none if that is not sure.
        policy: decides about the lake's types.

    Raises:
        NotComputableError: the log has been read up to there, and does not have it; or it has
            another one that brings such a column.
    """
    log = RoundLog(lake)
    now = log.positions()
    rounds = log.since(state.merged_round)
    found = gather(state, rounds, partial(get_schema, lake, state.keyspace, state.table), policy)
    if state.change is None or found.change is None:
        return
    if found.change == state.change:  # whoever has come has come by the same statement
        _refuse_others(replace(state, nulls=found.nulls), state.change, _told(state.change, state))
    left = heads.keys() - found.change.positions.keys()
    if left and all(s in now and now[s].executed.contains_all(heads[s].executed) for s in left):
        names = ", ".join(sorted(left))
        raise NotComputableError(f"the log of {names} does not say when its columns changed")


def _is_held(now: Mapping[str, Position], change: ShapeChange) -> bool:
    """Whether the servers still have what stands before a change."""
    return all(
        shard in now and now[shard].executed.contains_all(place.executed)
        for shard, place in change.positions.items()
    )


def _refuse_unlike(lake: Lake, state: TableState, change: ShapeChange, told: TableChanges) -> None:
    """What has to hold where several shards were altered one after the other.

    Each shard's rows are those of its own place. So all have to have had the same columns, and the
    same statement; and what has been merged of each since the first of these places has to be its
    whole log.

    Raises:
        NotComputableError: something of that does not hold.
        NotYetComputableError: some have not come to the statement.
    """
    assert state.dump is not None  # noqa: S101 - its caller has looked
    shards = set(state.dump.start)
    if state.foreign_keys != ():
        raise NotComputableError("the rows of its shards may change by foreign keys")
    _refuse_others(state, change, told)
    bases = {_as_logged(lake, state, shard) for shard in shards}
    if len(bases) > 1:
        raise NotComputableError("its shards had other columns, each of its own")
    log, first = RoundLog(lake), change.first_round
    then, now = log.streams_at(first), log.streams()
    rounds = log.since(first - 1)
    for shard in shards:
        if shard not in now or shard not in then or now[shard].journal is not None:
            raise NotComputableError(f"{shard} was resharded")
        generations = {now[shard].generation, then[shard].generation}
        generations |= {one.mark[0] for one in change.every if one.shard == shard and one.mark}
        if len(generations) > 1 or not is_whole(rounds, shard):
            raise NotComputableError(f"the log of {shard} is not whole (a failover, or a gap)")
    if not shards <= change.positions.keys():
        left = ", ".join(sorted(shards - change.positions.keys()))
        raise NotYetComputableError(f"{left} has not come to the statement")
    if read_side_stats(lake, state.side_path).shadows:
        raise NotComputableError("two of its shards have a row of the same key")


def _refuse_others(state: TableState, change: ShapeChange, told: TableChanges) -> None:
    """A shard was altered otherwise, as far as that is known by now.

    Raises:
        NotComputableError: one was.
    """
    for one in change.others:
        if _told(one, state) != told:
            raise NotComputableError(f"{one.shard} was altered otherwise than {change.shard}")
    come = {name.casefold() for names in state.nulls.values() for name in names}
    if any(one.name.casefold() in come for one in told.added):
        raise NotComputableError("one of its shards got such a column by another statement")


def _as_logged(lake: Lake, state: TableState, shard: str) -> TableSchema:
    """The mirror's columns as the newest row events had them; later ones are compared with it."""
    logged = state.logged.get(shard, state.schema.fingerprint)
    if logged == state.schema.fingerprint:
        return state.whole
    newest = get_schema(lake, state.keyspace, state.table, logged)
    known = {column.name: column for column in newest.columns}
    columns = tuple(known.get(column.name, column) for column in state.whole.columns)
    return replace(state.whole, columns=columns)


def _pending(state: TableState) -> dict[str, tuple[str, ...]]:
    """Shard -> columns that a statement has brought there, and no row has shown yet."""
    there = {column.name for column in state.whole.columns}
    return {
        shard: tuple(name for name in names if name not in there)
        for shard, names in state.nulls.items()
    }


def _told(change: ShapeChange, state: TableState) -> TableChanges:
    told = table_changes(change.statement, state.table)
    if told is None:
        raise NotComputableError("it does more than to change columns or to empty partitions")
    return told


def _shape_behind(lake: Lake, state: TableState, change: ShapeChange) -> TableSchema | None:
    """The table's shape by the first row events behind a change; None: there are none yet."""
    mine = (state.keyspace, state.table, change.shard)
    files = (
        file
        for one in RoundLog(lake).since(change.round - 1)
        for file in one.files
        if (file.keyspace, file.table, file.shard) == mine and file.min_seq > change.position.seq
    )
    first = min(files, key=lambda file: file.min_seq, default=None)
    return None if first is None else get_schema(lake, *mine[:2], first.schema)


def remake(
    lake: Lake,
    state: TableState,
    reshaping: Reshaping,
    *,
    deletion_vectors: bool,
    now: int,
    asked: AskedColumns | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> TableState | None:
    """Compute a table's rows behind the change, so that it catches up from there.

    Args:
        lake: the lake.
        state: the table: stopped by the change, or half computed by a run that was killed.
        reshaping: see `reshaping_of`.
        deletion_vectors: see create_delta_table.
        now: microseconds UTC.
        asked: what the source was asked for, where it is (`Reshaping.asked`).
        stop: asked between two files.

    Returns:
        The state as saved; None: it was told to stop.

    Raises:
        MisfitError: a value does not fit its column's new type.
        NotComputableError: no cut shows the table, or the source has to be asked.
        TableFileError: a file of the table is gone or damaged.
        LakeError: the lake cannot be read or written.
    """
    if state.change is None:
        raise NotComputableError("nothing tells what the change does")
    if reshaping.asked and asked is None:
        names = ", ".join(reshaping.asked)
        raise NotComputableError(f"only its server knows what its old rows have in {names}")
    shown = replay_existing(lake, state.shown_path, _DOING)
    making = begin(lake, state, state.change, first_round=state.change.first_round)
    create_mirrored_table(
        lake,
        making.path,
        reshaping.columns,
        key=_key(making, reshaping),
        name=state.name,
        now=now,
        deletion_vectors=deletion_vectors,
    )
    empty = replay_existing(lake, making.path, _DOING)
    work = _Pass(
        lake=lake,
        shown=shown,
        empty=empty,
        making=making,
        key=_key(making, reshaping),
        reshaping=reshaping,
        find=None if asked is None else asked.values.find,
        now=now,
    )
    files = work.carried()
    if files:
        need_format(lake, CARRIED_FORMAT)
        copy_data_files(lake, files, state.shown_path, making.path)
    for group in _groups(work.changed()):
        if stop():
            return None
        made = work.write(group)
        if made.rows:
            files.append(made)
    reach("remake.before_commit")
    assert making.dump is not None  # noqa: S101 - it has just begun
    actions: list[Action] = [
        rewrite_info("WRITE", read=empty.version, now=now, note=""),
        *files,
        AppTransaction(app_id=app_id(making.dump.id), version=1, updated_at=now),
    ]
    if commit_files(lake, making.path, empty, actions) is None:
        raise LakeError(
            "another process has just committed to the table",
            operation=_DOING,
            table=making.path,
            hint="only one run may write to a lake; this one tries again when it is started anew",
        )
    reach("remake.after_commit")
    moved = any(_as_logged(lake, state, s) != state.whole for s in state.change.positions)
    if asked is not None:
        need_format(lake, ASKED_FORMAT)
    return Tables(lake).save(_made(making, reshaping, state.change, asked, moved=moved))


def _made(
    making: TableState,
    reshaping: Reshaping,
    change: ShapeChange,
    asked: AskedColumns | None,
    *,
    moved: bool,
) -> TableState:
    """The state of a table that is computed; what puts it in doubt stays.

    Args:
        making: its state while it is computed.
        reshaping: what happened to its rows.
        change: where that stands.
        asked: what the source was asked for; None: nothing.
        moved: whether row events before it have changed the types of the dump.
    """
    told = reshaping.changes
    assert making.dump is not None  # noqa: S101 - it has begun
    doubts = dict(making.doubts)
    if moved:
        # What types show of them was to be seen beside those of the dump, which are gone now.
        doubts = {shard: replace(doubt, by_shape=False) for shard, doubt in doubts.items()}
    for one in change.every if reshaping.gone is None else ():
        for doubt in _doubts(making, one, told):
            doubts[one.shard] = doubt.behind(doubts.get(one.shard))
    return replace(
        making,
        schema=reshaping.schema,
        key=_key(making, reshaping),
        phase="catching_up",
        dump=replace(
            making.dump, done=True, end=making.dump.end if asked is None else dict(asked.end)
        ),
        generated=(asked is not None and asked.generated) or making.generated,
        merged_round=change.first_round - 1,
        logged=dict.fromkeys(change.positions, reshaping.schema.fingerprint),
        added=(),
        nulls=_pending(making),
        retyped=tuple(change.positions) if told.retyped or making.retyped else (),
        doubts=doubts,
        primary=True if told.key else making.primary,
        foreign_keys=None if told.renamed or told.dropped else making.foreign_keys,
        sided="",
        change=None,
    )


def _key(state: TableState, reshaping: Reshaping) -> tuple[str, ...]:
    """The columns that identify a row behind the change."""
    own = set(state.key) == set(state.schema.key)
    return reshaping.schema.key if own else state.key


def _doubts(state: TableState, change: ShapeChange, told: TableChanges) -> Iterator[Doubt]:
    """What is still to be found out: values under new types, columns that are computed anew."""
    shown = state.generated is False
    if told.retyped:
        yield Doubt(
            message="a column's type may have changed",
            statement=change.statement,
            round=change.round,
            # Twice, with no row between that would tell the types of the first.
            by_shape=shown and not state.retyped,
        )
    if not shown:
        yield Doubt(
            message=REBUILT,
            statement=change.statement,
            round=change.round,
            by_shape=True,
            rebuilt=True,
        )


def _groups(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Files, those together that become one."""
    groups: list[list[DataFile]] = []
    held = 0
    for file in sorted(files, key=lambda one: (one.modified_at, one.path)):
        if not groups or held + file.size > _FILE:
            groups.append([])
            held = 0
        groups[-1].append(file)
        held += file.size
    return groups


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """One pass over a table's files.

    Attributes:
        lake: the lake.
        shown: the table, at the version that is read.
        empty: the one that is made.
        making: the state of that.
        key: columns that identify a row in it.
        reshaping: what happens to the rows.
        find: gives the values that the source was asked for; None: it was not.
        now: microseconds UTC.
    """

    lake: Lake
    shown: TableFiles
    empty: TableFiles
    making: TableState
    key: Sequence[str]
    reshaping: Reshaping
    find: FindValues | None
    now: int

    def carried(self) -> list[DataFile]:
        """Files of the table that stay as they are: no row of them goes, and no column changes."""
        return [file for file in self.shown.files.values() if self._covered(file) is False]

    def changed(self) -> list[DataFile]:
        """Files of which rows stay, and not all as they are."""
        return [file for file in self.shown.files.values() if self._covered(file) is None]

    def _covered(self, file: DataFile) -> bool | None:
        """Whether all rows of a file go, or none (False); None: some do, or they change."""
        gone, plain = self.reshaping.gone, self.empty.vectors or file.vector is None
        if gone is None or not plain or self.empty.schema != self.shown.schema:
            return None
        return gone.covers(file.stats)

    def write(self, group: Sequence[DataFile]) -> DataFile:
        """One new file from some of the table's."""
        schema = self.empty.schema
        return write_data_file(
            self.lake,
            self.making.path,
            self._rows(group),
            schema,
            kind="computed",
            described=[n for n in self.key if stats_columns(schema, [n])],
            now=self.now,
        )

    def _rows(self, group: Sequence[DataFile]) -> Iterator[pa.Table]:
        folder, schema = self.making.shown_path, self.shown.schema
        for file in group:
            for part in LiveRows(self.lake, folder, file, schema).groups():
                yield self.reshaping.rows(part, [TOKEN_COLUMN], self.find)
