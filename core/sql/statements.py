"""What a logged statement is, and what it does to the tables of a mirror.

Lives here: `classify`, the one place where a statement is judged, once, from its whole text. Does
not live here: statements about tables and other objects (`objects`), the grammar of rows (`dml`),
whose a name is (`names`).

The default is doubt: a statement that names a mirrored table is harmless only if all of its tokens
are understood, up to the last, as one of the forms that leave rows and values as they are. One
whose first word is not known may concern every table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ratchet.core.sql import dml
from ratchet.core.sql.cursor import NotUnderstoodError, TokenCursor
from ratchet.core.sql.found import BY_STATEMENT, Form, Log, Statement, StatementEffects
from ratchet.core.sql.lexer import LexResult, Mode, SqlToken, lex, lex_head
from ratchet.core.sql.names import Scope, occurring
from ratchet.core.sql.objects import ASIDE, is_aside, judge

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
# By these a server divides a transaction, in words of its own; what follows them is a name. A
# procedure may do so by the hundred thousand in one transaction.
_POINTS: Final[tuple[tuple[str, Form], ...]] = (
    ("SAVEPOINT ", "savepoint"),
    ("ROLLBACK TO ", "rollback to"),
    ("RELEASE SAVEPOINT ", "savepoint"),
)
# Characters in which a statement's first words stand, unless it is odd: all that is read of those
# that hold programs and texts of any length, and change no row.
_HEAD: Final = 4000


def point_form(text: str) -> Form | None:
    """What a statement about a savepoint is, by how it begins; None: look at its tokens.

    It is what `classify` says, in whatever mode and scope, whatever follows these words.
    """
    return next((form for words, form in _POINTS if text.startswith(words)), None)


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
    cursor = TokenCursor(tokens)
    if tokens and (control := _control(cursor)) is not None:
        return replace(control, xid=_xid(text)) if control.form.startswith("xa ") else control
    found = StatementEffects(scope, text, tokens, log)
    if unsure:
        return _unsure(found, f"a statement was not understood: {unsure}")
    if _is_rows(tokens):
        return _rows(found)
    try:
        if not judge(cursor, found):
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
    cursor = TokenCursor(tokens)
    if _control(cursor) is not None:
        return None
    found = StatementEffects(scope, text, tokens, log)
    try:
        told = is_aside(cursor) and judge(TokenCursor(tokens), found)
    except NotUnderstoodError:
        return None  # it may be for want of what follows
    return found.done("statement") if told else None


def _tokens(lexed: LexResult, text: str, mode: Mode, log: Log) -> tuple[list[SqlToken], str]:
    """The statement's own tokens, and why the server may have read others; empty if not."""
    unsure = lexed.unsure
    if mode.other_grammar:
        unsure = unsure or "its session's sql_mode gives words another meaning"
    if not log.clear:
        unsure = unsure or "it has characters that its character set does not have"
    tokens = lexed.statement
    begin = _behind_settings(tokens)
    measured = _behind_analyze(tokens[begin:])
    if begin and SqlToken("sign", "(") in tokens[:begin]:
        unsure = unsure or "what its settings call may change rows"
    # The server has read it before they were in force; the log has the mode of behind that.
    sets = begin or ("/*+" in text and occurring(text, ("set_var",)))
    if sets and occurring(text, ("sql_mode",)):
        unsure = unsure or "it sets sql_mode for itself"
    return tokens[begin + measured :], unsure


def _is_rows(tokens: Sequence[SqlToken]) -> bool:
    """Whether it may change rows by itself."""
    head = tokens[0].word
    if head in dml.HEADS or tokens[0] == SqlToken("sign", "("):
        return True
    return head in {"ANALYZE", "EXPLAIN", "DESCRIBE", "DESC"} and not _about_tables(tokens)


def _behind_settings(tokens: Sequence[SqlToken]) -> int:
    """Where it begins behind what MariaDB takes in front: SET STATEMENT x=1, y=2 FOR ..."""
    begin = 0
    while [token.word for token in tokens[begin : begin + 2]] == ["SET", "STATEMENT"]:
        rest = range(begin, len(tokens))
        end = next((at for at in rest if tokens[at].word == "FOR"), None)
        if end is None:
            break
        begin = end + 1
    return begin


def _behind_analyze(tokens: Sequence[SqlToken]) -> int:
    """Where it begins behind what MariaDB takes to do it and tell how: ANALYZE FORMAT=JSON ..."""
    words = [token.word or token.text for token in tokens[:5]]
    behind = 4 if words[1:3] == ["FORMAT", "="] else 1
    measures = words[:1] == ["ANALYZE"] and words[behind : behind + 1]
    return behind if measures and words[behind] in dml.CHANGES_ROWS_ONLY else 0


def _control(cursor: TokenCursor) -> Statement | None:
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


def _unsure(found: StatementEffects, why: str) -> Statement:
    """The server may have read something else than is read here."""
    heads = {token.word for token in found.tokens[:1]}
    # What it made, dropped or moved is not known, of any database; see `Statement.frees`.
    found.frees = True
    if heads & dml.HEADS:
        return _rows(found, why)
    whole = occurring(found.text, ("database", "schema"))
    wholly = bool(whole) and bool(occurring(found.text, ("drop", "replace")))
    known = heads & ({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "SET"} | ASIDE)
    if wholly or not known:
        found.doubt_all(why)
    else:
        found.doubt(found.scope.hidden(found.text), why)
    return found.done("statement")


# --- rows that were changed by a statement --------------------------------------------------------


def _rows(found: StatementEffects, why: str = "") -> Statement:
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
        may_have(why or f"{BY_STATEMENT}, and which tables it reached is not known")
        return found.done("rows")
    target = replace(target, database=target.database or scope.default)
    found.only = scope.tables(target)
    database = (target.database or "").replace("`", "``")
    found.change_rows(
        f"{BY_STATEMENT}, and triggers, a view or foreign keys may lead on from "
        f"{target.database}.{target.table} (if none do, and it is still there, "
        f"GRANT SELECT, TRIGGER ON `{database}`.* lets it be seen)"
    )
    return found.done("rows", asks=target)


def _about_tables(tokens: Sequence[SqlToken]) -> bool:
    words = [token.word for token in tokens[1:3]]
    if words and words[0] in {"LOCAL", "NO_WRITE_TO_BINLOG"}:
        words = words[1:]
    return words[:1] in (["TABLE"], ["TABLES"])
