"""When tables were written last by sessions that do not look at foreign keys, or got new keys.

Lives here: the record and its file. Does not live here: what follows of it
(`merge.cascades.openparents`).

Invariant: written by the run alone, before a cut holds what it tells of; moments only grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes

Unchecked = Mapping[tuple[str, str], int]  # keyspace.table and shard -> microseconds UTC


def read_unchecked(lake: Lake) -> dict[tuple[str, str], int]:
    """What was noted.

    Raises:
        LakeError: the lake cannot be read.
    """

    def parse(found: Any) -> dict[tuple[str, str], int]:
        return {
            (table, shard): int(moment)
            for table, shards in found.items()
            for shard, moment in shards.items()
        }

    return Notes(lake).read(layout.UNCHECKED_FILE, parse, {})


def note_unchecked(lake: Lake, moments: Unchecked) -> None:
    """Note all there is.

    Raises:
        LakeError: the lake cannot be written.
    """
    tables: dict[str, dict[str, int]] = {}
    for (table, shard), moment in sorted(moments.items()):
        tables.setdefault(table, {})[shard] = moment
    lake.write_json(Notes(lake).own(layout.UNCHECKED_FILE), tables)
