"""Types of columns and values for them, with the edges of each.

Lives here: types as text, literals as text. Does not live here: columns and tables (`ddl`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from .model import INTEGERS, Column
from .text import Dialect

WORDS: Final = (
    "", "a", "A", "b", "ab", "a ", "a  ", " a", "ä", "Ä", "ß", "ss", "é", "it's", 'say "x"', "`b`",
    "x -- y", "/* c */", "# no", "a;b", "back\\slash", "\\", "%_", "tab\there", "line\nend", "0",
    "-1", "12abc", "1e3", "NULL", "2024-01-02", "{}", "x" * 30, "ж", "日本", "😀", "e\u0301",
    "\u00a0", "DROP TABLE t", "ALTER",
)  # fmt: skip
_MEMBERS: Final = ("a", "b", "c", "d", "x y", "ä", "it's", "A1", "0", "#", '"', "B(b)")
_COLLATIONS: Final = {
    "mariadb": (
        "CHARACTER SET latin1", "CHARACTER SET utf8mb3", "COLLATE utf8mb4_bin",
        "CHARACTER SET ucs2", "COLLATE utf8mb4_general_ci", "CHARACTER SET ascii",
        "COLLATE utf8mb4_nopad_bin", "CHARACTER SET utf16", "CHARACTER SET cp1251",
        "CHARACTER SET sjis",
    ),
    "mysql": (
        "CHARACTER SET latin1", "CHARACTER SET utf8mb3", "COLLATE utf8mb4_bin",
        "CHARACTER SET ucs2", "COLLATE utf8mb4_0900_ai_ci", "CHARACTER SET ascii",
        "COLLATE utf8mb4_0900_as_cs", "CHARACTER SET utf16", "CHARACTER SET cp1251",
        "CHARACTER SET gbk",
    ),
}  # fmt: skip
GEOMETRIES: Final = (
    "POINT(1 2)", "LINESTRING(0 0, 1 1)", "POLYGON((0 0, 0 1, 1 1, 0 0))",
    "MULTIPOINT(0 0, 2 2)", "GEOMETRYCOLLECTION(POINT(1 1))",
)  # fmt: skip
DOCUMENTS: Final = (
    '{"a": 1}', "[]", "null", '"text"', "1.5", "true", '[1, -2.5, {"b": [null]}]',
    '{"ä": "😀", "k": 18446744073709551615}', '{"z": {}, "a": ""}',
)  # fmt: skip


def new_type(dialect: Dialect, rng: random.Random) -> str:
    """A type for a column, with all that belongs to it."""
    return rng.choice(_TYPES)(dialect, rng)


def key_type(dialect: Dialect, rng: random.Random) -> str:
    """A type for a column of a key."""
    kinds = [
        "INT", "INT", "INT", "BIGINT", "BIGINT UNSIGNED", "SMALLINT", "TINYINT UNSIGNED",
        "VARCHAR(20)", "VARCHAR(12) COLLATE utf8mb4_bin", "CHAR(6)", "VARBINARY(8)", "BINARY(4)",
        "DECIMAL(6,2)", "DATE", "DATETIME(3)", "VARCHAR(20) CHARACTER SET latin1",
        "ENUM('a','b','c','d','e')", "YEAR", "MEDIUMINT UNSIGNED ZEROFILL",
    ]  # fmt: skip
    if dialect.mariadb:
        kinds += ["UUID", "INET4", "VARCHAR(20) COLLATE utf8mb4_nopad_bin"]
    return rng.choice(kinds)


def _integer(_: Dialect, rng: random.Random) -> str:
    kind = rng.choice(("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "INT", "TINYINT(1)"))
    return kind + rng.choice(("", "", " UNSIGNED", " UNSIGNED ZEROFILL"))


def _number(_: Dialect, rng: random.Random) -> str:
    digits = rng.choice((5, 10, 18, 38, 39, 65))
    scale = rng.choice((0, 1, 2, 4, 30))
    kinds = (
        f"DECIMAL({digits},{min(scale, digits)})", f"DECIMAL({digits},{min(scale, digits)})",
        "FLOAT", "DOUBLE", "FLOAT(7,2)", "DOUBLE(10,3)", "DOUBLE UNSIGNED", "BIT(1)", "BIT(10)",
        "BIT(64)", "YEAR", "BOOLEAN", "DECIMAL(8,3) UNSIGNED",
    )  # fmt: skip
    return rng.choice(kinds)


def _text(dialect: Dialect, rng: random.Random) -> str:
    kinds = ["CHAR(4)", "CHAR(20)", "VARCHAR(5)", "VARCHAR(20)", "VARCHAR(80)", "VARCHAR(300)"]
    kinds += ["TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"]
    kind = rng.choice(kinds)
    extra = f" {rng.choice(_COLLATIONS[dialect.flavor])}" if rng.random() < 0.3 else ""
    return kind + extra


def _bytes(_: Dialect, rng: random.Random) -> str:
    kinds = ("BINARY(2)", "BINARY(8)", "VARBINARY(4)", "VARBINARY(30)", "TINYBLOB", "BLOB")
    return rng.choice((*kinds, "MEDIUMBLOB", "LONGBLOB"))


def _moment(_: Dialect, rng: random.Random) -> str:
    fraction = rng.choice(("", "", "(1)", "(3)", "(6)"))
    kind = rng.choice(("DATE", "TIME", "DATETIME", "DATETIME", "TIMESTAMP"))
    if kind == "DATE":
        return kind
    if kind == "TIMESTAMP" and rng.random() < 0.6:
        return f"{kind}{fraction} NULL"
    return f"{kind}{fraction}"


def listed(dialect: Dialect, rng: random.Random) -> str:
    """An ENUM or a SET."""
    labels = rng.sample(_MEMBERS, rng.randint(1, 6))
    if "a" not in labels:
        labels.append("a")
    return listing(rng.choice(("ENUM", "SET")), labels, dialect, rng)


def listing(kind: str, labels: list[str], dialect: Dialect, rng: random.Random) -> str:
    """An ENUM or a SET of these labels."""
    return f"{kind}({','.join(dialect.string(label, rng) for label in labels)})"


def _special(dialect: Dialect, rng: random.Random) -> str:
    both = ["JSON", "POINT", "GEOMETRY"]
    if dialect.mariadb:
        return rng.choice((*both, "UUID", "INET4", "INET6", "VARCHAR(90) COMPRESSED"))
    return rng.choice((*both, "VECTOR(3)", "LINESTRING"))


_TYPES: Final[tuple[Callable[[Dialect, random.Random], str], ...]] = (
    _integer, _integer, _integer, _number, _number, _text, _text, _text, _bytes, _moment, _moment,
    listed, listed, _special,
)  # fmt: skip


# --- values ---------------------------------------------------------------------------------------


def key_value(column: Column, dialect: Dialect, rng: random.Random) -> str:
    """A value of a small set, so that statements meet the same rows."""
    number = rng.randrange(9)
    kind = column.kind
    if kind in INTEGERS or kind == "decimal":
        return str(number)
    if kind in {"binary", "varbinary"}:
        return f"x'{number:02x}00'" if rng.random() < 0.3 else f"x'{number + 0x61:02x}'"
    if kind == "date":
        return f"'2024-02-{number + 20}'"
    if kind in {"datetime", "timestamp"}:
        return f"'2024-02-{number + 20} 00:00:00'"
    if kind == "year":
        return str(2000 + number)
    if kind == "enum" and column.members:
        return dialect.string(column.members[number % len(column.members)], rng)
    if kind == "uuid":
        return f"'00000000-0000-0000-0000-00000000000{number}'"
    if kind == "inet4":
        return f"'10.0.0.{number}'"
    if column.charset and kind in {"char", "varchar"}:
        words = ("a", "A", "ab", "b", "a ", "ä" if column.charset != "ascii" else "c", "", "d", "e")
        return dialect.string(words[number], rng)
    return value(column, dialect, rng)


def value(column: Column, dialect: Dialect, rng: random.Random) -> str:
    """A literal for a column; NULL only where it is allowed."""
    if column.nullable and rng.random() < 0.12:
        return "NULL"
    make = _VALUES.get(column.kind)
    return "NULL" if make is None else make(column, dialect, rng)


def _whole(column: Column, _: Dialect, rng: random.Random) -> str:
    bits = INTEGERS[column.kind]
    low, high = (0, 2**bits - 1) if column.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    number = rng.choice((low, high, 0, 1, -1, 5, rng.randint(-99, 99), rng.randint(low, high)))
    return str(max(low, min(high, number)))


def _decimal(column: Column, _: Dialect, rng: random.Random) -> str:
    digits, scale = (*column.numbers, 10, 0)[:2] if len(column.numbers) > 1 else (10, 0)
    whole = digits - scale
    number = rng.choice(("0", "1", "9" * max(1, whole), "5"))[: max(1, whole)] if whole else "0"
    fraction = rng.choice(("", "5", "125", "9" * 30, "000000000000000000000000000001"))[:scale]
    sign = "-" if not column.unsigned and rng.random() < 0.4 else ""
    return f"{sign}{number}.{fraction}" if fraction else f"{sign}{number}"


def _real(column: Column, _: Dialect, rng: random.Random) -> str:
    small = ("0", "1.5", "-1.5", "0.1", "12.345678", "-0.0", "99.99", "1234.567")
    large = ("3.4e38", "-1e-38", "16777217", "1e-45") if column.kind == "float" else (
        "1.7976931348623157e308", "5e-324", "9007199254740993", "0.30000000000000004"
    )  # fmt: skip
    text = rng.choice(small if column.numbers else (*small, *large))
    return text.lstrip("-") if column.unsigned else text


def _bits(column: Column, _: Dialect, rng: random.Random) -> str:
    size = (column.numbers or (1,))[0]
    return f"b'{rng.choice((0, 1, 2**size - 1, rng.randrange(2**size))):b}'"


def _string(column: Column, dialect: Dialect, rng: random.Random) -> str:
    word = rng.choice(WORDS)
    if rng.random() < 0.3:
        word += rng.choice(WORDS)
    codec = {"latin1": "latin-1", "ascii": "ascii", "cp1251": "cp1251", "sjis": "ascii",
             "gbk": "gbk"}.get(column.charset)  # fmt: skip
    if codec:
        word = word.encode(codec, "ignore").decode(codec)
    if column.charset in {"utf8mb3", "ucs2"}:
        word = "".join(letter for letter in word if ord(letter) < 0x10000)
    return dialect.string(word[: column.length or None], rng)


def _binary(column: Column, _: Dialect, rng: random.Random) -> str:
    size = rng.randrange(min(column.length or 20, 20) + 1)
    return f"x'{rng.choice((rng.randbytes(size), b'a' * size, bytes(size))).hex()}'"


_DAYS: Final = ("2024-02-29", "1000-01-01", "9999-12-31", "1970-01-01", "2026-11-25", "0001-01-01")
_HOURS: Final = ("00:00:00", "23:59:59", "12:34:56.789", "01:02:03.123456", "23:59:59.999999")


def _day(_: Column, __: Dialect, rng: random.Random) -> str:
    return f"'{rng.choice((*_DAYS, '0000-00-00' if rng.random() < 0.2 else '2024-01-01'))}'"


def _date_time(column: Column, _: Dialect, rng: random.Random) -> str:
    if column.kind == "timestamp":
        days = ("1970-01-02", "2038-01-18", "2024-02-29", "2026-11-25")
        return f"'{rng.choice(days)} {rng.choice(_HOURS)}'"
    if rng.random() < 0.03:
        return "'0000-00-00 00:00:00'"
    return f"'{rng.choice(_DAYS[:5])} {rng.choice(_HOURS[:4])}'"


def _time(_: Column, __: Dialect, rng: random.Random) -> str:
    return f"'{rng.choice(('-838:59:59', '838:59:59', '00:00:00.5', '-00:00:01', *_HOURS))}'"


def _year(_: Column, __: Dialect, rng: random.Random) -> str:
    return rng.choice(("1901", "2155", "0", "2024"))


def _label(column: Column, dialect: Dialect, rng: random.Random) -> str:
    if column.kind == "enum":
        return dialect.string(rng.choice(column.members or ("",)), rng)
    some = rng.sample(column.members, rng.randint(0, len(column.members)))
    return dialect.string(",".join(some), rng)


def _document(_: Column, dialect: Dialect, rng: random.Random) -> str:
    return dialect.string(rng.choice(DOCUMENTS), rng)


def _shape(column: Column, _: Dialect, rng: random.Random) -> str:
    wanted = {"point": GEOMETRIES[:1], "linestring": GEOMETRIES[1:2]}.get(column.kind, GEOMETRIES)
    return f"ST_GeomFromText('{rng.choice(wanted)}')"


def _vector(_: Column, __: Dialect, rng: random.Random) -> str:
    return f"STRING_TO_VECTOR('[{rng.randrange(9)}, -1.5, 0]')"


def _uuid(_: Column, __: Dialect, rng: random.Random) -> str:
    return f"'{rng.choice(('0' * 8, 'f' * 8))}-1111-2222-3333-{rng.randrange(16**12):012x}'"


def _inet(column: Column, _: Dialect, rng: random.Random) -> str:
    return rng.choice(
        ("'0.0.0.0'", "'255.255.255.255'") if column.kind == "inet4" else ("'::1'", "'2001:db8::'")
    )


_VALUES: Final[dict[str, Callable[[Column, Dialect, random.Random], str]]] = {
    **dict.fromkeys(INTEGERS, _whole),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _string),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _binary),
    **dict.fromkeys(("geometry", "point", "linestring"), _shape),
    **dict.fromkeys(("inet4", "inet6"), _inet),
    **dict.fromkeys(("enum", "set"), _label),
    **dict.fromkeys(("datetime", "timestamp"), _date_time),
    **dict.fromkeys(("float", "double"), _real),
    "decimal": _decimal,
    "bit": _bits,
    "date": _day,
    "time": _time,
    "year": _year,
    "json": _document,
    "vector": _vector,
    "uuid": _uuid,
}
