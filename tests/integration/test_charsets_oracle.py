"""Character sets against both servers: every sequence that a column stores reads as CONVERT does.

For each character set that the server has, all sequences of one and two bytes (and the longer
ones, where there are any) are put into a column; what the column took is the repertoire.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from lab.servers import Server
from ratchet.core.charsets import ONE_TO_ONE
from ratchet.wire.decode.charsets import quad_bytes, transcode_column, transcoder
from ratchet.wire.decode.charsets_data import MULTI_BYTE, SINGLE_BYTE
from ratchet.wire.decode.charsets_plain import transcode_column_plain

SINGLES = [bytes([a]) for a in range(256)]
PAIRS = [bytes([a, b]) for a in range(256) for b in range(256)]
TRIPLES = [bytes([0x8F, a, b]) for a in range(256) for b in range(256)]
# All that have a table of their own, both ends of the planes, and what has no character.
QUADS = [
    quad_bytes(n)
    for part in ((0, 50_500), (188_000, 191_000), (1_236_000, 1_238_500), (1_587_000, 1_587_600))
    for n in range(*part)
]
CODES = [
    *range(0x10000),
    *range(0x10000, 0x110000, 61),
    *(p * 0x10000 - n for p in range(2, 18) for n in (1, 2)),
]
UNICODE = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le",
           "utf32": "utf-32-be", "utf8mb3": "utf-8", "utf8mb4": "utf-8"}  # fmt: skip


def sequences(charset: str) -> Iterator[bytes]:
    if charset in SINGLE_BYTE:
        yield from SINGLES
    elif charset in MULTI_BYTE:
        yield from SINGLES
        yield from PAIRS
        if charset in {"ujis", "eucjpms"}:
            yield from TRIPLES
        if charset == "gb18030":
            yield from QUADS
    else:
        last = 0x10000 if charset in {"ucs2", "utf8mb3"} else 0x110000
        for code in CODES:
            if code < last:
                yield chr(code).encode(UNICODE[charset], "surrogatepass")


def long_texts(charset: str, stored: list[bytes]) -> Iterator[bytes]:
    """Random texts of what can be stored, of many lengths."""
    rng = random.Random(charset)
    for _ in range(300):
        yield b"".join(rng.choices(stored, k=rng.choice([2, 5, 30, 120])))


def round_trip(
    server: Server, database: str, charset: str, values: Iterable[bytes]
) -> dict[bytes, bytes]:
    """What the server stored as it was given -> what it converts it to."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("DROP TABLE IF EXISTS t")
        cursor.execute(f"CREATE TABLE t (b VARBINARY(500), v VARCHAR(500) CHARACTER SET {charset})")
        parts = [f"(x'{value.hex()}', x'{value.hex()}')" for value in values]
        for at in range(0, len(parts), 20_000):
            cursor.execute(f"INSERT IGNORE INTO t VALUES {','.join(parts[at : at + 20_000])}")
        # As bytes, because MariaDB's text need not be UTF-8.
        cursor.execute(
            "SELECT b, CAST(CONVERT(v USING utf8mb4) AS BINARY) FROM t WHERE HEX(v) = HEX(b)"
        )
        return dict(cursor.fetchall())


@pytest.mark.parametrize("charset", [*SINGLE_BYTE, *MULTI_BYTE, *UNICODE])
def test_of_a_key_what_the_server_converts_back(
    server: Server, database: str, charset: str
) -> None:
    """A key's value is read if it is what its text is converted to, and only then."""
    if charset not in charsets_of(server):
        return  # see below
    stored = list(round_trip(server, database, charset, sequences(charset)))
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT b, CAST(CONVERT(v USING utf8mb4) AS BINARY), CAST(CONVERT(CONVERT(v USING"
            f" utf8mb4) USING {charset}) AS BINARY) FROM t WHERE HEX(v) = HEX(b)"
        )
        rows = [(b, text, back) for b, text, back in cursor.fetchall()]
    assert len(rows) == len(stored)
    seen = [text for b, text, back in rows if b == back]
    assert len(set(seen)) == len(seen)  # so no two rows of the source are one in the lake
    if charset in ONE_TO_ONE:
        assert len(seen) == len(rows)
        return
    for b, text, back in rows:
        if is_listed(charset, b):
            continue
        assert exact_texts(charset, b) == (text if b == back else None), (charset, b)


def exact_texts(charset: str, value: bytes) -> bytes | None:
    """As a key, by the kernel."""
    buf, lens = np.frombuffer(value, np.uint8), np.array([len(value)], np.int64)
    data, _, bad = transcode_column(buf, lens * 0, lens, transcoder(charset, exact=True))
    return None if bad >= 0 else data.tobytes()


def charsets_of(server: Server) -> set[str]:
    rows = server.execute("SELECT character_set_name FROM information_schema.character_sets")
    return {str(name) for (name,) in rows}


def is_listed(charset: str, value: bytes) -> bool:
    """Whether it is among what `wire.decode.charsets` says that it does not read."""
    if charset in {"ujis", "eucjpms"}:
        return value == b"\x8e\xa0"
    if charset not in UNICODE:
        return False
    text = value.decode(UNICODE[charset], "surrogatepass")
    return any(0xD800 <= ord(each) < 0xE000 for each in text)


def decoded(charset: str, values: list[bytes]) -> list[bytes]:
    """By the kernel, which must equal the plain twin's."""
    lens = np.array([len(value) for value in values], np.int64)
    buf = np.frombuffer(b"".join(values), np.uint8)
    data, offsets, bad = transcode_column(buf, np.cumsum(lens) - lens, lens, transcoder(charset))
    assert bad == -1, (charset, values[bad])
    twin = transcode_column_plain(buf, np.cumsum(lens) - lens, lens, transcoder(charset))
    assert np.array_equal(data, twin[0])
    assert np.array_equal(offsets, twin[1])
    text = data.tobytes()
    return [text[offsets[n] : offsets[n + 1]] for n in range(len(values))]


def check(charset: str, converted: dict[bytes, bytes]) -> None:
    values = [value for value in converted if not is_listed(charset, value)]
    for value, text in zip(values, decoded(charset, values), strict=True):
        assert text == converted[value], (charset, value)


@pytest.mark.parametrize("charset", [*SINGLE_BYTE, *MULTI_BYTE, *UNICODE])
def test_all_that_a_column_stores(server: Server, database: str, charset: str) -> None:
    if charset not in charsets_of(server):
        assert (server.flavor, charset) == ("mariadb", "gb18030")
        return  # MariaDB does not have it
    repertoire = round_trip(server, database, charset, sequences(charset))
    assert len(repertoire) >= 128
    check(charset, repertoire)
    good = [value for value in repertoire if not is_listed(charset, value)]
    texts = round_trip(server, database, charset, long_texts(charset, good))
    assert len(texts) >= 290
    check(charset, texts)


@pytest.mark.parametrize("charset", ["ujis", "eucjpms", *UNICODE])
def test_what_is_listed_as_unread_is_bad(charset: str) -> None:
    """And never something else in silence."""
    found = [value for value in sequences(charset) if is_listed(charset, value)]
    assert found
    for value in found:
        buf, lens = np.frombuffer(value, np.uint8), np.array([len(value)], np.int64)
        assert transcode_column(buf, np.zeros(1, np.int64), lens, transcoder(charset))[2] == 0


def test_every_character_set_of_the_server_is_known(server: Server) -> None:
    for name in charsets_of(server):
        assert transcoder(name).charset == name
