"""Binary JSON against the server: its row images, decoded, are what its own SELECT prints."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from lab.servers import Server
from ratchet.wire.decode.jsonb import json_column
from ratchet.wire.decode.jsonb_plain import json_column_plain
from tests.binlog_file import INSERTS, rotate, rows_events

HOSTILE = (
    "",
    '"',
    "\\",
    "\\u0041",
    "/",
    "\0",
    "".join(map(chr, range(32))),
    "\x7f\x80\x9f",
    "\u00ad\u200b\u2028\u2029\ufeff",
    "\ufffd\ufffe\uffff",
    "\U00010000\U0010ffff",
    "e\u0301\u00e9",
    "\u202eright",
    "😀\U0001f468\u200d\U0001f469",
    "a" * 127,
    "a" * 128,
    "ж" * 8192,
)
WHOLE = [
    0,
    *(s * (2**n + d) for n in (7, 8, 15, 16, 31, 32, 53, 62) for d in (-1, 0, 1) for s in (1, -1)),
]
LIMITS = [*WHOLE, 2**63 - 1, 2**63, -(2**63), 2**64 - 1]


def random_text(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(HOSTILE[:-1])
    top = rng.choice([0x7F, 0x7FF, 0xD7FF, 0x10FFFF])
    codes = (rng.randint(0, top) for _ in range(rng.choice([1, 3, 20, 200])))
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)


def random_scalar(rng: random.Random) -> object:
    which = rng.randrange(6)
    if which == 0:
        return rng.choice([None, True, False])
    if which == 1:
        return rng.choice(LIMITS)
    if which == 2:
        return rng.randint(-(2**63), 2**64 - 1) >> rng.randrange(64)
    if which == 3:
        return random_double(rng)
    return random_text(rng)


def random_double(rng: random.Random) -> float:
    if rng.random() < 0.3:
        return round(rng.uniform(-1e6, 1e6), rng.randrange(6))
    if rng.random() < 0.3:
        return float(rng.choice(LIMITS)) * 10.0 ** rng.randint(-30, 30)
    (value,) = struct.unpack("<d", rng.randbytes(8))
    return value if value - value == 0 else 0.5  # neither infinite nor NaN


def random_document(rng: random.Random, depth: int) -> object:
    which = rng.random()
    if depth == 0 or which < 0.3:
        return random_scalar(rng)
    count = rng.choice([0, 1, 2, 3, 8])
    if which < 0.6:
        return [random_document(rng, depth - 1) for _ in range(count)]
    return {random_text(rng)[:300]: random_document(rng, depth - 1) for _ in range(count)}


def parsed_documents() -> Iterator[str]:
    """JSON texts for the server to parse."""
    yield from ("{}", "[]", "null", "true", "false", '""', "-0", "-0.0", "1E5", "1e-5", "0e0")
    yield "[" * 100 + "]" * 100
    yield '{"a":' * 99 + "{}" + "}" * 99
    yield json.dumps([*HOSTILE])
    yield json.dumps({text[:8000]: n for n, text in enumerate(HOSTILE)})
    yield json.dumps(LIMITS)
    yield json.dumps([float(10) ** n for n in range(-323, 309)])
    yield json.dumps([1.5 * 2.0**n for n in range(-1074, 1023)])
    # Around the sizes at which containers turn from small to large, in bytes and in elements.
    for size in (65480, 65500, 65520, *range(65526, 65538), 65600, 200_000, 17_000_000):
        yield json.dumps(["x" * size])
        yield json.dumps({"a": "y" * size, "b": [1, 70000, {"c": -70000}]})
    for count in (13000, 13107, 13108, 21844, 21845, 21846, 65534, 65535, 65536, 70000):
        yield json.dumps([1] * count)
        yield json.dumps([70000] * count)
    yield json.dumps({f"k{n}": n * 1000 for n in range(9000)})
    rng = random.Random(20240229)
    for _ in range(6000):
        yield json.dumps(random_document(rng, 5), ensure_ascii=rng.random() < 0.5)


# Values that no JSON text can stand for: made by the server from other types.
BINARY_LENGTHS = (0, 1, 2, 3, 56, 57, 58, 113, 114, 115, 171, 10_000, 70_000)
MADE = (
    *(f"CAST('{text}' AS {kind})" for text in ("2024-02-29", "9999-12-31 23:59:59.999999",
        "0000-00-00", "2024-00-00 01:02:03.5", "1000-01-01")
        for kind in ("DATE", "DATETIME", "DATETIME(6)")),
    *(f"CAST('{text}' AS TIME(6))" for text in ("-838:59:59", "838:59:59", "-00:00:00.000001",
        "00:00:00", "99:59:59.999999", "100:00:00")),
    "TIMESTAMP'2024-02-29 01:02:03.123456'",
    *(f"CAST('{sign}{text}' AS DECIMAL({p},{s}))" for sign in ("", "-")
        for text in ("0", "1", "0.5", "123456789.123456789", "9" * 35 + "." + "9" * 30)
        for p, s in ((65, 30), (65, 0), (30, 30), (1, 0), (9, 9), (10, 9), (38, 10), (19, 1))),
    "0.1", "-0.0", "1.10", "-12345678901234567890.0123456789",
    "b'101'", "x'00ff'", "CAST('abc' AS BINARY(6))", "0.1e0", "CAST(0.1 AS FLOAT)",
    "CAST(2024 AS YEAR)", "ST_GeomFromText('LINESTRING(0.1 1, 2 3)')", "_latin1 x'e9'",
    *(f"REPEAT(_binary x'fe', {n})" for n in BINARY_LENGTHS),
)  # fmt: skip


def images(binlog: Path, database: str, table: str) -> list[bytes | None]:
    """The JSON of each inserted row of a table with the one column, as its row image has it."""
    found: list[bytes | None] = []
    for event in rows_events(binlog, database, table):
        assert event.kind in INSERTS
        at = 2  # one column, and a bitmap that says that it is there
        while at < len(event.body):
            null, at = event.body[at] & 1, at + 1
            if null:
                found.append(None)
                continue
            (size,) = struct.unpack_from("<I", event.body, at)
            found.append(event.body[at + 4 : at + 4 + size])
            at += 4 + size
    return found


def decoded(values: Sequence[bytes | None]) -> list[str | None]:
    """Texts by the kernel, which must equal the plain twin's."""
    lens = np.array([len(value or b"") for value in values], np.int64)
    offs = np.cumsum(lens) - lens
    offs[[value is None for value in values]] = -1
    buf = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    data, offsets, bad = json_column(buf, offs, lens)
    assert bad == -1, values[int(bad)]
    twin_data, twin_offsets, bad = json_column_plain(buf, offs, lens)
    assert bad == -1
    assert np.array_equal(data, twin_data)
    assert np.array_equal(offsets, twin_offsets)
    text = data.tobytes()
    return [
        None if value is None else text[offsets[n] : offsets[n + 1]].decode()
        for n, value in enumerate(values)
    ]


def compare(server: Server, database: str, expressions: Sequence[tuple[str, object]]) -> int:
    """Insert what the expressions make and compare; how many were compared."""
    inserted = 0
    binlog = rotate(server)
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("CREATE TABLE t (doc JSON)")
        for expression, argument in expressions:
            inserted += cursor.execute(f"INSERT INTO t VALUES ({expression})", argument)
        # No key and no ORDER BY: InnoDB returns them by its hidden row id, that is as inserted.
        cursor.execute("SELECT doc FROM t")
        printed = [row[0] for row in cursor.fetchall()]
    texts = decoded(images(binlog, database, "t"))
    assert len(texts) == len(printed) == inserted
    for text, expected in zip(texts, printed, strict=True):
        assert text == expected
    return inserted


def test_documents_that_the_server_parsed(mysql: Server, database: str) -> None:
    expressions: list[tuple[str, object]] = [("%s", [text]) for text in parsed_documents()]
    assert compare(mysql, database, [("NULL", None), *expressions]) > 6000


def test_values_that_the_server_made_of_other_types(mysql: Server, database: str) -> None:
    expressions = [(f"JSON_ARRAY({value}, JSON_OBJECT('k', {value}))", None) for value in MADE]
    expressions += [(f"JSON_EXTRACT(JSON_ARRAY({value}), '$[0]')", None) for value in MADE]
    assert compare(mysql, database, expressions) == 2 * len(MADE)


def test_doubles_by_the_hundred_thousand(mysql: Server, database: str) -> None:
    """Any bit pattern: the server parses the texts its own way, and prints what it then has."""
    rng = random.Random(7)
    texts = [json.dumps([random_double(rng) for _ in range(2000)]) for _ in range(100)]
    assert compare(mysql, database, [("%s", [text]) for text in texts]) == 100


def test_documents_changed_in_place(mysql: Server, database: str) -> None:
    """JSON_SET and JSON_REMOVE leave gaps inside a stored document."""
    changes = (
        "JSON_SET(doc, '$.a', 'x')",
        "JSON_REPLACE(doc, '$.b', 1.5)",
        "JSON_REMOVE(doc, '$.c')",
        "JSON_SET(doc, '$.d[1]', NULL)",
        "JSON_REMOVE(doc, '$.d[0]')",
    )
    start = json.dumps({"a": "long text", "b": {"n": 1}, "c": [1, 2, 3], "d": ["p", "q", "r"]})
    binlog = rotate(mysql)
    with mysql.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE source (id INT PRIMARY KEY, doc JSON)")
        cursor.execute("INSERT INTO source VALUES (1, %s), (2, %s)", [start, start.upper()])
        cursor.execute("CREATE TABLE changed (doc JSON)")
        printed = []
        for change in changes:
            cursor.execute(f"UPDATE source SET doc = {change}")
            cursor.execute("INSERT INTO changed SELECT doc FROM source ORDER BY id")
            cursor.execute("SELECT doc FROM source ORDER BY id")
            printed += [row[0] for row in cursor.fetchall()]
    assert decoded(images(binlog, database, "changed")) == printed


def test_null_in_a_column_that_must_not_be_null(mysql: Server, database: str) -> None:
    """INSERT IGNORE stores an empty value, which the server then reads as JSON's null."""
    binlog = rotate(mysql)
    with mysql.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE forced (doc JSON NOT NULL)")
        cursor.execute("SET sql_mode = ''")
        cursor.execute("INSERT IGNORE INTO forced SELECT NULL FROM DUAL")
        cursor.execute("SELECT doc FROM forced")
        printed = [row[0] for row in cursor.fetchall()]
    assert decoded(images(binlog, database, "forced")) == printed
