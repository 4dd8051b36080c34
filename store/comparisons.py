"""What the last comparison of each table with its source came to: one JSON file per table.

Lives here: the record and its file. Does not live here: comparing (`jobs.watch.doubts`,
`jobs.watch.background`), the tables' states (`tables`), which only the merge may write.

Invariant: a record is written by whoever compares, who holds the lease; it says what was found and
changes nothing of the table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ratchet.core.errors import DecodeError
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes
from ratchet.store.tables import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One comparison of a whole table with its source.

    Attributes:
        keyspace: the table's keyspace.
        table: its name.
        dump: id of the dump that its rows are of.
        since: when the comparison began, microseconds UTC.
        until: when it ended: what it found is true as of then.
        round: the round of the newest cut that it looked at.
        positions: shard -> that cut's position, in the server's notation.
        rows: rows of the source.
        differences: rows that differ.
        unsettled: rows without a verdict, as they changed whenever they were looked at.
        kinds: of those that differ, how many are missing, extra, changed or doubled.
        examples: some of them, for people.
        repaired: rows that were found to differ and were repaired since.
    """

    keyspace: str
    table: str
    dump: str
    since: int
    until: int
    round: int
    positions: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    differences: int = 0
    unsettled: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    repaired: int = 0

    @property
    def name(self) -> str:
        """keyspace.table."""
        return f"{self.keyspace}.{self.table}"

    @property
    def equal(self) -> bool:
        """Whether no row was found to differ."""
        return not self.differences

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Comparison:
        """Read what `asdict` made."""
        return cls(**{**data, "examples": tuple(data["examples"])})


class Comparisons:
    """The records of one lake. Every call looks at the files."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._notes = Notes(lake)

    def last(self, keyspace: str, table: str) -> Comparison | None:
        """The newest one of a table; None if it was never compared."""
        path = layout.verified_path(keyspace, table)

        def parse(data: Any) -> Comparison:
            found = Comparison.from_json(data)
            if (found.keyspace, found.table) != (keyspace, table):
                raise DecodeError(f"it is that of {found.name}")
            return found

        return self._notes.read(path, parse, None)

    def of(self, state: TableState) -> Comparison | None:
        """The newest one of a table that streams, since its last dump; None if there is none."""
        found = self.last(state.keyspace, state.table)
        dump = state.dump.id if state.dump else ""
        stands = state.phase == "streaming" and found is not None and found.dump == dump
        return found if stands else None

    def save(self, comparison: Comparison) -> Comparison:
        """Replace the table's record; gives it back."""
        path = layout.verified_path(comparison.keyspace, comparison.table)
        self._lake.write_json(self._notes.own(path), asdict(comparison))
        return comparison
