"""The beginning and the end of a table's dump: positions, state, Delta table.

Lives here: what must be written down before the first chunk is read and after the last one.

Invariant: the state with the dump's id, positions and first round is saved before anything of the
dump is in the lake; so a dump without a state does not exist, and a state without commits is a dump
at its beginning.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ratchet.core.errors import BugError, TableStoppedError
from ratchet.core.position import Position
from ratchet.snapshot.errors import ShapeChangedError
from ratchet.snapshot.ledger import ChunkTracker, open_ledger
from ratchet.snapshot.positions import seen_position
from ratchet.snapshot.records import DumpSettings, ShardSource, TableDumpRequest
from ratchet.snapshot.sessions import open_session
from ratchet.snapshot.source import SourceCatalog, SourceTable, common_columns, made_at
from ratchet.store import crashpoints
from ratchet.store.anew import (
    clear_place,
    end_removal,
    forget_old_log,
    is_readable,
    standing_of,
    used_numbers,
)
from ratchet.store.delta.tables import create_mirrored_table, mirrored_schema
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.staged import remove_given_up
from ratchet.store.tables import Tables, TableState
from ratchet.wire.session import Session, quoted

log: Final = logging.getLogger("ratchet.jobs.run")

# Leaves the rows of shards that are not read in a table, and no others; once.
KeepRows = Callable[[TableState], None]

_LOOK_BACK = 20  # rounds looked at first for the one to begin with


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDump:
    """A table that is being dumped.

    Attributes:
        state: as saved.
        ledger: its books.
        sources: ShardId as text -> the table there.
        columns: names of the lake's columns, in order.
        estimated_rows: over all shards.
    """

    state: TableState
    ledger: ChunkTracker
    sources: Mapping[str, SourceTable]
    columns: tuple[str, ...]
    estimated_rows: int


def start_table(
    lake: Lake,
    wanted: TableDumpRequest,
    *,
    again: bool,
    shards: Mapping[str, ShardSource],
    catalog: SourceCatalog,
    settings: DumpSettings,
    keep: KeepRows,
    now: int,
) -> TableDump | None:
    """Begin a table's dump or go on with it; None if it is dumped already.

    Args:
        lake: where to.
        wanted: the table.
        again: begin anew, whatever its phase.
        shards: ShardId as text -> its source.
        catalog: the tables on the servers.
        settings: how to go about it.
        keep: prepares a table of which rows are kept.
        now: microseconds UTC.

    Raises:
        TableStoppedError: the table cannot be dumped, or stopped earlier.
        RetryableError: a server does not answer.
        LakeError: the lake cannot be written.
    """
    states = Tables(lake)
    state = states.load(wanted.keyspace, wanted.table)
    if state is not None and not again:
        if state.phase in {"catching_up", "streaming"}:
            return None
        if state.phase == "stopped" and state.stopped is not None:
            raise TableStoppedError(
                state.stopped.message,
                operation="dump a table",
                table=wanted.name,
                hint=state.stopped.hint,
            )
    places = _places(wanted, shards)  # before the shape is looked at: it holds all up to there
    sources = {shard: catalog.table(shard, wanted.table) for shard in wanted.shards}
    columns = common_columns(list(sources.values()), settings.policy)
    schema = next(iter(sources.values())).schema
    resumable = (
        not again
        and state is not None
        and state.phase == "dumping"
        and state.dump is not None
        and not state.is_computed
        and state.schema == schema
        and set(state.dump.start) == set(wanted.shards)
        and is_readable(lake, state.path)
    )
    if state is None or not resumable:
        if state is None:
            end_removal(lake, wanted.keyspace, wanted.table)
        new = replace(places, start_round=start_round(lake, places.start))
        standing = None if state is None else standing_of(lake, state)
        state = states.save(_new_dump(wanted, state, sources, new, standing))
        lake.clear_way(state.side_path)
        if clear_place(lake, wanted.keyspace, wanted.table, state.path):
            log.warning(
                "%s: what stood in %s could not be read, and is removed: older versions are gone",
                wanted.name,
                state.path,
            )
        if state.is_staged:
            remove_given_up(lake, state)
    dump = state.dump
    assert dump is not None  # noqa: S101 - both ways above have one
    full = mirrored_schema(columns, table=wanted.name)
    used = used_numbers(lake, wanted.keyspace, wanted.table, state.path)
    create_mirrored_table(
        lake,
        state.path,
        columns,
        key=state.key,
        name=wanted.name,
        now=now,
        deletion_vectors=settings.deletion_vectors,
        above=used,
    )
    forget_old_log(lake, wanted.keyspace, wanted.table, state.path, used)
    if dump.kept is not None:
        keep(state)
        sources = {shard: sources[shard] for shard in dump.read}
    ledger = open_ledger(
        lake,
        path=state.path,
        dump=dump.id,
        generations={shard: shards[shard].generation for shard in sources},
        columns=full,
        key=state.key,
        empty=dump.kept is None,
    )
    return TableDump(
        state=state,
        ledger=ledger,
        sources=sources,
        columns=tuple(columns.names),
        estimated_rows=sum(source.size.rows for source in sources.values()),
    )


def _new_dump(
    wanted: TableDumpRequest,
    old: TableState | None,
    sources: Mapping[str, SourceTable],
    dump: DumpState,
    standing: int | None,
) -> TableState:
    schema = next(iter(sources.values())).schema
    # A key that the config chose stays; it was the source's own otherwise.
    key = schema.key if old is None or old.key == old.schema.key else old.key
    return TableState(
        keyspace=wanted.keyspace,
        table=wanted.table,
        schema=schema,
        key=key,
        shard_in_key=wanted.shard_in_key,
        phase="dumping",
        dump=dump,
        merged_round=dump.start_round - 1,
        generated=any(one.generated for one in sources.values()),
        primary=key == schema.key and all(one.plan.index == "PRIMARY" for one in sources.values()),
        standing=standing,
    )


def _places(wanted: TableDumpRequest, shards: Mapping[str, ShardSource]) -> DumpState:
    """A dump that begins now, but for its first round."""
    start, shaped, made = {}, {}, {}
    for shard in wanted.shards:
        with open_session(shards[shard].primary, table=wanted.name) as session:
            made[shard] = made_at(session, wanted.table)
            start[shard] = session.executed()
            if start[shard].flavor == "file":
                shaped[shard] = _shaped(session, wanted.table)
    return DumpState(id=uuid.uuid4().hex[:12], start_round=0, start=start, shaped=shaped, made=made)


def _shaped(session: Session, table: str) -> Position:
    """Where the log ends now, once all statements on the table up to there have ended.

    Without GTIDs a read is sure to contain what stands before the current file, and no more. But a
    statement on the table itself holds it until it has ended: a question to the table that is asked
    once the statement is in the log is answered behind it.
    """
    head = session.head()
    name = f"{quoted(session.config.database)}.{quoted(table)}"
    with suppress(TableStoppedError):  # it has gone meanwhile: the catalog says so
        session.query(f"SELECT 1 FROM {name} LIMIT 0")
    return head


def start_round(lake: Lake, start: Mapping[str, Position]) -> int:
    """The first round that may hold changes which reads from these positions on do not show.

    Args:
        lake: the lake.
        start: ShardId as text -> a position that every read is sure to contain.
    """
    log = RoundLog(lake)
    last = log.last_number()
    oldest = log.first_number()
    streams = log.streams()
    # A shard that rests would be looked for in all rounds there are.
    behind = {
        shard
        for shard, position in start.items()
        if shard not in streams
        or not position.executed.contains_all(streams[shard].position.executed)
    }
    if not behind:
        return last + 1
    back = _LOOK_BACK
    while True:
        since = max(0, oldest - 1, last - back)
        needed, unknown = last + 1, set(behind)
        for found in reversed(log.since(since)):
            for piece in found.slices:
                if piece.shard not in unknown:
                    continue
                if start[piece.shard].executed.contains_all(piece.end.executed):
                    unknown.remove(piece.shard)  # and so it has all rounds before
                else:
                    needed = found.number
        if not unknown or since <= max(0, oldest - 1):
            return needed
        back *= 4


def finish_table(lake: Lake, started: TableDump, shards: Mapping[str, ShardSource]) -> TableState:
    """Note that a table's last chunk is committed; from here on the merge has it.

    Raises:
        RetryableError: a server does not answer.
    """
    end = {}
    for shard in started.sources:
        with open_session(shards[shard].primary) as session:
            end[shard] = seen_position(session)
    crashpoints.reach("dump.before_done")
    state = started.state
    if state.dump is None:
        raise BugError("a dump without a state", operation="end a dump", table=state.name)
    dump = replace(state.dump, end=end, done=True)
    return Tables(lake).save(replace(state, phase="catching_up", dump=dump))


def stop_table(lake: Lake, wanted: TableDumpRequest, error: TableStoppedError) -> None:
    """Note why a table cannot be dumped, if it has a state to note it in."""
    states = Tables(lake)
    state = states.load(wanted.keyspace, wanted.table)
    if state is not None and state.phase != "stopped":
        at_round = state.dump.start_round if state.dump else 0
        altered = isinstance(error, ShapeChangedError)
        states.stop(
            state, message=error.message, hint=error.hint, at_round=at_round, altered=altered
        )
