"""Targets: table maps, and rows in their four forms. Kernels and plain twins must agree.

atheris sees the plain twins only: numba's machine code tells it nothing. So inputs are found by the
twins' branches, and the kernels get all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.errors import DecodeError, SourceUnfitError, TableStoppedError
from ratchet.core.schema import Column, TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.wire.decode import samples
from ratchet.wire.decode.charsets import transcode_column, transcoder
from ratchet.wire.decode.charsets_data import MULTI_BYTE, SINGLE_BYTE
from ratchet.wire.decode.charsets_plain import transcode_column_plain
from ratchet.wire.decode.engine import engine
from ratchet.wire.decode.jsonb import json_column
from ratchet.wire.decode.jsonb_plain import json_column_plain
from ratchet.wire.decode.rows import RowImageDecoder
from ratchet.wire.decode.tablemap import Flavor, TableMap, parse_table_map
from ratchet.wire.decode.text import TextRowDecoder
from ratchet.wire.decode.vstream import VStreamRowDecoder
from ratchet.wire.vstreamproto import messages
from tests.fuzz.streams import logged
from tests.fuzz.target import Target, packed, unpacked
from tests.jsonb_encoder import Opaque, encode, packed_decimal

ENGINES = ("kernel", "plain")
OPS = (INSERT, UPDATE, DELETE)
REFUSALS = (DecodeError, SourceUnfitError, TableStoppedError)
POLICY = InvalidValuePolicy()
_ROWS = {23: 0, 24: 1, 25: 2, 30: 0, 31: 1, 32: 2}


def frozen(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


def agreed(decode: Callable[[str], Any]) -> Any:
    """What both engines make of an input, or what both refuse it with."""
    found: list[Any] = []
    for name in ENGINES:
        try:
            found.append(("taken", decode(name)))
        except REFUSALS as error:
            found.append(("refused", type(error), str(error), error))
    kernel, plain = found
    # Where several columns are wrong, both name the same one.
    assert kernel[:3] == plain[:3], f"the twins differ: {found}"
    if kernel[0] == "refused":
        raise kernel[3]
    return kernel[1]


def listed(array: pa.Array | None) -> Any:
    """An Arrow array, checked, as something that can be compared: its bytes where it has some."""
    if array is None:
        return None
    array.validate(full=True)
    if pa.types.is_struct(array.type):
        return [listed(array.field(n)) for n in range(array.type.num_fields)]
    if pa.types.is_floating(array.type):
        return array.view(pa.int32() if array.type == pa.float32() else pa.int64()).to_pylist()
    if pa.types.is_temporal(array.type):
        return array.cast(pa.int32() if array.type == pa.date32() else pa.int64()).to_pylist()
    return array.to_pylist()


# --- binlog rows ----------------------------------------------------------------------------------


@cache
def maps() -> tuple[TableMap, ...]:
    """The real table maps of mirrored tables, and one with every reader there is."""
    flavors: tuple[Flavor, ...] = ("mysql", "mariadb")
    found = [
        parse_table_map(body, keyspace="shop", flavor=flavor)
        for flavor in flavors
        for body in dict.fromkeys(body for kind, body in logged(flavor) if kind == 19)
    ]
    return (*found, samples.every_reader())


def decoded(found: TableMap, data: bytes, op: int) -> Any:
    """Rows of one event by both engines."""

    def decode(name: str) -> Any:
        decoder = RowImageDecoder(found, POLICY, implementation=engine(name))
        starts, ends = np.array([0], np.int64), np.array([len(data)], np.int64)
        rows = decoder.decode(frozen(data), starts, ends, op)
        return listed(rows.before), listed(rows.after), rows.event.tolist(), rows.misfits

    return agreed(decode)


def binlog_rows(data: bytes) -> None:
    """Any row images of a real table."""
    if len(data) > 2:
        decoded(maps()[data[0] % len(maps())], data[2:], OPS[data[1] % 3])


def row_events() -> list[tuple[Flavor, bytes, int, bytes]]:
    """Real rows events: flavour, table map, operation's number, bytes from the column count on."""
    found: list[tuple[Flavor, bytes, int, bytes]] = []
    flavors: tuple[Flavor, ...] = ("mysql", "mariadb")
    for flavor in flavors:
        known: dict[bytes, bytes] = {}
        for kind, body in logged(flavor):
            if kind == 19:
                known[body[:6]] = body
            elif kind in _ROWS:
                extra = struct.unpack_from("<H", body, 8)[0] if kind >= 30 else 0
                found.append((flavor, known[body[:6]], _ROWS[kind], body[8 + extra :]))
    return found


def binlog_rows_seeds() -> list[bytes]:
    shapes = [one.columns for one in maps()]
    seeds = []
    for flavor, body, op, rows in row_events():
        own = parse_table_map(body, keyspace="shop", flavor=flavor)
        seeds.append(bytes([shapes.index(own.columns), op]) + rows)
    columns = len(maps()[-1].columns)
    seeds.append(bytes([len(maps()) - 1, 0]) + samples.null_row_event(columns))
    return seeds


def table_map(data: bytes) -> None:
    """Any table map, and rows that it describes."""
    flavor: Flavor = "mariadb" if data[:1] == b"\1" else "mysql"
    parts = unpacked(data[2:])
    found = parse_table_map(parts[0] if parts else b"", keyspace="shop", flavor=flavor)
    if len(parts) > 1:
        decoded(found, parts[1][:2000], OPS[data[1] % 3])


def table_map_seeds() -> list[bytes]:
    seeds = [
        bytes([flavor == "mariadb", op]) + packed(body, rows)
        for flavor, body, op, rows in row_events()
    ]
    # Once read outside of an array: an ENUM without labels.
    enum = b"\7\0\0\0\0\0\1\0\1s\0\1t\0\1\xfe\2\xf7\1\1\4\2\1e\6\1\0\12\1\x2d"
    seeds.append(b"\0\0" + packed(enum, b"\1\1\0\1"))
    # Once a hang: rows without columns never end.
    return [*seeds, b"\0\0" + packed(b"\7\0\0\0\0\0\1\0\1s\0\1t\0\0\0", b"\0" + bytes(9))]


# --- text rows, VStream ---------------------------------------------------------------------------

_TEXTS: dict[str, tuple[bytes, ...]] = {
    "decimal": (b"-123.45", b"0.00"),
    "float": (b"1.5",),
    "double": (b"-2.25e-300", b"1"),
    "bit": (b"\3\xff", b"\0"),
    "year": (b"2024", b"0000"),
    "date": (b"2024-02-29", b"0000-00-00"),
    "datetime": (b"2024-02-29 23:59:59.123456", b"2024-00-00 00:00:00.000000"),
    "timestamp": (b"2024-02-29 23:59:59.123456",),
    "time": (b"-838:59:58.900000", b"00:00:00.000000"),
    "enum": (b"a",),
    "set": (b"a", b""),
    "json": (b'{"a": [1, -2.5, null]}', b'"x"'),
    "uuid": (b"3e11fa47-71ca-11e1-9e33-c80aa9429562",),
    "inet4": (b"1.2.3.4",),
    "inet6": (b"::1",),
}


@cache
def text_schema() -> TableSchema:
    """A table with every reader there is."""
    columns = tuple(
        Column(name=one.name, type=one.type) for one in samples.every_reader().schema.columns
    )
    return TableSchema(keyspace="shop", table="t", columns=columns, key=())


def texts(number: int, *, vstream: bool = False) -> list[bytes | None]:
    """A row's values, sound; NULL in some columns."""
    found: list[bytes | None] = []
    for place, column in enumerate(text_schema().columns):
        options = _TEXTS.get(column.type.name, (b"7", b"0", b"99"))
        value = options[number % len(options)]
        if column.type.name == "bit":
            value = value.rjust(((column.type.length or 1) + 7) // 8, b"\0") if vstream else b"5"
        if column.type.charset == "ucs2" and vstream:
            value = b"\x04\x36"
        found.append(None if number and (place + number) % 5 == 0 else value)
    return found


def lenenc(value: bytes | None) -> bytes:
    return b"\xfb" if value is None else bytes([len(value)]) + value


def text_rows(data: bytes) -> None:
    """Packets of a result set's rows."""

    def decode(name: str) -> Any:
        decoder = TextRowDecoder(text_schema(), POLICY, implementation=engine(name))
        found = decoder.decode(frozen(data), 0, len(data))
        return [listed(column) for column in found.batch.columns], found.misfits

    agreed(decode)


def text_rows_seeds() -> list[bytes]:
    rows = [b"".join(map(lenenc, texts(number))) for number in range(4)]
    packets = [struct.pack("<I", len(row)) + row for row in rows]
    return [*packets, b"".join(packets)]


def vstream_rows(data: bytes) -> None:
    """The RowEvent messages of a VStream."""

    def decode(name: str) -> Any:
        decoder = VStreamRowDecoder(text_schema(), POLICY, implementation=engine(name))
        starts, ends = np.array([0], np.int64), np.array([len(data)], np.int64)
        found = decoder.decode(frozen(data), starts, ends)
        return (
            found.op.tolist(), listed(found.before), listed(found.after), found.event.tolist(),
            found.misfits,
        )  # fmt: skip

    agreed(decode)


def message_row(values: Sequence[bytes | None]) -> Any:
    return messages().Row(
        lengths=[-1 if one is None else len(one) for one in values],
        values=b"".join(one or b"" for one in values),
    )


def vstream_rows_seeds() -> list[bytes]:
    event = messages().RowEvent(table="shop.t")
    for number in range(3):
        change = event.changes.add()
        if number != 1:
            change.after.CopyFrom(message_row(texts(number, vstream=True)))
        if number:
            change.before.CopyFrom(message_row(texts(0, vstream=True)))
    return [event.SerializeToString()]


def vstream_events(data: bytes) -> None:
    """The walk over whole responses."""
    found = []
    for name in ENGINES:
        kernels = engine(name).vstream
        buf = frozen(data)
        count, status, place = (int(one) for one in kernels.count_events(buf, 0, len(buf)))
        assert count <= len(data)
        places = np.full((count, kernels.FIELDS), -9, np.int64)
        if status == kernels.OK:
            status, place = map(int, kernels.index_events(buf, 0, len(buf), places))
        found.append((count, status, place, places.tolist()))
    assert found[0] == found[1]


def vstream_events_seeds() -> list[bytes]:
    proto = messages()
    response = proto.Response()
    response.events.add(type=proto.BEGIN, timestamp=17, current_time=1 << 62, event_gtid="u:7")
    row = response.events.add(type=proto.ROW, keyspace="shop", shard="-80")
    row.row_event.ParseFromString(vstream_rows_seeds()[0])
    response.events.add(type=proto.COMMIT, throttled=True)
    return [response.SerializeToString()]


# --- single values --------------------------------------------------------------------------------


def column(values: Sequence[bytes]) -> tuple[Any, Any, Any]:
    """Values with a byte between them that belongs to none."""
    buf = b"\xff" + b"\xff".join(values)
    lens = [len(one) for one in values]
    offs = np.cumsum([1, *(size + 1 for size in lens)])[: len(lens)]
    return frozen(buf), offs.astype(np.int64), np.array(lens, np.int64)


def same_texts(values: Sequence[bytes], *functions: Callable[..., tuple[Any, Any, Any]]) -> None:
    """Both give the same texts, all of them UTF-8, or the same bad value."""
    found = []
    for function in functions:
        data, places, bad = function(*column(values))
        text = bytes(data)
        shown = [text[a:b].decode() for a, b in pairwise(places.tolist())] if bad < 0 else []
        found.append((int(bad), shown))
    assert found[0] == found[1]
    if found[0][0] >= 0:
        raise DecodeError("a value is refused")


def jsonb(data: bytes) -> None:
    same_texts([data], json_column, json_column_plain)


def jsonb_seeds() -> list[bytes]:
    values: tuple[Any, ...] = (
        {"a": [1, -2.5, True, None, "x" * 200], "b": {}, "ccc": {"d": [[]]}},
        [2**64 - 1, -(2**63), 70000, "é", ""],
        "text",
        Opaque(12, struct.pack("<q", 1 << 40)),
        packed_decimal("-12.34"),
        None,
    )
    return [encode(value, large=large) for value in values for large in (False, True)]


def json_texts(data: bytes) -> None:
    same_texts([data], *(engine(name).jsontexts.mysql_texts for name in ENGINES))


def json_texts_seeds() -> list[bytes]:
    return [
        b'{"zip": 1, "city": [true, null, -.5, 1e300], "a\\u0001\\n": "\xc3\xa9"}',
        b'[[[{"": {"": ""}}]], 12345678901234567890123.000]',
        b"[" * 127 + b"]" * 127,
    ]


_CHARSETS = sorted({*SINGLE_BYTE, *MULTI_BYTE, "utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32"})


def charsets(data: bytes) -> None:
    how = transcoder(_CHARSETS[data[0] % len(_CHARSETS)] if data else "utf8mb4")
    same_texts(
        [data[1:]],
        lambda *given: transcode_column(*given, how),
        lambda *given: transcode_column_plain(*given, how),
    )


def charsets_seeds() -> list[bytes]:
    text = "aé€あ\U0001f600".encode("utf-8") + "あ".encode("utf-16-be")
    return [bytes([number]) + text for number in range(len(_CHARSETS))]


TARGETS: dict[str, Target] = {
    "table_map": Target(table_map, table_map_seeds, REFUSALS),
    "binlog_rows": Target(binlog_rows, binlog_rows_seeds, REFUSALS),
    "text_rows": Target(text_rows, text_rows_seeds, REFUSALS),
    "vstream_rows": Target(vstream_rows, vstream_rows_seeds, REFUSALS),
    "vstream_events": Target(vstream_events, vstream_events_seeds),
    "jsonb": Target(jsonb, jsonb_seeds),
    "json_texts": Target(json_texts, json_texts_seeds),
    "charsets": Target(charsets, charsets_seeds),
}
