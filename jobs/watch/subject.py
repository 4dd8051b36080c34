"""A table as a pass of the background verification compares it: all that stays the same.

Does not live here: whether columns are still the source's (`likeness`), comparing (`background`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from ratchet.core.errors import TableStoppedError
from ratchet.core.types import arrow_schema
from ratchet.jobs.inspect.likeness import unlike
from ratchet.jobs.inspect.reading import ReadOptions
from ratchet.snapshot.piecewise import ComparisonSpec
from ratchet.snapshot.prints import RowHasher
from ratchet.snapshot.records import TableDumpRequest
from ratchet.snapshot.source import SourceTable
from ratchet.snapshot.source_df import source_tables
from ratchet.store.rounds import StreamState
from ratchet.store.tables import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A table as a pass compares it.

    Attributes:
        state: as the pass began.
        wanted: the table and its shards.
        sources: ShardId as text -> the table there.
        columns: the source's columns, as the lake has them.
        compared: what of them is compared.
    """

    state: TableState
    wanted: TableDumpRequest
    sources: Mapping[str, SourceTable]
    columns: tuple[str, ...]
    compared: ComparisonSpec


def subject_of(
    state: TableState,
    wanted: TableDumpRequest,
    reading: ReadOptions,
    streams: Mapping[str, StreamState],
) -> Subject:
    """What is to be compared of a table.

    Args:
        state: as it is.
        wanted: the shards that have it now.
        reading: how sources are read.
        streams: ShardId as text -> its stream.

    Raises:
        TableStoppedError: the source does not have it any more, or has other columns.
        RetryableError: a server does not answer.
    """
    why = unlike(state, wanted, reading) if wanted.shards else "the source no longer has it"
    if why:
        raise TableStoppedError(why, operation="compare with the source", table=state.name)
    policy = reading.settings.policy
    sources, columns = source_tables(wanted, reading.shards, policy, key=state.key)
    have = arrow_schema(state.whole, policy).names
    return Subject(
        state=state,
        wanted=wanted,
        sources=sources,
        columns=tuple(columns.names),
        compared=ComparisonSpec(
            printer=RowHasher(
                types=pa.schema([one for one in columns if one.name in have]), key=state.key
            ),
            lacking=tuple(name for name in columns.names if name not in have),
            homes={s: {s, *streams[s].ancestors} for s in wanted.shards if s in streams},
            shard_in_key=state.shard_in_key,
        ),
    )
