"""Batches of transactions to changes: row images decoded, tokens attached, in stream order.

Lives here: `Decoders` and `changes_of`, from a TransactionBatch to one Arrow table for each table
map, and `hand_out`, which does that in pieces of bounded memory. Does not live here: files
(`ingest.files`), how an image is decoded (`wire.decode`).

Invariant: every row event of the batch comes out, or an event that stops its table, or puts it in
doubt; `idx` counts
the row changes that come out of a transaction from 0, over all its tables and batches, an update
once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ratchet.core.arrowwidth import least_width, spelled_out
from ratchet.core.change import DELETE, INSERT, UPDATE, captured_schema
from ratchet.core.errors import BugError, DecodeError, TableStoppedError
from ratchet.core.rounds import TableEvent
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.ingest.binlog.names import gtid_column
from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.ingest.changes import TableChanges, Tokens
from ratchet.wire.decode.compressed import MOST_SWELLING
from ratchet.wire.decode.plan import COMPRESSED
from ratchet.wire.decode.rows import DecodedRows, IncompleteImagesError, RowImageDecoder
from ratchet.wire.decode.tablemap import TableMap

Ints = npt.NDArray[np.int64]

# What the rows of a piece take decoded, if they are the shortest that there can be; others take
# less. A log of tables of 6 columns is cut every 12 MB or so.
_PIECE_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class _Group:
    """Decoded events of one slot in one buffer, in stream order."""

    op: npt.NDArray[np.int8]  # per row
    silent: npt.NDArray[np.bool_]  # per row
    rows: DecodedRows
    event: Ints  # per row, its event's number in the batch
    within: Ints  # per row, its place in its event
    counts: Ints  # per event of the group, its rows


class Decoders:
    """The decoder of every table map, made when it is first needed.

    Args:
        policy: decides about the lake's types.
        verified: whether the stream's events are compared with checksums: then bytes that are not
            understood are those that the server wrote, and reading them again changes nothing.
    """

    def __init__(
        self, policy: InvalidValuePolicy, *, verified: Callable[[], bool] = lambda: False
    ) -> None:
        self._policy = policy
        self.verified = verified
        self._maps: Sequence[TableMap | None] = ()  # what the slots are numbers in
        self._by_slot: dict[int, tuple[RowImageDecoder, pa.Schema]] = {}
        self._swells: dict[int, float] = {}

    def of(self, slot: int, maps: Sequence[TableMap | None]) -> RowImageDecoder:
        """The decoder of a slot's table map."""
        return self._entry(slot, maps)[0]

    def schema(self, slot: int, maps: Sequence[TableMap | None]) -> pa.Schema:
        """The change files' schema for a slot's table map."""
        return self._entry(slot, maps)[1]

    def swelling(self, slot: int, maps: Sequence[TableMap | None]) -> float:
        """How many bytes a byte of a slot's rows may take decoded: the shortest rows swell most."""
        self._look_whose(maps)
        found = self._swells.get(slot)
        if found is None:
            table_map = _mirrored(maps[slot])
            columns = table_map.columns
            shortest = (len(columns) + 7) // 8
            shortest += sum(one.prefix + one.size for one in columns if not one.nullable)
            try:
                width = least_width(self.schema(slot, maps).field("after").type)
                width += spelled_out(table_map.schema.columns)
            except (TableStoppedError, DecodeError):
                width = 0  # none of its rows come out
            found = width / max(1, shortest)
            if any(one.code in COMPRESSED and not one.hidden for one in columns):
                found = max(found, MOST_SWELLING)
            self._swells[slot] = found
        return found

    def _entry(
        self, slot: int, maps: Sequence[TableMap | None]
    ) -> tuple[RowImageDecoder, pa.Schema]:
        self._look_whose(maps)
        found = self._by_slot.get(slot)
        if found is None:
            table_map = _mirrored(maps[slot])
            decoder = RowImageDecoder(table_map, self._policy)
            found = decoder, captured_schema(arrow_schema(table_map.schema, self._policy))
            self._by_slot[slot] = found
        return found

    def _look_whose(self, maps: Sequence[TableMap | None]) -> None:
        """Another list has other maps under the same numbers."""
        if maps is not self._maps:
            self._maps = maps
            self._by_slot.clear()
            self._swells.clear()


def hand_out(
    batch: TransactionBatch,
    decoders: Decoders,
    take: Callable[[list[TableChanges]], None],
    *,
    shard: ShardId,
    generation: int,
) -> tuple[int, list[TableEvent]]:
    """Decode a batch piece by piece.

    Args:
        batch: what was read.
        decoders: of its table maps.
        take: gets the changes of each piece, which may be gone before the next one is decoded.
        shard: where all of it was read.
        generation: of the stream.

    Returns:
        Row changes of the last transaction so far, and events for tables of which rows are left
        out.
    """
    rows, left_out = 0, []
    for piece, goes_on in _pieces(batch, decoders):
        mine = replace(piece, rows_before=rows) if goes_on else piece
        changes, rows, found = changes_of(mine, decoders, shard=shard, generation=generation)
        take(changes)
        left_out += found
    return rows, left_out


def _pieces(batch: TransactionBatch, decoders: Decoders) -> Iterator[tuple[TransactionBatch, bool]]:
    """In stream order; and whether a piece begins in the transaction in which the last one ends."""
    events = batch.rows
    swelling = np.ones(len(batch.maps))
    for slot in np.unique(events["slot"]).tolist():
        swelling[slot] = decoders.swelling(slot, batch.maps)
    sizes = (events["end"].astype(np.int64) - events["start"]) * swelling[events["slot"]]
    run = np.cumsum(sizes) // _PIECE_BYTES
    cuts = [*(np.flatnonzero(np.diff(run)) + 1).tolist(), events.size]
    if len(cuts) == 1:
        yield batch, False
        return
    txn = events["txn"].astype(np.int64)
    before = -1
    for begin, end in itertools.pairwise([0, *cuts]):
        first = int(txn[begin]) if begin else 0
        last = int(txn[end - 1]) if end < events.size else len(batch.txns) - 1
        rows = events[begin:end].copy()
        rows["txn"] -= first
        piece = replace(
            batch,
            txns=batch.txns[first : last + 1],
            rows=rows,
            rows_before=batch.rows_before if first == 0 else 0,
        )
        yield piece, first == before
        before = last


def changes_of(
    batch: TransactionBatch, decoders: Decoders, *, shard: ShardId, generation: int
) -> tuple[list[TableChanges], int, list[TableEvent]]:
    """Decode a batch.

    A table whose rows the mirror cannot take stops where the first of them stands; the other
    tables' rows are none the worse for it.

    Returns:
        The changes by table, row changes of the last transaction so far, and an event for each
        table of which rows are left out.
    """
    events = batch.rows
    last = len(batch.txns) - 1
    if not events.size:
        return [], batch.rows_before if last == 0 else 0, []
    groups, errors, incomplete = _decode(batch, decoders)
    tokens = Tokens(
        ts=batch.txns["ts"],
        seq=batch.txns["seq"],
        gtids=gtid_column(batch),
        shard=shard,
        generation=generation,
    )
    left_out = [
        tokens.unreadable(_mirrored(batch.maps[slot]).schema.table, error, _first(batch, slot))
        for slot, error in errors.items()
    ]
    left_out += [
        tokens.incomplete(_mirrored(batch.maps[slot]).schema.table, txn)
        for slot, txn in sorted(
            {(int(events["slot"][n]), int(events["txn"][n])) for n in incomplete}
        )
    ]
    counts = np.zeros(events.size, np.int64)
    for members in groups.values():
        for numbers, group in members:
            counts[numbers] = group.counts
    firsts = np.cumsum(counts) - counts  # rows of the batch before each event
    txn = events["txn"].astype(np.int64)
    begins = np.searchsorted(txn, txn, side="left")  # each transaction's first event
    idx = firsts - firsts[begins]
    idx[txn == 0] += batch.rows_before
    found = [
        _assemble(
            slot,
            [group for _, group in members],
            firsts=firsts,
            txn=txn,
            idx=idx,
            tokens=tokens,
            batch=batch,
            schema=decoders.schema(slot, batch.maps),
        )
        for slot, members in groups.items()
        if any(group.event.size for _, group in members)  # an event may hold no row at all
    ]
    of_last = txn == last
    total = int(counts[of_last].sum()) + (batch.rows_before if last == 0 else 0)
    return found, total, left_out


def _mirrored(table_map: TableMap | None) -> TableMap:
    if table_map is None:
        raise BugError("rows of a table that is not mirrored", operation="decode rows")
    return table_map


def _first(batch: TransactionBatch, slot: int) -> int:
    """The number of the transaction of a slot's first row in the batch."""
    return int(batch.rows["txn"][batch.rows["slot"] == slot].min())


def _decode(
    batch: TransactionBatch, decoders: Decoders
) -> tuple[dict[int, list[tuple[Ints, _Group]]], dict[int, TableStoppedError], list[int]]:
    """Slot -> (numbers of its events, decoded) for each buffer, or why it is not.

    And the numbers of events that are left out although their table goes on.
    """
    events = batch.rows
    key = events["slot"].astype(np.int64) * 2 + events["where"]
    order = np.argsort(key, kind="stable")
    bounds = np.flatnonzero(np.diff(key[order])) + 1
    groups: dict[int, list[tuple[Ints, _Group]]] = {}
    errors: dict[int, TableStoppedError] = {}
    incomplete: list[int] = []
    for numbers in np.split(order, bounds):
        slot = int(events["slot"][numbers[0]])
        try:
            decoded, lacking = _decode_readable(batch, decoders, numbers)
        except TableStoppedError as error:
            errors[slot] = error
        except DecodeError as error:
            if not decoders.verified():
                raise  # damage, perhaps: reading it again tells
            errors[slot] = TableStoppedError(
                error.message, operation="decode rows", table=error.table, hint=error.hint
            )
        else:
            incomplete += lacking
            groups.setdefault(slot, []).extend(decoded)
    whole = {slot: found for slot, found in groups.items() if slot not in errors}
    return whole, errors, [n for n in incomplete if int(events["slot"][n]) not in errors]


def _decode_readable(
    batch: TransactionBatch, decoders: Decoders, numbers: Ints
) -> tuple[list[tuple[Ints, _Group]], list[int]]:
    """Decode events of one slot in one buffer but those of which a MariaDB leaves columns out."""
    try:
        return [(numbers, _decode_group(batch, decoders, numbers))], []
    except IncompleteImagesError:
        lacking = _left_out_by_mariadb(batch, decoders, numbers)
        if lacking is None:
            raise
        rest, left = numbers[~lacking], numbers[lacking].tolist()
        return ([(rest, _decode_group(batch, decoders, rest))] if rest.size else []), left


def _decode_group(batch: TransactionBatch, decoders: Decoders, numbers: Ints) -> _Group:
    """Decode events of one slot in one buffer."""
    events = batch.rows[numbers]
    ops = events["op"].astype(np.int8)
    decoded = decoders.of(int(events["slot"][0]), batch.maps).decode(
        batch.buffers[int(events["where"][0])],
        np.ascontiguousarray(events["start"]),
        np.ascontiguousarray(events["end"]),
        ops,
    )
    counts = np.bincount(decoded.event, minlength=numbers.size)
    before = np.cumsum(counts) - counts
    within = np.arange(decoded.event.size) - before[decoded.event]
    silent = events["silent"].astype(np.bool_)[decoded.event]
    return _Group(ops[decoded.event], silent, decoded, numbers[decoded.event], within, counts)


def _left_out_by_mariadb(
    batch: TransactionBatch, decoders: Decoders, numbers: Ints
) -> npt.NDArray[np.bool_] | None:
    """Which of some events lack columns as a MariaDB leaves them out; None: others do as well.

    A statement that is unsafe (INSERT ... ON DUPLICATE KEY UPDATE with several unique keys) is
    logged as rows also in a session whose format is MIXED; the server decides so when it has marked
    the columns that it logs. Rows of before are whole, rows of after have the columns that the
    statement names (seen on 10.11). Where binlog_row_image is not FULL, rows of before are not.
    """
    if batch.flavor != "mariadb":
        return None
    events = batch.rows[numbers]
    before, after = decoders.of(int(events["slot"][0]), batch.maps).lacking(
        batch.buffers[int(events["where"][0])], events["start"], events["op"].astype(np.int8)
    )
    return None if before.any() else after


def _assemble(
    slot: int,
    groups: list[_Group],
    *,
    firsts: Ints,
    txn: Ints,
    idx: Ints,
    tokens: Tokens,
    batch: TransactionBatch,
    schema: pa.Schema,
) -> TableChanges:
    tables = []
    for group in groups:
        size = group.event.size
        columns = [
            pa.array(group.op),
            tokens.column(txn[group.event], idx[group.event] + group.within),
            _image(group.rows.before, schema.field("before").type, size),
            _image(group.rows.after, schema.field("after").type, size),
            pa.array(group.silent),
        ]
        tables.append(pa.Table.from_arrays(columns, schema=schema))
    event = np.concatenate([group.event for group in groups])
    rows = pa.concat_tables(tables)
    if len(groups) > 1:  # some of the events were compressed
        within = np.concatenate([group.within for group in groups])
        rows = rows.take(pa.array(np.argsort(firsts[event] + within, kind="stable")))
    seqs = tokens.seq[txn[event]]
    misfits: dict[str, int] = {}
    for group in groups:
        for column, count in group.rows.misfits.items():
            misfits[column] = misfits.get(column, 0) + count
    table_map = batch.maps[slot]
    if table_map is None:
        raise BugError("rows of a table that is not mirrored", operation="decode rows")
    op = np.concatenate([group.op for group in groups])
    silent = np.concatenate([group.silent for group in groups]) & (op != INSERT)
    began = batch.rows["began"][event[silent]]
    unlooked = (batch.rows["unchecked"][event] == 1) & (op != DELETE)
    by_op = np.bincount(op, minlength=4).tolist()
    return TableChanges(
        schema=table_map.schema,
        rows=rows,
        min_seq=int(seqs.min()),
        max_seq=int(seqs.max()),
        counts=(by_op[INSERT], by_op[UPDATE], by_op[DELETE]),
        misfits=misfits,
        silent=int(np.count_nonzero(silent)),
        began=int(began.min()) if began.size else 0,
        unchecked=int(np.count_nonzero(unlooked)),
    )


def _image(found: pa.StructArray | None, kind: pa.DataType, size: int) -> pa.Array:
    return pa.nulls(size, kind) if found is None else found
