"""How many columns a stream's decoders know, and of how many of them a newer shape has come.

Lives here: `ShapeCount`. Does not live here: the decoders (`binlog.slots`, `vstream.tables`).
"""

from __future__ import annotations

from typing import Final

# What is known of a column takes some 1.6 KB (a table map of 1,000 INTs: 0.36 MB, its decoder 1.2).
MOST_OLD: Final = 20_000


class ShapeCount:
    """Counts. A table that is altered all the time would fill the memory with its old shapes."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._live = 0
        self._all = 0

    @property
    def has_many_old(self) -> bool:
        """Whether it pays to begin without any: what is in use has to be read again then."""
        return self._all - self._live > max(MOST_OLD, self._live)

    def add(self, table: str, columns: int) -> None:
        """A table has a shape of so many columns from now on."""
        self._live += columns - self._newest.get(table, 0)
        self._newest[table] = columns
        self._all += columns
