"""Types near the one that a column has: what changes values most quietly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .draw import Draw
from .model import INTEGERS, Column
from .values import listing, new_type


def near(draw: Draw, column: Column) -> str:
    """A type near a column's own: what changes values most quietly."""
    if draw.maybe(0.1):
        return new_type(draw.dialect, draw.rng)
    make = _NEAR.get(column.kind)
    return column.full if make is None else make(draw, column)


def _near_list(draw: Draw, column: Column) -> str:
    labels, word = list(column.members) or ["a"], column.kind.upper()
    how = draw.rng.random()
    if how < 0.4:
        draw.rng.shuffle(labels)
    elif how < 0.6:
        labels.insert(draw.rng.randrange(len(labels) + 1), f"new{draw.rng.randrange(99)}")
    elif how < 0.75 and len(labels) > 1:
        labels.pop(draw.rng.randrange(len(labels)))
    elif how < 0.9:
        return "VARCHAR(60)"
    return listing(word, labels, draw.dialect, draw.rng)


def _near_integer(draw: Draw, column: Column) -> str:
    sign = draw.one(("", " UNSIGNED"))
    other = draw.one(tuple(INTEGERS)).upper() + sign
    return draw.one((column.kind.upper() + sign, other, "VARCHAR(30)"))


def _near_decimal(draw: Draw, column: Column) -> str:
    digits, scale = (*column.numbers, 10, 0)[:2] if len(column.numbers) > 1 else (10, 0)
    new = min(65, digits + draw.one((0, 0, 2)))
    return f"DECIMAL({new},{min(new, 30, draw.one((max(0, scale - 1), scale, scale + 2)))})"


def _near_real(draw: Draw, _: Column) -> str:
    kinds = ("FLOAT", "DOUBLE", "FLOAT(7,1)", "DOUBLE(10,1)", "DOUBLE(12,4)", "DOUBLE UNSIGNED")
    return draw.one(kinds)


def _near_word(draw: Draw, column: Column) -> str:
    size = max(1, column.length + draw.one((-2, 0, 0, 5, 60, 300)))
    charset = draw.one(("", "", "CHARACTER SET latin1", "CHARACTER SET utf8mb4", "BINARY"))
    return f"{draw.one((f'VARCHAR({size})', f'CHAR({min(size, 200)})', 'TEXT'))} {charset}"


def _near_text(draw: Draw, _: Column) -> str:
    kinds = ("TINYTEXT", "TEXT", "LONGTEXT", "VARCHAR(40)", "TEXT CHARACTER SET latin1", "BLOB")
    return draw.one(kinds)


def _near_binary(draw: Draw, column: Column) -> str:
    size = max(1, column.length + draw.one((-1, 0, 2, 4)))
    return draw.one((f"BINARY({min(size, 250)})", f"VARBINARY({size})", "BLOB"))


def _near_blob(draw: Draw, _: Column) -> str:
    return draw.one(("BLOB", "MEDIUMBLOB", "VARBINARY(40)", "LONGBLOB"))


def _near_moment(draw: Draw, column: Column) -> str:
    other = {"datetime": "TIMESTAMP", "timestamp": "DATETIME"}.get(column.kind, "TIME")
    own = column.kind.upper()
    return draw.one((own, own, other)) + draw.one(("", "(1)", "(3)", "(6)"))


_NEAR: Final[dict[str, Callable[[Draw, Column], str]]] = {
    **dict.fromkeys(("enum", "set"), _near_list),
    **dict.fromkeys(INTEGERS, _near_integer),
    **dict.fromkeys(("float", "double"), _near_real),
    **dict.fromkeys(("char", "varchar"), _near_word),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), _near_text),
    **dict.fromkeys(("binary", "varbinary"), _near_binary),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), _near_blob),
    **dict.fromkeys(("datetime", "timestamp", "time"), _near_moment),
    "decimal": _near_decimal,
}
