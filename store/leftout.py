"""Tables that the config names and a run does not mirror: one JSON file, as of its last look.

Lives here: the record and its file. Does not live here: finding them (`jobs.preflight.leftout`),
and tables that stopped, which have states (`tables`).

Invariant: written by the run alone, which holds the lease; it changes nothing of what is mirrored.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutTable:
    """One table.

    Attributes:
        keyspace: its keyspace.
        table: its name.
        reason: why it is not mirrored.
        hint: what to do about it.
    """

    keyspace: str
    table: str
    reason: str
    hint: str

    @property
    def name(self) -> str:
        """keyspace.table, for messages."""
        return f"{self.keyspace}.{self.table}"


class LeftOutTables:
    """Those of one lake. Every call looks at the file."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def list(self) -> tuple[LeftOutTable, ...]:
        """What the last look of a run found, by name."""

        def parse(found: Any) -> tuple[LeftOutTable, ...]:
            return tuple(LeftOutTable(**one) for one in found["tables"])

        return Notes(self._lake).read(layout.LEFT_OUT_FILE, parse, ())

    def save(self, tables: Collection[LeftOutTable]) -> None:
        """Replace them, if they are others than before."""
        wanted = tuple(sorted(tables, key=lambda one: one.name))
        if wanted != self.list():
            self._lake.write_json(
                Notes(self._lake).own(layout.LEFT_OUT_FILE),
                {"tables": [asdict(one) for one in wanted]},
            )
