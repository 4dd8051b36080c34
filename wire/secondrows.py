"""mysql-replication's rows: what it makes of table maps and row events, and where it is helped.

Lives here: `SecondDecoder`, the only place that calls the library. Does not live here: the bytes it
gets (`secondevents`, `secondlog`), what its values mean in the lake (`ingest.logvalues`).

The library is let read what it reads well: where values begin and end, which are NULL, numbers,
decimals, dates with times. Where it is known to be wrong, lossy, or to lose the rest of a row over
one odd value, its description of the column is changed so that it gives the bytes or the number
that stands there (docs/decisions/0079-second-decoder.md).

Invariant: a row is handed out whole, or the table is said not to be readable, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

from pymysql.protocol import MysqlPacket
from pymysqlreplication.constants import FIELD_TYPE, NONE_SOURCE
from pymysqlreplication.event import GtidEvent, MariadbGtidEvent
from pymysqlreplication.json_binary import parse_json
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.filenames import stands_for
from ratchet.wire.decode.tablemap import is_sequence
from ratchet.wire.secondevents import HEADER, ROWS, garbled, names_of, readable_map, with_checksum

# What the library's value is: of "bytes", "date", "json", "member" (the number of an ENUM's label,
# or of a SET's as bits) and "time" (with a fraction) what stands in the row, undecoded.
Form = Literal[
    "number", "decimal", "year", "bits", "bytes", "date", "datetime", "timestamp", "span", "time",
    "json", "member",
]  # fmt: skip

MISFIT: Final = object()  # a date and time that no calendar has; the library gives None
OPAQUE: Final = object()  # a value in a document of which the library loses what it was

_EVENTS: Final = frozenset(
    {GtidEvent, MariadbGtidEvent, TableMapEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent}
)
_FORMS: Final[Mapping[int, Form]] = {
    **dict.fromkeys(
        (
            FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG,
            FIELD_TYPE.LONGLONG, FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE,
        ),
        "number",
    ),
    FIELD_TYPE.NEWDECIMAL: "decimal",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.BIT: "bits",
    **dict.fromkeys(
        (
            FIELD_TYPE.VARCHAR, FIELD_TYPE.VAR_STRING, FIELD_TYPE.STRING, FIELD_TYPE.BLOB,
            FIELD_TYPE.GEOMETRY,
        ),
        "bytes",
    ),
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.DATETIME2: "datetime",
    FIELD_TYPE.TIMESTAMP2: "timestamp",
    FIELD_TYPE.TIME2: "span",
    FIELD_TYPE.JSON: "json",
    FIELD_TYPE.ENUM: "member",
    FIELD_TYPE.SET: "member",
}  # fmt: skip
_OLD_TIMES: Final = {FIELD_TYPE.TIMESTAMP, FIELD_TYPE.DATETIME, FIELD_TYPE.TIME}
_WHOLE: Final = {
    1: FIELD_TYPE.TINY, 2: FIELD_TYPE.SHORT, 3: FIELD_TYPE.INT24, 4: FIELD_TYPE.LONG,
    8: FIELD_TYPE.LONGLONG,
}  # fmt: skip

Image = tuple[Any, ...]
Change = tuple[int, Image | None, Image | None]  # INSERT, UPDATE or DELETE; before; after


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondColumn:
    """A column as mysql-replication describes it.

    Attributes:
        name: of the column.
        form: what its values are.
        fraction: digits of fractional seconds.
        charset: of character columns the library's name for it; empty: it does not know it.
        labels: of ENUM and SET as the library read them; None where it cannot.
        compressed: the bytes are MariaDB's COMPRESSED.
    """

    name: str
    form: Form
    fraction: int = 0
    charset: str = ""
    labels: tuple[str, ...] | None = None
    compressed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondTable:
    """A table map as mysql-replication reads it.

    Attributes:
        name: of the table.
        columns: all, in the order of the row.
        unread: why its rows cannot be read; empty if they can.
    """

    name: str
    columns: tuple[SecondColumn, ...] = ()
    unread: str = ""


@dataclass(frozen=True, slots=True)
class SecondRows:
    """A row event.

    Attributes:
        table: its table.
        op: core.change.INSERT, UPDATE or DELETE.
    """

    table: SecondTable
    op: int
    _decode: Callable[[], list[Change]]

    def changes(self) -> list[Change]:
        """Its rows, decoded now.

        Raises:
            DecodeError: mysql-replication fails at them.
        """
        return self._decode()


class _Facts:
    """What events ask the library's second connection: here it needs none."""

    charset = "utf8mb4"

    def __init__(self, dbms: str) -> None:
        self._dbms = dbms

    def _get_dbms(self) -> str:
        return self._dbms


class SecondDecoder:
    """One server's events through mysql-replication.

    Args:
        database: whose tables are read.
        wants: which of its tables.
        mariadb: whether the server is a MariaDB.
        spellings: of a server to which letter case does not count: a table's name in lower case ->
            as it is to be called; None: case counts.
    """

    def __init__(
        self,
        *,
        database: str,
        wants: Callable[[str], bool],
        mariadb: bool,
        spellings: Mapping[str, str] | None = None,
    ) -> None:
        self._database, self._wants = database, wants
        self._spellings = spellings
        self._mariadb = mariadb
        self._facts = _Facts("mariadb" if mariadb else "mysql")
        self._known: dict[bytes, tuple[SecondTable, Any] | None] = {}  # by table map
        self._tables: dict[int, tuple[SecondTable, Any]] = {}  # by table id

    def forget_ids(self) -> None:
        """Table ids are void: another file begins."""
        self._tables.clear()

    def gtid(self, event: bytes) -> str:
        """The name in a GTID event of either server."""
        return str(self._read(event, {}).gtid)

    def note_table(self, event: bytes) -> None:
        """Take a table map."""
        number, body = _table_id(event), event[HEADER.size + 8 :]
        if body not in self._known:
            self._known[body] = self._look_at(event)
        found = self._known[body]
        if found is None:
            self._tables.pop(number, None)
        else:
            self._tables[number] = found

    def _look_at(self, event: bytes) -> tuple[SecondTable, Any] | None:
        database, table = (
            (stands_for(one) or one) if self._mariadb else one for one in names_of(event)
        )
        own = database == self._database
        if self._spellings is not None:
            own = database.lower() == self._database.lower()
            table = self._spellings.get(table.lower(), table)
        if not (own and self._wants(table)):
            return None
        found = self._described(event, table)
        if self._mariadb and is_sequence(column.name for column in found[0].columns):
            return None  # its changes are row events, too, but it is no table
        return found

    def rows(self, event: bytes) -> SecondRows | None:
        """A row event; None if its table is not wanted."""
        found = self._tables.get(_table_id(event))
        if found is None:
            return None
        table, described = found
        op = ROWS[event[4]]
        return SecondRows(table, op, lambda: self._changes(event, op, table, described))

    def _read(self, event: bytes, tables: dict[int, Any]) -> Any:
        """An event of the library's, which may fail in any way."""
        packet = MysqlPacket(b"\0" + with_checksum(event), "utf8mb4")
        try:
            return BinLogPacketWrapper(
                packet, tables, self._facts, (8, 0, 0), True, _EVENTS,
                None, None, None, None, False, False, False, True, False,
            ).event  # fmt: skip
        except Exception as error:
            raise garbled(f"mysql-replication fails at an event: {_told(error)}") from error

    def _described(self, event: bytes, table: str) -> tuple[SecondTable, Any]:
        """A table map's description, and the library's own with our changes."""
        described: dict[int, Any] = {}
        try:
            readable, compressed = readable_map(event)
            self._read(readable, described)
            own = described[_table_id(event)]
            columns = tuple(
                _column(column, number in compressed) for number, column in enumerate(own.columns)
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the table is not compared
            why = f"mysql-replication cannot read its description: {_told(error)}"
            return SecondTable(name=table, unread=why), None
        return SecondTable(name=table, columns=columns), own

    def _changes(self, event: bytes, op: int, table: SecondTable, described: Any) -> list[Change]:
        found = self._read(event, {_table_id(event): described})
        images = [found.columns_present_bitmap]
        if op == UPDATE:
            images.append(found.columns_present_bitmap2)
        count = len(table.columns)
        if any(int.from_bytes(one, "little") + 1 & (1 << count) - 1 for one in images):
            raise garbled("row images are not complete (binlog_row_image)")
        names = [column.name for column in table.columns]
        try:
            return _images(op, names, found.rows)
        except Exception as error:
            raise garbled(f"mysql-replication fails at a row: {_told(error)}") from error


def _images(op: int, names: list[str], rows: Sequence[Mapping[str, Any]]) -> list[Change]:
    if op == UPDATE:
        return [
            (
                op,
                _image(names, row["before_values"], row["before_none_sources"]),
                _image(names, row["after_values"], row["after_none_sources"]),
            )
            for row in rows
        ]
    single = [_image(names, row["values"], row["none_sources"]) for row in rows]
    if op == INSERT:
        return [(INSERT, None, image) for image in single]
    return [(DELETE, image, None) for image in single]


def json_value(raw: bytes) -> Any:
    """A document of MySQL's as mysql-replication reads it: texts as str, decimals as Decimal.

    What it takes for a time, a date or bytes is OPAQUE: the type is lost with it.

    Raises:
        ValueError, ArithmeticError, LookupError, TypeError, RecursionError, struct.error: it fails.
    """
    return None if not raw else _json(parse_json(raw[0], raw[1:]))


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {name.decode(): _json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_json(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | Decimal) else OPAQUE


def _image(names: list[str], values: Mapping[str, Any], nones: Mapping[str, str]) -> Image:
    if NONE_SOURCE.OUT_OF_DATETIME2_RANGE not in nones.values():
        return tuple(values[name] for name in names)
    return tuple(
        MISFIT if nones.get(name) == NONE_SOURCE.OUT_OF_DATETIME2_RANGE else values[name]
        for name in names
    )


def _column(column: Any, compressed: bool) -> SecondColumn:  # noqa: FBT001
    """Our description of a library's column, which is changed so that nothing of a row is lost.

    Raises:
        ValueError: its values cannot be read.
    """
    if not column.name:
        raise ValueError("a column has no name in the log")
    if column.type in _OLD_TIMES:
        raise ValueError("temporal columns in the format from before MySQL 5.6")
    form = _FORMS.get(column.type)
    if form is None:
        raise ValueError(f"a column of type {column.type}")
    fraction = getattr(column, "fsp", 0) if form in {"datetime", "timestamp", "span"} else 0
    charset, labels = "", None
    if form == "bytes":
        charset = _charset(column)
        # Charsets that Python lacks, or has otherwise than the server; text that is none.
        column.character_set_name = "binary"
    elif form == "member":
        charset = _charset(column)
        given = column.enum_values or column.set_values or ()
        labels = tuple(given) if charset in {"utf8", "utf8mb4"} and given else None
        # The labels of other charsets are lost, and an empty SET is None, as NULL is.
        column.type, column.unsigned = _WHOLE[column.size], True
    elif form == "date":  # 2024-02-31 raises an error
        column.type, column.unsigned = FIELD_TYPE.INT24, True
    elif form == "json":  # the library's values lose what opaque ones are
        column.type = FIELD_TYPE.GEOMETRY
    elif form == "span" and fraction:  # negative ones are wrong
        form, column.type = "time", FIELD_TYPE.BIT
        column.bytes = 3 + (fraction + 1) // 2
        column.bits = 8 * column.bytes
    return SecondColumn(
        name=column.name,
        form=form,
        fraction=fraction,
        charset=charset,
        labels=labels,
        compressed=compressed,
    )


def _charset(column: Any) -> str:
    """The library's name for the charset; empty if it does not know the collation."""
    return str(column.character_set_name) if column.collation_name else ""


def _table_id(event: bytes) -> int:
    return int.from_bytes(event[HEADER.size : HEADER.size + 6], "little")


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
