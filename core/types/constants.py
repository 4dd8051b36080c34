"""The value that a new column has in the rows that were there, where its definition tells it.

Lives here: DEFAULT and NOT NULL as a value of the lake. Does not live here: the grammar of a
definition (`core.sql.columns`).

Doubt by default: a value counts as known only where its text is written as the server would show it
and fits the type as it stands, so that no rounding, cutting, padding, time zone or sql_mode has a
say. `tests/integration/test_constants.py` asks the servers themselves.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from ratchet.core.rounds import StatementTime
from ratchet.core.schema import Column, ColumnType
from ratchet.core.sql.columns import NOW
from ratchet.core.sql.effects import AddedColumn
from ratchet.core.sql.lexer import SqlToken
from ratchet.core.types import InvalidValuePolicy, rule_for
from ratchet.core.types.numeric import INTEGER_BITS
from ratchet.core.types.text import WIDEST, are_apart

_NUMBER: Final = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?\Z")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_ZONE: Final = re.compile(r"([+-])([0-9]{1,2}):([0-9]{2})\Z")
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\Z")
_FIRST_YEAR: Final = 1000  # servers promise nothing of days before
_DIGITS: Final = 15  # that a double holds, whatever they are
# Printable ASCII, without what is another letter under character_set_connection=swe7.
_PLAIN: Final = re.compile(r"[\x20-?A-Z_a-z]*\Z")
_LONGEST: Final = 255
_WIDEST: Final = {**WIDEST, "ascii": 1}  # they have all of ASCII, where it is in ASCII
_LETTERS: Final = re.compile(r"[0-9A-Za-z_]*\Z")
_SYNONYMS: Final = {
    "INTEGER": "int", "DEC": "decimal", "NUMERIC": "decimal", "FIXED": "decimal",
    "CHARACTER": "char",
}  # fmt: skip
_BOOLEAN: Final = ("BOOL", "BOOLEAN")
# What NOT NULL without DEFAULT stands for.
_IMPLICIT: Final = {
    **dict.fromkeys((*INTEGER_BITS, "decimal", "float", "double"), "0"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), ""),
}


def constant_value(
    added: AddedColumn,
    column: Column,
    policy: InvalidValuePolicy,
    *,
    time: StatementTime | None = None,
) -> pa.Scalar | None:
    """The value of a new column in the rows that were there; None: it cannot be told for sure.

    Args:
        added: how the column came.
        column: as the server has described it since.
        policy: decides about the lake's types.
        time: when the statement began by which it came; None: not known.
    """
    kind = rule_for(column.type, policy).arrow
    if column.nullable == added.not_null or not _is_declared(added.declared, column.type):
        return None  # it has been changed since, or is written in words that are not known here
    if not (added.default or added.not_null):
        return None if column.type.name == "timestamp" else pa.scalar(None, kind)
    if is_now(added):
        now = None if time is None else _now(added.default, column.type, time)
        return None if now is None or kind == pa.string() else pa.scalar(now, kind)
    text = _implicit(column.type)
    if added.default:
        # The text of a number as a string is the server's affair.
        said = kind != pa.string() or added.default[0].kind == "string"
        text = _text(added.default) if said else None
        if text == "" and column.nullable:
            return None  # MariaDB's EMPTY_STRING_IS_NULL makes it NULL
    read = _READERS.get(column.type.name)
    value = None if text is None or read is None else read(text, column.type, added.declared)
    # Days and large numbers may be kept as the server's own text.
    same = isinstance(value, str) == (kind == pa.string())
    return pa.scalar(value, kind) if value is not None and same else None


def is_now(added: AddedColumn) -> bool:
    """Whether a new column's value is the time of the statement."""
    return bool(added.default) and added.default[0].word in NOW


def _now(default: Sequence[SqlToken], kind: ColumnType, time: StatementTime) -> dt.datetime | None:
    """CURRENT_TIMESTAMP as a value of a type; None: the log does not tell it to the last digit."""
    digits = _sizes(default, (0, 0))[0]
    if kind.name not in {"timestamp", "datetime"} or digits != kind.fraction or time.seconds <= 0:
        return None
    if digits and time.micros is None:
        return None
    unit = 10 ** (6 - digits)
    micros = (time.micros or 0) // unit * unit
    found = dt.datetime.fromtimestamp(time.seconds, dt.UTC).replace(microsecond=micros)
    if kind.name == "timestamp":
        return found
    zone = _ZONE.match(time.zone)  # one that has a name may have other rules there
    if zone is None:
        return None
    offset = dt.timedelta(hours=int(zone.group(2)), minutes=int(zone.group(3)))
    return found.replace(tzinfo=None) + (-offset if zone.group(1) == "-" else offset)


def _is_declared(declared: Sequence[SqlToken], kind: ColumnType) -> bool:
    """Whether a definition begins with that type, as far as values go by it."""
    words = [token.word for token in declared]
    name = words[0]
    if name in _BOOLEAN:
        return kind.name == "tinyint" and not kind.unsigned
    unsigned = "UNSIGNED" in words or "ZEROFILL" in words
    same = _SYNONYMS.get(name, name.lower()) == kind.name and unsigned == kind.unsigned
    known = kind.charset is None or kind.charset in _WIDEST
    return same and known and _has_sizes(declared, kind) and kind.members == _members(declared)


def _has_sizes(declared: Sequence[SqlToken], kind: ColumnType) -> bool:
    """Whether the numbers behind a definition's type are those of the type."""
    if kind.name == "decimal":
        return _sizes(declared, (10, 0)) == (kind.precision, kind.scale)
    if kind.name in {"datetime", "timestamp", "time"}:
        return _sizes(declared, (0, 0))[0] == kind.fraction
    if kind.name in {"char", "varchar"}:
        return _sizes(declared, (1, 0))[0] * _WIDEST[kind.charset] == kind.length
    return True


def _members(declared: Sequence[SqlToken]) -> tuple[str, ...]:
    """The labels of an ENUM or a SET."""
    if declared[0].word not in {"ENUM", "SET"}:
        return ()
    ends = next((n for n, token in enumerate(declared) if token.text == ")"), 0)
    return tuple(token.inner for token in declared[:ends] if token.kind == "string")


def _sizes(declared: Sequence[SqlToken], otherwise: tuple[int, int]) -> tuple[int, int]:
    """The numbers in parentheses behind a type."""
    if [token.text for token in declared[1:2]] != ["("]:
        return otherwise
    ends = next((n for n, token in enumerate(declared) if token.text == ")"), 0)
    found = [int(t.text) for t in declared[2:ends] if t.kind == "word" and t.text.isdigit()]
    return (found[0], found[1] if len(found) > 1 else 0) if found else (-1, -1)


def _text(default: Sequence[SqlToken]) -> str | None:
    """A constant's text; None: it is none that can be taken as it stands."""
    words = [token.word for token in default]
    if words in (["TRUE"], ["FALSE"]):
        return "1" if words == ["TRUE"] else "0"
    if len(default) == 1 and default[0].kind == "string":
        inner = default[0].inner
        plain = default[0].text.startswith("'") and "\\" not in inner
        return inner if plain and _PLAIN.match(inner) else None
    text = "".join(token.text for token in default)
    return text if _NUMBER.match(text) and all(t.kind != "string" for t in default) else None


def _implicit(kind: ColumnType) -> str | None:
    if kind.name == "enum":
        return kind.members[0] if kind.members else None
    return _IMPLICIT.get(kind.name)


def _integer(text: str, kind: ColumnType, _: Sequence[SqlToken]) -> int | Decimal | None:
    found = _NUMBER.match(text)
    if found is None or found.group(3) is not None:
        return None
    value, bits = int(text), INTEGER_BITS[kind.name]
    low, high = (0, 1 << bits) if kind.unsigned else (-(1 << bits - 1), 1 << bits - 1)
    if not low <= value < high:
        return None
    return Decimal(value) if kind.unsigned and kind.name == "bigint" else value


def _decimal(text: str, kind: ColumnType, _: Sequence[SqlToken]) -> Decimal | None:
    found = _NUMBER.match(text)
    precision, scale = kind.precision or 0, kind.scale or 0
    if found is None or len(found.group(3) or "") > scale:
        return None
    whole = found.group(2).lstrip("0")
    if len(whole) > precision - scale or (kind.unsigned and found.group(1)):
        return None
    return abs(Decimal(text)) if not Decimal(text) else Decimal(text)


def _double(text: str, kind: ColumnType, declared: Sequence[SqlToken]) -> float | None:
    found = _NUMBER.match(text)
    # With a number of digits behind the type the server rounds.
    if found is None or [token.text for token in declared[1:2]] == ["("]:
        return None
    if len(found.group(2) + (found.group(3) or "")) > _DIGITS:
        return None
    value = float(text)
    return None if found.group(1) and (kind.unsigned or value == 0) else value


def _string(text: str, kind: ColumnType, declared: Sequence[SqlToken]) -> str | None:
    longest = _LONGEST
    if kind.name in {"char", "varchar"}:
        longest = _sizes(declared, (1, 0))[0]
    # A CHAR shows no blanks at its end.
    return None if len(text) > longest or text.endswith(" ") else text


def _label(text: str, kind: ColumnType, _: Sequence[SqlToken]) -> str | None:
    """The server looks a label up by its collation, and takes the first that is the same to it."""
    sure = are_apart(kind.members) and all(map(_LETTERS.match, kind.members))
    return text if text in kind.members and (sure or text == kind.members[0]) else None


def _day(text: str, _: ColumnType, __: Sequence[SqlToken]) -> dt.date | None:
    try:
        found = dt.date.fromisoformat(text) if _DAY.match(text) else None
    except ValueError:
        return None
    return found if found is not None and found.year >= _FIRST_YEAR else None


def _moment(text: str, _: ColumnType, __: Sequence[SqlToken]) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(text) if _MOMENT.match(text) else None
    except ValueError:
        return None
    return found if found is not None and found.year >= _FIRST_YEAR else None


_READERS: Final[Mapping[str, Callable[[str, ColumnType, Sequence[SqlToken]], Any]]] = {
    **dict.fromkeys(INTEGER_BITS, _integer),
    "decimal": _decimal,
    **dict.fromkeys(("float", "double"), _double),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _string),
    "enum": _label,
    "date": _day,
    "datetime": _moment,
}
