"""A table that a tool has filled and swaps in, by the statements that the round log keeps of it.

Lives here: which table a RENAME puts in another one's place, and whether an ALTER leaves an empty
table as empty as it was. Does not live here: what follows from that (`merge.swap`).

Texts are read again from what the round log keeps, so the session's sql_mode is not known: a text
that means something else under another one counts as not understood.
"""

from __future__ import annotations

from typing import Final

from ratchet.core.rounds import STATEMENT_LENGTH
from ratchet.core.sql.alter import alter_table
from ratchet.core.sql.cursor import NotUnderstoodError, TokenCursor
from ratchet.core.sql.effects import GENERATING
from ratchet.core.sql.lexer import Mode, SqlToken, lex
from ratchet.core.sql.options import like

_EXECUTABLE: Final = ("/*!", "/*M!")  # what they hold is executed by some servers only
# What brings rows into a table without row events, lets other tables change them, or keeps them
# elsewhere (UNION).
_NOT_EMPTY: Final = frozenset(
    {"EXCHANGE", "IMPORT", "DISCARD", "FOREIGN", "REFERENCES", "UNION", "VERSIONING"}
)
_ELSEWHERE: Final = "its engine becomes "  # how the reason of such a change begins


def swapped_in(statement: str, table: str) -> str | None:
    """The table that a RENAME puts in a table's place.

    >>> swapped_in("RENAME TABLE `d`.`t` TO `d`.`_t_old`, `d`.`_t_new` TO `d`.`t`", "t")
    '_t_new'
    >>> swapped_in("RENAME TABLE t TO x, y TO t, t TO z, x TO t", "t")
    't'

    Args:
        statement: as the round log has it, cut or not.
        table: the name of the table to whose event it belongs.

    Returns:
        Its name before the statement; None if nothing is put there, or if what is cannot be told.
    """
    tokens = _tokens(statement)
    if tokens is None:
        return None
    cursor = TokenCursor(tokens)
    databases, names = set[str | None](), dict[str, str]()
    try:
        cursor.need("RENAME")
        if not cursor.one_of("TABLE", "TABLES"):
            return None
        while True:
            database, old = cursor.table()
            cursor.need("TO")
            other, new = cursor.table()
            databases |= {database, other}
            names[new] = names.pop(old, old)
            if not cursor.sign(","):
                break
    except NotUnderstoodError:
        return None
    # All of one database, which is the table's own then.
    return names.get(table) if cursor.done and len(databases) == 1 else None


def may_be_unlike(statement: str, table: str) -> bool:
    """Whether a CREATE TABLE that brings no rows may be LIKE another table than the given one.

    >>> may_be_unlike("CREATE TABLE __t_new LIKE _t", "t")
    True
    >>> may_be_unlike("CREATE TABLE __t_new (a INT) ENGINE=InnoDB", "t")
    False

    Args:
        statement: as the round log has it, cut or not.
        table: the name of that table.
    """
    tokens = _tokens(statement)
    if tokens is None:
        return "LIKE" in statement.upper()
    if not any(token.word == "LIKE" for token in tokens):
        return False
    cursor = TokenCursor(tokens)
    try:
        cursor.need("CREATE")
        cursor.accept("OR", "REPLACE")
        cursor.need("TABLE")
        cursor.table()
        other = like(cursor)
    except NotUnderstoodError:
        return True
    return other is None or other[1] != table


def keeps_empty(statement: str, table: str) -> bool:
    """Whether a statement is an ALTER TABLE of a table that is as empty behind it as before.

    Nor may it bring generated columns: what is in them may change without row events.

    >>> keeps_empty("ALTER TABLE d._t_new ADD x INT NOT NULL", "_t_new")
    True
    >>> keeps_empty("ALTER TABLE _t_new EXCHANGE PARTITION p WITH TABLE other", "_t_new")
    False

    Args:
        statement: as the round log has it, cut or not.
        table: the name of the table to whose event it belongs.
    """
    tokens = _tokens(statement)
    if tokens is None or any(token.word in _NOT_EMPTY | GENERATING for token in tokens):
        return False
    cursor = TokenCursor(tokens)
    try:
        cursor.need("ALTER", "TABLE")
        _, name = cursor.table()
    except NotUnderstoodError:
        return False
    found, problem = alter_table(cursor, ignore=False, heeds_default=False)
    odd = [one for one in found.changes if one.reason.startswith(_ELSEWHERE)]
    return name == table and not (problem or found.others or odd)


def _tokens(statement: str) -> list[SqlToken] | None:
    """The statement's own tokens; None if servers may have read others."""
    if len(statement) >= STATEMENT_LENGTH or any(mark in statement for mark in _EXECUTABLE):
        return None
    lexed = lex(statement, Mode(mariadb=True, known=False))
    return None if lexed.unsure else list(lexed.statement)
