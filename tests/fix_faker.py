"""Tables with every type that a flavour has, and seeded values for them: boundaries, then random.

`every_type`: the tables of a flavour as a list of `FakeTable`.

Values are SQL literals, so that the server itself makes of them what it makes of a user's. Nothing
here knows how Ratchet decodes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import pytest

from tests import fake_values as values
from tests.fake_values import Pool

Kind = Literal[
    "int", "decimal", "float", "double", "bit", "year", "date", "datetime", "timestamp", "time",
    "text", "bytes", "json",
]  # fmt: skip

# Written with what a strict server refuses: zero and invalid dates, unknown ENUM labels, too long
# texts.
SQL_MODE = "ALLOW_INVALID_DATES"


@dataclass(frozen=True)
class FakeColumn:
    """A column and what may be in it.

    Attributes:
        name: any characters.
        definition: what stands behind the name in CREATE TABLE.
        kind: how a test should look at its values.
        pool: literals; None if the server makes the values (generated columns).
    """

    name: str
    definition: str
    kind: Kind
    pool: Pool | None

    @property
    def quoted(self) -> str:
        """The name as SQL takes it."""
        return f"`{self.name.replace('`', '``')}`"


@dataclass(frozen=True)
class FakeTable:
    """A table with a key `id` and columns of one family.

    Attributes:
        name: of the table.
        columns: all but the key.
        indexes: besides the key; some make a server keep columns that nobody sees.
    """

    name: str
    columns: tuple[FakeColumn, ...]
    indexes: tuple[str, ...] = ()

    @property
    def create_sql(self) -> str:
        """CREATE TABLE."""
        lines = ["id INT UNSIGNED NOT NULL PRIMARY KEY"]
        lines += [f"{column.quoted} {column.definition}" for column in self.columns]
        return f"CREATE TABLE `{self.name}` ({', '.join([*lines, *self.indexes])})"

    @property
    def given(self) -> list[FakeColumn]:
        """The columns that statements may set."""
        return [column for column in self.columns if column.pool]

    def rows(self, rng: random.Random, extra: int) -> list[list[str]]:
        """Literals for `given`: every boundary value once, NULLs, then `extra` random rows."""
        pools = [column.pool for column in self.given if column.pool]
        count = max(len(pool.boundary) for pool in pools) + 1
        rows = [[pool.at(number, rng) for pool in pools] for number in range(count)]
        rows += [[pool.draw(rng) for pool in pools] for _ in range(extra)]
        rows += [["NULL" for _ in pools]]
        rows += [[rng.choice(["NULL", pool.draw(rng)]) for pool in pools] for _ in range(extra)]
        return rows

    def insert_sql(self, first: int, rows: Sequence[Sequence[str]]) -> str:
        """INSERT of several rows whose ids count from `first`."""
        names = ", ".join(["id", *(column.quoted for column in self.given)])
        parts = [f"({', '.join([str(first + n), *row])})" for n, row in enumerate(rows)]
        return f"INSERT INTO `{self.name}` ({names}) VALUES {', '.join(parts)}"

    def update_sql(self, row_id: int, row: Sequence[str]) -> str:
        """UPDATE of all columns of one row."""
        parts = [f"{c.quoted} = {value}" for c, value in zip(self.given, row, strict=True)]
        return f"UPDATE `{self.name}` SET {', '.join(parts)} WHERE id = {row_id}"


def _column(definition: str, kind: Kind, pool: Pool | None, name: str = "") -> FakeColumn:
    return FakeColumn(name or f"c {definition.lower()}"[:64].strip(), definition, kind, pool)


def _integers() -> list[FakeColumn]:
    columns = [_column("BOOL", "int", values.integers(-128, 127))]
    for name, bits in (
        ("TINYINT", 8),
        ("SMALLINT", 16),
        ("MEDIUMINT", 24),
        ("INT", 32),
        ("BIGINT", 64),
    ):
        half, full = 1 << bits - 1, 1 << bits
        columns += [
            _column(name, "int", values.integers(-half, half - 1)),
            _column(f"{name} UNSIGNED", "int", values.integers(0, full - 1)),
            _column(f"{name}(5) ZEROFILL", "int", values.integers(0, full - 1)),
        ]
    return columns


def _numbers(flavor: str) -> list[FakeColumn]:
    forms = [(1, 0), (4, 2), (9, 0), (9, 9), (10, 0), (18, 2), (18, 9), (18, 18), (19, 0), (19, 19),
             (20, 5), (27, 9), (28, 10), (30, 30), (37, 1), (38, 0), (38, 10), (38, 30), (39, 0),
             (39, 20), (50, 25), (65, 0), (65, 30)]  # fmt: skip
    if flavor == "mariadb":
        forms += [(38, 38), (65, 38)]
    columns = [_column(f"DECIMAL({p},{s})", "decimal", values.decimals(p, s)) for p, s in forms]
    columns += [
        _column(f"DECIMAL({p},{s}) {more}", "decimal", values.decimals(p, s, negative=False))
        for p, s in ((10, 2), (30, 10), (65, 30))
        for more in ("UNSIGNED", "ZEROFILL")
    ]
    floats, doubles = values.floats(), values.doubles()
    columns += [
        _column(text, "float", floats)
        for text in ("FLOAT", "FLOAT(24)", "FLOAT UNSIGNED", "FLOAT(7,3)", "FLOAT(20,10)")
    ]
    columns += [
        _column(text, "double", doubles)
        for text in ("DOUBLE", "FLOAT(53)", "DOUBLE UNSIGNED", "DOUBLE(20,5)", "DOUBLE(53,30)")
    ]
    columns += [
        _column(f"BIT({n})", "bit", values.bits(n))
        for n in (1, 7, 8, 9, 31, 32, 33, 56, 57, 63, 64)
    ]
    columns.append(_column("YEAR", "year", values.YEARS))
    if flavor == "mariadb":
        columns.append(_column("YEAR(2)", "year", values.SHORT_YEARS))
    return columns


def _times() -> list[FakeColumn]:
    columns = [_column("DATE NULL", "date", values.DATES)]
    for n in range(7):
        columns += [
            _column(f"DATETIME({n}) NULL", "datetime", values.DATETIMES),
            _column(f"TIMESTAMP({n}) NULL", "timestamp", values.TIMESTAMPS),
            _column(f"TIME({n}) NULL", "time", values.TIMES),
        ]
    columns.append(
        _column(
            "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
            "timestamp",
            None,
            "touched",
        )
    )
    return columns


def _charsets(charsets: Sequence[str]) -> list[FakeColumn]:
    pool = values.texts(20)
    return [
        _column(f"{form} CHARACTER SET {charset}", "text", pool)
        for charset in charsets
        for form in ("CHAR(6)", "VARCHAR(20)", "TEXT")
    ]


def _texts(collations: Sequence[str]) -> list[FakeColumn]:
    # Lengths around which the log changes its form: 255 and 256 bytes, in utf8mb4 63 and 64.
    columns = [
        _column(f"{form}({n}) CHARACTER SET utf8mb4", "text", values.texts(n))
        for form in ("CHAR", "VARCHAR")
        for n in (1, 63, 64, 127, 128, 255)
    ]
    columns += [
        _column(f"VARCHAR({n}) CHARACTER SET latin1", "text", values.texts(n))
        for n in (255, 256, 1000)
    ]
    columns += [
        _column(f"{form}TEXT CHARACTER SET utf8mb3", "text", values.texts(60))
        for form in ("TINY", "", "MEDIUM", "LONG")
    ]
    columns += [
        _column(f"VARCHAR(30) COLLATE {name}", "text", values.texts(30)) for name in collations
    ]
    return columns


def _labels() -> list[FakeColumn]:
    plain = ["a", "b c", "it's", 'say "x"', "back\\slash", "comma;", "", "Ünï", "x" * 60]
    many = [f"label {n}" for n in range(300)]
    columns = []
    for charset in ("utf8mb4", "latin1", "utf16", "ucs2", "cp1251", "sjis"):
        known = [
            label for label in plain if charset in {"utf8mb4", "latin1", "utf16"} or label != "Ünï"
        ]
        columns.append(
            _column(
                f"ENUM({_list(known)}) CHARACTER SET {charset}",
                "text",
                values.labels(known),
                f"enum {charset}",
            )
        )
        members = [label for label in known if label]
        columns.append(
            _column(
                f"SET({_list(members)}) CHARACTER SET {charset}",
                "text",
                values.subsets(members),
                f"set {charset}",
            )
        )
    columns.append(
        _column(f"ENUM({_list(many[:255])})", "text", values.labels(many[:255]), "enum of 255")
    )
    columns.append(_column(f"ENUM({_list(many)})", "text", values.labels(many), "enum of 300"))
    columns += [
        _column(f"SET({_list(many[:n])})", "text", values.subsets(many[:n]), f"set of {n}")
        for n in (1, 8, 9, 16, 17, 24, 25, 32, 33, 64)
    ]
    return columns


def _list(labels: Sequence[str]) -> str:
    return ", ".join(map(values.quoted, labels))


def _binaries() -> list[FakeColumn]:
    columns = [
        _column(f"{form}({n})", "bytes", values.binaries(n))
        for form in ("BINARY", "VARBINARY")
        for n in (1, 16, 255)
    ]
    columns += [_column(f"VARBINARY({n})", "bytes", values.binaries(n)) for n in (256, 1000)]
    return columns + [
        _column(f"{form}BLOB", "bytes", values.binaries(200))
        for form in ("TINY", "", "MEDIUM", "LONG")
    ]


def _shapes() -> list[FakeColumn]:
    return [_column(name, "bytes", values.shapes(name)) for name in values.GEOMETRIES]


def _made() -> list[FakeColumn]:
    """Generated and invisible columns, and names that need quoting."""
    text, number = values.texts(20), values.integers(-1000, 1000)
    joined = "(CONCAT(`ta``ck`, '!')) VIRTUAL"
    return [
        FakeColumn("a b", "INT", "int", number),
        FakeColumn("ta`ck", "VARCHAR(20) CHARACTER SET utf8mb4", "text", text),
        FakeColumn("ünï.cödé", "INT", "int", number),
        FakeColumn("'quotes\"%s", "INT", "int", number),
        FakeColumn("x" * 64, "INT", "int", number),
        FakeColumn("select", "INT", "int", number),
        FakeColumn("stored", "BIGINT GENERATED ALWAYS AS (`a b` * 2) STORED", "int", None),
        FakeColumn("virtual", "BIGINT GENERATED ALWAYS AS (`a b` + 7) VIRTUAL", "int", None),
        FakeColumn("text", f"VARCHAR(40) CHARACTER SET utf8mb4 AS {joined}", "text", None),
        FakeColumn("hidden", "INT INVISIBLE", "int", number),
        FakeColumn("default", "VARCHAR(20) CHARACTER SET utf8mb4 DEFAULT 'd'", "text", text),
        FakeColumn("long", "TEXT CHARACTER SET utf8mb4", "text", values.texts(50)),
        FakeColumn("last", "INT", "int", number),
    ]


def _mysql_own() -> list[FakeColumn]:
    made = "JSON GENERATED ALWAYS AS (JSON_OBJECT('k', `c json`)) STORED"
    return [
        _column("JSON", "json", values.documents()),
        _column("VECTOR(3)", "bytes", values.vectors(3)),
        _column("VECTOR", "bytes", values.vectors(5)),
        _column(made, "json", None, "made json"),
    ]


def _mariadb_own() -> list[FakeColumn]:
    texts, blobs = values.texts(300), values.binaries(3000)
    columns = [
        _column("JSON", "text", values.documents()),
        _column("UUID", "text", values.UUIDS),
        _column("INET4", "text", values.INET4S),
        _column("INET6", "text", values.INET6S),
    ]
    columns += [
        _column(f"{form} COMPRESSED CHARACTER SET {charset}", "text", texts)
        for form in ("VARCHAR(300)", "TEXT", "LONGTEXT")
        for charset in ("utf8mb4", "latin1", "utf16")
    ]
    columns += [
        _column(f"{form} COMPRESSED", "bytes", blobs)
        for form in ("VARBINARY(3000)", "TINYBLOB", "BLOB", "MEDIUMBLOB")
    ]
    return columns


SINGLE_BYTE = (
    "armscii8 ascii cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 dec8 geostd8 greek hebrew hp8 "
    "keybcs2 koi8r koi8u latin1 latin2 latin5 latin7 macce macroman swe7 tis620"
)
MULTI_BYTE = (
    "big5 cp932 eucjpms euckr gb2312 gbk sjis ucs2 ujis utf16 utf16le utf32 utf8mb3 utf8mb4"
)
COLLATIONS = {
    "mysql": "utf8mb4_0900_ai_ci utf8mb4_bin utf8mb4_ja_0900_as_cs utf8mb4_general_ci latin1_bin "
    "latin1_german2_ci utf8mb3_turkish_ci cp1251_bulgarian_ci gbk_bin sjis_bin ucs2_bin utf32_bin",
    "mariadb": "utf8mb4_uca1400_ai_ci utf8mb4_nopad_bin utf8mb4_general_ci utf8mb3_uca1400_ai_cs "
    "latin1_bin latin1_nopad_bin latin1_german2_ci utf8mb3_turkish_ci cp1251_bulgarian_ci "
    "utf8mb4_thai_520_w2 ucs2_uca1400_ai_ci utf16_uca1400_as_ci gbk_nopad_bin utf32_bin",
}


# A functional index stands on a hidden generated column, a UNIQUE key over a TEXT on a hidden hash.
INDEXES = {
    "mysql": ("INDEX ((`a b` + 1))", "INDEX (id, `long`(10))"),
    "mariadb": ("UNIQUE (id, `long`)",),
}


def every_type_tables(flavor: str) -> list[FakeTable]:
    """All tables of a flavour, "mysql" or "mariadb"."""
    more = ["gb18030"] if flavor == "mysql" else []
    families: dict[str, list[FakeColumn]] = {
        "integers": _integers(),
        "numbers": _numbers(flavor),
        "times": _times(),
        "single byte sets": _charsets(SINGLE_BYTE.split()),
        "multi byte sets": _charsets([*MULTI_BYTE.split(), *more]),
        "texts": _texts(COLLATIONS[flavor].split()),
        "labels": _labels(),
        "binaries": _binaries(),
        "shapes": _shapes(),
        "made": _made(),
        "own": _mysql_own() if flavor == "mysql" else _mariadb_own(),
    }
    return [
        FakeTable(name, tuple(columns), INDEXES[flavor] if name == "made" else ())
        for name, columns in families.items()
    ]


@pytest.fixture(scope="session")
def every_type() -> Callable[[str], list[FakeTable]]:
    """The tables with every type of a flavour."""
    return every_type_tables
