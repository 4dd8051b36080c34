"""A table that a tool has swapped in, made from the changes of its copy in the change log.

The copy was born in the log, so what its changes come to is the table as it is at the swap. They
are merged, a part at a time, into a staged table of their own. From there on it is a dump like any
other: it catches up from the swap on, and takes the table's place in one commit (`store.staged`).

Lives here: looking for the copy in the rounds, and merging its changes. Does not live here: whether
these are all that the table is (`swap`), when it is done (`jobs.run.computing`).

Invariant: nothing of a copy counts that stands in front of the statement that made it, or behind
the one that swapped it in. Killed in between, it is made anew (`making`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ratchet.core.columnrules import unfit_key
from ratchet.core.dumps import app_id
from ratchet.core.errors import BugError
from ratchet.core.patterns import copied
from ratchet.core.position import Position
from ratchet.core.reshaping import NotComputableError
from ratchet.core.rounds import ChangeFile, Round, TableEvent
from ratchet.core.schema import TableSchema
from ratchet.core.sql.swaps import swapped_in
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.batch import MergeBatch
from ratchet.merge.changeplaces import seqs_of
from ratchet.merge.failures import lost_changes, merge_failure
from ratchet.merge.making import begin
from ratchet.merge.newest import has_inexact_key
from ratchet.merge.shape import Shape
from ratchet.merge.side import EMPTY
from ratchet.merge.swap import CopyLog, about, copy_log, is_in, makes
from ratchet.merge.table import TableCache, merge_table
from ratchet.store.crashpoints import reach
from ratchet.store.delta.tables import create_mirrored_table
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.schemas import get_schema
from ratchet.store.stops import ShapeChange
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BACK: Final = 1000  # rounds that are looked through at a time
# Of one merge: it is done in this process, unless a single round has more.
_BYTES: Final = 64 << 20
_ROWS: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedTable:
    """A table as a tool has swapped it in.

    Attributes:
        log: where its rows stand.
        change: the swap.
        schema: its shape, under its own name.
        primary: whether its key is a primary key; None: not known.
    """

    log: CopyLog
    change: ShapeChange
    schema: TableSchema
    primary: bool | None = None


def copy_of(state: TableState) -> str | None:
    """The tool's copy whose swap has stopped a table; None: it was stopped by something else."""
    change = state.change
    found = None if change is None else swapped_in(change.statement, state.table)
    return found if found is not None and state.table in copied(found) else None


def events_since_swap(
    lake: Lake, state: TableState, copy: str, change: ShapeChange
) -> tuple[list[TableEvent], Position | None]:
    """What the change log says about a copy behind its swap.

    Args:
        lake: the lake.
        state: the table.
        copy: see `copy_of`.
        change: the swap.

    Returns:
        The events that name it, in order, and up to where the log was read for them at least.

    Raises:
        LakeError: the lake cannot be read.
    """
    log = RoundLog(lake)
    read = log.positions().get(change.shard)
    found = [
        event
        for value in log.walk(max(change.round, log.first_number()), log.last_number())
        for event in about(value, state.keyspace, [copy], change.shard).events
        if not is_in(change, event)
    ]
    return found, read


def swapped_table(lake: Lake, state: TableState, copy: str) -> SwappedTable:
    """What the change log says of a table behind a swap.

    Args:
        lake: the lake.
        state: the table.
        copy: see `copy_of`.

    Raises:
        NotComputableError: its rows have to be read from the source.
        TableStoppedError: change files are gone.
        LakeError: the lake cannot be read.
    """
    change = state.change
    if change is None:
        raise NotComputableError("nothing tells what the change does")
    log = RoundLog(lake)
    now = log.positions().get(change.shard)
    if now is None or not now.executed.contains_all(change.position.executed):
        raise NotComputableError("its server has lost it since (a failover)")
    rounds = _since_made(log, state, copy, change)
    found = copy_log(rounds, state.table, copy, change, partial(seqs_of, lake))
    shape = get_schema(lake, state.keyspace, copy, found.shape)
    if state.dump is None or state.dump.start_round > found.round:
        # Before that it may not have been mirrored, and nor its copies captured.
        raise NotComputableError(f"its own dump began later than {copy} was made")
    if state.generated is not False:
        # OPTIMIZE LOCAL computes STORED ones anew, by settings that no log tells.
        raise NotComputableError("it may have generated columns")
    if set(state.key) != set(state.schema.key):
        raise NotComputableError("its key is one that the config names")
    if not shape.key:
        raise NotComputableError(f"{copy} has no key that the log tells")
    odd = unfit_key(shape)
    if odd is not None:
        raise NotComputableError(odd.message)
    return SwappedTable(log=found, change=change, schema=replace(shape, table=state.table))


def make_from_log(
    spark: SparkSession,
    lake: Lake,
    state: TableState,
    found: SwappedTable,
    *,
    policy: InvalidValuePolicy,
    deletion_vectors: bool,
    now: int,
    stop: Callable[[], bool] = lambda: False,
) -> TableState | None:
    """Make a table as it is at the swap, so that it catches up from there.

    Args:
        spark: any session of the application; used where one round has very many changes.
        lake: the lake.
        state: the table: stopped by the swap, or half made by a run that was killed.
        found: see `swapped_table`.
        policy: decides about the lake's types.
        deletion_vectors: see create_delta_table.
        now: microseconds UTC.
        stop: asked between two merges.

    Returns:
        The state as saved; None: it was told to stop.

    Raises:
        NotComputableError: no cut shows the table.
        TableStoppedError: change files are gone, or its columns have no place in the lake.
        RetryableError: a failure of Spark.
        LakeError: the lake cannot be read or written.
    """
    shape = Shape.of(
        found.schema, policy, key=found.schema.key, many_shards=False, shard_in_key=False
    )
    if has_inexact_key(shape):
        raise NotComputableError("its key is no exact number")  # the dump says what can be done
    making = begin(lake, state, found.change, first_round=found.log.round)
    create_mirrored_table(
        lake,
        making.path,
        shape.columns,
        key=shape.key,
        name=state.name,
        now=now,
        deletion_vectors=deletion_vectors,
    )
    cache, side = TableCache(), EMPTY
    for number, files in _parts(lake, state, found):
        if stop():
            return None
        batch = _batch(making, found.log, shape, files, number=number, now=now)
        try:
            side = merge_table(spark, lake, batch, side, cache).side
        except Exception as error:
            if gone := lost_changes(lake, state.name, batch.files):
                raise gone from error
            failure = merge_failure(error, spark, table=state.name)
            if failure is error:
                raise
            raise failure from error
    reach("fromlog.before_done")
    return Tables(lake).save(_made(making, found))


def _since_made(log: RoundLog, state: TableState, copy: str, change: ShapeChange) -> list[Round]:
    """What the rounds hold about the copy and the table, up to the swap, from where it was made.

    Read from their end: a copy lives for hours, and the log may be a fortnight's.
    """
    first, tables = log.first_number(), (copy, state.table)
    if not 0 < first <= change.round:
        raise NotComputableError("the change log does not reach back to it any more")
    found: list[Round] = []
    end = change.round
    while end >= first:
        begins = max(first, end - _BACK + 1)
        block = [about(one, state.keyspace, tables, change.shard) for one in log.walk(begins, end)]
        found = block + found
        is_there = any(makes(e, copy) and is_in(change, e) for one in block for e in one.events)
        if is_there or any(one.slices and change.shard not in one.copies for one in block):
            break  # in front of the latter no copy counts
        end = begins - 1
    return found


def _parts(
    lake: Lake, state: TableState, found: SwappedTable
) -> Iterator[tuple[int, list[ChangeFile]]]:
    """The copy's change files in the order of their rounds, some at a time; and the last round."""
    log, change = found.log, found.change
    taken: list[ChangeFile] = []
    last = 0
    for value in RoundLog(lake).walk(log.round, change.round):
        mine = [
            file
            for file in about(value, state.keyspace, [log.copy], log.shard).files
            if file.max_seq > log.made and file.min_seq < log.swapped
        ]
        size = sum(file.bytes for file in (*taken, *mine))
        rows = sum(file.rows for file in (*taken, *mine))
        if taken and mine and (size > _BYTES or rows > _ROWS):
            yield last, taken
            taken = []
        if mine:
            taken, last = [*taken, *mine], value.number
    if taken:
        yield last, taken


def _batch(
    making: TableState,
    log: CopyLog,
    shape: Shape,
    files: Sequence[ChangeFile],
    *,
    number: int,
    now: int,
) -> MergeBatch:
    if making.dump is None:
        raise BugError("a table that is being made has no dump", table=making.name)
    lowest = max(log.made + 1, min(file.min_seq for file in files))
    highest = min(log.swapped - 1, max(file.max_seq for file in files))
    return MergeBatch(
        shape=shape,
        path=making.path,
        side_path=making.side_path,
        app_id=app_id(making.dump.id),
        round=number,
        files=[file.path for file in files],
        bytes=sum(file.bytes for file in files),
        rows=sum(file.rows for file in files),
        may_delete=any(file.deletes or file.updates for file in files),
        since={(log.shard, log.generation): log.made},
        until={log.shard: (log.generation, log.swapped)},
        lowest={log.shard: (log.generation, lowest)},
        highest={log.shard: (log.generation, highest)},
        metadata={"ratchet": 1, "round": number},
        now=now,
    )


def _made(making: TableState, found: SwappedTable) -> TableState:
    """The state of a table that is made: nothing of what it was before is left, doubts neither."""
    if making.dump is None:
        raise BugError("a table that is being made has no dump", table=making.name)
    number, schema = found.change.round, found.schema
    return replace(
        making,
        schema=schema,
        key=schema.key,
        phase="catching_up",
        dump=replace(making.dump, start_round=number, done=True, made={}),
        merged_round=number - 1,
        logged={found.log.shard: schema.fingerprint},
        added=(),
        nulls={},
        retyped=(),
        doubts={},
        generated=False,
        primary=found.primary,
        foreign_keys=None,
        keys_stale=False,
        sided="",
        change=None,
    )
