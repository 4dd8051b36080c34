"""Statements as they are looked at in a log, and what they do to tables that are known."""

from __future__ import annotations

from collections.abc import Callable

from ratchet.core.sql.found import Log, Statement
from ratchet.core.sql.lexer import Mode
from ratchet.core.sql.names import Scope
from ratchet.core.sql.statements import classify

KNOWN = ("orders", "w", "t1", "_t_new", "x#y")

ANSI = Mode(ansi_quotes=True)

MARIADB = Mode(mariadb=True)


def look(
    text: str,
    database: str = "shop",
    *,
    mode: Mode = MARIADB,
    log: Log | None = None,
    folds: bool | None = False,
    known: tuple[str, ...] = KNOWN,
    is_base: Callable[[str], bool] = lambda _: True,
) -> Statement:
    scope = Scope(database="shop", default=database, known=known, folds=folds, is_base=is_base)
    return classify(text, mode=mode, scope=scope, log=log)


def effects(found: Statement) -> dict[str, set[str]]:
    """Table -> what is done to it, of the known ones."""
    made: dict[str, set[str]] = {}
    for table, change in found.changes:
        if table in KNOWN:
            made.setdefault(table, set()).add(change.effect)
    return made
