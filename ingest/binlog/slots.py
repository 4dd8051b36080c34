"""The table maps a stream has shown, numbered, in the form that the walker's kernel compares with.

Lives here: `TableMapCache`, a registry of table maps by their bytes. Does not live here: parsing
one (`wire.decode.tablemap`).

Invariant: a slot stands for one table map, byte by byte. A table id that comes to mean another
map (ids begin anew when a server restarts) gets another slot, because the bytes are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ratchet.core.errors import DecodeError, SourceUnfitError, TableStoppedError
from ratchet.core.filenames import may_stand_for, stands_for
from ratchet.core.gtid import Flavor
from ratchet.core.patterns import TablePatterns
from ratchet.core.shard import ShardId
from ratchet.core.vitess import is_internal
from ratchet.ingest.binlog.notes import Bytes
from ratchet.ingest.shapes import ShapeCount
from ratchet.wire.decode.tablemap import TableMap, is_sequence, parse_table_map

_FREE: Final = -1
_GONE: Final = -2  # the place of an id that was taken out: others may stand behind it
# More maps, or bytes of them, are not kept: a table that is altered has another map each time.
MOST_MAPS: Final = 10_000
MOST_BYTES: Final = 32 << 20
# They are needed until their transaction has ended. One that has so many times more of them is none
# that a server writes.
_OPEN: Final = 4
# Columns of new maps, behind which a slice ends. Each takes a tenth of a millisecond to decode and
# to write for the first time, so a thousand wide tables that are altered would hold up the round.
MOST_NEW_COLUMNS: Final = 8_000


class Catalog(Protocol):
    """What the log does not tell about tables."""

    def hints(self, table: str) -> Mapping[str, str]:
        """Column hints for a table (see parse_table_map); none of one that is not known.

        Raises:
            TableStoppedError: it cannot be mirrored.
        """

    def spelling(self, table: str) -> str:
        """The server's own spelling of a table; asked where letter case does not count."""

    def forget(self, table: str) -> None:
        """The table may have changed."""

    def folds(self) -> bool | None:
        """Whether names of tables are compared without regard to case; None: not known."""

    def is_plain(self, database: str, table: str) -> bool:
        """Whether it is sure that changes of this table lead to no other."""

    def is_base(self, table: str) -> bool:
        """Whether a name is that of a table now, and not of a view; False if nobody can tell."""

    def base_tables(self) -> frozenset[str]:
        """The names of the database's tables as they are now, without views."""


class TableMapCache:
    """A registry of table maps.

    Attributes:
        maps: slot -> table map; None for tables that are not mirrored.
        ids: see places.Arrays, as are the other arrays.
    """

    def __init__(
        self,
        *,
        shard: ShardId,
        database: str,
        patterns: TablePatterns,
        flavor: Flavor,
        catalog: Catalog,
        sidecar: tuple[str, frozenset[str]] = ("", frozenset()),
        last: str = "",
    ) -> None:
        """Begin without any.

        Args:
            shard: whose stream it is.
            database: the database whose tables are mirrored.
            patterns: which of its tables.
            flavor: the stream's.
            catalog: what the log does not tell.
            sidecar: a database and which of its tables are read besides.
            last: the one of these that has to be looked at at its first rows in a slice.
        """
        self._sidecar, self._last = sidecar, last
        self._shard = shard
        self._database = database
        self._patterns = patterns
        self._flavor = flavor
        self._catalog = catalog
        self._by_body: dict[bytes, int] = {}
        self._bodies_of: dict[str, list[bytes]] = {}  # of a name, those there were
        self._used = 0
        self._new_columns = 0
        self._shapes = ShapeCount()
        self._seen: set[str] = set()  # names of tables that are mirrored
        self._unread: set[bytes] = set()  # bodies of maps that do not say enough
        self._unreadable: list[tuple[str, TableStoppedError]] = []
        self.maps: list[TableMap | None] = []
        self.ids = np.full(256, _FREE, np.int64)
        self.slots = np.zeros(256, np.int32)
        self.targets = np.zeros(0, np.uint8)
        self.bodies: Bytes = np.zeros(0, np.uint8)  # with room for more, as the two others
        self.starts = np.zeros(1, np.int64)

    @property
    def tables(self) -> set[str]:
        """Names of mirrored tables that have been seen."""
        return self._seen

    @property
    def is_full(self) -> bool:
        """Whether to `clear` as soon as no row event refers to a slot."""
        size = int(self.starts[len(self.maps)])
        return len(self.maps) > MOST_MAPS or size > MOST_BYTES or self._shapes.has_many_old

    @property
    def has_many_new(self) -> bool:
        """Whether the maps that have come since `count_anew` are enough for a slice."""
        return self._new_columns >= MOST_NEW_COLUMNS

    def count_anew(self) -> None:
        """A slice begins."""
        self._new_columns = 0

    def clear(self) -> None:
        """Begin without any; names that were seen stay."""
        self._by_body.clear()
        self._bodies_of.clear()
        self._unread.clear()
        self._shapes = ShapeCount()
        self.maps = []
        self.targets = np.zeros(0, np.uint8)
        self.bodies = np.zeros(0, np.uint8)
        self.starts = np.zeros(1, np.int64)
        self.clear_ids()

    def register(self, body: bytes) -> bool:
        """Give the table id in this TABLE_MAP body its slot; whether it is the `last` table.

        Raises:
            DecodeError, SourceUnfitError: see parse_table_map.
        """
        number = int.from_bytes(body[:6], "little")
        slot = self._by_body.get(body[8:])
        if slot is None:
            slot = self._add(body)
        self._put(number, slot)
        return self._is_last(slot)

    def ask_for_last(self) -> None:
        """See to it that `register` is called when the `last` table comes again."""
        for slot in set(self._by_body.values()):
            if self._is_last(slot):
                self._unlink(slot)

    def take_unreadable(self) -> list[tuple[str, TableStoppedError]]:
        """Mirrored tables whose maps came since this was last asked, and do not say enough."""
        found, self._unreadable = self._unreadable, []
        return found

    def ask_for_unreadable(self) -> None:
        """See to it that `register` is called when such a map comes again."""
        for body in self._unread:
            self._unlink(self._by_body.pop(body))
        self._unread.clear()

    def slot_of(self, number: int) -> int:
        """The slot of a table id; -1 if it has none."""
        at = self._place(number)
        return int(self.slots[at]) if self.ids[at] == number else -1

    def forget(self, table: str) -> None:
        """Parse the table's map anew when it comes again, even if its bytes are the same."""
        self._catalog.forget(table)
        for body in self._bodies_of.pop(self._fold(table), ()):
            slot = self._by_body.pop(body, None)
            if slot is not None:
                self._unread.discard(body)
                self._unlink(slot)

    def clear_ids(self) -> None:
        """All table ids are void: another file, perhaps another life of the server."""
        self.ids[:] = _FREE
        self._used = 0

    def _is_last(self, slot: int) -> bool:
        found = self.maps[slot]
        return found is not None and (found.database, found.table) == (self._sidecar[0], self._last)

    def _unlink(self, slot: int) -> None:
        self.ids[(self.ids >= 0) & (self.slots == slot)] = _GONE

    def _add(self, body: bytes) -> int:
        try:
            found = self._parse(body)
        except TableStoppedError as error:
            found = None
            database, table = self._named(body[8:])
            if database == self._sidecar[0]:
                raise SourceUnfitError(error.message, table=table, hint=error.hint) from error
            self._unread.add(body[8:])
            self._unreadable += [(one, error) for one in self._meant(table)]
        slot = len(self.maps)
        if slot >= _OPEN * MOST_MAPS or int(self.starts[slot]) >= _OPEN * MOST_BYTES:
            raise DecodeError(
                f"one transaction has {slot:,} table maps of {int(self.starts[slot]):,} bytes",
                operation="read a table map",
                hint="look at what stands between Ratchet and the server: no server writes that",
            )
        self.maps.append(found)
        if found is not None and found.database != self._sidecar[0]:
            self._seen.add(found.table)
            self._new_columns += len(found.columns)
            self._shapes.add(found.table, len(found.columns))
        self._by_body[body[8:]] = slot
        self._bodies_of.setdefault(self._fold(self._named(body[8:])[1]), []).append(body[8:])
        begin = int(self.starts[slot])
        end = begin + len(body) - 8
        self.targets = _with_room(self.targets, slot + 1)
        self.starts = _with_room(self.starts, slot + 2)
        self.bodies = _with_room(self.bodies, end)
        self.targets[slot] = found is not None
        self.starts[slot + 1] = end
        self.bodies[begin:end] = np.frombuffer(body[8:], np.uint8)
        return slot

    def _parse(self, body: bytes) -> TableMap | None:
        database, table = self._named(body[8:])
        if database == self._sidecar[0] and table in self._sidecar[1]:
            return parse_table_map(body, keyspace=database, flavor="mysql")
        own = self._fold(database) == self._fold(self._database)
        if own and self._is_unclear(table):
            raise TableStoppedError(
                f"rows were written under the name of a file, {table}, which may mean it",
                operation="read a table map",
                hint="write to tables by their own names; then `ratchet table CONFIG redump TABLE`",
            )
        if not own or not self._patterns.captures(table):
            return None
        if self._sidecar[0] and is_internal(table):
            return None
        if self._patterns.folded:
            table = self._catalog.spelling(table)
        hints = self._catalog.hints(table)
        flavor: Literal["mysql", "mariadb"] = "mariadb" if self._flavor == "mariadb" else "mysql"
        found = parse_table_map(body, keyspace=self._shard.keyspace, hints=hints, flavor=flavor)
        if flavor == "mariadb" and is_sequence(column.name for column in found.schema.columns):
            return None
        return replace(found, table=table, schema=replace(found.schema, table=table))

    def _named(self, body: bytes) -> tuple[str, str]:
        """(database, table) of a table map's body without its first 8 bytes."""
        database, table = _names(body, operation="read a table map")
        if self._flavor != "mariadb":
            return database, table
        if stands_for(database) is None and may_stand_for(database, [self._database]):
            database = self._database
        return stands_for(database) or database, stands_for(table) or table

    def _is_unclear(self, table: str) -> bool:
        """Whether it is the name of a file, and not known for which table that stands."""
        return self._flavor == "mariadb" and stands_for(table) is None

    def _meant(self, table: str) -> list[str]:
        """The tables that a name is that of, or may stand for, in the server's spelling."""
        if self._is_unclear(table):
            tables = sorted(self._catalog.base_tables())
            return [one for one in may_stand_for(table, tables) if self._patterns.captures(one)]
        return [self._catalog.spelling(table) if self._patterns.folded else table]

    def _fold(self, name: str) -> str:
        """A name as it is compared."""
        return name.lower() if self._patterns.folded else name

    def _put(self, number: int, slot: int) -> None:
        if self._used * 2 >= self.ids.size:
            live = self.ids >= 0
            old = list(zip(self.ids[live].tolist(), self.slots[live].tolist(), strict=True))
            size = self.ids.size * (2 if 4 * len(old) >= self.ids.size else 1)
            self.ids = np.full(size, _FREE, np.int64)
            self.slots = np.zeros(size, np.int32)
            self._used = 0
            for known, its in old:
                self._put(known, its)
        at = self._place(number)
        self._used += int(self.ids[at] == _FREE)
        self.ids[at] = number
        self.slots[at] = slot

    def _place(self, number: int) -> int:
        """Where a table id stands or would stand; the kernel goes the same way."""
        mask = self.ids.size - 1
        at = number * 0x9E3779B1 & mask
        while self.ids[at] not in {_FREE, number}:
            at = at + 1 & mask
        return at


def _with_room(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The array, or a longer one that begins with it: what it is grown for costs linear time."""
    if size <= array.size:
        return array
    longer = np.zeros(max(size, 2 * array.size), array.dtype)
    longer[: array.size] = array
    return longer


def _names(body: bytes, *, operation: str) -> tuple[str, str]:
    """(database, table) of a table map's body without its first 8 bytes."""
    size = body[0] if body else 0
    start = size + 3
    table_size = body[start - 1] if len(body) >= start else 0
    if len(body) < start + table_size + 1:
        raise DecodeError("a table map ends within its names", operation=operation)
    names = body[1 : 1 + size], body[start : start + table_size]
    return names[0].decode("utf-8", "replace"), names[1].decode("utf-8", "replace")
