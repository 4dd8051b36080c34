"""What a logged statement is, and which tables it may concern.

Lives here: splitting a statement into words and names, its kind for the machine, and the tables
whose rows or shape it may have changed. Does not live here: parsing SQL. Row events describe
themselves, so all that is needed of a statement is not to overlook a table.

Invariant: a statement that may have changed rows without row events is DML or unknown, and both
stop the stream; a DDL statement names every table that occurs in it, rather one too many.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ingest.binlog.machine import Kind

_FORMS: Final = r"""
    (?P<space>\s+|--[ \t\r\n][^\n]*\n?|--$|\#[^\n]*\n?|\*/)
  | (?P<remark>/\*(?![!M]))
  | (?P<versioned>/\*M?!\d*)
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<string>%s)
  | (?P<open>['"])
  | (?P<word>[^\W]\w*(?:\$\w*)*|\$\w+|[0-9]+\w*)
  | (?P<other>.)
"""
_FLAGS: Final = re.VERBOSE | re.DOTALL
_TOKEN: Final = re.compile(_FORMS % r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""", _FLAGS)
# Of a session with sql_mode=NO_BACKSLASH_ESCAPES.
_TOKEN_PLAIN: Final = re.compile(_FORMS % r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""", _FLAGS)

_PLAIN_KINDS: Final = {
    "BEGIN": Kind.BEGIN,
    "COMMIT": Kind.COMMIT,
    "SAVEPOINT": Kind.SAVEPOINT,
    "RELEASE": Kind.SAVEPOINT,
}
_DML: Final = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO", "SELECT", "EXECUTE"}
    | {"HANDLER", "TABLE", "VALUES", "IMPORT"}
)
_STATEMENTS: Final = frozenset(
    {"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "GRANT", "REVOKE", "SET", "FLUSH", "ANALYZE"}
    | {"OPTIMIZE", "REPAIR", "CHECK", "RESET", "INSTALL", "UNINSTALL", "KILL", "CLONE", "LOCK"}
    | {"UNLOCK", "CACHE", "PURGE", "CHANGE", "START", "STOP", "USE", "COMMENT"}
)
_XA: Final = {
    "START": Kind.XA_START,
    "BEGIN": Kind.XA_START,
    "END": Kind.XA_END,
    "PREPARE": Kind.XA_PREPARE,
    "ROLLBACK": Kind.XA_FINISH,
    "COMMIT": Kind.XA_COMMIT_UNSEEN,
}
# Objects that are no tables, behind CREATE, ALTER, DROP and RENAME with its modifiers.
_MODIFIERS: Final = frozenset(
    {"OR", "REPLACE", "UNIQUE", "ONLINE", "OFFLINE", "IGNORE", "TABLE", "TABLES"}
)
_NO_TABLES: Final = frozenset(
    {"INDEX", "VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SERVER"}
    | {"LOGFILE", "TABLESPACE", "SEQUENCE", "PACKAGE", "RESOURCE", "SPATIAL", "INSTANCE", "LIBRARY"}
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a name in backquotes, a string, or another character."""

    kind: str
    text: str

    @property
    def word(self) -> str:
        """A bare word in capitals; empty for anything else."""
        return self.text.upper() if self.kind == "word" else ""


@dataclass(frozen=True, slots=True)
class Statement:
    """What the machine and the round log need to know of a statement.

    Attributes:
        kind: its kind for the machine; UNKNOWN if its first word is.
        tables: names of tables of the wanted database that it may have changed.
        truncates: whether it is TRUNCATE of these tables and nothing else.
        xid: the XA transaction it is about, as logged; empty if it is not about one.
    """

    kind: Kind
    tables: tuple[str, ...] = ()
    truncates: bool = False
    xid: str = ""


def tokens(text: str) -> list[Token]:
    """The tokens of a statement without comments; what executable comments hold counts.

    Takes time in proportion to the text: what does not end is looked for once.
    """
    found = _tokens(text, _TOKEN)
    if any(token.kind == "open" for token in found):
        # A backslash in front of a quote was no escape, or else this is no statement.
        found = _tokens(text, _TOKEN_PLAIN)
    return found


def _tokens(text: str, forms: re.Pattern[str]) -> list[Token]:
    found = []
    at, remarks = 0, True
    while at < len(text):
        match = forms.match(text, at)
        assert match is not None  # noqa: S101 - any character is `other`
        kind, value = match.lastgroup or "other", match.group()
        at = match.end()
        if kind == "remark":
            end = text.find("*/", at) if remarks else -1
            remarks = end >= 0
            if remarks:
                at = end + 2
                continue
        if kind in {"space", "versioned"}:
            continue
        if kind == "open" and forms is _TOKEN:
            return [Token(kind, value)]
        if kind == "quoted":
            value = value[1:-1].replace("``", "`")
        found.append(Token(kind, value))
    return found


def classify(
    text: str, *, default_database: str, database: str, known: Collection[str]
) -> Statement:
    """Look at one logged statement.

    Args:
        text: the statement.
        default_database: the database it ran in.
        database: the database whose tables matter.
        known: names of tables there that are mirrored already.
    """
    parts = tokens(text)
    words = [part.word for part in parts]
    if words[:2] == ["SET", "STATEMENT"] and "FOR" in words:  # MariaDB: SET STATEMENT x=1 FOR ...
        start = words.index("FOR") + 1
        parts, words = parts[start:], words[start:]
    if not parts:
        return Statement(Kind.STATEMENT)  # MariaDB logs a comment in place of some events
    control = _control(words, text)
    if control is not None:
        return control
    if words[0] in _DML or _fills_a_table(words):
        return Statement(Kind.DML)
    if words[0] not in _STATEMENTS:
        return Statement(Kind.UNKNOWN)
    tables = _concerned(parts, words, default_database, database, known)
    return Statement(Kind.STATEMENT, tables, truncates=words[0] == "TRUNCATE")


def _control(words: list[str], text: str) -> Statement | None:
    """Statements that begin, end or divide a transaction; None for all others."""
    if words[0] == "ROLLBACK":
        return Statement(Kind.ROLLBACK_TO if "TO" in words else Kind.ROLLBACK)
    if words[0] == "XA":
        return Statement(_XA.get("".join(words[1:2]), Kind.UNKNOWN), xid=_xid(text))
    if words[:2] == ["START", "TRANSACTION"]:
        return Statement(Kind.BEGIN)
    kind = _PLAIN_KINDS.get(words[0])
    return None if kind is None else Statement(kind)


def _xid(text: str) -> str:
    """The XA transaction's name, as the server writes it: X'..',X'..',1."""
    return text.split(None, 2)[-1].rstrip().removesuffix("ONE PHASE").rstrip()


def _fills_a_table(words: list[str]) -> bool:
    """CREATE TABLE ... SELECT as one statement: no row events follow what it inserts.

    In row format the server logs the table's definition instead, which has no SELECT in it.
    """
    kept = "TABLE" in words[:4] and "TEMPORARY" not in words[:4]
    return words[0] == "CREATE" and kept and "SELECT" in words


def _concerned(
    parts: list[Token],
    words: list[str],
    default_database: str,
    database: str,
    known: Collection[str],
) -> tuple[str, ...]:
    target = _target(words)
    if target == "DATABASE":
        named = _names(parts, default_database, database)
        dropped = any(part.text.lower() == database.lower() for part in parts[1:])
        return tuple(sorted(known)) if words[0] == "DROP" and dropped else _known(named, known)
    if target != "TABLE":
        return ()
    named = _names(parts, default_database, database)
    aimed_at = _aimed_at(parts, words, default_database, database)
    return tuple(dict.fromkeys((*aimed_at, *_known(named, known))))


def _target(words: list[str]) -> str:
    """TABLE, DATABASE, or another word: what CREATE, ALTER, DROP, RENAME or TRUNCATE is about."""
    if words[0] == "TRUNCATE":
        return "TABLE"
    # A temporary table belongs to one connection; the table of that name is not touched.
    if words[0] not in {"CREATE", "ALTER", "DROP", "RENAME"} or "TEMPORARY" in words[1:4]:
        return ""
    objects = {"TABLE": "TABLE", "TABLES": "TABLE", "DATABASE": "DATABASE", "SCHEMA": "DATABASE"}
    for word in words[1:]:
        if word in objects or word in _NO_TABLES:
            return objects.get(word, word)
    return ""


def _names(parts: list[Token], default_database: str, database: str) -> list[str]:
    """Every name in the statement that may be a table of `database`."""
    names = []
    for at, part in enumerate(parts):
        if part.kind not in {"word", "quoted", "string"}:
            continue
        text = part.text[1:-1] if part.kind == "string" else part.text
        if at >= 2 and parts[at - 1].text == ".":
            if parts[at - 2].text.lower() == database.lower():
                names.append(text)
        elif default_database.lower() == database.lower():
            names.append(text)
    return names


def _known(names: list[str], known: Collection[str]) -> tuple[str, ...]:
    """The known tables among `names`; case is ignored, as some servers do."""
    low = {name.lower() for name in names}
    return tuple(table for table in sorted(known) if table.lower() in low)


def _aimed_at(
    parts: list[Token], words: list[str], default_database: str, database: str
) -> list[str]:
    """The tables behind the word TABLE, known or not."""
    at = 1
    while at < len(parts) and words[at] in _MODIFIERS:
        at += 1
    if words[at : at + 1] == ["IF"]:
        at += 3 if words[at + 1 : at + 2] == ["NOT"] else 2
    found = []
    while at < len(parts) and parts[at].kind in {"word", "quoted"}:
        base, name = default_database, parts[at].text
        if at + 2 < len(parts) and parts[at + 1].text == ".":
            base, name = name, parts[at + 2].text
            at += 2
        if base.lower() == database.lower():
            found.append(name)
        at += 1
        several = words[0] in {"DROP", "RENAME"} and at < len(parts)
        if not several or (parts[at].text != "," and words[at] not in {"TO", "AS"}):
            break
        at += 1
    return found
