"""Tables whose files are being removed, or were: one small note per table.

Lives here: the note. Does not live here: the removal (`jobs.run.serving`), what a new dump makes of
the note (`anew.end_removal`).

The note is there before the table's state goes, and stays until another log has begun in the place
of the old one, above its numbers.

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

    def begin(self, keyspace: str, table: str, *, last: int = -1) -> None:
        """Call before the table's state is removed.

        Args:
            keyspace: its keyspace.
            table: its name.
            last: the highest number in its log; -1: there is none.

        Raises:
            LakeError: the lake cannot be written.
        """
        path = layout.removal_path(keyspace, table)
        note = {"table": f"{keyspace}.{table}", "last": max(last, self.last(keyspace, table))}
        self._lake.write_json(self._notes.own(path), note)

    def is_begun(self, keyspace: str, table: str) -> bool:
        """Whether its files were removed, or are being, or somebody was killed amid it."""
        return self._lake.is_file(self._notes.path(layout.removal_path(keyspace, table)))

    def last(self, keyspace: str, table: str) -> int:
        """The highest number of a log that was removed, or is being removed; -1: not known.

        Raises:
            LakeError: the lake cannot be read.
        """
        path = layout.removal_path(keyspace, table)
        return self._notes.read(path, lambda found: int(found.get("last", -1)), -1)

    def end(self, keyspace: str, table: str) -> None:
        """Another log has taken the place of the one that was removed."""
        self._lake.delete(self._notes.own(layout.removal_path(keyspace, table)))
