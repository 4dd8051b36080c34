"""Pools of SQL literals for every type: the values at its limits, and seeded random ones."""

from __future__ import annotations

import json
import random
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address


@dataclass(frozen=True)
class Pool:
    """Literals for one column.

    Attributes:
        boundary: each is used at least once.
        draw: makes another.
    """

    boundary: tuple[str, ...]
    draw: Callable[[random.Random], str]

    def at(self, number: int, rng: random.Random) -> str:
        """The boundary value of that number, else a random one."""
        return self.boundary[number] if number < len(self.boundary) else self.draw(rng)


def quoted(text: str) -> str:
    """A text as a plain string literal; no control characters."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def unicode_literal(text: str) -> str:
    """Any text as a literal that no escaping can touch."""
    return f"_utf8mb4 x'{text.encode().hex()}'"


def hex_literal(data: bytes) -> str:
    """Bytes as a literal."""
    return f"x'{data.hex()}'"


def integers(low: int, high: int) -> Pool:
    inside = {0, 1, -1, low, low + 1, high, high - 1, 127, 128, 255, 256, 32768, 65535, 1 << 31}
    edges = sorted(n for n in inside if low <= n <= high)
    return Pool(
        tuple(map(str, edges)),
        lambda rng: str(max(low, rng.randint(low, high) >> rng.randrange(32))),
    )


def decimals(precision: int, scale: int, *, negative: bool = True) -> Pool:
    def text(digits: int) -> str:
        digit = f"{digits:0{precision + 1}d}"
        whole, fraction = digit[: len(digit) - scale], digit[len(digit) - scale :]
        return f"{whole}.{fraction}" if scale else whole

    most = 10**precision - 1
    edges = {0, 1, 9, 10**scale, 10**scale - 1, most, most - 1, most // 2, 10 ** (precision - 1)}
    # Around the groups of nine digits that the servers store.
    edges |= {10**n + d for n in range(0, precision, 9) for d in (-1, 0, 1)}
    found = [text(n) for n in sorted(edges) if 0 <= n <= most]
    if negative:
        found += [f"-{one}" for one in found]

    def draw(rng: random.Random) -> str:
        digits = rng.randint(0, most) // 10 ** rng.randrange(precision)
        sign = "-" if negative and rng.random() < 0.5 else ""
        return sign + text(digits)

    return Pool(tuple(found), draw)


def floats() -> Pool:
    edges = ["0e0", "-0e0", "1.5e0", "-1e0", "3.4028234663852886e38", "-3.4028234663852886e38",
             "1.1754943508222875e-38", "1.401298464324817e-45", "16777216e0", "16777217e0",
             "0.1e0", "123456.789e0", "1e10", "-1e-10", "9999.999e0", "8388609e0"]  # fmt: skip

    def draw(rng: random.Random) -> str:
        if rng.random() < 0.5:
            return repr(round(rng.uniform(-9999, 9999), rng.randrange(6))) + "e0"
        (value,) = struct.unpack("<f", rng.randbytes(4))
        return repr(value) if value - value == 0 else "0e0"

    return Pool(tuple(edges), draw)


def doubles() -> Pool:
    edges = ["0e0", "-0e0", "1.5e0", "-1e0", "1.7976931348623157e308", "-1.7976931348623157e308",
             "2.2250738585072014e-308", "5e-324", "9007199254740993e0", "0.1e0", "1e15", "1e16",
             "123456789.123456789e0", "1e22", "1e23", "-1e-7", "0.30000000000000004e0"]  # fmt: skip

    def draw(rng: random.Random) -> str:
        if rng.random() < 0.5:
            return repr(round(rng.uniform(-1e9, 1e9), rng.randrange(9))) + "e0"
        (value,) = struct.unpack("<d", rng.randbytes(8))
        return repr(value) if value - value == 0 else "0e0"

    return Pool(tuple(edges), draw)


def bits(width: int) -> Pool:
    most = (1 << width) - 1
    edges = {0, 1, most, most - (most > 0), 1 << width - 1, 0xAAAAAAAAAAAAAAAA & most}
    return Pool(
        tuple(f"b'{n:b}'" for n in sorted(edges)), lambda rng: f"b'{rng.randint(0, most):b}'"
    )


def _choice(*texts: str) -> Pool:
    literals = tuple(map(quoted, texts))
    return Pool(literals, lambda rng: rng.choice(literals))


YEARS = Pool(
    ("0", "1901", "1970", "2000", "2155", "'0'", "69", "70"),
    lambda rng: str(rng.randint(1901, 2155)),
)
SHORT_YEARS = Pool(("0", "69", "70", "99", "1970", "2069"), lambda rng: str(rng.randint(0, 99)))

_DAYS = ("0000-00-00", "2024-00-00", "2024-05-00", "2024-00-05", "0000-01-01", "0001-01-01",
         "0004-02-29", "0999-12-31", "1000-01-01", "1582-10-10", "1752-09-02", "1899-12-31",
         "1900-02-28", "1900-02-29", "1969-12-31", "1970-01-01", "2000-02-29", "2023-02-29",
         "2024-02-30", "2024-02-31", "2024-04-31", "2024-02-29", "9999-12-31")  # fmt: skip
_CLOCKS = ("00:00:00", "00:00:00.000001", "23:59:59", "23:59:59.499999", "12:34:56.789012",
           "01:02:03.100000", "23:59:58.999999")  # fmt: skip


def _random_day(rng: random.Random) -> str:
    return f"{rng.randint(0, 9999):04d}-{rng.randint(0, 12):02d}-{rng.randint(0, 31):02d}"


def _random_clock(rng: random.Random, hours: int = 23) -> str:
    minute, second = rng.randrange(60), rng.randrange(60)
    return f"{rng.randint(0, hours):02d}:{minute:02d}:{second:02d}.{rng.randrange(10**6):06d}"


DATES = Pool(tuple(map(quoted, _DAYS)), lambda rng: quoted(_random_day(rng)))
DATETIMES = Pool(
    tuple(quoted(f"{day} {clock}") for day in _DAYS for clock in _CLOCKS[:5]),
    lambda rng: quoted(f"{_random_day(rng)} {_random_clock(rng)}"),
)
TIMESTAMPS = Pool(
    tuple(map(quoted, (
        "0000-00-00 00:00:00", "1970-01-01 00:00:01", "1970-01-01 00:00:01.999999",
        "1999-12-31 23:59:59.000001", "2000-02-29 12:00:00.5", "2024-02-29 23:59:58.999999",
        "2038-01-19 03:14:06.499999", "2038-01-19 03:14:07", "2001-09-09 01:46:40",
        "2024-03-31 01:30:00", "2024-03-31 02:30:00", "2024-10-27 02:30:00",
    ))),
    lambda rng: quoted(
        f"{rng.randint(1971, 2037)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d} "
        f"{_random_clock(rng)}"
    ),
)  # fmt: skip
TIMES = Pool(
    tuple(map(quoted, (
        "-838:59:59", "838:59:59", "-838:59:58.999999", "838:59:58.499999", "00:00:00",
        "-00:00:00.000001", "00:00:00.000001", "-00:00:01", "-00:00:00.5", "-01:00:00.000001",
        "-00:59:59.999999", "23:59:59.999999", "24:00:00", "99:59:59.9", "100:00:00",
        "-100:00:00.1",
        "-00:00:00.1", "-00:00:00.01", "-00:00:00.001", "-00:00:00.0001", "-00:00:00.00001",
    ))),
    lambda rng: quoted(rng.choice(["", "-"]) + _random_clock(rng, 837)),
)  # fmt: skip

_LETTERS = (
    "abcXYZ 019",
    "éèñßøåÆÐþ¿¡§£",
    "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—™",  # noqa: RUF001 - what Windows has where ISO has controls
    "łŁąęśćžšěř",
    "şğİı",
    "āēīūģķļņ",
    "\u0430\u0431\u0432\u0433ЖЩЫЭю\u044f",
    "ґєіїЎў",
    "\u03b1β\u03b3δΩάώ",
    "\u05d0\u05d1\u05d2\u05d3\u05d4",
    "\u0627\u0628\u062a\u062b\u062c",
    "กขคงจ",
    "აბგდ",
    "ԱԲԳա",
    "日本語漢字",
    "ひらがなカタカナ",
    "ｱｲｳ",
    "中文简体繁體龍",
    "한국어글",
    "①Ⅳ㈱〜\uff0d￢∥",
    "😀👍𠀀🏳",
    "\u0301\u200d\ufeff\u2028",
    "'\"\\%_`;",
    "\t\n\r\0\x1a\x7f",
    "\ufffd?",
)


def texts(most: int) -> Pool:
    """Texts of up to `most` characters; what a character set lacks, the server stores as "?"."""
    edges = ["", " ", "a", "a ", " a", "trailing  ", "\0", "a\0", "\0\0"]
    edges += [*_LETTERS, "x" * most, "é" * most, "日" * most, "😀" * most]

    def draw(rng: random.Random) -> str:
        letters = "".join(rng.sample(_LETTERS, rng.choice([1, 1, 2, 4])))
        size = rng.randint(0, rng.choice([3, most]))
        return unicode_literal("".join(rng.choices(letters, k=size)))

    return Pool(tuple(unicode_literal(text[:most]) for text in edges), draw)


def labels(known: Sequence[str]) -> Pool:
    """ENUM labels by name and by number, and one that the type does not know."""
    named = [
        *map(quoted, known[:12]),
        quoted(known[-1]),
        "'no such label'",
        "0",
        "1",
        str(len(known)),
    ]
    return Pool(tuple(named), lambda rng: str(rng.randint(0, len(known))))


def subsets(members: Sequence[str]) -> Pool:
    """SET values by number, since a member's name may not be unique in other collations."""
    most = (1 << len(members)) - 1
    edges = {0, 1, most, most - (most > 1), 1 << len(members) - 1}
    return Pool(tuple(map(str, sorted(edges))), lambda rng: str(rng.randint(0, most)))


def binaries(most: int) -> Pool:
    """Bytes, with zeros at the end and spaces, which some types cut and some do not."""
    edges = [b"", b"\0", b"\0\0", b" ", b"a\0", b"a ", b"\xff\xfe\0\0", b"\0a", bytes(range(256)),
             b"\0" * most, b"\xff" * most, b"abc" * most]  # fmt: skip

    def draw(rng: random.Random) -> str:
        data = rng.randbytes(rng.randint(0, min(most, 300)))
        return hex_literal((data + b"\0" * rng.choice([0, 0, 3]))[:most])

    return Pool(tuple(hex_literal(data[:most]) for data in edges), draw)


GEOMETRIES = {
    "GEOMETRY": ("POINT(1 2)", "LINESTRING(0 0, 1 1)", "GEOMETRYCOLLECTION(POINT(1 1))"),
    "POINT": ("POINT(0 0)", "POINT(-1.5 1e300)", "POINT(0.1 -0.1)"),
    "LINESTRING": ("LINESTRING(0 0, 1 1)", "LINESTRING(0 0, 1.5 1.5, -2 -2)"),
    "POLYGON": ("POLYGON((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 2 1, 2 2, 1 2, 1 1))",),
    "MULTIPOINT": ("MULTIPOINT(1 1, 2 2, 3 3)",),
    "MULTILINESTRING": ("MULTILINESTRING((0 0, 1 1), (2 2, 3 3))",),
    "MULTIPOLYGON": ("MULTIPOLYGON(((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",),
    "GEOMETRYCOLLECTION": ("GEOMETRYCOLLECTION(POINT(1 1), LINESTRING(0 0, 1 1))",),
}


def shapes(name: str) -> Pool:
    """Geometries of one type, without and with a spatial reference system."""
    edges = [f"ST_GeomFromText('{text}')" for text in GEOMETRIES[name]]
    edges += [f"ST_GeomFromText('{GEOMETRIES[name][0]}', 4326)"]
    return Pool(tuple(edges), lambda rng: rng.choice(edges))


def documents() -> Pool:
    """JSON documents; test_jsonb_oracle has the thousands of others."""
    edges: list[object] = [{}, [], None, True, "", 'é"\\\n😀', 0, -1, 1.0, 1e20, 0.1, [[]]]
    edges += [2**63, 2**64 - 1, -(2**63), ["x" * 70_000], {"k" * 300: "v"}]
    edges += [{"b": 1, "a": [1, {"x": None}]}]

    def draw(rng: random.Random) -> str:
        count = rng.randrange(5)
        document = {
            f"k{n}": [rng.random(), rng.randint(-(10**9), 10**12), "ж" * n] for n in range(count)
        }
        return unicode_literal(json.dumps(document, ensure_ascii=False))

    return Pool(tuple(unicode_literal(json.dumps(edge)) for edge in edges), draw)


def vectors(most: int) -> Pool:
    """Vectors of up to `most` floats."""

    def draw(rng: random.Random) -> str:
        return hex_literal(struct.pack(f"<{most}f", *(rng.uniform(-9, 9) for _ in range(most))))

    edges = [struct.pack("<f", 1.5), struct.pack(f"<{most}f", *range(most))]
    return Pool(tuple(map(hex_literal, edges)), draw)


UUIDS = Pool(
    tuple(map(quoted, (
        "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "123e4567-e89b-12d3-a456-426655440000", "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "01890a5d-ac96-774b-bcce-b302099a8057", "00000000-0000-1000-8000-000000000000",
        "123e4567-e89b-0000-0000-426655440000", "12345678-1234-9234-1234-123456789abc",
    ))),
    lambda rng: quoted(str(uuid.UUID(bytes=rng.randbytes(16)))),
)  # fmt: skip
INET4S = Pool(
    tuple(map(quoted, ("0.0.0.0", "255.255.255.255", "127.0.0.1", "10.0.0.0", "1.2.3.4"))),
    lambda rng: quoted(str(IPv4Address(rng.randbytes(4)))),
)
INET6S = Pool(
    tuple(map(quoted, (
        "::", "::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::ffff:192.0.2.1", "::192.0.2.1",
        "2001:db8::", "2001:db8:0:0:1:0:0:1", "1:0:0:2::3", "::1:2", "0:1::", "fe80::1", "::2:0",
        "0:0:0:1::", "1::", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:0:2:0:3:0:4:0",
    ))),
    lambda rng: quoted(str(IPv6Address(bytes(rng.choice([0, 0, 1, 255]) for _ in range(16))))),
)  # fmt: skip
