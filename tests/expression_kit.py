"""Expressions of VIRTUAL columns over columns of all types, and the settings they may depend on."""

# ruff: noqa: E501 - tables of expressions

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

COLUMNS: Final = {
    "n": "INT", "u": "INT UNSIGNED", "big": "BIGINT", "de": "DECIMAL(20,4)", "f": "DOUBLE",
    "fl": "FLOAT", "v": "VARCHAR(60)", "vb": "VARCHAR(60) COLLATE utf8mb4_bin",
    "l1": "VARCHAR(60) CHARACTER SET latin1", "tx": "TEXT", "c": "CHAR(10)", "bn": "BINARY(8)",
    "vbn": "VARBINARY(30)", "d": "DATE", "dt": "DATETIME", "dt6": "DATETIME(6)", "t": "TIME",
    "t6": "TIME(6)", "y": "YEAR", "j": "JSON", "e": "ENUM('a','b','x y')",
    "s": "SET('a','b','c')", "bt": "BIT(8)",
}  # fmt: skip
_USUAL: Final = {
    "n": "7", "u": "9", "big": "123456789012", "de": "12.3456", "f": "1.5", "fl": "2.25",
    "v": "'abc'", "vb": "'abc'", "l1": "'abé'", "tx": "'some text'", "c": "'ab'", "bn": "'xy'",
    "vbn": "'xyz'", "d": "'2024-02-29'", "dt": "'2024-02-29 12:34:56'",
    "dt6": "'2024-12-31 23:59:59.987654'", "t": "'12:34:56'", "t6": "'23:59:59.999999'",
    "y": "2024", "j": """'{"a": 1.5, "s": "text"}'""", "e": "'a'", "s": "'a,c'", "bt": "b'101'",
}  # fmt: skip
_ROWS: Final = (
    {},
    {"n": "1", "v": "'2024-02-31'", "vb": "'12:34:56.9999999'", "c": "''", "tx": "''", "de": "0.05"},
    {"d": "'2024-02-31'", "dt": "'2024-02-31 10:00:00'", "dt6": "'2024-02-31 10:00:00.95'"},
    {"n": "-7", "v": "'a_b'", "vb": "concat('a', char(10), 'b')", "c": "'2024-02-31'", "tx": "'12'",
     "t": "'-12:00:01'", "t6": "'-00:00:01.55'", "f": "-0.5", "de": "-3.3333"},
    dict.fromkeys(_USUAL, "NULL"),
)  # fmt: skip

_OF_ONE: Final = {
    "INT": (
        "LENGTH({x})", "CHAR_LENGTH({x})", "{x} IS NULL", "{x} > 1", "{x} = 'ABC'", "{x} LIKE 'a%'",
        "{x} IN ('ab', 'x')", "{x} REGEXP 'a.b'", "YEAR({x})", "MONTH({x})", "DAYOFMONTH({x})",
        "HOUR({x})", "MICROSECOND({x})", "TO_DAYS({x})", "WEEKDAY({x})", "CAST({x} AS SIGNED)",
        "LOCATE('b', {x})", "IF({x} > 1, 1, 0)", "ORD({x})", "CRC32({x})", "{x} DIV 2", "FLOOR({x})",
    ),
    "VARCHAR(200)": (
        "{x}", "UPPER({x})", "REVERSE({x})", "TRIM({x})", "LEFT({x}, 2)", "SUBSTR({x}, 2)", "MD5({x})",
        "CONCAT({x}, '!')", "COALESCE({x}, 'x')", "HEX({x})", "CAST({x} AS CHAR)", "LPAD({x}, 10, '0')",
        "REPEAT({x}, 3)", "DATE_FORMAT({x}, '%Y-%m')", "JSON_UNQUOTE(JSON_EXTRACT({x}, '$.s'))",
        "CASE WHEN {x} IS NULL THEN 'none' ELSE {x} END", "REPLACE({x}, 'B', 'x')",
    ),
    "DECIMAL(30,10)": (
        "{x}", "{x} + 1", "{x} - 5", "{x} * 2", "{x} * 0.01", "{x} / 3", "{x} MOD 3", "ROUND({x}, 1)",
        "ABS({x})", "CAST({x} AS DECIMAL(20,2))", "JSON_EXTRACT({x}, '$.a')",
    ),
    "DOUBLE": ("{x}", "{x} / 3", "{x} / 3e0", "SQRT({x})", "POW({x}, 2)"),
    "DATETIME": ("{x}", "CAST({x} AS DATETIME)", "{x} + INTERVAL 1 DAY"),
    "DATETIME(6)": ("{x}", "CAST({x} AS DATETIME(6))", "{x} - INTERVAL 1 HOUR"),
    "DATE": ("{x}", "DATE({x})", "{x} + INTERVAL 1 MONTH", "LAST_DAY({x})"),
    "TIME": ("{x}", "TIME({x})"),
    "CHAR(20)": ("{x}", "TRIM({x})"),
}  # fmt: skip
_OF_TWO: Final = {
    "INT": ("{x} = {y}", "{x} < {y}", "DATEDIFF({x}, {y})", "STRCMP({x}, {y})"),
    "VARCHAR(200)": ("CONCAT({x}, '-', {y})", "IFNULL({x}, {y})", "GREATEST({x}, {y})"),
    "DECIMAL(30,10)": ("{x} + {y}", "{x} * {y}", "{x} / {y}"),
}
_MODES: Final = (
    "PAD_CHAR_TO_FULL_LENGTH", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES", "PIPES_AS_CONCAT",
    "HIGH_NOT_PRECEDENCE", "IGNORE_SPACE", "NO_UNSIGNED_SUBTRACTION", "ALLOW_INVALID_DATES",
    "NO_ZERO_DATE", "NO_ZERO_IN_DATE", "ERROR_FOR_DIVISION_BY_ZERO", "REAL_AS_FLOAT",
)  # fmt: skip
_SETTINGS: Final = (
    "div_precision_increment = 0", "div_precision_increment = 30", "lc_time_names = 'de_DE'",
    "default_week_format = 3", "time_zone = '+09:00'", "NAMES latin1", "group_concat_max_len = 4",
    "collation_connection = ucs2_general_ci", "collation_connection = utf8mb4_bin",
    "collation_connection = utf8mb4_turkish_ci", "timestamp = 1", "sql_auto_is_null = 1",
)  # fmt: skip


def expressions() -> Iterator[tuple[str, str]]:
    """Expression and type of a generated column; a server does not take each of them."""
    for kind, forms in _OF_ONE.items():
        for form, x in product(forms, COLUMNS):
            yield form.format(x=f"`{x}`"), kind
    for kind, forms in _OF_TWO.items():
        for form, x, y in product(forms, COLUMNS, COLUMNS):
            yield form.format(x=f"`{x}`", y=f"`{y}`"), kind


def rows() -> Iterator[str]:
    """Rows of COLUMNS behind an id, as VALUES takes them."""
    for number, other in enumerate(_ROWS):
        yield f"({number}, {', '.join((_USUAL | other).values())}, 0)"


def settings(*, mariadb: bool) -> tuple[str, ...]:
    """What a session may SET."""
    own = (
        ("sql_mode = 'TIME_ROUND_FRACTIONAL'", "sql_mode = 'EMPTY_STRING_IS_NULL'",
         "sql_mode = 'ORACLE'", "default_regex_flags = 'DOTALL,EXTENDED'", "old_mode = ''")
        if mariadb
        else ("sql_mode = 'TIME_TRUNCATE_FRACTIONAL'",
              "default_collation_for_utf8mb4 = utf8mb4_general_ci")
    )  # fmt: skip
    return (*(f"sql_mode = '{mode}'" for mode in _MODES), *_SETTINGS, *own)
