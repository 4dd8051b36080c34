"""Tables whose files are being removed: one small note per table, from before its state goes.

Lives here: the note. Does not live here: the removal (`jobs.run.serving`), what a new dump makes of
the note (`anew.end_removal`).

Invariant: a table without a state whose files somebody removes has a note. So a successor knows of
a removal that a run has begun which stands still now; it cannot know whether it will wake.
"""

from __future__ import annotations

from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes


class Removals:
    """Those of one lake. Every call looks at the lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._notes = Notes(lake)

    def begin(self, keyspace: str, table: str) -> None:
        """Call before the table's state is removed.

        Raises:
            LakeError: the lake cannot be written.
        """
        path = layout.removal_path(keyspace, table)
        self._lake.write_json(self._notes.own(path), {"table": f"{keyspace}.{table}"})

    def is_begun(self, keyspace: str, table: str) -> bool:
        """Whether its files are being removed, or somebody was killed or stands still amid it."""
        return self._lake.is_file(self._notes.path(layout.removal_path(keyspace, table)))

    def end(self, keyspace: str, table: str) -> None:
        """They are gone, or are to stay."""
        self._lake.delete(self._notes.own(layout.removal_path(keyspace, table)))
