"""The tables of a VStream: from FIELD events to schemas and decoders.

Lives here: `StreamTables`. Does not live here: decoding rows (`wire.decode.vstream`), SQL (`wire`).

A FIELD event says how the rows behind it look, but not which unique key takes the place of a
primary key, nor every character set. So where information_schema declares the same columns, its
schema is taken; else (the table has changed since, or is gone) the event's own.

Invariant: a table that the mirror cannot take has a number as any other, and no slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ratchet.core.change import change_schema
from ratchet.core.errors import TableStoppedError
from ratchet.core.patterns import TablePatterns
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.core.vitess import is_internal
from ratchet.ingest.shapes import ShapeCount
from ratchet.wire.decode.catalog import DeclaredTable
from ratchet.wire.decode.vstream import VStreamRowDecoder
from ratchet.wire.decode.vstreamfields import schema_of

NOT_MIRRORED = -1


@dataclass(frozen=True, slots=True)
class TableDecoder:
    """A table as one FIELD event described it.

    Attributes:
        schema: its schema.
        decoder: of its rows.
        changes: the schema of its change files.
    """

    schema: TableSchema
    decoder: VStreamRowDecoder
    changes: pa.Schema


class StreamTables:
    """The tables that one stream has described.

    Args:
        keyspace: the stream's.
        patterns: which tables are mirrored.
        policy: what becomes of values that do not fit.
        read: asks the server how a table is now; None: it does not tell.
    """

    def __init__(
        self,
        *,
        keyspace: str,
        patterns: TablePatterns,
        policy: InvalidValuePolicy,
        read: Callable[[str], DeclaredTable | None],
    ) -> None:
        self._keyspace = keyspace
        self._patterns = patterns
        self._policy = policy
        self._read = read
        self._catalog: dict[str, DeclaredTable | None] = {}
        self._numbers: dict[TableSchema | tuple[str, str], int] = {}
        self._slots: list[tuple[str, TableDecoder | TableStoppedError]] = []
        self._shapes = ShapeCount()

    @property
    def names(self) -> frozenset[str]:
        """The mirrored tables that have been described."""
        return frozenset(table for table, _ in self._slots)

    @property
    def is_worn(self) -> bool:
        """See ingest.slices.Feed."""
        return self._shapes.has_many_old

    def name_of(self, event: Any) -> str:
        """The table's own name, of a FieldEvent."""
        return str(event.table.removeprefix(f"{self._keyspace}."))

    def describe(self, event: Any) -> int:
        """The number of the table as a FIELD event describes it; NOT_MIRRORED for others.

        Args:
            event: a FieldEvent.

        Raises:
            DecodeError: a column's type is not known.
        """
        table = self.name_of(event)
        if event.is_internal or is_internal(table) or not self._patterns.matches(table):
            return NOT_MIRRORED
        found: TableSchema | TableStoppedError
        try:
            found = self._schema(event, table)
        except TableStoppedError as error:
            found = error
        key = (table, found.message) if isinstance(found, TableStoppedError) else found
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._slots)
            self._slots.append((table, self._slot(found)))
            self._shapes.add(table, len(event.fields))
        return number

    def table(self, number: int) -> str:
        """The own name of a table that was described."""
        return self._slots[number][0]

    def slot(self, number: int) -> TableDecoder:
        """A table that was described.

        Raises:
            TableStoppedError: the mirror cannot take its rows, or vtgate does not bring them as
                they are.
        """
        found = self._slots[number][1]
        if isinstance(found, TableStoppedError):
            raise found.with_traceback(None)
        return found

    def forget(self) -> None:
        """Some table has changed: ask the server again."""
        self._catalog = {}

    def _slot(self, found: TableSchema | TableStoppedError) -> TableDecoder | TableStoppedError:
        if isinstance(found, TableStoppedError):
            return found
        try:
            decoder = VStreamRowDecoder(found, self._policy)
            changes = change_schema(arrow_schema(found, self._policy))
        except TableStoppedError as error:
            return error
        return TableDecoder(found, decoder, changes)

    def _schema(self, event: Any, table: str) -> TableSchema:
        shown = tuple((field.name, field.column_type) for field in event.fields)
        if self._shows(table) != shown:
            self._catalog[table] = self._read(table)
        known = self._catalog[table]
        if known is not None and self._shows(table) == shown:
            return known.schema
        return schema_of(event, keyspace=self._keyspace, table=table)

    def _shows(self, table: str) -> tuple[tuple[str, str], ...] | None:
        """A table's columns as information_schema has them, in the form of a FIELD event's."""
        known = self._catalog.get(table)
        if known is None:
            return None
        names = (column.name for column in known.schema.columns)
        return tuple(zip(names, known.types, strict=True))
