"""Whether the value of an SQL expression follows from its row alone.

Lives here: `outside_of_row`. Does not live here: which columns have such an expression, and what
becomes of them (`wire.decode.volatile`).

A VIRTUAL column is computed whenever it is read, by the session that reads it. The log has the
value that the writer's session saw. The two are the same only if nothing but the row decides.

Invariant: what is not known to depend on the row alone is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ratchet.core.sql.lexer import Mode, SqlToken, lex
from ratchet.core.sql.sessionrules import Operand, left_to_settings

_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)

# Functions that give the same for the same arguments, in every session, at any time. Left out on
# purpose: those that follow lc_time_names (DAYNAME, MONTHNAME), default_week_format (WEEK),
# sql_mode (STR_TO_DATE), time_zone (UNIX_TIMESTAMP, FROM_UNIXTIME, CONVERT_TZ), the moment, chance,
# the connection.
_NUMBERS: Final = (
    "ABS ACOS ASIN ATAN ATAN2 BIT_COUNT CEIL CEILING CONV COS COT CRC32 DEGREES DIV EXP FLOOR LN "
    "LOG LOG10 LOG2 MOD PI POW POWER RADIANS ROUND SIGN SIN SQRT TAN TRUNCATE"
)
_TEXTS: Final = (
    "ASCII BIN BIT_LENGTH CHAR CHARACTER_LENGTH CHAR_LENGTH CHR CONCAT CONCAT_WS ELT EXPORT_SET "
    "FIELD FIND_IN_SET FORMAT FROM_BASE64 HEX INSERT INSTR LCASE LEFT LENGTH LOCATE LOWER LPAD "
    "LTRIM MAKE_SET MID OCT OCTET_LENGTH ORD POSITION QUOTE REGEXP_INSTR REGEXP_LIKE "
    "REGEXP_REPLACE REGEXP_SUBSTR REPEAT REPLACE REVERSE RIGHT RPAD RTRIM SOUNDEX SPACE STRCMP "
    "SUBSTR SUBSTRING SUBSTRING_INDEX TO_BASE64 TRIM UCASE UNHEX UPPER"
)
_CHOICES: Final = "CASE COALESCE GREATEST IF IFNULL INTERVAL ISNULL LEAST NULLIF NVL NVL2"
_TIMES: Final = (
    "ADDDATE ADDTIME DATE DATEDIFF DATE_ADD DATE_SUB DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR EXTRACT "
    "FROM_DAYS HOUR LAST_DAY MAKEDATE MAKETIME MICROSECOND MINUTE MONTH PERIOD_ADD PERIOD_DIFF "
    "QUARTER SECOND SEC_TO_TIME SUBDATE SUBTIME TIME TIMEDIFF TIMESTAMP TIMESTAMPADD TIMESTAMPDIFF "
    "TIME_TO_SEC TO_DAYS TO_SECONDS WEEKDAY WEEKOFYEAR YEAR YEARWEEK"
)
_DOCUMENTS: Final = (
    "JSON_ARRAY JSON_ARRAY_APPEND JSON_ARRAY_INSERT JSON_COMPACT JSON_CONTAINS JSON_CONTAINS_PATH "
    "JSON_DEPTH JSON_EXISTS JSON_EXTRACT JSON_INSERT JSON_KEYS JSON_LENGTH JSON_MERGE "
    "JSON_MERGE_PATCH JSON_MERGE_PRESERVE JSON_NORMALIZE JSON_OBJECT JSON_OVERLAPS JSON_PRETTY "
    "JSON_QUERY JSON_QUOTE JSON_REMOVE JSON_REPLACE JSON_SEARCH JSON_SET JSON_TYPE JSON_UNQUOTE "
    "JSON_VALID JSON_VALUE"
)
_OTHERS: Final = (
    "BIN_TO_UUID CAST COMPRESS CONVERT INET6_ATON INET6_NTOA INET_ATON INET_NTOA IS_IPV4 "
    "IS_IPV4_COMPAT IS_IPV4_MAPPED IS_IPV6 IS_UUID MD5 SHA SHA1 SHA2 UNCOMPRESS "
    "UNCOMPRESSED_LENGTH UUID_TO_BIN"
)
_FUNCTIONS: Final = frozenset(
    f"{_NUMBERS} {_TEXTS} {_CHOICES} {_TIMES} {_DOCUMENTS} {_OTHERS}".split()
)
# Words that are no names: operators, constants, units, types behind CAST ... AS.
_OPERATORS: Final = (
    "AND AS BETWEEN BINARY BOTH CASE COLLATE DIV ELSE END ESCAPE FALSE FOR FROM IN INTERVAL IS "
    "LEADING LIKE MEMBER MOD NOT NULL OF OR REGEXP RLIKE SOUNDS THEN TRAILING TRUE UNKNOWN USING "
    "WHEN XOR"
)
_UNITS: Final = (
    "MICROSECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR SECOND_MICROSECOND "
    "MINUTE_MICROSECOND MINUTE_SECOND HOUR_MICROSECOND HOUR_SECOND HOUR_MINUTE DAY_MICROSECOND "
    "DAY_SECOND DAY_MINUTE DAY_HOUR YEAR_MONTH"
)
_KINDS: Final = (
    "ARRAY BIGINT CHAR CHARACTER CHARSET DATE DATETIME DECIMAL DOUBLE FLOAT INT INTEGER JSON NCHAR "
    "REAL SET SIGNED TIME UNSIGNED VARCHAR"
)
_WORDS: Final = frozenset(f"{_OPERATORS} {_UNITS} {_KINDS}".split())
_CALLED: Final = _FUNCTIONS | frozenset(f"{_OPERATORS} {_KINDS}".split())  # in front of (
_CHARSETS: Final = ("utf8", "utf16", "utf32", "ucs2", "latin", "ascii", "binary", "_")
# What makes a date of a TIME takes today's for it.
_DATED: Final = (
    "ADDDATE DATE DATEDIFF DATETIME DATE_ADD DATE_FORMAT DATE_SUB DAY DAYOFMONTH DAYOFWEEK "
    "DAYOFYEAR LAST_DAY MONTH QUARTER SUBDATE TIMESTAMP TIMESTAMPADD TIMESTAMPDIFF TO_DAYS "
    "TO_SECONDS WEEKDAY WEEKOFYEAR YEAR YEARWEEK"
)
_DATES: Final = frozenset(_DATED.split())
_TIME_MAKERS: Final = frozenset({"MAKETIME", "SEC_TO_TIME", "TIME", "TIMEDIFF"})
# Of a shape's bytes alone.
_UNPLACED: Final = frozenset({"ST_SRID", "ST_GEOMETRYTYPE", "ST_DIMENSION", "ST_NUMPOINTS"})
_NAMES_IN_FORMATS: Final = re.compile("%[abMW]")  # of days and months, in lc_time_names' language


def outside_of_row(
    expression: str, *, own: Operand, types: Mapping[str, Operand], mariadb: bool
) -> str:
    """What an expression depends on besides its row; empty if on nothing.

    Args:
        expression: GENERATION_EXPRESSION of information_schema.
        own: the generated column.
        types: the table's columns.
        mariadb: whether a MariaDB shows it. MySQL escapes it as if it stood in a string.
    """
    text = expression if mariadb else _ESCAPE.sub(lambda found: found[1], expression)
    lexed = lex(text, Mode(mariadb=mariadb))
    if lexed.unsure:
        return lexed.unsure
    operands = {name.casefold(): one for name, one in types.items()}
    if len(operands) < len(types):
        return "columns whose names differ in their letters' case alone"
    columns = {name: one.kind for name, one in operands.items()}
    tokens = lexed.tokens
    for at in range(len(tokens)):
        if reason := _outside(tokens, at, columns, mariadb=mariadb):
            return reason
    words = {token.word for token in tokens}
    used = {columns.get(token.text.casefold()) for token in tokens if token.kind == "name"}
    if words & _DATES and ("time" in used or words & _TIME_MAKERS):
        return "the day on which a TIME is read as a date"
    return left_to_settings(tokens, operands, own, mariadb=mariadb)


def _outside(
    tokens: Sequence[SqlToken], at: int, columns: Mapping[str, str], *, mariadb: bool
) -> str:
    """What one token depends on."""
    token = tokens[at]
    if token.kind == "name":
        kind = columns.get(token.text.casefold())
        if kind is None:
            return token.text  # a routine, perhaps
        if kind == "auto_increment":
            return f"the AUTO_INCREMENT column {token.text}, whose number comes later"
        return f"time_zone, by the TIMESTAMP {token.text}" if kind == "timestamp" else ""
    if token.kind == "word":
        if not mariadb and _is_placed(token.word):
            return f"spatial reference systems, by {token.word}()"
        return _outside_word(token.word, tokens, at + 1)
    return "a variable" if token.kind == "sign" and token.text == "@" else ""


def _is_placed(word: str) -> bool:
    """MySQL looks at what it knows of the shape's system, which a statement may change."""
    return word.startswith(("ST_", "MBR")) and word not in _UNPLACED


def _outside_word(word: str, tokens: Sequence[SqlToken], behind: int) -> str:
    """What a word depends on; `behind`: the number of the token that follows it."""
    following = tokens[behind] if behind < len(tokens) else None
    if following is not None and following.kind == "string":
        return ""  # X'41', _utf8mb4'x', DATE'2020-01-01'
    if word == "DATE_FORMAT":
        return "" if _is_plain_format(tokens, behind) else "lc_time_names, by DATE_FORMAT()"
    if following is not None and following.text == "(":
        known = word in _CALLED or word.startswith(("ST_", "MBR"))
        return "" if known else f"{word}()"
    known = word in _WORDS or word[0].isdigit() or word.lower().startswith(_CHARSETS)
    return "" if known else word


def _is_plain_format(tokens: Sequence[SqlToken], begin: int) -> bool:
    """Whether the last argument of a call that opens there has no names of days and months."""
    depth = 0
    for at in range(begin, len(tokens)):
        token = tokens[at]
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        if depth == 0:
            last = tokens[at - 1] if at > begin else token
            return last.kind == "string" and not _NAMES_IN_FORMATS.search(last.text)
    return False
