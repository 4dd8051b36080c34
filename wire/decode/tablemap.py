"""TABLE_MAP events: the shape of a table as the log itself describes it.

Lives here: from the event's bytes to a TableSchema that equals the one in information_schema
(`catalog`) and to the layout of row images (`plan`). Does not live here: rows (`rows`).

Invariant: nothing about a column is guessed. What the log does not tell (that 16 bytes are a
UUID, the fraction of MariaDB 5.3's temporal types) comes in as hints from information_schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

import numpy as np

from ratchet.core.errors import DecodeError, TableStoppedError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import network
from ratchet.wire.decode import plan
from ratchet.wire.decode.charsets import transcode_column, transcoder
from ratchet.wire.decode.collations import charset_of
from ratchet.wire.decode.cursor import ByteCursor
from ratchet.wire.decode.metadata import Metadata, read_metadata
from ratchet.wire.decode.plan import WalkPlan, WireColumn, layout, walk_plan

Flavor = Literal["mysql", "mariadb"]
T = TypeVar("T")

_OPERATION: Final = "read a table map"
_INTEGERS: Final = {
    plan.TINY: "tinyint",
    plan.SHORT: "smallint",
    plan.INT24: "mediumint",
    plan.LONG: "int",
    plan.LONGLONG: "bigint",
}
_DATES: Final = {
    plan.DATE: "date",
    plan.NEWDATE: "date",
    plan.TIME: "time",
    plan.DATETIME: "datetime",
    plan.TIMESTAMP: "timestamp",
    plan.TIME2: "time",
    plan.DATETIME2: "datetime",
    plan.TIMESTAMP2: "timestamp",
}
_BLOBS: Final = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_GEOMETRIES: Final = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
)
# The hidden column behind a UNIQUE key over a BLOB or TEXT in MariaDB, which the log shows.
_HASH_COLUMN: Final = re.compile(r"DB_ROW_HASH_\d+")
_FLOAT_BYTES: Final = 4
# MariaDB 10.11 leaves them as they were when a table is converted (MySQL 9.7 refuses that).
_LABELS: Final = (
    "ALTER TABLE ... CONVERT TO CHARACTER SET leaves the labels in the old character set: MODIFY "
    "the column with its labels written out, then `ratchet table CONFIG redump TABLE`"
)
# What a MariaDB sequence looks like in the log: a table with exactly these columns.
_SEQUENCE: Final = (
    "next_not_cached_value",
    "minimum_value",
    "maximum_value",
    "start_value",
    "increment",
    "cache_size",
    "cycle_option",
    "cycle_count",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMap:
    """A table's shape as the log has it.

    Attributes:
        table_id: the number under which the following row events name the table.
        database: the database's name on the server.
        table: the table's name.
        schema: its schema; the key is its primary key, empty if it has none.
        columns: the columns as row images hold them, hidden ones too.
        plan: their layout.
    """

    table_id: int
    database: str
    table: str
    schema: TableSchema
    columns: tuple[WireColumn, ...]
    plan: WalkPlan


def is_sequence(columns: Iterable[str]) -> bool:
    """Whether a table map of MariaDB's is a sequence's: its rows look like those of a table."""
    return tuple(columns) == _SEQUENCE


def table_id_of(body: bytes) -> int:
    """The table's number, without reading the rest of the event."""
    return ByteCursor(body, operation=_OPERATION).little(6)


def parse_table_map(
    body: bytes,
    *,
    keyspace: str,
    hints: Mapping[str, str] = {},
    flavor: Flavor | None = None,
) -> TableMap:
    """Read a TABLE_MAP event.

    Args:
        body: the event without its header and without a checksum.
        keyspace: the keyspace that the table belongs to.
        hints: what the log does not tell of some columns, by name: see `catalog.hints`.
        flavor: which server wrote it; found out from the event if it is not given.

    Raises:
        TableStoppedError: the server does not log full metadata.
        DecodeError: the bytes are no table map, or hold something unknown.
    """
    cursor = ByteCursor(body, operation=_OPERATION)
    table_id = cursor.little(6)
    cursor.take(2)  # flags
    database = cursor.text(cursor.little(1))
    cursor.take(1)
    table = cursor.text(cursor.little(1))
    cursor.take(1)
    codes = list(cursor.take(cursor.lenenc()))
    place = f"{database}.{table}"
    metas = _type_metadata(codes, ByteCursor(cursor.lenenc_bytes(), operation=_OPERATION), place)
    nulls = cursor.take((len(codes) + 7) // 8)
    metadata = read_metadata(cursor.take(cursor.left))
    if not codes:
        # Its rows would have no bytes, and a walk over them no end.
        raise DecodeError(
            "a table without columns",
            operation=_OPERATION,
            table=place,
            hint="the stream may be damaged: try again",
        )
    if not metadata.names:
        raise _no_metadata(place)
    reader = _ColumnReader(metadata, hints, flavor or _flavor_of(metadata, codes))
    try:
        columns = tuple(reader.columns(codes, metas, nulls))
        shape = tuple(
            Column(name=c.name, type=c.type, nullable=c.nullable) for c in columns if not c.hidden
        )
        key = tuple(_at(metadata.names, number) for number in metadata.key)
    except _LackingError as error:
        raise TableStoppedError(
            "the metadata is too short for the columns",
            operation=_OPERATION,
            table=place,
            hint="set binlog_row_metadata=FULL on the source",
        ) from error
    except _UnfitError as error:
        raise TableStoppedError(
            str(error), operation=_OPERATION, table=place, hint=error.hint
        ) from error
    return TableMap(
        table_id=table_id,
        database=database,
        table=table,
        schema=TableSchema(keyspace=keyspace, table=table, columns=shape, key=key),
        columns=columns,
        plan=walk_plan(columns),
    )


def _no_metadata(table: str) -> TableStoppedError:
    return TableStoppedError(
        "the log does not have the names of the columns",
        operation=_OPERATION,
        table=table,
        hint="SET GLOBAL binlog_row_metadata=FULL; (and set it in the server's configuration)",
    )


def _type_metadata(codes: list[int], cursor: ByteCursor, table: str) -> list[bytes]:
    unknown = sorted(set(codes) - plan.KNOWN)
    if unknown:
        raise TableStoppedError(
            f"the column type {unknown[0]} is unknown here",
            operation=_OPERATION,
            table=table,
            hint="exclude the table in the config, or change the column's type in the source",
        )
    return [cursor.take(plan.METADATA_BYTES.get(code, 0)) for code in codes]


def _flavor_of(metadata: Metadata, codes: list[int]) -> Flavor:
    mysql = metadata.from_mysql or plan.JSON in codes or plan.VECTOR in codes
    return "mysql" if mysql else "mariadb"


class _UnfitError(Exception):
    """A column that is not understood, though the event is whole: why, and what to do."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.hint = hint


class _LackingError(Exception):
    """The metadata's lists are shorter than the columns need."""


def _at(values: Sequence[T], number: int) -> T:
    if number >= len(values):
        raise _LackingError
    return values[number]


def _following(values: Iterator[T]) -> T:
    for value in values:
        return value
    raise _LackingError


class _ColumnReader:
    """Puts each column's parts together out of the lists in the metadata."""

    def __init__(self, metadata: Metadata, hints: Mapping[str, str], flavor: Flavor) -> None:
        self._metadata = metadata
        self._hints = hints
        self._flavor = flavor
        # The lists hold something for some of the columns only; these go through them.
        self._numbers = iter(metadata.unsigned)
        self._texts = iter(range(1 << 16))
        self._enums_and_sets = iter(range(1 << 16))
        self._enums = iter(metadata.enum_members)
        self._sets = iter(metadata.set_members)
        self._geometries = iter(metadata.geometries)
        self._vectors = iter(metadata.vector_sizes)

    def columns(self, codes: list[int], metas: list[bytes], nulls: bytes) -> Iterator[WireColumn]:
        """The columns in their order; _LackingError if the metadata says less than they need."""
        for number, (logged, meta) in enumerate(zip(codes, metas, strict=True)):
            code = plan.string_code(meta) if logged == plan.STRING else logged
            name = _at(self._metadata.names, number)
            hint = self._hints.get(name, "")
            kind = _hinted(self._type(code, meta), hint)
            prefix, size = layout(code, meta, kind)
            yield WireColumn(
                name=name,
                type=kind,
                nullable=bool(nulls[number // 8] >> number % 8 & 1),
                code=code,
                prefix=prefix,
                size=size,
                hidden=self._is_hidden(name, code, hint),
            )

    def _is_hidden(self, name: str, code: int, hint: str) -> bool:
        return (
            self._flavor == "mariadb"
            and code == plan.LONGLONG
            and hint != "plain"
            and _HASH_COLUMN.fullmatch(name) is not None
        )

    def _type(self, code: int, meta: bytes) -> ColumnType:
        if code in plan.NUMBERS:
            return self._number(code, meta, unsigned=_following(self._numbers))
        if code in _DATES:
            return ColumnType(name=_DATES[code], fraction=plan.fraction(meta))
        readers: dict[int, Callable[[bytes], ColumnType]] = {
            plan.BIT: _bit,
            plan.JSON: lambda _: ColumnType(name="json"),
            plan.ENUM: self._enum,
            plan.SET: self._set,
            plan.GEOMETRY: self._geometry,
            plan.VECTOR: self._vector,
        }
        if code in readers:
            return readers[code](meta)
        return self._text(code, meta)

    def _number(self, code: int, meta: bytes, *, unsigned: bool) -> ColumnType:
        if code == plan.NEWDECIMAL:
            if not 1 <= meta[0] <= 65 or meta[1] > min(meta[0], 38):
                raise DecodeError(
                    f"DECIMAL({meta[0]},{meta[1]}) does not exist", operation=_OPERATION
                )
            return ColumnType(name="decimal", unsigned=unsigned, precision=meta[0], scale=meta[1])
        if code in _INTEGERS:
            return ColumnType(name=_INTEGERS[code], unsigned=unsigned)
        if code == plan.YEAR:
            return ColumnType(name="year")
        name = "float" if code == plan.FLOAT else "double"
        return ColumnType(name=name, unsigned=unsigned)

    def _text(self, code: int, meta: bytes) -> ColumnType:
        collation = self._metadata.collation(_following(self._texts))
        if collation is None:
            raise _LackingError
        charset = _charset(collation)
        binary = charset == "binary"
        given = None if binary else charset
        if code in plan.BLOBS:
            name = _BLOBS.get(meta[0], "") + ("blob" if binary else "text")
            return ColumnType(name=name, charset=given)
        if code == plan.STRING:
            name, length = ("binary" if binary else "char"), plan.string_length(meta)
        else:
            name, length = ("varbinary" if binary else "varchar"), int.from_bytes(meta, "little")
        if code == plan.VARCHAR_COMPRESSED:
            length -= 1  # the byte that says whether and how a value is compressed
        return ColumnType(name=name, length=length, charset=given)

    def _enum(self, _: bytes) -> ColumnType:
        return self._labelled("enum", _following(self._enums))

    def _set(self, _: bytes) -> ColumnType:
        return self._labelled("set", _following(self._sets))

    def _labelled(self, name: str, members: list[bytes]) -> ColumnType:
        collation = self._metadata.enum_collation(_following(self._enums_and_sets))
        if collation is None:
            raise _LackingError
        charset = _charset(collation)
        labels = tuple(_decoded(members, charset))
        return ColumnType(name=name, charset=charset, members=labels)

    def _geometry(self, _: bytes) -> ColumnType:
        if self._flavor == "mariadb":
            _following(self._texts)
        subtype = _following(self._geometries)
        if subtype < len(_GEOMETRIES):
            return ColumnType(name=_GEOMETRIES[subtype])
        collection = "geomcollection" if self._flavor == "mysql" else "geometrycollection"
        return ColumnType(name=collection)

    def _vector(self, _: bytes) -> ColumnType:
        _following(self._texts)  # MySQL counts it among the texts (measured on 9.7), as binary
        return ColumnType(name="vector", length=_FLOAT_BYTES * _following(self._vectors))


def _charset(collation: int) -> str:
    try:
        return charset_of(collation)
    except DecodeError as error:
        raise _UnfitError(error.message, error.hint) from error


def _bit(meta: bytes) -> ColumnType:
    return ColumnType(name="bit", length=meta[0] + 8 * meta[1])


def _hinted(kind: ColumnType, hint: str) -> ColumnType:
    if hint in network.NAMES:
        return ColumnType(name=hint)
    if hint == "year2":
        return ColumnType(name="year", length=2)
    if hint.startswith("legacy:"):
        return ColumnType(name=kind.name, fraction=int(hint[-1]), legacy=True)
    return kind


def _decoded(labels: list[bytes], charset: str) -> list[str]:
    lengths = np.array([len(label) for label in labels], dtype=np.int64)
    offsets = np.cumsum(lengths) - lengths
    joined = np.frombuffer(b"".join(labels), dtype=np.uint8)
    data, places, bad = transcode_column(joined, offsets, lengths, transcoder(charset))
    if bad >= 0:
        why = f"label {bad + 1} of an ENUM or SET is not in its charset {charset}"
        raise _UnfitError(why, _LABELS)
    text = bytes(data)
    return [text[places[i] : places[i + 1]].decode() for i in range(len(labels))]
