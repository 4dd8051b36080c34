"""Whether a key for which mirror and source seemed to differ does differ.

Lives here: reading such keys again on both sides, and the verdict on each. Does not live here:
which keys (`piecewise`), how often they are read (`jobs.watch.background`), the same question at
one fixed cut with the log laid over it (`judge`).

A key is read at the source; then the mirror's row is looked at in a cut that holds everything that
this read may have shown. If the log has no change of the key between the two, they must be equal.

Invariant: a key that changed between the two looks, or may have by the change of another table,
gets no verdict. What is found to differ is only said to when it was found twice: what a server
changes without a word in its log looks like a difference once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.core.position import Position
from ratchet.core.rounds import ChangeFile, Round
from ratchet.snapshot.judge import Kind
from ratchet.snapshot.mirror import MirrorReader
from ratchet.snapshot.piecewise import ComparisonSpec, rows_of
from ratchet.snapshot.prints import SHARD, Words
from ratchet.snapshot.reread import RereadRows
from ratchet.snapshot.rows import Row, different_columns, frozen_row
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import open_changes

_BACK: Final = 16  # rounds that are looked back at first


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConfirmation:
    """What two looks at a key came to.

    Attributes:
        key: its values as the lake has them.
        shard: the shard, where that is a part of the key; else empty.
        kind: "same", a kind of difference, or "moving": it changed meanwhile.
        columns: those that differ, of a changed row.
    """

    key: Mapping[str, Any]
    shard: str
    kind: Kind | Literal["same", "moving"]
    columns: tuple[str, ...] = ()


def findings(
    keys: pa.Table,
    again: RereadRows,
    mirror: MirrorReader,
    compared: ComparisonSpec,
    *,
    moved: Words | None,
) -> list[KeyConfirmation]:
    """The verdict on each key, by shard where that is a part of the key.

    Args:
        keys: the key's columns, a row each.
        again: what the source showed of them.
        mirror: at a cut that holds all of that.
        compared: what is compared.
        moved: the marks of keys that the log changes between the two; None: anything may have.
    """
    if not keys.num_rows:
        return []
    shards = list(again.seen)
    there: dict[Row, list[tuple[str, Row]]] = {}
    for batch in rows_of(mirror, compared, keys, shards):
        for row in batch.to_pylist():
            name, values = frozen_row(row, compared.key), frozen_row(row, compared.names)
            if name is not None and values is not None:
                there.setdefault(name, []).append((row[SHARD] or "", values))
    (rows,) = keys.combine_chunks().to_batches()
    found = []
    for group in [[shard] for shard in shards] if compared.shard_in_key else [shards]:
        changing = None
        if moved is not None:
            changing = np.isin(compared.keys_of(rows, group[:1]), moved)
        for at, key in enumerate(rows.to_pylist()):
            name = frozen_row(key, compared.key)
            shard = group[0] if compared.shard_in_key else ""
            if name is None or changing is None or changing[at]:
                found.append(KeyConfirmation(key=key, shard=shard, kind="moving"))
                continue
            source = {s: again.seen[s][name].row for s in group}
            mirrored = [one for one in there.get(name, ()) if not shard or one[0] == shard]
            kind, columns = _verdict(source, mirrored, compared)
            found.append(KeyConfirmation(key=key, shard=shard, kind=kind, columns=columns))
    return found


def _verdict(
    source: Mapping[str, Row | None],
    mirrored: Sequence[tuple[str, Row]],
    compared: ComparisonSpec,
) -> tuple[Kind | Literal["same", "moving"], tuple[str, ...]]:
    alive = [(shard, row) for shard, row in source.items() if row is not None]
    if len(mirrored) > 1:
        return "doubled", ()
    if not alive:
        return ("extra", ()) if mirrored else ("same", ())
    if not mirrored:
        return "missing", ()
    ((place, row),) = mirrored
    right = [shard for shard, value in alive if value == row and place in compared.homes[shard]]
    if right:
        return "same", ()
    if len(alive) > 1:
        return "moving", ()  # one of them is chosen by clocks
    columns = different_columns(row, alive[0][1], compared.names)
    return "changed", columns or ("_token.shard",)


def rounds_behind(log: RoundLog, floors: Mapping[str, Position], upto: int) -> list[Round]:
    """The rounds up to one that may hold what reads with these floors did not show.

    Args:
        log: the round log.
        floors: shard -> what its reads are sure to have shown.
        upto: the last round.
    """
    oldest, back = log.first_number(), _BACK
    while True:
        begin = max(oldest - 1, upto - back, 0)
        rounds = [one for one in log.since(begin) if one.number <= upto]
        outside = [one.number for one in rounds if _goes_beyond(one, floors)]
        first = min(outside, default=upto + 1)
        if begin <= max(oldest - 1, 0) or first > begin + 1:
            return [one for one in rounds if one.number >= first]
        back *= 4


def _goes_beyond(one: Round, floors: Mapping[str, Position]) -> bool:
    return any(
        piece.shard in floors and not floors[piece.shard].executed.contains_all(piece.end.executed)
        for piece in one.slices
    )


def floors_of(again: RereadRows) -> dict[str, Position]:
    """For each shard what every read of it is sure to have shown: the first read's floor."""
    found: dict[str, Position] = {}
    for shard, looks in again.seen.items():
        for look in looks.values():
            known = found.setdefault(shard, look.floor)
            if known.executed.contains_all(look.floor.executed):
                found[shard] = look.floor
    return found


def moved_keys(
    lake: Lake,
    rounds: Iterable[Round],
    table: tuple[str, str],
    parents: Collection[tuple[str, str]],
    compared: ComparisonSpec,
) -> Words | None:
    """The marks of the keys that those rounds change; None if they may change any.

    Args:
        lake: where the change files are.
        rounds: see there.
        table: keyspace and table.
        parents: tables by whose changes a server changes this one without a word in its log.
        compared: what is compared.
    """
    marks = [np.empty(0, np.uint64)]
    for one in rounds:
        if any((event.keyspace, event.table) in {table, *parents} for event in one.events):
            return None
        for file in one.files:
            if (file.keyspace, file.table) in parents:
                return None
            if (file.keyspace, file.table) == table:
                marks += _marks(lake, file, compared)
    return np.unique(np.concatenate(marks))


def _marks(lake: Lake, file: ChangeFile, compared: ComparisonSpec) -> list[Words]:
    wanted = [f"{image}.{name}" for image in ("before", "after") for name in compared.key]
    with data_file_errors(lake, file.path, "change"), open_changes(lake, file.path) as stream:
        # Not by a dataset, which takes a point in a name for a field of a struct.
        changes = pq.ParquetFile(stream).read(columns=wanted)
    found = []
    for image in ("before", "after"):
        for chunk in changes.column(image).chunks:
            rows = chunk.drop_null()
            columns = [rows.field(name) for name in compared.key]
            batch = pa.record_batch(columns, names=list(compared.key))
            found.append(compared.keys_of(batch, [file.shard]))
    return found
