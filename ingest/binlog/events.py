"""The bodies of the rarer events, as values: from bytes, with no I/O and no state.

Lives here: ROTATE, QUERY, tagged GTIDs, compressed transactions, MariaDB's compressed events.
Does not live here: what comes often (`frequent`), table maps (`wire.decode.tablemap`), statements
(`statements`).

Invariant: any bytes give a value or a DecodeError. A body is an event without its header of 19
bytes and without its checksum.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ratchet.core.errors import DecodeError
from ratchet.core.gtid import FILE_BITS
from ratchet.core.rounds import StatementTime
from ratchet.ingest.binlog.querytext import statement_text
from ratchet.wire.framing import LARGEST_EVENT

_LONGEST_FILE: Final = 512  # bytes of a file's name and path, in both servers (FN_REFLEN)
_LAST_TIME: Final = 1 << 55  # microseconds; as far as the other GTID events go, year 3111
_ZSTD: Final = 0
_PLAIN: Final = 255
_CHARSET_VARIABLE: Final = 4
_UTF8MB4: Final = 45
_QUERY_HEAD: Final = struct.Struct("<8xB2xH")
# Status variables of a QUERY event up to the databases that it wrote: number -> bytes, or -1 for
# a length byte and that many bytes, -2 for the same and a closing zero.
_VARIABLES: Final = {
    0: 4, 1: 8, 2: -2, 3: 4, 4: 6, 5: -1, 6: -1, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 128: 3,
}  # fmt: skip
_FLAGS_VARIABLE: Final = 0
_NO_FOREIGN_KEY_CHECKS: Final = 1 << 26  # of the session's flags
_EXPLICIT_DEFAULTS: Final = 1 << 24  # of MariaDB's: explicit_defaults_for_timestamp (0078)
_SQL_MODE_VARIABLE: Final = 1
_NO_ENGINE_SUBSTITUTION: Final = 1 << 30  # of sql_mode
_ZONE_VARIABLE: Final = 5
_MICROS_VARIABLES: Final = {13, 128}  # MySQL's, and MariaDB's
_INVOKER_VARIABLE: Final = 11
_DATABASES_VARIABLE: Final = 12
_TOO_MANY: Final = 254  # in place of the number of databases; also where foreign keys lead on
_THREAD_SPECIFIC: Final = 0x4  # a flag of the event: it used a temporary table


@dataclass(frozen=True, slots=True)
class Query:
    """A statement in the log.

    Attributes:
        database: its default database.
        statement: its text.
        sql_mode: of its session, as bits; None: not told.
        written: databases that it wrote to, by whatever way; None: not told, or too many.
        temporary: whether it used a temporary table.
        unchecked: whether its session did not look at foreign keys.
        clear: whether its text is sure to be what the server read.
        explicit_defaults: whether explicit_defaults_for_timestamp was on; MariaDB alone tells.
        time: when it began; None: not known.
    """

    database: str
    statement: str
    sql_mode: int | None = None
    written: frozenset[str] | None = None
    temporary: bool = False
    unchecked: bool = False
    clear: bool = True
    explicit_defaults: bool = False
    time: StatementTime | None = None

    @property
    def keeps_engine(self) -> bool:
        """Whether a table is surely made in the engine that its statement names."""
        return self.sql_mode is not None and bool(self.sql_mode & _NO_ENGINE_SUBSTITUTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedGtid:
    """What a GTID_TAGGED event says; times in microseconds, `length` in bytes (0: not told).

    `ts` is the commit's on the server whose log this is, `committed` on the one that wrote it.
    """

    origin: str
    number: int
    ts: int
    committed: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A compressed transaction: where its bytes are in the body, and how they are packed."""

    start: int
    size: int
    uncompressed: int
    zstd: bool


class _Reader:
    """Reads a body from its beginning; running out of bytes is a DecodeError."""

    def __init__(self, body: bytes, event: str) -> None:
        self.body = body
        self.at = 0
        self.event = event

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.body):
            raise self.error("it ends too early")
        self.at += count
        return self.body[self.at - count : self.at]

    def little(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def lenenc(self) -> int:
        first = self.little(1)
        if first < 0xFB:
            return first
        width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
        if width is None:
            raise self.error(f"no length begins with {first:#x}")
        return self.little(width)

    def varlen(self) -> int:
        """An integer of MySQL's serialization library: low bits set count the further bytes."""
        first = self.little(1)
        further = 0
        while further < 8 and first >> further & 1:
            further += 1
        if further == 8:
            return self.little(8)
        return (first | self.little(further) << 8) >> (further + 1)

    @property
    def left(self) -> int:
        return len(self.body) - self.at

    def error(self, message: str) -> DecodeError:
        return DecodeError(
            f"a {self.event} event that cannot be read: {message}",
            operation="read the binlog",
            hint="report it with the server's version; nothing was skipped",
        )


def parse_rotate(body: bytes) -> tuple[str, int]:
    """(name of the next file, offset in it)."""
    reader = _Reader(body, "ROTATE")
    offset = reader.little(8)
    name = reader.take(reader.left)
    if not 0 < len(name) <= _LONGEST_FILE or b"\0" in name or offset >= 1 << FILE_BITS:
        raise reader.error("it names no position in a file")
    return name.decode("utf-8", "replace"), offset


def is_unchecked(body: bytes) -> bool:
    """Whether the events behind a FORMAT_DESCRIPTION event have no checksums.

    The last byte of its body, in front of its own checksum, names the algorithm; 0: none.
    """
    return body[-1:] == b"\0"


def parse_query(
    body: bytes, *, compressed: bool = False, load: bool = False, flags: int = 0, seconds: int = 0
) -> Query:
    """A QUERY event.

    Args:
        body: of the event.
        compressed: it is MariaDB's QUERY_COMPRESSED.
        load: it is an EXECUTE_LOAD_QUERY: LOAD DATA, with places in its text besides.
        flags: of the event's header.
        seconds: of the event's header: when the statement began; 0: it does not count.
    """
    reader = _Reader(body, "QUERY")
    # Thread and duration; the error code of the statement stands between the sizes.
    database_size, size = _QUERY_HEAD.unpack(reader.take(_QUERY_HEAD.size))
    if load:
        reader.take(13)  # the file's number, where its name stands, what becomes of duplicates
    variables = _status(reader.take(size))
    database = reader.take(database_size)
    reader.take(1)
    # A view: the text may be long, and copies of it are many enough.
    text: bytes | memoryview = memoryview(body)[reader.at :]
    if compressed:
        text = uncompress(bytes(text))
    statement, clear = statement_text(text, variables.collation)
    return Query(
        database=database.decode("utf-8", "replace"),
        statement=statement,
        sql_mode=variables.sql_mode,
        written=variables.written,
        temporary=bool(flags & _THREAD_SPECIFIC),
        unchecked=variables.unchecked,
        clear=clear,
        explicit_defaults=variables.explicit_defaults,
        time=StatementTime(seconds, variables.micros, variables.zone) if seconds else None,
    )


@dataclass(slots=True)
class _Status:
    """Status variables of a QUERY event; the collation is utf8mb4's if untold."""

    sql_mode: int | None = None
    unchecked: bool = False
    explicit_defaults: bool = False
    collation: int = _UTF8MB4
    written: frozenset[str] | None = None
    micros: int | None = None
    zone: str = ""


@lru_cache(maxsize=256)
def _status(variables: bytes) -> _Status:
    """The variables that matter, up to the first that is not known. Nobody changes what it gives.

    A session's statements have the same ones, and there may be very many of them.
    """
    found, at = _Status(), 0
    while at < len(variables):
        number = variables[at]
        at += 1
        if number == _DATABASES_VARIABLE:
            found.written = _databases(variables[at:])
            at += _databases_size(variables[at:])
            continue
        if number == _INVOKER_VARIABLE:
            for _ in range(2):
                at += 1 + variables[at] if at < len(variables) else 0
            continue
        size = _VARIABLES.get(number)
        if size is None or at >= len(variables):
            break
        _note(found, number, variables[at : at + 8])
        if number == _ZONE_VARIABLE:
            zone = variables[at + 1 : at + 1 + variables[at]]
            found.zone = zone.decode("utf-8", "replace")
        at += size if size >= 0 else 1 + variables[at] + (1 if size == -2 else 0)
    return found


def _note(found: _Status, number: int, data: bytes) -> None:
    """Take a variable of a fixed size, unless it is cut off."""
    if number == _FLAGS_VARIABLE and len(data) >= 4:
        options = int.from_bytes(data[:4], "little")
        found.unchecked = bool(options & _NO_FOREIGN_KEY_CHECKS)
        found.explicit_defaults = bool(options & _EXPLICIT_DEFAULTS)
    elif number == _SQL_MODE_VARIABLE and len(data) >= 8:
        found.sql_mode = int.from_bytes(data[:8], "little")
    elif number == _CHARSET_VARIABLE and len(data) >= 2:
        found.collation = int.from_bytes(data[:2], "little")
    elif number in _MICROS_VARIABLES and len(data) >= 3:
        found.micros = int.from_bytes(data[:3], "little")


def _databases(data: bytes) -> frozenset[str] | None:
    """MySQL's list of databases: how many, then each with a closing zero."""
    count = data[0] if data else _TOO_MANY
    names = data[1:].split(b"\0")
    if count in {0, _TOO_MANY} or len(names) <= count:
        return None
    return frozenset(name.decode("utf-8", "replace") for name in names[:count])


def _databases_size(data: bytes) -> int:
    """Bytes of that list; all that is left if it is not whole."""
    count, at = data[0] if data else _TOO_MANY, 1
    for _ in range(0 if count == _TOO_MANY else count):
        at = data.find(b"\0", at) + 1
        if not at:
            return len(data)
    return at


def parse_tagged_gtid(body: bytes) -> TaggedGtid:
    """A GTID_TAGGED event: numbered fields, written by MySQL's serialization library."""
    reader = _Reader(body, "GTID_TAGGED")
    version = reader.varlen()
    if version != 1:
        raise reader.error(f"its format is {version}, known is 1")
    if reader.varlen() != len(body):
        raise reader.error("its length does not fit")
    reader.varlen()  # the last field that must be understood; all known ones are
    fields: dict[int, int] = {}
    server = tag = b""
    while reader.left:
        number = reader.varlen()
        if number == 1:
            server = bytes(_byte(reader) for _ in range(16))
        elif number == 3:
            tag = reader.take(reader.varlen())
        elif number <= 11:
            fields[number] = reader.varlen()
        else:
            raise reader.error(f"field {number} is unknown")
    if not server or 2 not in fields or 6 not in fields:
        raise reader.error("a field is missing")
    number = fields[2] >> 1  # signed numbers carry their sign in the lowest bit
    if fields[2] & 1 or number == 0 or max(fields.values()) >= 1 << 63:
        raise reader.error("an impossible number")
    if max(fields[6], fields.get(7, 0)) >= _LAST_TIME:
        raise reader.error("an impossible commit time")
    origin = str(uuid.UUID(bytes=server))
    return TaggedGtid(
        origin=f"{origin}:{tag.decode('ascii', 'replace')}" if tag else origin,
        number=number,
        ts=fields[6],
        committed=fields.get(7, fields[6]),
        length=fields.get(8, 0),
    )


def _byte(reader: _Reader) -> int:
    value = reader.varlen()
    if value > 0xFF:
        raise reader.error("a byte above 255")
    return value


def parse_payload(body: bytes) -> Payload:
    """A TRANSACTION_PAYLOAD event's header."""
    reader = _Reader(body, "TRANSACTION_PAYLOAD")
    fields: dict[int, int] = {}
    while (number := reader.lenenc()) != 0:
        size = reader.lenenc()
        end = reader.at + size
        fields[number] = reader.lenenc()
        if reader.at > end:
            raise reader.error("a field is longer than it says")
        reader.take(end - reader.at)
    packing = fields.get(2, _PLAIN)
    if packing not in {_ZSTD, _PLAIN}:
        raise reader.error(f"compression {packing} is unknown")
    size = fields.get(1, reader.left)
    start = reader.at
    reader.take(size)
    return Payload(
        start=start,
        size=size,
        uncompressed=fields.get(3, size),
        zstd=packing == _ZSTD,
    )


def uncompress(data: bytes) -> bytes:
    """What MariaDB's log_bin_compress packed: a byte with the width of the length, it, zlib."""
    reader = _Reader(data, "compressed")
    head = reader.little(1)
    if head & 0x80 == 0 or head >> 4 & 0x07 != 0:
        raise reader.error(f"unknown packing {head:#x}")
    size = int.from_bytes(reader.take(head & 0x07), "big")
    if size > LARGEST_EVENT:
        raise reader.error(f"{size} bytes announced, more than an event may have")
    unpacker = zlib.decompressobj()
    try:
        result = unpacker.decompress(reader.take(reader.left), size + 1)
    except zlib.error as error:
        raise reader.error(str(error)) from error
    if len(result) != size:
        raise reader.error(f"{len(result)} bytes unpacked, {size} announced")
    return result


def uncompress_rows(body: bytes, *, version: int, update: bool) -> bytes:
    """MariaDB's compressed rows event from the column count on, as it would stand uncompressed."""
    reader = _Reader(body, "compressed rows")
    reader.take(8)
    if version == 2:
        reader.take(reader.little(2) - 2)
    start = reader.at
    columns = reader.lenenc()
    reader.take((columns + 7) // 8 * (2 if update else 1))
    head = body[start : reader.at]
    return head + uncompress(reader.take(reader.left))
