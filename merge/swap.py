"""Whether the change log holds all of a table that a tool has swapped in. Pure.

A tool like gh-ost or pt-online-schema-change makes a copy of a table without rows, fills it, and
puts it in the table's place by one RENAME. Each row of the copy was written to the log. So the
table is what the changes of the copy come to, if nothing but rows has happened to it since it was
made. Everything else is left to a new dump.

Lives here: that decision. Does not live here: reading the rounds, making the table (`fromlog`).

Invariant: what is not known for certain is refused, with the reason.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ratchet.core.errors import DecodeError
from ratchet.core.gtid import parse_gtid
from ratchet.core.reshaping import NotComputableError
from ratchet.core.rounds import ChangeFile, Round, ShardSlice, TableEvent
from ratchet.core.schema import TableSchema
from ratchet.core.sql.effects import CREATED
from ratchet.core.sql.swaps import keeps_empty, may_be_unlike
from ratchet.core.types import network
from ratchet.store.stops import ShapeChange

SeqsOf = Callable[[ChangeFile], Sequence[int]]

# What may have happened to any table of the database, and is told of those that are mirrored.
_ANY: Final = frozenset({"doubt", "prepared", "bulk", "restored", "untold"})
# Not OR REPLACE. `CREATED` is never said of IF NOT EXISTS.
_MADE_NEW: Final = re.compile(r"CREATE\s+TABLE\s", re.IGNORECASE)
_MAKING: Final = re.compile(r"CREATE\s", re.IGNORECASE)
# What leaves a table where it is, whatever it does to its rows.
_ROWS_ALONE: Final = frozenset({"untold", "bulk", "prepared"})
_SHOWN: Final = 120  # characters of a statement


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLog:
    """Where the rows of a table that was swapped in stand.

    Attributes:
        copy: its name until then.
        shard: ShardId as text.
        generation: of the shard's stream.
        round: the round in which it was made.
        made: `seq` of the statement that made it.
        made_at: when that was, microseconds UTC by its server's clock.
        swapped: `seq` of the one that put it in the table's place; its rows stand between the two.
        shape: fingerprint of the shape of all its row events.
    """

    copy: str
    shard: str
    generation: int
    round: int
    made: int
    made_at: int
    swapped: int
    shape: str


def about(value: Round, keyspace: str, tables: Sequence[str], shard: str) -> Round:
    """A round without all that is of other tables and shards."""
    return replace(
        value,
        slices=tuple(one for one in value.slices if one.shard == shard),
        files=tuple(one for one in value.files if _is_of(one, keyspace, tables, shard)),
        events=tuple(one for one in value.events if _is_of(one, keyspace, tables, shard)),
    )


def is_whole(rounds: Sequence[Round], shard: str) -> bool:
    """Whether consecutive rounds have a shard's log without a break."""
    pieces = [piece for one in rounds for piece in one.slices if piece.shard == shard]
    return all(
        after.start.executed == before.end.executed
        and after.generation == before.generation
        and not after.ancestors
        and before.journal is None
        for before, after in itertools.pairwise(pieces)
    )


def makes(event: TableEvent, copy: str) -> bool:
    """Whether an event says that the copy was made, without rows and foreign keys."""
    return event.table == copy and (event.effect, event.reason) == ("rows", CREATED)


def is_in(change: ShapeChange, event: TableEvent) -> bool:
    """Whether an event stands in front of a change, or is the change."""
    place = change.position
    try:
        return place.executed.contains(parse_gtid(place.flavor, event.gtid))
    except DecodeError:
        return False


def copy_log(
    rounds: Sequence[Round], table: str, copy: str, change: ShapeChange, seqs_of: SeqsOf
) -> CopyLog:
    """Where all rows of a copy stand, if they are all that it is.

    Args:
        rounds: what they hold about the copy and the table (`about`), from before the copy was made
            up to the swap.
        table: the name under which it is mirrored from the swap on.
        copy: its name until then.
        change: the swap.
        seqs_of: the `seq` of each change in a file.

    Raises:
        NotComputableError: its rows have to be read from the source.
    """
    swap = _swap(rounds[-1], copy, change)
    number, made = _made(rounds, copy, swap)
    if may_be_unlike(made.statement, table):
        raise NotComputableError(f"{copy} was made like another table: {made.statement[:_SHOWN]}")
    rounds = [one for one in rounds if one.number >= number]
    _refuse_gaps(rounds)
    files = [
        f
        for r in rounds
        for f in r.files
        if f.table == copy and f.min_seq <= swap.seq and f.max_seq >= made.seq
    ]
    behind = [file for file in rounds[-1].files if file.table == table]
    refuse_rows_at(swap.seq, [*files, *behind], seqs_of)
    refuse_rows_at(made.seq, files, seqs_of)
    firsts = {file.path: _first_inside(file, made.seq, swap.seq, seqs_of) for file in files}
    first = min(firsts.values(), default=swap.seq)
    if first == swap.seq:
        raise NotComputableError(
            f"the change log has no rows of {copy}, and does not tell its columns"
        )
    events = [e for r in rounds for e in r.events]
    for event in events[events.index(made) + 1 : events.index(swap)]:
        _refuse_event(event, copy, first)
    shapes = {file.schema for file in files if firsts[file.path] < swap.seq}
    if len(shapes) > 1:
        raise NotComputableError(f"the rows of {copy} have several shapes")
    return CopyLog(
        copy=copy,
        shard=change.shard,
        generation=rounds[-1].slices[0].generation,
        round=number,
        made=made.seq,
        made_at=made.ts,
        swapped=swap.seq,
        shape=shapes.pop(),
    )


def is_moved(events: Sequence[TableEvent], copy: str) -> bool:
    """Whether the log proves that a copy was gone behind its swap.

    A MariaDB logs a RENAME of temporary tables as one of others, and nothing tells them apart. But
    a table can only be made where there is none, and temporary ones are made without a word.

    Args:
        events: all that name the copy behind the swap.
        copy: its name until then.

    Returns:
        False if nothing has named it since: it is gone if its server does not have it.

    Raises:
        NotComputableError: something else was done to it first.
    """
    first = next((event for event in events if event.effect not in _ROWS_ALONE), None)
    if first is None:
        return False
    if makes(first, copy) and _MADE_NEW.match(first.statement):
        return True
    what = first.statement or first.reason
    raise NotComputableError(f"{copy} may still have been there behind the swap: {what[:_SHOWN]}")


def refuse_untold(shape: TableSchema, now: TableSchema | None) -> None:
    """Refuse a shape whose types a MariaDB's log does not tell, unless the server still does.

    Args:
        shape: by the log; its server may not have known the copy any more when it was read.
        now: the table as its server describes it; None: it does not.

    Raises:
        NotComputableError: a column may have another type.
    """
    described = {} if now is None else {column.name: column.type for column in now.columns}
    for column in shape.columns:
        kind = column.type
        widths = kind.name == "binary" and kind.length in {4, 16}
        unclear = widths or kind.legacy or kind.name in {*network.NAMES, "year"}
        if unclear and described.get(column.name) != kind:
            raise NotComputableError(f"the log does not tell the type of {column.name}")


def _is_of(one: ChangeFile | TableEvent, keyspace: str, tables: Sequence[str], shard: str) -> bool:
    return one.keyspace == keyspace and one.shard == shard and one.table in tables


def _swap(value: Round, copy: str, change: ShapeChange) -> TableEvent:
    """What the swap was to the copy."""
    found = [
        event
        for event in value.events
        if event.table == copy
        and event.kind == "ddl"
        and event.statement == change.statement
        and is_in(change, event)
    ]
    if not found:
        raise NotComputableError(f"the change log does not tell of {copy}")
    return found[-1]


def _made(rounds: Iterable[Round], copy: str, swap: TableEvent) -> tuple[int, TableEvent]:
    """The newest statement that made the copy, and its round."""
    found = None
    other = ""
    for value in rounds:
        for event in value.events:
            if event is swap:
                break
            if makes(event, copy):
                found = value.number, event
            elif event.table == copy and _MAKING.match(event.statement):
                other = event.statement
    if found is None and other:
        raise NotComputableError(f"more than its own rows may be in {copy}: {other[:_SHOWN]}")
    if found is None:
        raise NotComputableError(f"the change log does not reach back to where {copy} was made")
    return found


def _refuse_gaps(rounds: Iterable[Round]) -> None:
    """A stream that was not read without a break may lack changes of the copy.

    So may rounds that were captured by an earlier version, or with `schema_changes: stop`.
    """
    before: ShardSlice | None = None
    for whole_round, piece in ((one, piece) for one in rounds for piece in one.slices):
        if piece.shard not in whole_round.copies:
            raise NotComputableError("copies were not captured all the time that it was filled")
        whole = before is None or (
            piece.generation == before.generation and piece.start.executed == before.end.executed
        )
        if not whole or piece.ancestors or piece.journal or piece.seen:
            raise NotComputableError("the stream began anew while the copy was filled")
        before = piece


def refuse_rows_at(seq: int, files: Iterable[ChangeFile], seqs_of: SeqsOf) -> None:
    """See that rows stand on one side of a place, each.

    A transaction without a GTID has the `seq` of the one before: it may be on either side. With
    CREATE TABLE ... SELECT the rows that a table is made with have that of its CREATE.

    Args:
        seq: of a statement.
        files: change files.
        seqs_of: see `copy_log`.

    Raises:
        NotComputableError: one stands at the place.
    """
    for file in files:
        if file.min_seq <= seq <= file.max_seq and seq in seqs_of(file):
            raise NotComputableError("rows stand at the same place as a statement")


def _first_inside(file: ChangeFile, begin: int, end: int, seqs_of: SeqsOf) -> int:
    """The `seq` of a file's first change between two places; `end` if there is none."""
    if begin < file.min_seq < end:
        return file.min_seq
    return min((one for one in seqs_of(file) if begin < one < end), default=end)


def _refuse_event(event: TableEvent, copy: str, first: int) -> None:
    """Something that happened while the copy was there, to it or to the table."""
    if event.table != copy:
        if event.kind in {"doubt", "unreadable"} or event.effect in _ANY:
            raise NotComputableError(
                f"something may have happened to any table meanwhile: {event.reason[:_SHOWN]}"
            )
        return
    plain = event.kind == "ddl" and event.effect not in {"", "foreign_key", *_ANY}
    if not plain or event.seq >= first or not keeps_empty(event.statement, copy):
        what = event.statement or event.reason
        raise NotComputableError(f"more than rows came to {copy}: {what[:_SHOWN]}")
