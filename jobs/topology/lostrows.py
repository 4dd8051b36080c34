"""Which rows of the mirror a server's lost transactions have touched, by the change log.

Lives here: the keys, and why a table's rows cannot be healed one by one. Does not live here:
healing them (`rowheal`), where the histories part (`parting`).

All that the mirror took from a shard behind the parting counts as lost, whether it is or not: a row
that is read again for nothing costs one row. What a table has by another way than the log (a
chunk of its dump, a repair) may be of lost transactions as well, and no key tells which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.core.errors import LakeError
from ratchet.core.rounds import ChangeFile, Round
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.topology.parting import DivergencePoint
from ratchet.merge.cascades.concern import concerned
from ratchet.merge.cascades.graph import read_graph
from ratchet.merge.repair import newest_repair
from ratchet.snapshot.rows import frozen_row
from ratchet.store.batches import row_batches
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake
from ratchet.store.segments import missing, object_of, open_changes
from ratchet.store.tables import Tables, TableState

MOST_ROWS: Final = 200_000  # changes of a table; reading more rows one by one costs like a dump
MOST_BYTES: Final = 512 << 20  # of their files

Keys = Mapping[str, Sequence[Mapping[str, Any]]]  # by shard


def lost_files(
    state: TableState, rounds: Iterable[Round], parted: Mapping[str, int]
) -> list[ChangeFile]:
    """The change files of a table that come from behind the partings.

    Args:
        state: the table.
        rounds: all rounds behind the earliest parting, up to where the streams begin anew.
        parted: shard -> round of its parting.
    """
    return [
        file
        for value in rounds
        for file in value.files
        if (file.keyspace, file.table) == (state.keyspace, state.table)
        and value.number > parted.get(file.shard, value.number)
    ]


def why_a_dump(
    lake: Lake,
    state: TableState,
    rounds: Sequence[Round],
    partings: Mapping[str, DivergencePoint],
    policy: InvalidValuePolicy,
) -> str:
    """Why a table's rows cannot be healed one by one; empty if they can.

    Args:
        lake: the lake.
        state: the table.
        rounds: all rounds behind the earliest parting.
        partings: shard -> where its history and the mirror's part.
        policy: decides about the lake's types.

    Raises:
        LakeError: the lake cannot be read.
    """
    if state.phase != "streaming" or state.dump is None:
        return f"it is in phase {state.phase}"
    for shard, parting in partings.items():
        shown = (state.dump.end or {}).get(shard) or state.dump.start.get(shard)
        if shown is None or not parting.position.executed.contains_all(shown.executed):
            return "its dump may have read what was lost"
    if newest_repair(lake, state) > min(parting.round for parting in partings.values()):
        return "it was repaired since"
    parted = {shard: parting.round for shard, parting in partings.items()}
    if parent := _followed(lake, state, rounds, parted, policy):
        return f"foreign keys changed its rows because of what was lost of {parent}"
    statement = next(_statements(state, rounds, parted), "")
    if statement:
        return f"what was lost includes: {statement[:100]}"
    return too_much(lake, lost_files(state, rounds, parted))


def _followed(
    lake: Lake,
    state: TableState,
    rounds: Iterable[Round],
    parted: Mapping[str, int],
    policy: InvalidValuePolicy,
) -> str:
    """A parent by whose lost changes foreign keys may have changed rows of the table, unlogged."""
    if not state.foreign_keys:
        return ""
    graph = read_graph(lake, Tables(lake).list())
    lost = [
        file
        for value in rounds
        for file in value.files
        if value.number > parted.get(file.shard, value.number)
    ]
    return concerned(lake, policy, graph, lost).get(state.name, "")


def too_much(lake: Lake, files: Sequence[ChangeFile]) -> str:
    """Why the keys of change files cannot be read, or should not be; empty if they can."""
    rows = sum(file.rows for file in files)
    if rows > MOST_ROWS or sum(file.bytes for file in files) > MOST_BYTES:
        return f"{rows:,} changes of it were lost"
    lost = missing(lake, (file.path for file in files))
    return f"{object_of(lost[0])} is no longer kept" if lost else ""


def _statements(
    state: TableState, rounds: Iterable[Round], parted: Mapping[str, int]
) -> Iterator[str]:
    """What was done to a table behind the partings other than row by row."""
    for value in rounds:
        for event in value.events:
            mine = (event.keyspace, event.table) == (state.keyspace, state.table)
            if mine and value.number > parted.get(event.shard, value.number):
                yield event.statement


def lost_keys(lake: Lake, state: TableState, files: Iterable[ChangeFile]) -> Keys:
    """The keys that change files name, before and after each change; each once per shard.

    Raises:
        LakeError: a file cannot be read.
    """
    found: dict[str, dict[Any, Mapping[str, Any]]] = {}
    for file in files:
        mine = found.setdefault(file.shard, {})
        for key in _keys(lake, file, state.key):
            mine[frozen_row(key, state.key)] = key
    return {shard: list(keys.values()) for shard, keys in found.items()}


def _keys(lake: Lake, file: ChangeFile, names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    with data_file_errors(lake, file.path, "change"), open_changes(lake, file.path) as source:
        for batch in row_batches(pq.ParquetFile(source), ["before", "after"]):
            for image in ("before", "after"):
                rows = pa.RecordBatch.from_struct_array(batch.column(image).drop_null())
                if missing := set(names) - set(rows.schema.names):
                    raise LakeError(
                        f"{file.path} lacks the key's columns {', '.join(sorted(missing))}",
                        operation="read the change log",
                        table=f"{file.keyspace}.{file.table}",
                        hint="dump the table again: `ratchet table CONFIG redump TABLE`",
                    )
                yield from rows.select(list(names)).to_pylist()
