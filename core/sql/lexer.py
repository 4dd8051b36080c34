"""A statement's text as tokens, split as the server split it.

Lives here: `Mode` (what the session's settings say of quotes) and `lex`. Does not live here: what
the tokens mean (`statements`).

A server logs the text of a statement as it came, but for executable comments (`/*!80000 ... */`)
that it did not execute: of these it blanks the `!`. So what is left is what it has executed.

Invariant: takes time in proportion to the text. What the server may have split otherwise (an end
that is missing, a mode that is not known, an executable comment of a version that not every server
has) is told in `Lexed.unsure`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

Kind = Literal["word", "name", "string", "sign"]

_ANSI_QUOTES: Final = 1 << 2
_NO_BACKSLASH_ESCAPES: Final = 1 << 20
# MariaDB's ORACLE and MSSQL (names in brackets); MySQL has no such bits.
_OTHER_GRAMMAR: Final = 1 << 9 | 1 << 10

# Versions of executable comments that every server executes which Ratchet reads; what a MariaDB
# leaves to MySQL begins at 50700.
_EXECUTED: Final = {False: (range(80_001),), True: (range(50_700), range(100_000, 100_401))}

_FORMS: Final = r"""
    (?P<space>[ \t\n\v\f\r]++|\#[^\n]*+|--(?=[\x00-\x20\x7f]|\Z)[^\n]*+)
  | (?P<comment>/\*)
  | (?P<word>[0-9A-Za-z_$\u0080-\U0010ffff]++)
  | (?P<name>`(?:[^`]|``)*+`%s)
  | (?P<string>%s)
  | (?P<sign>.)
"""
_SINGLE: Final = {False: r"'(?:[^'\\]|\\.|'')*+'", True: r"'(?:[^']|'')*+'"}
_DOUBLE: Final = {False: r'"(?:[^"\\]|\\.|"")*+"', True: r'"(?:[^"]|"")*+"'}


def _forms(*, ansi: bool, plain: bool) -> re.Pattern[str]:
    name = "|" + _DOUBLE[True] if ansi else ""
    string = _SINGLE[plain] + ("" if ansi else "|" + _DOUBLE[plain])
    return re.compile(_FORMS % (name, string), re.VERBOSE | re.DOTALL)


_TOKEN: Final = {
    (ansi, plain): _forms(ansi=ansi, plain=plain)
    for ansi in (False, True)
    for plain in (False, True)
}
_VERSION: Final = re.compile(r"\d{5,6}")


@dataclass(frozen=True, slots=True)
class Mode:
    """What decides how a session's server splits a text.

    Attributes:
        mariadb: whether it is a MariaDB.
        ansi_quotes: "x" is a name.
        plain_backslashes: a backslash in a string is nothing special (NO_BACKSLASH_ESCAPES).
        known: whether the session's sql_mode is known.
        other_grammar: words may mean something else (sql_mode ORACLE, MSSQL).
    """

    mariadb: bool = False
    ansi_quotes: bool = False
    plain_backslashes: bool = False
    known: bool = True
    other_grammar: bool = False

    @classmethod
    def of(cls, sql_mode: int | None, *, mariadb: bool) -> Mode:
        """The mode of a session.

        Args:
            sql_mode: its bits, as a Query event has them; None: not known.
            mariadb: whether the server is a MariaDB.
        """
        if sql_mode is None:
            return cls(mariadb=mariadb, known=False)
        return cls(
            mariadb=mariadb,
            ansi_quotes=bool(sql_mode & _ANSI_QUOTES),
            plain_backslashes=bool(sql_mode & _NO_BACKSLASH_ESCAPES),
            other_grammar=mariadb and bool(sql_mode & _OTHER_GRAMMAR),
        )


@dataclass(frozen=True, slots=True)
class Token:
    """A bare word, a quoted name, a string, or another character.

    Attributes:
        kind: which of these.
        text: a name without its quotes; all others as they stand.
    """

    kind: Kind
    text: str

    @property
    def word(self) -> str:
        """A bare word in capitals; empty for anything else."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def inner(self) -> str:
        """What a quoted text may mean as a name."""
        if self.kind != "string":
            return self.text
        return self.text[1:-1].replace(self.text[0] * 2, self.text[0])


@dataclass(frozen=True, slots=True)
class Lexed:
    """A text's tokens.

    Attributes:
        tokens: without comments; what executable comments hold counts.
        unsure: why the server may have seen others; empty if it has not.
    """

    tokens: tuple[Token, ...]
    unsure: str = ""


def lex(text: str, mode: Mode) -> Lexed:
    """Split a statement."""
    found = _lex(text, mode)
    if mode.known or not ('"' in text or "\\" in text):
        return found
    others = [
        _lex(text, replace(mode, ansi_quotes=ansi, plain_backslashes=plain))
        for ansi, plain in _TOKEN
    ]
    if all(other == found for other in others):
        return found
    return Lexed(found.tokens, found.unsure or "what its quotes mean is not known here")


def _lex(text: str, mode: Mode) -> Lexed:
    forms = _TOKEN[mode.ansi_quotes, mode.plain_backslashes]
    tokens: list[Token] = []
    unsure, executed, at = "", False, 0
    while at < len(text):
        match = forms.match(text, at)
        assert match is not None  # noqa: S101 - any character is a sign
        kind, value = match.lastgroup, match.group()
        at = match.end()
        if kind == "comment" and not (head := _executable(text, at, mode)):
            at = text.find("*/", at) + 2
            if at < 2:
                return Lexed(tuple(tokens), "a comment does not end")
        elif kind == "comment":
            unsure = unsure or ("an executable comment within another" if executed else "")
            executed = True
            at, doubt = _version(text, at + head, mode)
            unsure = unsure or doubt
        elif value == "*" and executed and text.startswith("/", at):
            executed = False
            at += 1
        elif kind == "sign" and value in "`'\"":
            return Lexed(tuple(tokens), "a quote does not end")
        elif kind != "space":
            tokens.append(_token(kind, value))
    return Lexed(tuple(tokens), unsure or ("a comment does not end" if executed else ""))


def _executable(text: str, at: int, mode: Mode) -> int:
    """How many characters behind `/*` say that a comment is executed; 0: it is not."""
    if text.startswith("!", at):
        return 1
    return 2 if mode.mariadb and text.startswith("M!", at) else 0


def _version(text: str, at: int, mode: Mode) -> tuple[int, str]:
    """Where what is executed begins, and a doubt about versions that not all servers have."""
    version = _VERSION.match(text, at)
    if version is None:
        return at, ""
    number = int(version.group())
    sure = any(number in one for one in _EXECUTED[mode.mariadb])
    return version.end(), "" if sure else f"a comment for servers from version {number} on"


def _token(kind: str | None, value: str) -> Token:
    if kind == "name":
        return Token("name", value[1:-1].replace(value[0] * 2, value[0]))
    return Token("word" if kind == "word" else "string" if kind == "string" else "sign", value)
