"""What a logged ALTER TABLE does to a table, for whoever can do the same to a copy.

Lives here: reading it again from the text that the round log keeps. Does not live here: the grammar
(`alter`), the value of a column that comes (`core.types.constants`).

The session's sql_mode is not kept, so a text that means something else under another one counts as
not understood.
"""

from __future__ import annotations

from typing import Final

from ratchet.core.rounds import STATEMENT_LENGTH
from ratchet.core.sql.alter import Alteration, alter_table
from ratchet.core.sql.cursor import NotUnderstoodError, TokenCursor
from ratchet.core.sql.effects import TableChanges
from ratchet.core.sql.lexer import Mode, lex

_EXECUTABLE: Final = ("/*!", "/*M!")  # what they hold is executed by some servers only


def table_changes(statement: str, table: str) -> TableChanges | None:
    """What a statement does to the columns of a table, or which of its partitions it empties.

    Args:
        statement: as the round log has it, cut or not.
        table: the name of the table to whose event it belongs.

    Returns:
        None if it does, or may do, anything else.
    """
    found = logged_alteration(statement, table)
    if found is None or not found.partitions:
        return None if found is None else found.columns()
    step = found.emptied()
    return None if step is None else TableChanges(emptied=step.names)


def logged_alteration(statement: str, table: str) -> Alteration | None:
    """What a logged statement is understood to do, to its last word; None if it is not.

    Args:
        statement: as the round log has it, cut or not.
        table: the name of the table to whose event it belongs: an ALTER TABLE of that one.
    """
    if len(statement) >= STATEMENT_LENGTH or any(mark in statement for mark in _EXECUTABLE):
        return None
    lexed = lex(statement, Mode(mariadb=True, known=False))
    if lexed.unsure:
        return None
    cursor = TokenCursor(lexed.statement)
    try:
        cursor.need("ALTER")
        cursor.one_of("ONLINE", "OFFLINE")
        cursor.need("TABLE")
        cursor.accept("IF", "EXISTS")
        _, name = cursor.table()
    except NotUnderstoodError:
        return None
    if name.casefold() != table.casefold():
        return None
    found, problem = alter_table(cursor, ignore=False, heeds_default=False)
    return None if problem else found
