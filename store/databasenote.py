"""The note of which database each shard's tables were read from.

A source whose `database` is another one by now has tables of the same names, and other rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.store import layout
from ratchet.store.fields import text_of
from ratchet.store.files import Lake
from ratchet.store.notes import Notes


def read_databases(lake: Lake) -> dict[str, str]:
    """ShardId as text -> its database, by the last run's note."""

    def parse(note: Any) -> dict[str, str]:
        return {str(shard): text_of(note, shard) for shard, _ in note.items()}

    return Notes(lake).read(layout.DATABASES_FILE, parse, {})


def note_databases(lake: Lake, databases: Mapping[str, str]) -> None:
    """Write down which databases the tables are read from, from now on.

    Args:
        lake: the lake, which must be held.
        databases: ShardId as text -> its database; what is noted of other shards stays.
    """
    before = read_databases(lake)
    now = {**before, **databases}
    if now != before:
        lake.write_json(Notes(lake).own(layout.DATABASES_FILE), now)
