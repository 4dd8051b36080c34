"""Tables that nothing can mirror, as information_schema describes them: told by name.

Lives here: `unfit_tables` and its reasons. Does not live here: tables that can be mirrored
(`catalog`), columns' names and keys (`core.columnnames`), VIRTUAL columns (`volatile`).

Invariant: a table is fit only if its engine is one of those of which every change was seen in the
log (docs/decisions/0078-sources.md). What is not known is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ratchet.core.errors import DecodeError, SourceUnfitError, TableStoppedError
from ratchet.core.sql.cursor import NotUnderstoodError, TokenCursor
from ratchet.core.sql.lexer import Mode, lex
from ratchet.wire.decode.answers import as_name, as_text, or_null, shaped, single
from ratchet.wire.decode.volatile import volatile_columns

Query = Callable[[str, Sequence[object]], Sequence[Sequence[Any]]]

# In the server's spelling, in lower case. All changes of their rows are in the log, as row events.
LOGGED_ENGINES: Final = frozenset({"innodb", "myisam", "aria", "memory"})
MERGE_ENGINE: Final = "mrg_myisam"

# Views have no engine, and so has a table that the server cannot open just now.
_KINDS: Final = """
SELECT table_name, table_type, engine
  FROM information_schema.tables
 WHERE table_schema = %s
   AND (table_type IN ('SYSTEM VERSIONED', 'SEQUENCE')
        OR LOWER(engine) NOT IN ('innodb', 'aria', 'memory'))
"""
_MERGES: Final = """
SELECT table_schema, table_name FROM information_schema.tables WHERE LOWER(engine) = 'mrg_myisam'
"""
SEQUENCE: Final = "it is a sequence, not a table"
_TYPES: Final = {
    "SYSTEM VERSIONED": "it is system-versioned: the log mixes its history with its rows",
    "SEQUENCE": SEQUENCE,
}


def unfit_tables(
    query: Query, *, database: str, trusts_virtual: bool = False, table: str | None = None
) -> dict[str, str]:
    """Tables that cannot be mirrored, with the reason; views are no tables and not listed.

    Args:
        query: runs a statement with arguments (%s) and returns its rows.
        database: the database's name on the server.
        trusts_virtual: whether VIRTUAL columns are taken as the log has them.
        table: the one that is asked about; None: all.
    """
    only, names = ("", []) if table is None else (" AND table_name = %s", [table])
    found: dict[str, str] = {}
    children = False  # whether there are tables that a MERGE table may write to
    for name, kind, engine in shaped(
        query(_KINDS + only, [database, *names]), as_name, as_text, or_null(as_text)
    ):
        children = children or (kind not in _TYPES and (engine or "").lower() == "myisam")
        reason = _TYPES.get(kind) or _reason(str(engine))
        if reason:
            found[name] = reason
    if children:
        found |= _written_through(query, database)
    if trusts_virtual:
        return found
    return volatile_columns(query, database=database, table=table) | found


def _reason(engine: str) -> str:
    """Why tables of an engine are not mirrored; empty if they are."""
    low = engine.lower()
    if low in LOGGED_ENGINES:
        return ""
    if low == MERGE_ENGINE:
        return "its engine is MERGE: its rows belong to other tables, and change under their names"
    if low == "archive":
        return "its engine is ARCHIVE: after a crash the server may give the same key twice"
    return f"its engine is {engine}: not every change of its rows is in the log"


def _written_through(query: Query, database: str) -> dict[str, str]:
    """MyISAM tables that a MERGE table of any database writes to: the log has its name only."""
    found = {}
    for home, merge in shaped(query(_MERGES, []), as_name, as_name):
        try:
            shown = query(f"SHOW CREATE TABLE {_quoted(home)}.{_quoted(merge)}", [])
        except (SourceUnfitError, TableStoppedError):
            continue  # the server cannot open it, so nobody writes through it, or we may not look
        _, text = single(shown, as_text, as_text, wider=True)
        for base, child in _union(text):
            if (base or home) == database:
                found[child] = (
                    f"the MERGE table {home}.{merge} includes it: rows written through that table "
                    "are in the log under its name"
                )
    return found


def _union(text: str) -> list[tuple[str | None, str]]:
    """Database, if it is told, and name of the tables that a MERGE table is made of.

    Args:
        text: of SHOW CREATE TABLE, where a comment or a name may say anything.

    Raises:
        DecodeError: it is not what a server says of such a table.
    """
    tokens = lex(text, Mode()).tokens
    unions = [at for at, token in enumerate(tokens) if token.word == "UNION"]
    if not unions:
        return []  # it has none yet
    cursor = TokenCursor(tokens[unions[-1] + 1 :])
    cursor.sign("=")
    found = []
    try:
        listed = TokenCursor(cursor.parens() or ())
        while not listed.done:
            found.append(listed.table())
            listed.sign(",")
    except NotUnderstoodError as error:
        raise DecodeError(
            f"the tables of a MERGE table cannot be read: {error}",
            operation="look for tables that cannot be mirrored",
            hint="report it with the output of SHOW CREATE TABLE for the MERGE tables",
        ) from error
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"
