"""Binlog events in a form that mysql-replication can read: pure functions over bytes.

Lives here: unpacking compressed transactions and row events, and table maps with types that the
library does not know. Does not live here: the library (`secondrows`), the socket (`secondlog`).

Nothing of `framing`, `ingest.binlog` or `wire.decode` is used, for it is these that are checked.

Invariant: nothing is left out; an event that is not understood is handed on as it is.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from ratchet.core.errors import DecodeError
from ratchet.wire.stream import LARGEST_PACKET

HEADER: Final = struct.Struct("<IBIIIH")  # time, type, server, size, end, flags

QUERY: Final = 2
ROTATE: Final = 4
FORMAT: Final = 15
XID: Final = 16
TABLE_MAP: Final = 19
INCIDENT: Final = 26  # the server has lost changes: of MySQL, a transaction of its own
GTID: Final = 33
ANONYMOUS: Final = 34
XA_PREPARE: Final = 38
PARTIAL_ROWS: Final = 39
PAYLOAD: Final = 40
GTID_TAGGED: Final = 42
MARIADB_GTID: Final = 162
QUERY_COMPRESSED: Final = 165
ROWS: Final = {23: 1, 24: 2, 25: 3, 30: 1, 31: 2, 32: 3}  # -> core.change.INSERT, UPDATE, DELETE
BEGINS: Final = frozenset({GTID, ANONYMOUS, GTID_TAGGED, MARIADB_GTID})

# MariaDB's compressed row events -> as which they are handed on.
_COMPRESSED_ROWS: Final = {166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
_UPDATES: Final = frozenset({24, 31})
_V2: Final = 30
_NOT_COMPRESSED: Final = 255  # of a transaction's payload

# VECTOR, and MariaDB's BLOB and VARCHAR COMPRESSED -> types with the same metadata, the same form
# in a row and the same place among the character columns: GEOMETRY (of MySQL), BLOB, VARCHAR.
_ALIASES: Final = {242: 255, 140: 252, 141: 15}
_COMPRESSED_TYPES: Final = frozenset({140, 141})
_NAMES: Final = 4  # fields of a table map's metadata: of columns; of the labels of SET and ENUM
_LABELS: Final = frozenset({5, 6})
_LAST_FIELD: Final = 12  # mysql-replication fails at any further one


def unpacked(event: bytes) -> Iterator[bytes]:
    """The event without its checksum as ordinary ones: what a compressed one holds.

    Raises:
        DecodeError: it cannot be unpacked.
    """
    kind = event[4]
    try:
        if kind == PAYLOAD:
            yield from _inner(_payload(event[HEADER.size :]))
        elif kind in _COMPRESSED_ROWS:
            yield _plain_rows(event, _COMPRESSED_ROWS[kind])
        else:
            yield event
    except (IndexError, KeyError, OSError, pa.ArrowInvalid, zlib.error) as error:
        raise garbled(f"what is compressed cannot be unpacked: {error}") from error


def garbled(why: str) -> DecodeError:
    """What to raise for bytes that make no sense."""
    return DecodeError(
        why,
        operation="read the binlog a second time",
        hint="the stream may be damaged: try again",
    )


def statement_of(event: bytes) -> str:
    """The text of a Query event."""
    body = event[HEADER.size :]
    database, variables = body[8], int.from_bytes(body[11:13], "little")
    return body[13 + variables + database + 1 :].decode("utf-8", "replace")


def names_of(event: bytes) -> tuple[str, str]:
    """Database and table of a table map."""
    at = HEADER.size + 8
    database = event[at + 1 : at + 1 + event[at]]
    at += event[at] + 2
    return database.decode(), event[at + 1 : at + 1 + event[at]].decode()


def readable_map(event: bytes) -> tuple[bytes, frozenset[int]]:
    """A table map whose types and metadata mysql-replication knows; which columns are COMPRESSED.

    Raises:
        DecodeError: it ends too early.
    """
    try:
        at = HEADER.size + 8
        at += event[at] + 2
        at += event[at] + 2
        columns, at = _lenenc(event, at)
        types = event[at : at + columns]
        size, fields = _lenenc(event, at + columns)
        fields += size + (columns + 7) // 8
        kept, here = b"", fields
        while here < len(event):
            length, start = _lenenc(event, here + 1)
            here, kind = start + length, event[here]
            if kind <= _LAST_FIELD:
                value = _readable_field(kind, event[start:here])
                kept += bytes([kind]) + _as_lenenc(len(value)) + value
    except IndexError:
        raise garbled("a table map ends too early") from None
    known = bytes(_ALIASES.get(kind, kind) for kind in types)
    odd = frozenset(n for n, kind in enumerate(types) if kind in _COMPRESSED_TYPES)
    return _sized(event[:at] + known + event[at + columns : fields] + kept), odd


def _readable_field(kind: int, value: bytes) -> bytes:
    """A field of a table map's metadata with lengths of names and labels as the library reads them.

    It takes them for seven bits a byte, which is the same up to 127.
    """
    if kind not in {_NAMES, *_LABELS}:
        return value
    at, made = 0, b""
    while at < len(value):
        count = 1
        if kind in _LABELS:
            begin = at
            count, at = _lenenc(value, at)
            made += value[begin:at]
        for _ in range(count):
            length, start = _lenenc(value, at)
            at = start + length
            made += _as_sevens(length) + value[start:at]
    return made


def _as_sevens(number: int) -> bytes:
    made = b""
    while number > 127:
        made += bytes([number & 127 | 128])
        number >>= 7
    return made + bytes([number])


def _as_lenenc(number: int) -> bytes:
    if number < 0xFB:
        return bytes([number])
    return b"\xfd" + number.to_bytes(3, "little")


def with_checksum(event: bytes) -> bytes:
    """An event with four bytes where a checksum stands: of one without, the library loses some."""
    return _sized(event + bytes(4))


def decompressed(value: bytes) -> bytes:
    """A value of a MariaDB column that is COMPRESSED, as it was before.

    Raises:
        ValueError: it is compressed in an unknown way.
    """
    if not value or value[0] == 0:
        return value[1:]
    length_bytes = value[0] & 7
    size = int.from_bytes(value[1 : 1 + length_bytes], "big")
    try:
        found = _inflated(value[1 + length_bytes :], size, -15 if value[0] & 8 else 15)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if value[0] >> 4 != 8 or len(found) != size:
        raise ValueError("it is not of the length or the kind that it states")
    return found


def _inner(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        if size < HEADER.size or at + size > len(data):
            raise garbled("a compressed transaction ends within an event")
        yield data[at : at + size]
        at += size


def _payload(body: bytes) -> bytes:
    """What a TRANSACTION_PAYLOAD holds."""
    at, fields = 0, {}
    while (name := body[at]) != 0:
        size, start = _lenenc(body, at + 1)
        fields[name], _ = _lenenc(body, start)
        at = start + size
    packed = body[at + 1 :]
    if fields.get(2) == _NOT_COMPRESSED:
        return packed
    if fields[3] > LARGEST_PACKET:  # they stand in memory together
        raise garbled(f"a compressed transaction of {fields[3]:,} bytes")
    whole: bytes = pa.Codec("zstd").decompress(packed, fields[3], asbytes=True)
    return whole


def _plain_rows(event: bytes, kind: int) -> bytes:
    """MariaDB's compressed row event as the one that it was."""
    at = HEADER.size + 8
    if kind >= _V2:
        at += int.from_bytes(event[at : at + 2], "little")
    columns, at = _lenenc(event, at)
    at += (columns + 7) // 8 * (2 if kind in _UPDATES else 1)
    length_bytes = event[at] & 7
    size = int.from_bytes(event[at + 1 : at + 1 + length_bytes], "big")
    rows = _inflated(event[at + 1 + length_bytes :], size, zlib.MAX_WBITS)
    if len(rows) != size:
        raise garbled("a compressed row event does not have the length that it states")
    return _sized(event[:4] + bytes([kind]) + event[5:at] + rows)


def _inflated(packed: bytes, size: int, bits: int) -> bytes:
    """What was deflated, one byte more than it should be at most."""
    if size > LARGEST_PACKET:
        raise zlib.error(f"{size} bytes announced, more than a row may have")
    return zlib.decompressobj(bits).decompress(packed, size + 1)


def _sized(event: bytes) -> bytes:
    """An event whose header says how long it is."""
    return event[:9] + len(event).to_bytes(4, "little") + event[13:]


def _lenenc(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded number, and where it ends."""
    first = data[at]
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first, 0)
    if not width:
        return first, at + 1
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width
