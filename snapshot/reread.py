"""Reading single rows of the source again, by their keys.

Lives here: what a verification needs to settle keys that change while it looks at them.

Invariant: what was seen of a key comes with the floor of the read that saw it; `end` contains all
that any of the reads may have shown.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ratchet.core.position import Position
from ratchet.core.types import InvalidValuePolicy
from ratchet.snapshot.judge import PointRead
from ratchet.snapshot.reader import check_since
from ratchet.snapshot.records import DumpSettings, ShardSource
from ratchet.snapshot.rows import Row, frozen_row, key_literal
from ratchet.snapshot.sessions import open_session
from ratchet.snapshot.source import SourceTable
from ratchet.snapshot.source_df import seen_positions
from ratchet.wire.decode.text import TextRowDecoder
from ratchet.wire.session import Session, quoted

_STATEMENT: Final = 200  # keys asked for in one SELECT
_READ: Final = 4_000  # keys asked for in one consistent read


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadRows:
    """What the source showed of some keys.

    Attributes:
        seen: shard -> frozen key -> what was seen of it.
        end: shard -> position that contains everything that was shown.
    """

    seen: Mapping[str, Mapping[Row, PointRead]]
    end: Mapping[str, Position]


def read_keys(
    keys: Sequence[Mapping[str, Any]],
    *,
    tables: Mapping[str, SourceTable],
    shards: Mapping[str, ShardSource],
    columns: Sequence[str],
    settings: DumpSettings,
    since: Mapping[str, Position] | None = None,
    stop: threading.Event | None = None,
) -> RereadRows:
    """Read rows of the source by key, on every shard of the table.

    Args:
        keys: values of the key's columns as the lake has them.
        tables: ShardId as text -> the table there.
        shards: ShardId as text -> its source.
        columns: the columns of the frozen rows, in order.
        settings: how the source is read: the throttle, and what becomes of values.
        since: shard -> what its rows must contain, where they come by a vtgate, each read from any
            of its tablets.
        stop: when set, a read that the throttle holds back ends with RetryableError.

    Raises:
        RetryableError: a server does not answer, lacks `since`, or it was told to stop.
        TableStoppedError: the table is gone or has changed.
    """
    seen: dict[str, dict[Row, PointRead]] = {shard: {} for shard in tables}
    for shard, table in tables.items():
        config = shards[shard].config
        floor = since.get(shard) if since and config.target else None
        with open_session(config, table=table.schema.name) as session:
            for group in _batches(keys, _READ):
                settings.throttle.wait(shards[shard], stop)
                with session.snapshot() as snapshot:
                    check_since(snapshot, floor, source=config, table=table.schema.name)
                    found: dict[Row, Row] = {}
                    # A key with a NULL in it, which a damaged mirror may have, no source has.
                    asked = [key for key in group if None not in key.values()]
                    for part in _batches(asked, _STATEMENT):
                        found |= _select(session, table, part, columns, settings.policy)
                settings.throttle.count(len(asked))
                for key in group:
                    name = frozen_row(key, table.schema.key)
                    assert name is not None  # noqa: S101 - keys are rows
                    seen[shard][name] = PointRead(row=found.get(name), floor=snapshot.floor)
    return RereadRows(seen=seen, end=seen_positions(shards, tables))


def _select(
    session: Session,
    table: SourceTable,
    keys: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    policy: InvalidValuePolicy,
) -> dict[Row, Row]:
    schema, plan = table.schema, table.plan
    decoder = TextRowDecoder(schema, policy)
    names = [(schema.column(name), plan.collations.get(name, "")) for name in schema.key]
    wanted = (
        " AND ".join(f"{quoted(c.name)} = {key_literal(c, key[c.name], by)}" for c, by in names)
        for key in keys
    )
    sql = (
        f"SELECT {', '.join(decoder.select_list)} FROM {quoted(plan.database)}."
        f"{quoted(plan.table)} WHERE ({') OR ('.join(wanted)})"
    )
    found: dict[Row, Row] = {}
    with session.stream_rows(sql) as rows:
        for buffer, start, end in rows:
            for row in decoder.decode(np.asarray(buffer), start, end).batch.to_pylist():
                key, values = frozen_row(row, schema.key), frozen_row(row, columns)
                assert key is not None and values is not None  # noqa: S101, PT018 - rows
                found[key] = values  # also of a key that nobody asked for, see `key_literal`
    return found


def _batches(keys: Sequence[Mapping[str, Any]], size: int) -> Sequence[Sequence[Mapping[str, Any]]]:
    return [keys[at : at + size] for at in range(0, len(keys), size)]
