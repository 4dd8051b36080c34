"""How the last run of a lake ended, if an error ended it: one JSON file.

Lives here: the record and its file. Does not live here: tables that stopped, which have states
(`tables`).

Invariant: it is about the last run. One that begins removes it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from store import layout
from store.failures import sound
from store.files import Lake
from store.notes import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """An error that ended a run.

    Attributes:
        command: which command it was, such as "run".
        at: when, microseconds UTC.
        exit_code: its exit code.
        message: the error.
        hint: what to do about it; may be empty.
    """

    command: str
    at: int
    exit_code: int
    message: str
    hint: str


class Endings:
    """That of one lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._notes = Notes(lake)

    def last(self) -> Ending | None:
        """How the last run ended; None: it goes on, was told to end, was killed, or was done."""
        found = self._lake.read_json(self._notes.path(layout.ENDING_FILE))
        with sound(layout.ENDING_FILE):
            return None if found is None else Ending(**found)

    def save(self, ending: Ending) -> None:
        """Note it."""
        self._lake.write_json(self._notes.own(layout.ENDING_FILE), asdict(ending))

    def clear(self) -> None:
        """A run begins."""
        self._lake.delete(self._notes.own(layout.ENDING_FILE))
