"""Changes of rows that are logged as their statement, and what they may reach.

Lives here: whether a statement can have changed no other table than the one it names, as far as its
text tells. Does not live here: what the log or the server say besides (`statements`): a trigger, a
view or a foreign key may lead from that table to others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from ratchet.core.sql.cursor import NotUnderstoodError, TokenCursor
from ratchet.core.sql.effects import TableName
from ratchet.core.sql.lexer import SqlToken

HEADS: Final = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO", "SELECT", "EXECUTE"}
    | {"HANDLER", "TABLE", "VALUES", "IMPORT", "MERGE"}
)
# The grammar has nothing behind these that changes a table's shape.
CHANGES_ROWS_ONLY: Final = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "DO", "SELECT"}
)
_APART: Final = r"(?:\s+\(|\s*(?:/\*|\*/|--|\#))"  # a space or a remark, and perhaps a parenthesis
_OPENS: Final = SqlToken("sign", "(")
_CLOSES: Final = SqlToken("sign", ")")
_COMMA: Final = SqlToken("sign", ",")
_NAME: Final = 4  # tokens that a table's name takes, and one
# Clauses behind that of the tables that are read.
_BEHIND: Final = frozenset(
    {"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "RETURNING"}
)
# What may stand in front of a parenthesis and changes no row of any table: words of the grammar;
_GRAMMAR: Final = frozenset(
    {"VALUES", "VALUE", "IN", "AND", "OR", "XOR", "NOT", "SET", "ON", "BETWEEN", "LIKE", "THEN"}
    | {"ELSE", "WHEN", "CASE", "IF", "INTERVAL", "WHERE", "BY", "DIV", "MOD", "IS", "EXISTS"}
    | {"LIMIT", "AS", "DISTINCT", "ALL", "ANY", "SOME", "UNION", "CHAR", "BINARY", "ROW"}
    | {"DECIMAL", "SIGNED", "UNSIGNED", "DATETIME", "INDEX", "KEY", "USING", "OVER", "RETURNING"}
    | {"SELECT", "HAVING", "INTO", "PARTITION", "FORCE", "USE", "IGNORE"}
)
# and functions, if it follows at once: `MAX (1)` calls one that somebody has made of that name.
_FUNCTIONS: Final = frozenset(
    {"ABS", "ADDDATE", "ADDTIME", "BIT_AND", "BIT_COUNT", "BIT_OR", "BIT_XOR", "CAST", "CEIL"}
    | {"CEILING", "CHARACTER_LENGTH", "CHAR_LENGTH", "COALESCE", "CONCAT", "CONCAT_WS"}
    | {"CONNECTION_ID", "CONV", "CONVERT", "CONVERT_TZ", "COUNT", "CRC32", "CURDATE"}
    | {"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "CURTIME", "DATABASE"}
    | {"DATE", "DATEDIFF", "DATE_ADD", "DATE_FORMAT", "DATE_SUB", "DAY", "FLOOR", "FORMAT"}
    | {"FROM_UNIXTIME", "GREATEST", "HEX", "HOUR", "IFNULL", "INET_ATON", "ISNULL"}
    | {"LAST_INSERT_ID", "LEAST", "LEFT", "LENGTH", "LOCALTIME", "LOCALTIMESTAMP", "LOCATE"}
    | {"LOWER", "LPAD", "LTRIM", "MAX", "MD5", "MICROSECOND", "MIN", "MINUTE", "MONTH"}
    | {"NAME_CONST", "NOW"}  # a variable of a program's stands in the log as NAME_CONST('x', 1)
    | {"NULLIF", "POW", "POWER", "RAND", "REPEAT", "REVERSE", "RIGHT", "ROUND", "RPAD", "RTRIM"}
    | {"SECOND", "SHA1", "SHA2", "SIGN", "SUBDATE", "SUBSTR", "SUBSTRING", "SUM", "SYSDATE"}
    | {"TIME", "TIMEDIFF", "TIMESTAMP", "TIMESTAMPADD", "TIMESTAMPDIFF", "TRIM", "TRUNCATE"}
    | {"UNHEX", "UNIX_TIMESTAMP", "UPPER", "USER", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "UUID"}
    | {"VERSION", "WEEK", "YEAR"}
)
_HARMLESS: Final = _GRAMMAR | _FUNCTIONS


def only_target(
    tokens: Sequence[SqlToken], text: str, is_base_table: Callable[[TableName], bool]
) -> TableName | None:
    """The one table that a statement changes by itself; None if that cannot be told.

    None as well where it calls a function or reads something that may change rows on the way.

    Args:
        tokens: the statement, from its first word on.
        text: the whole text that they are of.
        is_base_table: whether a table that is only read is no view.
    """
    cursor = TokenCursor(tokens)
    try:
        target = _target(cursor)
        if target is None:
            return None
    except NotUnderstoodError:
        return None
    # A parenthesis behind the target of an INSERT may be its columns, or all that it reads.
    return target if only_reads(cursor.rest(), text, is_base_table) else None


def only_reads(
    tokens: Sequence[SqlToken], text: str, is_base_table: Callable[[TableName], bool]
) -> bool:
    """Whether what follows a statement's target changes nothing on the way, for certain.

    So it is if all functions that it calls are of a list, and all that it reads are no views.

    Args:
        tokens: what follows.
        text: see `only_target`.
        is_base_table: see `only_target`.
    """
    called = set()
    lists = [False]  # of each open parenthesis: whether a comma there lists one more table
    for at, token in enumerate(tokens):
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        calls = following == _OPENS
        if token.text == ";" or token.word in {"NEXTVAL", "SETVAL", "NEXT", "PREVIOUS"}:
            return False
        if calls and (token.kind == "name" or (token.word and token.word not in _HARMLESS)):
            return False
        if calls and at and tokens[at - 1].text == ".":
            return False  # a function of a database, whatever it is called
        if calls and token.word in _FUNCTIONS:
            called.add(token.word)
        if token.word in {"FROM", "JOIN", "STRAIGHT_JOIN", "TABLE"}:
            if not _reads_one(tokens[at + 1 : at + 1 + _NAME], is_base_table):
                return False
            lists[-1] = True
        if not _minds_lists(token, following, lists):
            return False
    apart = rf"(?i)\b(?:{'|'.join(sorted(called))}){_APART}"
    return not called or re.search(apart, text) is None


def _minds_lists(token: SqlToken, following: SqlToken | None, lists: list[bool]) -> bool:
    """Whether a token lists no further table: wherever in a clause of tables, by a comma.

    It may stand behind an alias, index hints, a condition of a join.

    Args:
        token: the next one.
        following: the one behind it.
        lists: see `only_reads`; brought up to date.
    """
    if token == _OPENS:
        lists.append(False)
    elif token == _CLOSES and len(lists) > 1:  # a name may be a parenthesis, too
        lists.pop()
    elif token == _COMMA:
        return not lists[-1]
    elif token.word in _BEHIND or (
        token.word == "ON" and following is not None and following.word == "DUPLICATE"
    ):
        lists[-1] = False
    return True


def _reads_one(tokens: Sequence[SqlToken], is_base_table: Callable[[TableName], bool]) -> bool:
    """Whether the name of a table follows that is no view."""
    try:
        return is_base_table(TableName(*TokenCursor(tokens).table()))
    except NotUnderstoodError:
        return False


def _target(cursor: TokenCursor) -> TableName | None:
    if cursor.one_of("INSERT", "REPLACE"):
        while cursor.one_of("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE"):
            pass
        cursor.accept("INTO")
        return TableName(*cursor.table())
    if cursor.accept("UPDATE"):
        while cursor.one_of("LOW_PRIORITY", "IGNORE"):
            pass
        found = TableName(*cursor.table())
        return found if cursor.accept("SET") else None
    if cursor.accept("DELETE"):
        while cursor.one_of("LOW_PRIORITY", "QUICK", "IGNORE"):
            pass
        if not cursor.accept("FROM"):
            return None
        found = TableName(*cursor.table())
        ends = cursor.done or cursor.peek().word in {"WHERE", "ORDER", "LIMIT"}
        return found if ends else None
    return None
