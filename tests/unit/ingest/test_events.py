"""Bodies of rarer events: known ones from real servers, and any bytes as value or DecodeError."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ratchet.core.errors import DecodeError
from ratchet.ingest.binlog import events
from ratchet.ingest.binlog.payload import DecompressionBuffer

# From MySQL 9.7: the first INSERT with gtid_next = 'AUTOMATIC:tagx'.
TAGGED = bytes.fromhex(
    "02700000000209026c6102569503ee22c5030d02c804f10300000002"
    "0404060874616778080 40a100c7f33fe65d8c36006109d041283120b".replace(" ", "")
)


def test_a_tagged_gtid_of_a_real_server() -> None:
    assert events.parse_tagged_gtid(TAGGED) == events.TaggedGtid(
        origin="8236982b-e577-11f1-8364-02fc00000001:tagx",
        number=1,
        ts=0x0660C3D865FE33,
        committed=0x0660C3D865FE33,
        length=295,
    )


def test_a_rotate() -> None:
    assert events.parse_rotate(struct.pack("<Q", 4) + b"bin.000003") == ("bin.000003", 4)
    longest = b"b" * 512
    assert events.parse_rotate(struct.pack("<Q", 4) + longest)[0] == longest.decode()
    with pytest.raises(DecodeError, match="names no position"):  # many copies are made of it
        events.parse_rotate(struct.pack("<Q", 4) + longest + b"b")


def query(statement: bytes, variables: bytes = b"") -> bytes:
    return struct.pack("<IIBHH", 1, 0, 4, 0, len(variables)) + variables + b"shop\0" + statement


def test_a_query_is_read_in_the_clients_charset() -> None:
    # flags, sql_mode, catalog, then the charset: latin1 is 8, utf8mb4 is 45.
    front = b"\0" + bytes(4) + b"\1" + bytes(8) + b"\6\3std"
    for number, text in ((8, "größe".encode("latin1")), (45, "größe".encode())):
        variables = front + b"\4" + struct.pack("<HHH", number, 1, 1)
        assert events.parse_query(query(b"DROP TABLE " + text, variables)) == events.Query(
            "shop", "DROP TABLE größe", sql_mode=0
        )


def test_a_query_tells_its_sessions_mode_and_what_it_wrote_to() -> None:
    """As both servers wrote them."""
    mysql = bytes.fromhex(
        "000000000001040010000000000006037374640004ff00ff00ff000905000000000000000b04726f6f7409"
        "6c6f63616c686f73740c026f7468657200640012ff00"
    ).replace(b"std\0\4", b"std\4")
    found = events.parse_query(query(b"DO 1", mysql))
    assert (found.sql_mode, found.written) == (0x100004, {"other", "d"})
    many = mysql.replace(b"\x0c\2other\0d\0", b"\x0c\xfe")
    assert events.parse_query(query(b"DO 1", many)).written is None
    assert events.parse_query(query(b"DO 1", many[:5])).sql_mode is None
    for end in range(len(mysql)):  # cut anywhere, it tells less and nothing else
        found = events.parse_query(query(b"DO 1", mysql[:end]))
        assert found.sql_mode in {None, 0x100004}
        assert found.written in (None, {"other", "d"})
    mariadb = bytes.fromhex("00000000000101000020540000000006037374640421002d002d00800102038100")
    assert events.parse_query(query(b"DO 1", mariadb)).written is None
    assert not events.parse_query(query(b"DO 1", mariadb)).temporary
    assert events.parse_query(query(b"DO 1", mariadb), flags=4).temporary


def test_a_text_that_its_charset_does_not_have_is_not_clear() -> None:
    sjis = b"\4" + struct.pack("<HHH", 13, 1, 1)
    assert events.parse_query(query("ALTER TABLE t COMMENT '表'".encode("cp932"), sjis)).clear
    assert not events.parse_query(query(b"ALTER TABLE t COMMENT '\x81", sjis)).clear
    assert events.parse_query(query(b"INSERT INTO t VALUES ('\xff')")).clear  # UTF-8


def test_a_compressed_query_and_compressed_rows() -> None:
    text = b"DROP TABLE " + b"x" * 300
    packed = b"\x82" + len(text).to_bytes(2, "big") + zlib.compress(text)
    assert events.parse_query(query(packed), compressed=True).statement == text.decode()
    rows = b"\7\0\0\0\0\0\1\0" + b"\2\xff" + b"\x82" + len(text).to_bytes(2, "big")
    found = events.uncompress_rows(rows + zlib.compress(text), version=1, update=False)
    assert found == b"\2\xff" + text


@pytest.mark.parametrize("size", [10, 5 << 20])
@pytest.mark.parametrize("zstd", [True, False])
def test_a_payload_comes_in_pieces(size: int, *, zstd: bool) -> None:
    """Events of a compressed transaction, walked piece by piece, are those that were packed."""
    one = struct.pack("<IBIIIH", 1, 30, 1, 19 + 100, 0, 0) + b"r" * 100
    whole = one * (size // len(one) + 1)
    packed = pa.Codec("zstd").compress(whole).to_pybytes() if zstd else whole
    body = b"\2\1\0" if zstd else b"\2\3\xfc\xff\0"
    body += b"\1\5\xfd" + len(packed).to_bytes(4, "little")[:3] + b"\0"
    body += b"\3\5\xfd" + len(whole).to_bytes(4, "little")[:3] + b"\0"
    body += b"\0" + packed
    side, found = DecompressionBuffer(), 0
    for index, count in side.unpack(body, full=side.release):
        for event in index[:count]:
            assert side.data[event["start"] : event["end"]].tobytes() == one
        found += count
    assert found == len(whole) // len(one)


PARSERS: list[Callable[[bytes], object]] = [
    events.parse_rotate,
    events.parse_query,
    lambda body: events.parse_query(body, compressed=True),
    events.parse_tagged_gtid,
    events.parse_payload,
    events.uncompress,
    lambda body: events.uncompress_rows(body, version=1, update=True),
    lambda body: events.uncompress_rows(body, version=2, update=False),
    lambda body: list(DecompressionBuffer().unpack(body, full=lambda: None)),
]


@pytest.mark.parametrize("parse", PARSERS)
@given(body=st.binary(max_size=80))
@example(body=b"")
@example(body=b"\xff" * 40)
@example(body=b"\2\1\0\0(\xb5/\xfd")
def test_any_bytes_are_a_value_or_a_decode_error(
    parse: Callable[[bytes], object], body: bytes
) -> None:
    try:
        parse(body)
    except DecodeError as error:
        assert error.operation  # noqa: PT017 - both outcomes are right
