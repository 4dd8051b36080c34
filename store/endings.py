"""How the last run of a lake ended, if an error ended it, and what it goes on without: JSON files.

Lives here: the records and their files. Does not live here: tables that stopped, which have states
(`tables`).

Invariant: they are about the last run. One that begins removes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """An error that ended a run, or a run's part that reads one source.

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
        return self._notes.read(layout.ENDING_FILE, lambda found: Ending(**found), None)

    def save(self, ending: Ending) -> None:
        """Note it."""
        self._lake.write_json(self._notes.own(layout.ENDING_FILE), asdict(ending))

    def aside(self) -> dict[str, Ending]:
        """Keyspace -> why the last run went on without it, and was when it ended, if it has."""

        def parse(found: Any) -> dict[str, Ending]:
            return {keyspace: Ending(**one) for keyspace, one in found.items()}

        return self._notes.read(layout.ASIDE_FILE, parse, {})

    def save_aside(self, aside: Mapping[str, Ending]) -> None:
        """Note all of those that a run goes on without now."""
        noted = {keyspace: asdict(one) for keyspace, one in aside.items()}
        self._lake.write_json(self._notes.own(layout.ASIDE_FILE), noted)

    def clear(self) -> None:
        """A run begins."""
        for path in (layout.ENDING_FILE, layout.ASIDE_FILE):
            self._lake.delete(self._notes.own(path))
