"""What a logged statement is, and what it does to the tables of a mirror.

Lives here: `classify`, the one place where a statement is judged, once, from its whole text. Does
not live here: the grammar of ALTER TABLE (`alter`), of rows (`dml`), whose a name is (`names`).

The default is doubt: a statement that names a mirrored table is harmless only if all of its tokens
are understood, up to the last, as one of the forms that leave rows and values as they are. One
whose first word is not known may concern every table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal

from core.sql import dml
from core.sql.alter import alter_table, how, waiting
from core.sql.columns import index_body, index_options
from core.sql.cursor import Cursor, NotUnderstoodError
from core.sql.effects import KEY_GOES, MOVED, Change, Named
from core.sql.lexer import Lexed, Mode, Token, lex, lex_head
from core.sql.names import Scope, occurring
from core.sql.options import ELSEWHERE, character_set

Form = Literal[
    "begin", "commit", "rollback", "rollback to", "savepoint", "xa start", "xa end", "xa prepare",
    "xa rollback", "xa commit", "statement", "rows",
]  # fmt: skip

_CONTROL: Final[dict[str, Form]] = {
    "BEGIN": "begin",
    "COMMIT": "commit",
    "SAVEPOINT": "savepoint",
    "RELEASE": "savepoint",
}
_XA: Final[dict[str, Form]] = {
    "START": "xa start",
    "BEGIN": "xa start",
    "END": "xa end",
    "PREPARE": "xa prepare",
    "ROLLBACK": "xa rollback",
    "COMMIT": "xa commit",
}
# Statements that change no row of a table, whatever follows their first word.
_ASIDE: Final = frozenset(
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
_KEY: Final = Change("key", KEY_GOES)
# Characters in which a statement's first words stand, unless it is odd: all that is read of those
# that hold programs and texts of any length, and change no row.
_HEAD: Final = 4000
_BY_STATEMENT: Final = "rows were changed by a statement that was logged as its text"
_CHANGED: Final = Change("untold", _BY_STATEMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What a statement's event says besides its text.

    Attributes:
        temporary: whether it used a temporary table.
        written: databases whose tables it changed, with what triggers, views and functions did on
            the way; None: not told, or foreign keys lead further.
        clear: whether its text is sure to be what the server read.
        heeds_default: whether DEFAULT NULL is enough for a TIMESTAMP to be NULL. MariaDB passes
            over it with explicit_defaults_for_timestamp=0, and takes the time of the statement.
    """

    temporary: bool = False
    written: frozenset[str] | None = None
    clear: bool = True
    heeds_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a statement is and does.

    Attributes:
        form: what it is to a transaction: "rows" changes rows, "statement" is any other.
        tables: tables of the mirror that it names, known or not.
        changes: what it does to which of them; a table that is missing is left alone.
        truncates: the table that it empties, with nothing else to it.
        rebuilds: tables whose rows it may write anew, besides what it does to them.
        xid: the XA transaction that it is about, as logged; empty if it is not about one.
        asks: the one table that it changes by itself. If that is a plain table, without triggers
            and foreign keys that refer to it, `changes_alone` holds instead of `changes`.
        changes_alone: see `asks`.
        frees: whether it may take away what led from a table to others: a trigger, a view.
        named: the tables whose shape or place it changes, of any database.
    """

    form: Form
    tables: tuple[str, ...] = ()
    changes: tuple[tuple[str, Change], ...] = ()
    truncates: tuple[str, ...] = ()
    rebuilds: tuple[str, ...] = ()
    xid: str = ""
    asks: Named | None = None
    changes_alone: tuple[tuple[str, Change], ...] = ()
    frees: bool = False
    named: frozenset[Named] = frozenset()


@dataclass(slots=True)
class _Found:
    """A statement under way: what it does, to tables as it names them."""

    scope: Scope
    text: str
    tokens: Sequence[Token]
    log: Log
    tables: dict[str, None] = field(default_factory=dict)
    changes: dict[tuple[str, Change], None] = field(default_factory=dict)
    truncates: list[str] = field(default_factory=list)
    rebuilds: dict[str, None] = field(default_factory=dict)
    only: tuple[list[str], list[str]] = ([], [])
    frees: bool = False
    named: set[Named] = field(default_factory=set)

    def is_mirrored(self, named: Named) -> bool:
        """Whether a name is surely that of a known table, which is no view."""
        sure, maybe = self.scope.tables(named)
        known = not maybe and len(sure) == 1 and sure[0] in self.scope.known
        return known and self.scope.is_base(sure[0])

    def add(self, named: Named, *changes: Change) -> None:
        """It does this to a table that it names."""
        self.named.add(replace(named, database=named.database or self.scope.default))
        sure, maybe = self.scope.tables(named)
        self.tables |= dict.fromkeys([*sure, *maybe])
        self.changes |= {(table, change): None for table in sure for change in changes}
        for table in maybe:
            if changes:
                self.doubt([table], f"{named.table} may be its name: {changes[0].reason}")

    def rebuild(self, named: Named) -> None:
        """It may write the rows of a table anew."""
        sure, maybe = self.scope.tables(named)
        self.rebuilds |= dict.fromkeys([*sure, *maybe])

    def doubt(self, tables: Sequence[str], why: str) -> None:
        """It may do anything to these."""
        self._may_have(tables, Change("doubt", why))

    def doubt_mentioned(self, why: str) -> None:
        """It may do anything to each known table that occurs in it."""
        self.doubt(self.scope.mentioned(self.tokens), why)

    def doubt_all(self, why: str) -> None:
        """It may do anything to every known table."""
        self.doubt(sorted(self.scope.known), why)

    def change_rows(self, why: str) -> None:
        """It may change rows of every known table, and nothing else of one."""
        self._may_have(sorted(self.scope.known), Change("untold", why))

    def _may_have(self, tables: Sequence[str], change: Change) -> None:
        self.tables |= dict.fromkeys(tables)
        self.changes |= {(table, change): None for table in tables}

    def done(self, form: Form, asks: Named | None = None) -> Statement:
        moved = {table for table, change in self.changes if change.effect == "rows"}
        return Statement(
            form=form,
            tables=tuple(self.tables),
            changes=tuple(
                one for one in self.changes if one[1].effect == "rows" or one[0] not in moved
            ),
            truncates=tuple(self.truncates),
            rebuilds=tuple(table for table in self.rebuilds if table not in moved),
            asks=asks,
            changes_alone=tuple((table, _CHANGED) for tables in self.only for table in tables),
            frees=self.frees,
            named=frozenset(self.named),
        )


def classify(text: str, *, mode: Mode, scope: Scope, log: Log | None = None) -> Statement:
    """Judge one logged statement.

    Args:
        text: the whole of it.
        mode: of its session.
        scope: what is mirrored.
        log: what its event says besides.
    """
    log = log or Log()
    if _is_elsewhere(text, mode, scope, log):
        return Statement(form="rows")
    return _by_first_words(text, mode, scope, log) or _whole(text, mode, scope, log)


def _whole(text: str, mode: Mode, scope: Scope, log: Log) -> Statement:
    tokens, unsure = _tokens(lex(text, mode), text, mode, log)
    if not tokens and not unsure:
        return Statement(form="statement")  # MariaDB logs a comment in place of some events
    cursor = Cursor(tokens)
    if tokens and (control := _control(cursor)) is not None:
        return replace(control, xid=_xid(text)) if control.form.startswith("xa ") else control
    found = _Found(scope, text, tokens, log)
    if unsure:
        return _unsure(found, f"a statement was not understood: {unsure}")
    if _is_rows(tokens):
        return _rows(found)
    try:
        if not _judge(cursor, found):
            found.doubt_all(f"a statement that is not known: {tokens[0].text[:40]}")
    except NotUnderstoodError as error:
        why = f"a statement was not understood: {error}"
        if any(token.word in {"DATABASE", "SCHEMA"} for token in tokens[:5]):
            found.doubt_all(why)
        else:
            found.doubt_mentioned(why)
    return found.done("statement")


def _is_elsewhere(text: str, mode: Mode, scope: Scope, log: Log) -> bool:
    """Whether it changed rows of other databases only, as its event says; its text may be long."""
    if log.written is None or any(scope.is_ours(one) is not False for one in log.written):
        return False
    head = lex_head(text, mode, _HEAD).tokens[:1]
    return bool(head) and head[0].word in {"INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD"}


def _by_first_words(text: str, mode: Mode, scope: Scope, log: Log) -> Statement | None:
    """What a long statement is, if its first words tell all that matters of it; else None.

    A procedure, a view, a grant change no row, whatever follows, so nothing of it is read: the
    server has told by the same words what it is. What it is about stands in front of that.
    """
    head = lex_head(text, mode, _HEAD)
    tokens, unsure = _tokens(head, text, mode, log)
    if not head.cut or unsure or not tokens:
        return None
    cursor = Cursor(tokens)
    if _control(cursor) is not None:
        return None
    found = _Found(scope, text, tokens, log)
    try:
        told = _is_aside(cursor) and _judge(Cursor(tokens), found)
    except NotUnderstoodError:
        return None  # it may be for want of what follows
    return found.done("statement") if told else None


def _is_aside(cursor: Cursor) -> bool:
    """Whether it is one of those that change no row, whatever follows."""
    first = cursor.take().word
    if first == "SET":
        return cursor.peek().word != "STATEMENT"
    if first in {"CREATE", "ALTER", "DROP", "RENAME"}:
        cursor.accept("OR", "REPLACE")
        return bool(_aside(cursor))
    return first in _ASIDE


def _tokens(lexed: Lexed, text: str, mode: Mode, log: Log) -> tuple[list[Token], str]:
    """The statement's own tokens, and why the server may have read others; empty if not."""
    unsure = lexed.unsure
    if mode.other_grammar:
        unsure = unsure or "its session's sql_mode gives words another meaning"
    if not log.clear:
        unsure = unsure or "it has characters that its character set does not have"
    tokens = list(lexed.tokens)
    while tokens and tokens[-1] == Token("sign", ";"):
        tokens.pop()
    begin = _behind_settings(tokens)
    measured = _behind_analyze(tokens[begin:])
    if begin and Token("sign", "(") in tokens[:begin]:
        unsure = unsure or "what its settings call may change rows"
    # The server has read it before they were in force; the log has the mode of behind that.
    sets = begin or ("/*+" in text and occurring(text, ("set_var",)))
    if sets and occurring(text, ("sql_mode",)):
        unsure = unsure or "it sets sql_mode for itself"
    return tokens[begin + measured :], unsure


def _is_rows(tokens: Sequence[Token]) -> bool:
    """Whether it may change rows by itself."""
    head = tokens[0].word
    if head in dml.HEADS or tokens[0] == Token("sign", "("):
        return True
    return head in {"ANALYZE", "EXPLAIN", "DESCRIBE", "DESC"} and not _about_tables(tokens)


def _behind_settings(tokens: Sequence[Token]) -> int:
    """Where it begins behind what MariaDB takes in front: SET STATEMENT x=1, y=2 FOR ..."""
    begin = 0
    while [token.word for token in tokens[begin : begin + 2]] == ["SET", "STATEMENT"]:
        rest = range(begin, len(tokens))
        end = next((at for at in rest if tokens[at].word == "FOR"), None)
        if end is None:
            break
        begin = end + 1
    return begin


def _behind_analyze(tokens: Sequence[Token]) -> int:
    """Where it begins behind what MariaDB takes to do it and tell how: ANALYZE FORMAT=JSON ..."""
    words = [token.word or token.text for token in tokens[:5]]
    behind = 4 if words[1:3] == ["FORMAT", "="] else 1
    measures = words[:1] == ["ANALYZE"] and words[behind : behind + 1]
    return behind if measures and words[behind] in dml.CHANGES_ROWS_ONLY else 0


def _control(cursor: Cursor) -> Statement | None:
    """Statements that begin, end or divide a transaction, without their xid; None for others."""
    first, second = cursor.peek().word, cursor.peek(1).word
    if first == "ROLLBACK":
        words = {token.word for token in cursor.rest()}
        return Statement(form="rollback to" if "TO" in words else "rollback")
    if first == "XA" and second in _XA:
        return Statement(form=_XA[second])
    if (first, second) == ("START", "TRANSACTION"):
        return Statement(form="begin")
    return Statement(form=_CONTROL[first]) if first in _CONTROL else None


def _xid(text: str) -> str:
    """The XA transaction's name, as the server writes it: X'..',X'..',1."""
    return text.split(None, 2)[-1].rstrip().removesuffix("ONE PHASE").rstrip()


def _unsure(found: _Found, why: str) -> Statement:
    """The server may have read something else than is read here."""
    heads = {token.word for token in found.tokens[:1]}
    # What it made, dropped or moved is not known, of any database; see `Statement.frees`.
    found.frees = True
    if heads & dml.HEADS:
        return _rows(found, why)
    words = occurring(found.text, ("database", "schema", "drop", "replace"))
    wholly = bool(words & {"database", "schema"}) and bool(words & {"drop", "replace"})
    known = heads & ({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "SET"} | _ASIDE)
    if wholly or not known:
        found.doubt_all(why)
    else:
        found.doubt(found.scope.hidden(found.text), why)
    return found.done("statement")


# --- rows that were changed by a statement --------------------------------------------------------


def _rows(found: _Found, why: str = "") -> Statement:
    """A statement that changes rows, without events that tell which."""
    scope, written = found.scope, found.log.written
    if written is not None:
        ours = [scope.is_ours(database) for database in written]
        if all(one is False for one in ours):
            return found.done("rows")
    target = None if why else dml.only_target(found.tokens, found.text, found.is_mirrored)
    if target is None:
        known = not why and found.tokens[0].word in dml.CHANGES_ROWS_ONLY
        may_have = found.change_rows if known else found.doubt_all
        may_have(why or f"{_BY_STATEMENT}, and which tables it reached is not known")
        return found.done("rows")
    target = replace(target, database=target.database or scope.default)
    found.only = scope.tables(target)
    found.change_rows(
        f"{_BY_STATEMENT}, and triggers, a view or foreign keys may lead on from "
        f"{target.database}.{target.table} (if none do, and it is still there, "
        f"GRANT SELECT, TRIGGER ON `{target.database}`.* lets it be seen)"
    )
    return found.done("rows", asks=target)


def _about_tables(tokens: Sequence[Token]) -> bool:
    words = [token.word for token in tokens[1:3]]
    if words[0] in {"LOCAL", "NO_WRITE_TO_BINLOG"}:
        words = words[1:]
    return words[:1] in (["TABLE"], ["TABLES"])


# --- all others -----------------------------------------------------------------------------------


def _judge(cursor: Cursor, found: _Found) -> bool:
    """Whether the statement is known.

    Raises:
        NotUnderstoodError: it is, but not what follows.
    """
    head = cursor.take().word
    if head == "SET":
        return cursor.peek().word != "STATEMENT"
    if head in _ASIDE:
        return True
    judge = _JUDGES.get(head)
    if judge is None:
        return False
    judge(cursor, found)
    return True


def _over(cursor: Cursor) -> None:
    if not cursor.done:
        raise cursor.stuck()


def _aside(cursor: Cursor) -> str:
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


def _account(cursor: Cursor) -> None:
    if not cursor.string():
        cursor.name()
        cursor.parens()
    if cursor.sign("@") and not cursor.string():
        cursor.name()
        while cursor.sign(".") or cursor.sign("-"):
            cursor.name()


def _create(cursor: Cursor, found: _Found) -> None:
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
        found.add(Named(*cursor.table()), *((_ROWS,) if replaces else ()))
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
    table = Named(*cursor.table())
    waiting(cursor)
    index_body(cursor)
    while how(cursor):
        index_options(cursor)
    _over(cursor)
    found.add(table, *((_KEY,) if replaces else ()))
    found.rebuild(table)


def _create_aside(object_: str, cursor: Cursor, found: _Found) -> None:
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
    sure, maybe = found.scope.tables(Named(*cursor.table()))
    found.tables |= dict.fromkeys([*sure, *maybe])


def _is_filled(tokens: Sequence[Token]) -> bool:
    """Whether a table that is made gets rows by the same statement."""
    words = {token.word for token in tokens}
    values = any(
        one.word == "VALUES" and (other.word == "ROW" or other == Token("sign", "("))
        for one, other in pairwise(tokens)
    )
    return values or not words.isdisjoint({"SELECT", "TABLE"})


def _fill(tokens: Sequence[Token], found: _Found) -> None:
    """What it calls and reads to fill a table may change others."""
    if _is_filled(tokens) and not dml.only_reads(tokens, found.text, found.is_mirrored):
        found.change_rows(f"{_BY_STATEMENT}: functions that it called may have changed rows")


def _create_table(cursor: Cursor, found: _Found, *, replaces: bool) -> None:
    """A table that comes: its own rows are in no log, and it may lead to others (UNION)."""
    exists = cursor.accept("IF", "NOT", "EXISTS")
    table = Named(*cursor.table())
    filled = _is_filled(cursor.rest())
    # With IF NOT EXISTS it is logged also where there was one already, and nothing happened.
    if not exists or replaces:
        found.add(table, _ROWS)
    elif filled:
        found.add(table, Change("doubt", _BY_STATEMENT))
    else:
        found.add(table)
    rest = cursor.rest()
    _fill(rest, found)
    engines = {
        value.inner.upper()
        for at, token in enumerate(rest)
        if token.word in {"ENGINE", "TYPE", "UNION"}
        for value in rest[at + 1 : at + 3]
    }
    unions = any(token.word == "UNION" for token in rest)
    if unions or engines & ELSEWHERE:
        others = [one for one in found.scope.mentioned(rest) if one != table.table]
        why = "a table of another engine may change its rows without row events of its own"
        for other in others:
            found.add(Named(found.scope.database, other), Change("rows", why))
    # Else it only reads the other tables that it names: LIKE, REFERENCES, SELECT.


def _drop_database(cursor: Cursor, found: _Found) -> None:
    database = cursor.name()
    ours = found.scope.is_ours(database)
    if ours is None:
        found.doubt_all(f"{database} may be its database, and was dropped")
    if ours:
        for table in sorted(found.scope.known):
            found.add(Named(database, table), _ROWS)


def _drop(cursor: Cursor, found: _Found) -> None:
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
            found.add(Named(*cursor.table()), _ROWS)
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
    table = Named(*cursor.table())
    while how(cursor):
        pass
    _over(cursor)
    found.add(table, Change("rows", KEY_GOES) if primary else _KEY)
    found.rebuild(table)


def _rename(cursor: Cursor, found: _Found) -> None:
    if _aside(cursor):
        return
    if not cursor.one_of("TABLE", "TABLES"):
        raise cursor.stuck()
    cursor.accept("IF", "EXISTS")
    while True:
        found.add(Named(*cursor.table()), _ROWS)
        waiting(cursor)
        if not (cursor.one_of("TO", "AS") or cursor.sign("=")):
            raise cursor.stuck()
        found.add(Named(*cursor.table()), _ROWS)
        if not cursor.sign(","):
            break
    _over(cursor)


def _truncate(cursor: Cursor, found: _Found) -> None:
    cursor.accept("TABLE")
    table = Named(*cursor.table())
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


def _alter(cursor: Cursor, found: _Found) -> None:
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
    table = Named(*cursor.table())
    done, problem = alter_table(cursor, ignore=ignore, heeds_default=found.log.heeds_default)
    if problem:
        done.nulls = []
        done.changes.append(Change("doubt", f"a statement was not understood: {problem}"))
    if found.log.temporary:
        done.nulls = []
        done.changes = [Change("doubt", "it may have been about a temporary table of its name")]
        done.others = []
    found.add(table, *done.all_changes())
    found.rebuild(table)
    for other, change in done.others:
        found.add(other, change)
    if problem:
        named = {*found.scope.tables(table)[0], *found.scope.tables(table)[1]}
        others = [one for one in found.scope.mentioned(found.tokens) if one not in named]
        found.doubt(others, f"a statement was not understood: {problem}")


def _alter_database(cursor: Cursor, found: _Found) -> None:
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


def _read_through(cursor: Cursor, found: _Found) -> None:
    """ANALYZE, CHECK."""
    del found
    cursor.one_of("NO_WRITE_TO_BINLOG", "LOCAL")
    if not cursor.one_of("TABLE", "TABLES", "VIEW"):
        raise cursor.stuck()


def _optimize(cursor: Cursor, found: _Found) -> None:
    cursor.one_of("NO_WRITE_TO_BINLOG", "LOCAL")
    if not cursor.one_of("TABLE", "TABLES"):
        raise cursor.stuck()
    while True:
        found.rebuild(Named(*cursor.table()))
        if not cursor.sign(","):
            break
    waiting(cursor)
    _over(cursor)


def _repair(cursor: Cursor, found: _Found) -> None:
    cursor.one_of("NO_WRITE_TO_BINLOG", "LOCAL")
    if cursor.accept("VIEW"):
        return
    if not cursor.one_of("TABLE", "TABLES"):
        raise cursor.stuck()
    found.doubt_mentioned("REPAIR TABLE may have lost rows")


_JUDGES: Final[dict[str, Callable[[Cursor, _Found], None]]] = {
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
