"""Statements about tables and other objects: CREATE, ALTER, DROP, RENAME, TRUNCATE and the like.

Lives here: `judge`, what each of them does to which table; `is_aside`, those that change no row.
Does not live here: the grammar of ALTER TABLE (`alter`), of columns (`columns`), of rows (`dml`).

A form is understood up to its last token, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from ratchet.core.patterns import copied
from ratchet.core.sql import dml
from ratchet.core.sql.alter import alter_table, how, waiting
from ratchet.core.sql.columns import index_body, index_options
from ratchet.core.sql.cursor import NotUnderstoodError, TokenCursor
from ratchet.core.sql.effects import CREATED, GENERATING, KEY_GOES, MOVED, Change, TableName
from ratchet.core.sql.found import BY_STATEMENT, StatementEffects
from ratchet.core.sql.lexer import SqlToken
from ratchet.core.sql.options import ELSEWHERE, character_set, like

# Statements that change no row of a table, whatever follows their first word.
ASIDE: Final = frozenset(
    {"GRANT", "REVOKE", "FLUSH", "LOCK", "UNLOCK", "CACHE", "RESET", "INSTALL", "UNINSTALL"}
    | {"KILL", "PURGE", "CHANGE", "START", "STOP", "USE", "CHECKSUM", "SHOW"}
)
# Objects whose statements change no row of a table, behind CREATE, ALTER, DROP, RENAME.
_ASIDE_OBJECTS: Final = frozenset(
    {"VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SERVER", "PACKAGE"}
    | {"LIBRARY", "TABLESPACE", "LOGFILE", "RESOURCE", "SPATIAL REFERENCE", "INSTANCE"}
    | {"UNDO TABLESPACE"}
)
_ROWS: Final = Change("rows", MOVED)
_CREATED: Final = Change("rows", CREATED)
# What leads from a table that is made to others, or makes rows of it that no event tells.
_LEADING: Final = frozenset({"FOREIGN", "REFERENCES", "UNION", "VERSIONING", "PERIOD"})
# A table whose CREATE names no engine has the session's, which may keep no rows (BLACKHOLE), and so
# may one whose engine the server lacks. This one is always there.
_KEEPING: Final = frozenset({"INNODB"})
_PERHAPS_TEMPORARY: Final = Change("doubt", "it may have been about a temporary table of its name")
_KEY: Final = Change("key", KEY_GOES)


def judge(cursor: TokenCursor, found: StatementEffects) -> bool:
    """Whether the statement is known.

    Raises:
        NotUnderstoodError: it is, but not what follows.
    """
    head = cursor.take().word
    if head == "SET":
        return cursor.peek().word != "STATEMENT"
    if head in ASIDE:
        return True
    judge = _JUDGES.get(head)
    if judge is None:
        return False
    judge(cursor, found)
    return True


def is_aside(cursor: TokenCursor) -> bool:
    """Whether it is one of those that change no row, whatever follows."""
    first = cursor.take().word
    if first == "SET":
        return cursor.peek().word != "STATEMENT"
    if first in {"CREATE", "ALTER", "DROP", "RENAME"}:
        cursor.accept("OR", "REPLACE")
        return bool(_aside(cursor))
    return first in ASIDE


def _over(cursor: TokenCursor) -> None:
    if not cursor.done:
        raise cursor.stuck()


def _aside(cursor: TokenCursor) -> str:
    """Take the modifiers in front of an object and the object, if it is one that holds no rows."""
    begin = cursor.at
    while True:
        if cursor.one_of("ALGORITHM"):
            cursor.sign("=")
            cursor.name()
        elif cursor.accept("DEFINER"):
            cursor.sign("=")
            _account(cursor)
        elif cursor.accept("SQL", "SECURITY"):
            cursor.name()
        elif not cursor.one_of("AGGREGATE", "LOADABLE"):
            break
    word = cursor.peek().word
    for found in (word, f"{word} {cursor.peek(1).word}"):
        if found in _ASIDE_OBJECTS:
            return found
    cursor.at = begin
    return ""


def _account(cursor: TokenCursor) -> None:
    if not cursor.string():
        cursor.name()
        cursor.parens()
    if cursor.sign("@") and not cursor.string():
        cursor.name()
        while cursor.sign(".") or cursor.sign("-"):
            cursor.name()


def _create(cursor: TokenCursor, found: StatementEffects) -> None:
    replaces = found.frees = cursor.accept("OR", "REPLACE")
    if object_ := _aside(cursor):
        _create_aside(object_, cursor, found)
        return
    if cursor.accept("TEMPORARY"):
        if not cursor.one_of("TABLE", "SEQUENCE"):
            raise cursor.stuck()
        _fill(cursor.rest(), found)
        return
    if cursor.one_of("DATABASE", "SCHEMA"):
        cursor.accept("IF", "NOT", "EXISTS")
        if replaces:
            _drop_database(cursor, found)
        return
    if cursor.accept("SEQUENCE"):
        cursor.accept("IF", "NOT", "EXISTS")
        found.add(TableName(*cursor.table()), *((_ROWS,) if replaces else ()))
        return
    if cursor.accept("TABLE"):
        _create_table(cursor, found, replaces=replaces)
        return
    cursor.one_of("ONLINE", "OFFLINE")
    cursor.one_of("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR")
    cursor.need("INDEX")
    cursor.accept("IF", "NOT", "EXISTS")
    cursor.name()
    if cursor.one_of("USING", "TYPE"):
        cursor.name()
    waiting(cursor)
    cursor.need("ON")
    table = TableName(*cursor.table())
    waiting(cursor)
    index_body(cursor)
    while how(cursor):
        index_options(cursor)
    _over(cursor)
    found.add(table, *((_KEY,) if replaces else ()))
    found.rebuild(table)


def _create_aside(object_: str, cursor: TokenCursor, found: StatementEffects) -> None:
    """A trigger changes no row, but what its table's rows look like in the log may be another."""
    if object_ != "TRIGGER":
        return
    cursor.need("TRIGGER")
    cursor.accept("IF", "NOT", "EXISTS")
    cursor.table()
    if not cursor.one_of("BEFORE", "AFTER"):
        raise cursor.stuck()
    while not cursor.accept("ON"):
        cursor.take()
    sure, maybe = found.scope.tables(TableName(*cursor.table()))
    found.tables |= dict.fromkeys([*sure, *maybe])


def _is_filled(tokens: Sequence[SqlToken]) -> bool:
    """Whether a table that is made gets rows by the same statement."""
    words = {token.word for token in tokens}
    values = any(
        one.word == "VALUES" and (other.word == "ROW" or other == SqlToken("sign", "("))
        for one, other in pairwise(tokens)
    )
    return values or not words.isdisjoint({"SELECT", "TABLE"})


def _is_like(tokens: Sequence[SqlToken], copy: TableName, default: str | None) -> bool:
    """Whether a table is made as the one that it is a tool's copy of is, its engine included."""
    other = like(TokenCursor(tokens))
    if other is None:
        return False
    database, name = other
    same = (database or default) == (copy.database or default)
    return same and name in copied(copy.table)


def _engines(tokens: Sequence[SqlToken]) -> set[str]:
    """All that may be the engine of a table that is made, in capitals."""
    return {
        value.inner.upper()
        for at, token in enumerate(tokens)
        if token.word in {"ENGINE", "TYPE", "UNION"}
        for value in tokens[at + 1 : at + 3]
    }


def _own_engine(tokens: Sequence[SqlToken]) -> str:
    """The engine that a table's options name, in capitals; empty if none does, or two do.

    Not one of a partition, and not what an expression of the columns looks like.
    """
    depth, found = 0, []
    for at, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        if depth == 0 and token.word in {"ENGINE", "TYPE"}:
            value = TokenCursor(tokens[at + 1 : at + 3])
            value.sign("=")
            found.append(value.peek().inner.upper())
    return found[0] if len(found) == 1 else ""


def _fill(tokens: Sequence[SqlToken], found: StatementEffects) -> None:
    """What it calls and reads to fill a table may change others."""
    if _is_filled(tokens) and not dml.only_reads(tokens, found.text, found.is_mirrored):
        found.change_rows(f"{BY_STATEMENT}: functions that it called may have changed rows")


def _create_table(cursor: TokenCursor, found: StatementEffects, *, replaces: bool) -> None:
    """A table that comes: its own rows are in no log, and it may lead to others (UNION)."""
    exists = cursor.accept("IF", "NOT", "EXISTS")
    table = TableName(*cursor.table())
    rest = cursor.rest()
    filled = _is_filled(rest)
    engines = _engines(rest)
    # With IF NOT EXISTS it is logged also where there was one already, and nothing happened.
    if not exists:
        leads = any(token.word in _LEADING | GENERATING for token in rest)
        keeps = _own_engine(rest) in _KEEPING or _is_like(rest, table, found.scope.default)
        unlike = found.log.temporary or found.log.substitutes or engines & ELSEWHERE
        sure = keeps and not (filled or leads or unlike)
        found.add(table, _CREATED if sure else _ROWS)
    elif replaces:
        found.add(table, _ROWS)
    elif filled:
        found.add(table, Change("doubt", BY_STATEMENT))
    else:
        found.add(table)
    _fill(rest, found)
    unions = any(token.word == "UNION" for token in rest)
    if unions or engines & ELSEWHERE:
        others = [one for one in found.scope.mentioned(rest) if one != table.table]
        why = "a table of another engine may change its rows without row events of its own"
        for other in others:
            found.add(TableName(found.scope.database, other), Change("rows", why))
    # Else it only reads the other tables that it names: LIKE, REFERENCES, SELECT.


def _drop_database(cursor: TokenCursor, found: StatementEffects) -> None:
    database = cursor.name()
    ours = found.scope.is_ours(database)
    if ours is None:
        found.doubt_all(f"{database} may be its database, and was dropped")
    if ours:
        for table in sorted(found.scope.known):
            found.add(TableName(database, table), _ROWS)


def _drop(cursor: TokenCursor, found: StatementEffects) -> None:
    if object_ := _aside(cursor):
        found.frees = object_ in {"TRIGGER", "VIEW", "FUNCTION", "PROCEDURE"}
        return
    if cursor.accept("TEMPORARY"):
        if not cursor.one_of("TABLE", "TABLES", "SEQUENCE"):
            raise cursor.stuck()
        return
    if cursor.one_of("DATABASE", "SCHEMA"):
        cursor.accept("IF", "EXISTS")
        found.frees = True
        _drop_database(cursor, found)
        _over(cursor)
        return
    if cursor.one_of("TABLE", "TABLES", "SEQUENCE"):
        cursor.accept("IF", "EXISTS")
        while True:
            found.add(TableName(*cursor.table()), _ROWS)
            if not cursor.sign(","):
                break
        cursor.one_of("RESTRICT", "CASCADE")
        waiting(cursor)
        _over(cursor)
        return
    cursor.one_of("ONLINE", "OFFLINE")
    cursor.need("INDEX")
    cursor.accept("IF", "EXISTS")
    primary = cursor.name().upper() == "PRIMARY"
    cursor.need("ON")
    table = TableName(*cursor.table())
    while how(cursor):
        pass
    _over(cursor)
    found.add(table, Change("rows", KEY_GOES) if primary else _KEY)
    found.rebuild(table)


def _rename(cursor: TokenCursor, found: StatementEffects) -> None:
    if _aside(cursor):
        return
    if not cursor.one_of("TABLE", "TABLES"):
        raise cursor.stuck()
    cursor.accept("IF", "EXISTS")
    change = _PERHAPS_TEMPORARY if found.log.temporary else _ROWS
    while True:
        found.add(TableName(*cursor.table()), change)
        waiting(cursor)
        if not (cursor.one_of("TO", "AS") or cursor.sign("=")):
            raise cursor.stuck()
        found.add(TableName(*cursor.table()), change)
        if not cursor.sign(","):
            break
    _over(cursor)


def _truncate(cursor: TokenCursor, found: StatementEffects) -> None:
    cursor.accept("TABLE")
    table = TableName(*cursor.table())
    waiting(cursor)
    _over(cursor)
    if found.log.temporary:
        found.add(table, Change("doubt", "a temporary table of its name may have been emptied"))
        return
    sure, maybe = found.scope.tables(table)
    found.truncates = sure
    found.tables |= dict.fromkeys(sure)
    if maybe:
        found.doubt(maybe, f"{table.table} may be its name, and was emptied")


def _alter(cursor: TokenCursor, found: StatementEffects) -> None:
    if cursor.one_of("DATABASE", "SCHEMA"):
        _alter_database(cursor, found)
        return
    if _aside(cursor):
        return
    cursor.one_of("ONLINE", "OFFLINE")
    ignore = cursor.accept("IGNORE")
    if cursor.accept("SEQUENCE"):
        return
    cursor.need("TABLE")
    cursor.accept("IF", "EXISTS")
    table = TableName(*cursor.table())
    done, problem = alter_table(cursor, ignore=ignore, heeds_default=found.log.heeds_default)
    if problem:
        done.nulls = []
        done.changes.append(Change("doubt", f"a statement was not understood: {problem}"))
    if found.log.temporary:
        done.nulls = []
        done.changes = [_PERHAPS_TEMPORARY]
        done.others = []
    found.add(table, *done.all_changes())
    found.rebuild(table)
    for other, change in done.others:
        found.add(other, change)
    if problem:
        named = {*found.scope.tables(table)[0], *found.scope.tables(table)[1]}
        others = [one for one in found.scope.mentioned(found.tokens) if one not in named]
        found.doubt(others, f"a statement was not understood: {problem}")


def _alter_database(cursor: TokenCursor, found: StatementEffects) -> None:
    """What comes for tables that are made later leaves those that are there."""
    ours = found.scope.is_ours(None)
    if cursor.peek().word not in {"DEFAULT", "CHARACTER", "CHARSET", "COLLATE"} or (
        cursor.peek(1).word in {"DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "COMMENT", "READ"}
    ):
        ours = found.scope.is_ours(cursor.name())
    try:
        while not cursor.done:
            cursor.accept("DEFAULT")
            if cursor.one_of("COMMENT", "ENCRYPTION"):
                cursor.sign("=")
                if not cursor.string():
                    raise cursor.stuck()
            elif cursor.accept("READ", "ONLY"):
                cursor.sign("=")
                if not cursor.accept("DEFAULT") and not cursor.number():
                    raise cursor.stuck()
            elif not character_set(cursor):
                raise cursor.stuck()
    except NotUnderstoodError as error:
        if ours is not False:
            found.doubt_all(f"a statement was not understood: {error}")


def _read_through(cursor: TokenCursor, found: StatementEffects) -> None:
    """ANALYZE, CHECK."""
    del found
    cursor.one_of("NO_WRITE_TO_BINLOG", "LOCAL")
    if not cursor.one_of("TABLE", "TABLES", "VIEW"):
        raise cursor.stuck()


def _optimize(cursor: TokenCursor, found: StatementEffects) -> None:
    cursor.one_of("NO_WRITE_TO_BINLOG", "LOCAL")
    if not cursor.one_of("TABLE", "TABLES"):
        raise cursor.stuck()
    while True:
        found.rebuild(TableName(*cursor.table()))
        if not cursor.sign(","):
            break
    waiting(cursor)
    _over(cursor)


def _repair(cursor: TokenCursor, found: StatementEffects) -> None:
    cursor.one_of("NO_WRITE_TO_BINLOG", "LOCAL")
    if cursor.accept("VIEW"):
        return
    if not cursor.one_of("TABLE", "TABLES"):
        raise cursor.stuck()
    found.doubt_mentioned("REPAIR TABLE may have lost rows")


_JUDGES: Final[dict[str, Callable[[TokenCursor, StatementEffects], None]]] = {
    "CREATE": _create,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "ALTER": _alter,
    "ANALYZE": _read_through,
    "OPTIMIZE": _optimize,
    "CHECK": _read_through,
    "REPAIR": _repair,
}
