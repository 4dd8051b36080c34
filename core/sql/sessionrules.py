"""What an expression leaves to the settings of the session that computes it.

Lives here: `left_to_settings`, for expressions whose functions all are known to depend on their
arguments alone. Does not live here: which functions these are (`expressions`).

Each rule was seen on MySQL 9.7 or MariaDB 10.11 (docs/decisions/0078-sources.md).
Invariant: where the tokens do not show that a setting has no say, it counts as having one.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ratchet.core.sql.lexer import SqlToken


@dataclass(frozen=True, slots=True)
class Operand:
    """A column as an expression meets it.

    Attributes:
        kind: DATA_TYPE in lower case; "auto_increment" for such a column.
        fraction: digits of its seconds.
    """

    kind: str
    fraction: int = 0


_REAL: Final = frozenset({"float", "double"})
_DAYS: Final = frozenset({"date", "datetime"})
_MOMENTS: Final = _DAYS | {"time"}
_WHOLE: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"})
_NUMBERS: Final = _REAL | _WHOLE | {"decimal"}
# Functions that read an argument as a date or a time, or give one.
_READ_AS_MOMENT: Final = frozenset(
    [
        "ADDDATE",
        "ADDTIME",
        "DATE",
        "DATEDIFF",
        "DATE_ADD",
        "DATE_FORMAT",
        "DATE_SUB",
        "DAY",
        "DAYOFMONTH",
        "DAYOFWEEK",
        "DAYOFYEAR",
        "EXTRACT",
        "FROM_DAYS",
        "HOUR",
        "INTERVAL",
        "LAST_DAY",
        "MAKEDATE",
        "MAKETIME",
        "MICROSECOND",
        "MINUTE",
        "MONTH",
        "QUARTER",
        "SECOND",
        "SEC_TO_TIME",
        "SUBDATE",
        "SUBTIME",
        "TIME",
        "TIMEDIFF",
        "TIMESTAMP",
        "TIMESTAMPADD",
        "TIMESTAMPDIFF",
        "TIME_TO_SEC",
        "TO_DAYS",
        "TO_SECONDS",
        "WEEKDAY",
        "WEEKOFYEAR",
        "YEAR",
        "YEARWEEK",
    ]
)
_MOMENT_TYPES: Final = frozenset({"DATE", "DATETIME", "TIME", "YEAR"})
_COUNTED: Final = frozenset({"MAKEDATE", "FROM_DAYS"})
# Results that may be longer than what they are made of by as much as a number says.
_GROWING: Final = frozenset({"REPEAT", "LPAD", "RPAD", "SPACE"})
_LONGEST: Final = 4096  # characters; far below any max_allowed_packet
_OPENS: Final = SqlToken("sign", "(")
_BYTES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
# Operators and functions that compare texts by a collation.
_COMPARES: Final = frozenset({"IN", "LIKE", "BETWEEN", "REGEXP", "RLIKE", "WHEN"})
_COMPARING: Final = frozenset(
    {"FIELD", "FIND_IN_SET", "INSTR", "LOCATE", "POSITION", "REPLACE", "STRCMP", "NULLIF"}
    | {"GREATEST", "LEAST", "SUBSTRING_INDEX"}
)
# Functions that make a text of anything.
_MAKES_TEXT: Final = frozenset(
    {"BIN", "CASE", "CHAR", "COALESCE", "CONCAT", "CONCAT_WS", "CONV", "ELT", "EXPORT_SET"}
    | {"FORMAT", "FROM_BASE64", "HEX", "IF", "IFNULL", "INET_NTOA", "INET6_NTOA", "LPAD"}
    | {"MAKE_SET", "MD5", "OCT", "QUOTE", "REPEAT", "RPAD", "SHA", "SHA1", "SHA2", "SPACE"}
    | {"TO_BASE64"}
)
_LONG: Final = frozenset({"mediumtext", "longtext", "mediumblob", "longblob"})
_GLUES: Final = frozenset({"CONCAT", "CONCAT_WS", "REPLACE", "INSERT", "TO_BASE64", "EXPORT_SET"})
_GLUES_MORE: Final = frozenset({"QUOTE", "REGEXP_REPLACE", "JSON_ARRAY", "JSON_OBJECT"})
_MAKES_LONG: Final = _GLUES | _GLUES_MORE | _GROWING
_DATE: Final = re.compile(
    r"'(\d{4}-\d\d-\d\d)(?:[ T](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?)?'"
)
_TIME: Final = re.compile(r"'-?(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?'")


def left_to_settings(
    tokens: Sequence[SqlToken], columns: Mapping[str, Operand], own: Operand, *, mariadb: bool
) -> str:
    """Which setting may have a say in the value, and by what; empty: none.

    Args:
        tokens: the expression's.
        columns: the table's, by name in lower case.
        own: the generated column.
        mariadb: whether a MariaDB computes it.
    """
    used = [columns[t.text.casefold()] for t in tokens if t.kind == "name"]
    words = {token.word for token in tokens}
    return (
        _own(own)
        or _division(tokens, columns)
        or _padding(tokens, columns)
        or _backslashes(tokens, mariadb=mariadb)
        or _patterns(tokens, words, mariadb=mariadb)
        or (not mariadb and _collations(tokens, columns))
        or _growth(tokens, words, used, own)
        or _moments(tokens, words, used, own)
    )


def _own(own: Operand) -> str:
    return "time_zone, as it is a TIMESTAMP itself" if own.kind == "timestamp" else ""


def _division(tokens: Sequence[SqlToken], columns: Mapping[str, Operand]) -> str:
    """`/` gives a DOUBLE, without a setting, only where one side is surely one."""
    for at, token in enumerate(tokens):
        if token.kind == "sign" and token.text == "/":
            sides = [*tokens[max(at - 1, 0) : at], *tokens[at + 1 : at + 2]]
            kinds = {columns[t.text.casefold()].kind for t in sides if t.kind == "name"}
            real = any(t.word[:1].isdigit() and t.word.endswith("E0") for t in sides)
            if not real and not kinds & _REAL:
                return "div_precision_increment, by /"
    return ""


def _padding(tokens: Sequence[SqlToken], columns: Mapping[str, Operand]) -> str:
    """A CHAR's spaces at its end: no matter where they are cut off, or where it is NULL or not."""
    for at, token in enumerate(tokens):
        if token.kind != "name" or columns[token.text.casefold()].kind != "char":
            continue
        before = [one.word or one.text for one in tokens[max(at - 2, 0) : at]]
        behind = [one.word or one.text for one in tokens[at + 1 : at + 2]]
        if behind == ["IS"] or (before in (["TRIM", "("], ["RTRIM", "("]) and behind == [")"]):
            continue
        return f"sql_mode PAD_CHAR_TO_FULL_LENGTH, by the CHAR {token.text}"
    return ""


def _backslashes(tokens: Sequence[SqlToken], *, mariadb: bool) -> str:
    found = any(token.kind == "string" and "\\" in token.text for token in tokens)
    return "sql_mode NO_BACKSLASH_ESCAPES, by a backslash" if found and not mariadb else ""


def _patterns(tokens: Sequence[SqlToken], words: set[str], *, mariadb: bool) -> str:
    for at, token in enumerate(tokens):
        if token.word == "LIKE":
            rest = [one for one in tokens[at + 1 : at + 4] if one.text != "("]
            pattern = rest[1:2] if rest and rest[0].text.startswith("_") else rest[:1]
            if not pattern or pattern[0].kind != "string" or "\\" in pattern[0].text:
                return "sql_mode NO_BACKSLASH_ESCAPES, by LIKE"
    if mariadb and (words & {"REGEXP", "RLIKE"} or any(w.startswith("REGEXP_") for w in words)):
        return "default_regex_flags, by REGEXP"
    return ""


def _collations(tokens: Sequence[SqlToken], columns: Mapping[str, Operand]) -> str:
    """Texts that are compared have the session's collation, unless a column's text is among them.

    One that is converted to another character set has it too, whatever it is made of.
    """
    reason = "default_collation_for_utf8mb4, by texts that are compared"
    for at, token in enumerate(tokens):
        called = _opens(tokens, at + 1)
        if called and (token.word in _COMPARING or token.word.startswith("REGEXP_")):
            sides = [_call(tokens, at)]
        elif (token.kind == "sign" and token.text in "=<>") or token.word in _COMPARES:
            sides = [_left(tokens, at), _right(tokens, at)]
        else:
            continue
        if all(_is_loose(side, columns) for side in sides):
            return reason
    return ""


def _is_loose(side: Sequence[SqlToken], columns: Mapping[str, Operand]) -> bool:
    """Whether it is a text whose collation no column decides."""
    words = {token.word for token in side}
    kinds = {columns[token.text.casefold()].kind for token in side if token.kind == "name"}
    if words & {"CONVERT", "CAST", "CHAR"} and not words & {"COLLATE", "SIGNED", "UNSIGNED"}:
        return True
    if "COLLATE" in words or kinds - _NUMBERS - _MOMENTS - _BYTES:
        return False
    return bool(words & _MAKES_TEXT) or any(token.kind == "string" for token in side)


def _left(tokens: Sequence[SqlToken], at: int) -> Sequence[SqlToken]:
    """The value in front of an operator: one token, or a call with its name."""
    end, depth = at, 0
    while at > 0:
        at -= 1
        depth += {")": 1, "(": -1}.get(tokens[at].text, 0) if tokens[at].kind == "sign" else 0
        if depth <= 0:
            break
    begin = at - 1 if at and tokens[at] == _OPENS and tokens[at - 1].word else at
    return tokens[begin:end]


def _right(tokens: Sequence[SqlToken], at: int) -> Sequence[SqlToken]:
    """The value behind an operator: an introduced text, one token, or a call."""
    at += 1
    while at < len(tokens) and tokens[at].kind == "sign" and tokens[at].text in "=<>":
        at += 1
    if _opens(tokens, at):
        return _call(tokens, at - 1)
    if _opens(tokens, at + 1):
        return _call(tokens, at)
    return tokens[at : at + 2] if tokens[at : at + 1] and tokens[at].word else tokens[at : at + 1]


def _opens(tokens: Sequence[SqlToken], at: int) -> bool:
    return at < len(tokens) and tokens[at] == _OPENS


def _call(tokens: Sequence[SqlToken], at: int) -> Sequence[SqlToken]:
    """A word and the parenthesis behind it, up to its end."""
    depth = 0
    for end in range(at + 1, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[end].text, 0) if tokens[end].kind == "sign" else 0
        if depth == 0:
            return tokens[at : end + 1]
    return tokens[at:]


def _growth(
    tokens: Sequence[SqlToken], words: set[str], used: Sequence[Operand], own: Operand
) -> str:
    for at, token in enumerate(tokens):
        if token.word in _GROWING and tokens[at + 1 : at + 2]:
            args = _arguments(tokens, at + 1)
            count = args[0 if token.word == "SPACE" else 1] if len(args) > 1 else (args or [[]])[0]
            text = count[0].word if len(count) == 1 else ""
            if not text.isdigit() or int(text) > _LONGEST:
                return f"max_allowed_packet, by {token.word}()"
    if _LONG & {own.kind, *(one.kind for one in used)} and words & _MAKES_LONG:
        return f"max_allowed_packet, by {min(words & _MAKES_LONG)}(), as it may be long"
    return ""


def _arguments(tokens: Sequence[SqlToken], at: int) -> list[list[SqlToken]]:
    """Of a call whose parenthesis stands there."""
    found: list[list[SqlToken]] = [[]]
    depth = 0
    for token in tokens[at:]:
        if token.kind == "sign" and token.text in "()":
            depth += 1 if token.text == "(" else -1
            if depth == 0:
                break
            if depth == 1 and token.text == "(":
                continue
        if depth == 1 and token.kind == "sign" and token.text == ",":
            found.append([])
        else:
            found[-1].append(token)
    return found


def _moments(
    tokens: Sequence[SqlToken], words: set[str], used: Sequence[Operand], own: Operand
) -> str:
    """Dates that do not exist, and fractions of seconds that are cut or rounded."""
    kinds = {one.kind for one in used}
    reads = bool(words & _READ_AS_MOMENT) or _is_cast(tokens) or own.kind in _MOMENTS
    if not reads and not kinds & _MOMENTS:
        return ""
    return (
        _times(words, kinds, own)
        or _read(tokens, words, kinds, own)
        or _fractions(tokens, words, used, own)
        or _chosen(tokens, words, kinds, own)
    )


def _read(tokens: Sequence[SqlToken], words: set[str], kinds: set[str], own: Operand) -> str:
    """Texts and numbers that are taken for dates and times."""
    compares = any(t.kind == "sign" and t.text in "=<>" for t in tokens)
    if kinds - _MOMENTS - _NUMBERS and (compares or not _only_texts(words, own)):
        return "sql_mode (ALLOW_INVALID_DATES and others), by a date or time that is read from text"
    counted = own.kind in _MOMENTS and not kinds & _MOMENTS and not words & _COUNTED
    if kinds & _NUMBERS and (_is_cast(tokens) or counted):
        return "sql_mode (NO_ZERO_IN_DATE and others), by a date or time from a number"
    if any(t.kind == "string" and _looks_dated(t.text) and not _is_moment(t.text) for t in tokens):
        return "sql_mode (NO_ZERO_DATE and others), by a date or time that is none"
    return ""


def _fractions(
    tokens: Sequence[SqlToken], words: set[str], used: Sequence[Operand], own: Operand
) -> str:
    kinds = {one.kind for one in used}
    finest = max((one.fraction for one in used), default=0)
    rounds = own.kind in _MOMENTS and own.fraction < finest
    cut = finest and (_is_cast(tokens) or words & {"TIME", "TIMESTAMP"} or own.kind in _NUMBERS)
    parts = words & {"MAKETIME", "SEC_TO_TIME", "INTERVAL", "TIMESTAMPADD"}
    made = parts and kinds & (_REAL | {"decimal"})
    if rounds or (cut and own.kind != "date" and not words & _SHOWN) or made:
        return "sql_mode (TIME_TRUNCATE_FRACTIONAL), by fractions of seconds"
    return ""


def _chosen(tokens: Sequence[SqlToken], words: set[str], kinds: set[str], own: Operand) -> str:
    """Dates that are made, and checked when they are made."""
    if not kinds & _DAYS:
        return ""
    if words & {"GREATEST", "LEAST", "NULLIF"} or (words & _CHOICES and own.kind not in _MOMENTS):
        return "sql_mode (NO_ZERO_DATE and others), by a choice between dates"
    if "LAST_DAY" in words and "datetime" in kinds:
        return "sql_mode (NO_ZERO_IN_DATE), by LAST_DAY() of a DATETIME"
    again = words & {"DATE", "TIMESTAMP", "LAST_DAY"} or _is_cast(tokens)
    if again and own.kind not in _MOMENTS:
        return "sql_mode (NO_ZERO_DATE and others), by a date that is made and read again"
    return ""


def _times(words: set[str], kinds: set[str], own: Operand) -> str:
    """A TIME that meets a date becomes one of today."""
    if "time" not in kinds:
        return ""
    meets = kinds & _DAYS or own.kind in _DAYS or words & {"EXTRACT", "INTERVAL"}
    apart = words & {"ADDTIME", "SUBTIME"} or (_only_texts(words, own) and "CONCAT" in words)
    return "the day on which a TIME is read as a date" if meets and not apart else ""


_CHOICES: Final = frozenset({"COALESCE", "IFNULL", "NVL", "NVL2"})
_SHOWN: Final = frozenset({"MICROSECOND", "TIMESTAMPDIFF", "TIME_TO_SEC", "EXTRACT"})


def _only_texts(words: set[str], own: Operand) -> bool:
    """Whether dates are only shown beside texts: CONCAT(d, v)."""
    return not words & _READ_AS_MOMENT and own.kind not in _MOMENTS and words <= _SHOWING


_SHOWING: Final = frozenset({"", "CONCAT", "CONCAT_WS", "IF", "IS", "NOT", "NULL", "AND", "OR"})


def _is_cast(tokens: Sequence[SqlToken]) -> bool:
    """Whether something is turned into a date or time."""
    pairs = itertools.pairwise(tokens)
    return any(a.word in {"AS", "RETURNING"} and b.word in _MOMENT_TYPES for a, b in pairs)


def _looks_dated(text: str) -> bool:
    return text[1:2].isdigit() and ("-" in text or ":" in text)


def _is_moment(text: str) -> bool:
    found = _DATE.fullmatch(text)
    if found is None:
        return _TIME.fullmatch(text) is not None
    try:
        datetime.date.fromisoformat(found[1])
    except ValueError:
        return False
    return True
