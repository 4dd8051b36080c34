"""Events in the form that mysql-replication reads: what is unpacked, and what is not understood."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from ratchet.core.errors import DecodeError
from ratchet.wire.secondevents import (
    HEADER,
    decompressed,
    names_of,
    readable_map,
    statement_of,
    unpacked,
    with_checksum,
)


def event(kind: int, body: bytes) -> bytes:
    return HEADER.pack(7, kind, 1, HEADER.size + len(body), 0, 0) + body


def lenenc(number: int) -> bytes:
    return bytes([number]) if number < 251 else b"\xfc" + number.to_bytes(2, "little")


def payload(inner: bytes, *, zstd: bool = True) -> bytes:
    packed = pa.Codec("zstd").compress(inner, asbytes=True) if zstd else inner
    fields = [(2, lenenc(0 if zstd else 255)), (3, lenenc(len(inner))), (1, lenenc(len(packed)))]
    head = b"".join(lenenc(name) + lenenc(len(value)) + value for name, value in fields)
    return event(40, head + b"\0" + packed)


@pytest.mark.parametrize("zstd", [True, False])
def test_a_compressed_transaction(*, zstd: bool) -> None:
    inner = [event(2, b"x" * 20), event(19, b"y" * 300), event(16, b"z" * 8)]
    assert list(unpacked(payload(b"".join(inner), zstd=zstd))) == inner


def test_what_is_compressed_and_broken_is_an_error() -> None:
    whole = payload(event(2, b"x" * 200))
    for broken in (whole[:-3], whole[:30], payload(event(2, b"x" * 20)[:-1])):
        with pytest.raises(DecodeError):
            list(unpacked(broken))


@pytest.mark.parametrize(("kind", "plain", "bitmaps"), [(166, 23, 1), (167, 24, 2), (170, 31, 2)])
def test_compressed_rows(kind: int, plain: int, bitmaps: int) -> None:
    rows = b"row" * 100
    head = bytes(8) + (b"\x02\0" if plain >= 30 else b"") + b"\x09" + b"\xff\x01" * bitmaps
    packed = bytes([0x80 | 2]) + len(rows).to_bytes(2, "big") + zlib.compress(rows)
    (found,) = unpacked(event(kind, head + packed))
    assert found == event(plain, head + rows)
    with pytest.raises(DecodeError):
        list(unpacked(event(kind, head + bytes([0x82, 0, 1]) + zlib.compress(rows))))


def test_other_events_stay_as_they_are() -> None:
    one = event(30, b"anything")
    assert list(unpacked(one)) == [one]
    assert with_checksum(one) == event(30, b"anything")[:9] + (31).to_bytes(4, "little") + one[13:] + bytes(4)  # fmt: skip # noqa: E501


def table_map(types: bytes, metadata: bytes, more: bytes) -> bytes:
    columns = len(types)
    body = bytes(8) + b"\x01d\0\x02tt\0" + lenenc(columns) + types
    body += lenenc(len(metadata)) + metadata + b"\0" * ((columns + 7) // 8) + more
    return event(19, body)


def test_a_table_map_with_types_that_the_library_does_not_know() -> None:
    given = table_map(
        b"\x03\xf2\x8c\x8d", b"\x04\x02\x10\x00", b"\x04\x02\x01a\x0d\x01\x03\x01\x01\x80"
    )
    readable, compressed = readable_map(given)
    assert names_of(readable) == ("d", "tt")
    assert readable == table_map(
        b"\x03\xff\xfc\x0f", b"\x04\x02\x10\x00", b"\x04\x02\x01a\x01\x01\x80"
    )
    assert compressed == {2, 3}
    with pytest.raises(DecodeError):
        readable_map(given[:30])


def test_values_of_compressed_columns() -> None:
    text = b"text" * 50
    assert decompressed(b"") == b""
    assert decompressed(b"\0plain") == b"plain"
    assert decompressed(b"\x81\xc8" + zlib.compress(text)) == text
    raw = zlib.compressobj(wbits=-15)
    assert decompressed(b"\x89\xc8" + raw.compress(text) + raw.flush()) == text
    for bad in (b"\x81\xc9" + zlib.compress(text), b"\x11\xc8" + zlib.compress(text), b"\x81\x01x"):
        with pytest.raises(ValueError, match=r"\w"):
            decompressed(bad)


def test_the_text_of_a_statement() -> None:
    body = bytes(8) + b"\x02" + bytes(2) + b"\x03\0" + b"abc" + b"dd\0" + b"COMMIT"
    assert statement_of(event(2, body)) == "COMMIT"


def test_long_names_and_labels_have_lengths_of_seven_bits_a_byte() -> None:
    names = b"\x04" + lenenc(203) + lenenc(200) + b"n" * 200 + b"\x01m"
    labels = b"\x06" + lenenc(306) + b"\x02" + lenenc(300) + b"l" * 300 + b"\x01k"
    readable, _ = readable_map(table_map(b"\x03\x03", b"", names + labels))
    assert readable.endswith(
        b"\x04\xcc" + b"\xc8\x01" + b"n" * 200 + b"\x01m"
        b"\x06\xfd\x31\x01\x00" + b"\x02\xac\x02" + b"l" * 300 + b"\x01k"
    )
