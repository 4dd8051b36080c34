"""How far a run's background verification has come: so that the next run goes on from there.

Lives here: when each table was first seen, the one pass that is under way (`Pass`), and the prints
of the keys that it has seen. Does not live here: what passes came to (`comparisons`).

Invariant: a pass says that it has come as far as a bound only when the prints of all keys up to
there are in the lake; killed in between, the piece is read again, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ratchet.store import layout
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake
from ratchet.store.notes import Notes

_SCHEDULE: Final = f"{layout.PASS}/schedule.json"
_STATE: Final = f"{layout.PASS}/pass.json"
_MARKS: Final = f"{layout.PASS}/marks"
_MARK: Final = 8  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One comparison of a whole table, a piece at a time.

    Attributes:
        keyspace: the table's keyspace.
        table: its name.
        dump: id of the dump that its rows are of.
        columns: the columns that are compared.
        shards: those that are read, in this order.
        since: when it began, microseconds UTC.
        begun: the newest round then.
        shard: how many shards are read to their end.
        after: the last key that was read of the next one; None: its beginning.
        pieces: how many pieces there were.
        rows: rows of the source so far.
        differences: rows that differ so far.
        unsettled: rows that changed whenever they were looked at.
        repaired: of those that differed, how many were repaired.
        mending: rows of the next piece that were about to be repaired; a run that ended before it
            looked at them again leaves them here.
        kinds: how many differ in which way.
        examples: some that differ, for people.
        next_at: when the budget allows for more, microseconds UTC.
    """

    keyspace: str
    table: str
    dump: str
    columns: tuple[str, ...]
    shards: tuple[str, ...]
    since: int
    begun: int
    shard: int = 0
    after: tuple[str, ...] | None = None
    pieces: int = 0
    rows: int = 0
    differences: int = 0
    unsettled: int = 0
    repaired: int = 0
    mending: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    next_at: int = 0

    @property
    def name(self) -> str:
        """keyspace.table."""
        return f"{self.keyspace}.{self.table}"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Pass:
        """Read what `asdict` made."""
        lists = {name: tuple(data[name]) for name in ("columns", "shards", "examples")}
        after = data["after"]
        return cls(**{**data, **lists, "after": None if after is None else tuple(after)})


class Passes:
    """The schedule and the pass under way of one lake. For whoever holds the lease."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._notes = Notes(lake)

    def schedule(self) -> dict[str, int]:
        """keyspace.table -> when it was first seen streaming, microseconds UTC."""

        def parse(found: Any) -> dict[str, int]:
            return {str(name): int(at) for name, at in found.items()}

        return self._notes.read(_SCHEDULE, parse, {})

    def save_schedule(self, schedule: dict[str, int]) -> None:
        """Replace it."""
        self._lake.write_json(self._notes.own(_SCHEDULE), schedule)

    def last(self) -> Pass | None:
        """The pass under way; None if there is none."""
        return self._notes.read(_STATE, Pass.from_json, None)

    def begin(self, begun: Pass) -> Pass:
        """Begin one; what is left of another goes."""
        self.end()
        return self.save(begun)

    def save(self, progress: Pass) -> Pass:
        """Note how far it has come; gives it back."""
        self._lake.write_json(self._notes.own(_STATE), asdict(progress))
        return progress

    def add(self, progress: Pass, marks: npt.NDArray[np.uint64]) -> Pass:
        """Keep the marks of one more piece; the pass with it is still to be saved."""
        if len(marks):
            path = self._notes.own(f"{_MARKS}/{progress.pieces:09d}")
            with lake_errors("write a file", path), self._lake.open_output(path) as sink:
                sink.write(marks.astype("<u8").tobytes())
        return replace(progress, pieces=progress.pieces + 1, rows=progress.rows + len(marks))

    def marks(self, progress: Pass) -> Iterator[npt.NDArray[np.uint64]]:
        """The marks of each piece of the pass."""
        folder = self._notes.path(_MARKS)
        upto = f"{folder}/{progress.pieces:09d}"
        for file in sorted(self._lake.list(folder), key=lambda file: file.path):
            if file.path < upto:  # a kill may have left one that the pass does not know of
                with lake_errors("read a file", file.path), self._lake.open_input(file.path) as s:
                    found = s.read()
                # A torn file lacks some: rows without a mark are only looked at once more.
                whole = len(found) - len(found) % _MARK
                yield np.frombuffer(found[:whole], "<u8").astype(np.uint64)

    def end(self) -> None:
        """There is no pass under way any more."""
        self._lake.delete(self._notes.own(_STATE))
        self._lake.delete_folder(self._notes.own(_MARKS))
