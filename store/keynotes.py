"""The foreign keys of all tables of a keyspace, as its servers had them at a run's last look.

Lives here: the record and its file. Does not live here: reading the servers
(`jobs.preflight.foreignkeys`), following the keys (`merge.cascades`), and the keys of a table past
its dump, which its own state has (`tables`).

Invariant: written by the run alone, behind the states that it leads to; a keyspace that is not in
it has not been looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ratchet.core.foreignkeys import ForeignKey
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes

KeyNotes = Mapping[str, Mapping[str, tuple[ForeignKey, ...]]]  # by keyspace, by table

NO_KEY_NOTES: Final[KeyNotes] = {}


def read_key_notes(lake: Lake) -> KeyNotes:
    """What was noted last; tables without keys are left out.

    Raises:
        LakeError: the lake cannot be read.
    """

    def parse(found: Any) -> KeyNotes:
        return {
            keyspace: {
                table: tuple(ForeignKey.from_json(key) for key in keys)
                for table, keys in tables.items()
            }
            for keyspace, tables in found.items()
        }

    return Notes(lake).read(layout.FOREIGN_KEYS_FILE, parse, NO_KEY_NOTES)


def note_keys(lake: Lake, notes: KeyNotes) -> None:
    """Note the keys of some keyspaces, if they are others than before.

    Raises:
        LakeError: the lake cannot be written.
    """
    before = read_key_notes(lake)
    after = {**before, **notes}
    if after != before:
        lake.write_json(
            Notes(lake).own(layout.FOREIGN_KEYS_FILE),
            {
                keyspace: {table: [key.to_json() for key in keys] for table, keys in tables.items()}
                for keyspace, tables in after.items()
            },
        )
