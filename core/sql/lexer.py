"""A statement's text as tokens, split as the server split it.

Lives here: `Mode` (what the session's settings say of quotes) and `lex`. Does not live here: what
the tokens mean (`statements`).

A server logs the text of a statement as it came, but for executable comments (`/*!80000 ... */`)
that it did not execute: of these it blanks the `!`. So what is left is what it has executed.

Invariant: takes time in proportion to the text, and holds no more than `MOST_TOKENS` tokens. What
the server may have split otherwise (an end that is missing, a mode that is not known, an executable
comment of a version that not every server has) is told in `LexResult.unsure`, as is what is too
long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

Kind = Literal["word", "name", "string", "sign"]

_ANSI_QUOTES: Final = 1 << 2
_NO_BACKSLASH_ESCAPES: Final = 1 << 20
# MariaDB's ORACLE and MSSQL (names in brackets); MySQL has no such bits.
_OTHER_GRAMMAR: Final = 1 << 9 | 1 << 10

# Versions of executable comments that every server executes which Ratchet reads; what a MariaDB
# leaves to MySQL begins at 50700.
_EXECUTED: Final = {False: (range(80_001),), True: (range(50_700), range(100_000, 100_401))}

# Of more tokens than these, spaces and comments between them counted, a statement is in doubt:
# 0.2 s, and some 30 MB of objects. No ALTER TABLE that a server takes has so many. A dump's INSERT
# of 1 MB may have; where that is logged as its text, its table is in doubt anyway.
MOST_TOKENS: Final = 200_000

# Letters of a word that may be a keyword: both servers' have fewer than 35.
_LONGEST: Final = 64

# All repeats are possessive: they take no memory for each turn.
_FORMS: Final = r"""
    (?P<space>[ \t\n\v\f\r]++|(?:\#|--(?=[\x00-\x20\x7f]|\Z))[^\n]*+)
  | (?P<comment>/\*)
  | (?P<word>[0-9A-Za-z_$\u0080-\U0010ffff]++)
  | (?P<name>`[^`]*+(?:(?:``)++[^`]*+)*+`%s)
  | (?P<string>%s)
  | (?P<sign>.)
"""
_SINGLE: Final = {
    False: r"'[^'\\]*+(?:(?:(?:\\.)++|(?:'')++)[^'\\]*+)*+'",
    True: r"'[^']*+(?:(?:'')++[^']*+)*+'",
}
_DOUBLE: Final = {plain: form.replace("'", '"') for plain, form in _SINGLE.items()}


def _forms(*, ansi: bool, plain: bool) -> re.Pattern[str]:
    name = "|" + _DOUBLE[True] if ansi else ""
    string = _SINGLE[plain] + ("" if ansi else "|" + _DOUBLE[plain])
    return re.compile(_FORMS % (name, string), re.VERBOSE | re.DOTALL)


_BOTH: Final = (False, True)
_TOKEN: Final = {(ansi, plain): _forms(ansi=ansi, plain=plain) for ansi in _BOTH for plain in _BOTH}
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


class SqlToken(NamedTuple):
    """A bare word, a quoted name, a string, or another character.

    Attributes:
        kind: which of these.
        text: a name without its quotes; all others as they stand.
    """

    kind: Kind
    text: str

    @property
    def word(self) -> str:
        """A bare word, in capitals if it may be a keyword; empty for anything else."""
        if self.kind != "word":
            return ""
        return self.text.upper() if len(self.text) <= _LONGEST else self.text

    @property
    def inner(self) -> str:
        """What a quoted text may mean as a name."""
        if self.kind != "string":
            return self.text
        return self.text[1:-1].replace(self.text[0] * 2, self.text[0])


@dataclass(frozen=True, slots=True)
class LexResult:
    """A text's tokens.

    Attributes:
        tokens: without comments; what executable comments hold counts.
        unsure: why the server may have seen others; empty if it has not.
        cut: whether the text goes on.
    """

    tokens: tuple[SqlToken, ...]
    unsure: str = ""
    cut: bool = False

    @property
    def statement(self) -> list[SqlToken]:
        """The tokens without the semicolons behind them."""
        found = list(self.tokens)
        while found and found[-1] == _SIGNS[";"]:
            found.pop()
        return found


def lex(text: str, mode: Mode) -> LexResult:
    """Split a statement."""
    return _lex(text, mode, len(text))


def lex_head(text: str, mode: Mode, size: int) -> LexResult:
    """Split the beginning of a statement: the tokens that end within so many characters.

    What follows is not looked at, but for the end of a comment that begins there.
    """
    return _lex(text, mode, min(size, len(text)))


def _lex(text: str, mode: Mode, size: int) -> LexResult:
    run = _Lexer(text, mode, size)
    found = tuple(run)
    unsure = run.unsure
    if not mode.known and ('"' in text or "\\" in text):
        for ansi in _BOTH:
            for plain in _BOTH:
                other = _Lexer(text, replace(mode, ansi_quotes=ansi, plain_backslashes=plain), size)
                if not unsure and not other.is_like(found, cut=run.cut):
                    unsure = "what its quotes mean is not known here"
    return LexResult(found, unsure, run.cut)


class _Lexer:
    """Goes over a text once and hands its tokens out, one at a time.

    Attributes:
        unsure: as in `LexResult`, once all were taken.
        cut: the same.
    """

    def __init__(self, text: str, mode: Mode, size: int) -> None:
        self._text = text
        self._mode = mode
        self._size = size
        self._forms = _TOKEN[mode.ansi_quotes, mode.plain_backslashes]
        self._executed = False
        self.unsure = ""
        self.cut = False

    def is_like(self, tokens: tuple[SqlToken, ...], *, cut: bool) -> bool:
        """Whether it hands out these, and is sure of them."""
        at = 0
        for token in self:
            if at >= len(tokens) or tokens[at] != token:
                return False
            at += 1
        return at == len(tokens) and not self.unsure and self.cut == cut

    def __iter__(self) -> Iterator[SqlToken]:
        text, size, match_at = self._text, self._size, self._forms.match
        at, left, whole = 0, MOST_TOKENS, size == len(text)
        while at < size:
            match = match_at(text, at, size)
            assert match is not None  # noqa: S101 - any character is a sign
            kind, at, left = match.lastgroup, match.end(), left - 1
            if left < 0:
                self.cut = True
                self.unsure = self.unsure or f"it has more than {MOST_TOKENS} words and signs"
                return
            if at >= size and not whole:
                break  # it may go on
            if kind == "comment":
                at = self._comment(at)
            elif kind == "sign":
                value = match.group()
                if value in _QUOTES:
                    self.unsure = "a quote does not end" if whole else self.unsure
                    self.cut = not whole
                    return
                if value == "*" and self._ends_here(at):
                    at += 1
                else:
                    yield _SIGNS.get(value) or SqlToken("sign", value)
            elif kind != "space":
                yield _token(kind, match.group())
        self.cut = not whole
        if whole and self._executed and not self.unsure:
            self.unsure = "a comment does not end"

    def _ends_here(self, at: int) -> bool:
        """Whether what an executable comment holds ends, behind its star."""
        ends = self._executed and self._text.startswith("/", at)
        self._executed = self._executed and not ends
        return ends

    def _comment(self, at: int) -> int:
        """Where to go on behind `/*`."""
        text = self._text
        if not (head := _executable(text, at, self._mode)):
            end = text.find("*/", at) + 2
            if end < 2:
                self.unsure = "a comment does not end"
                self._executed = False
                return len(text)
            return end
        if self._executed:
            self.unsure = self.unsure or "an executable comment within another"
        self._executed = True
        at, doubt = _version(text, at + head, self._mode)
        self.unsure = self.unsure or doubt
        return at


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


_QUOTES: Final = frozenset("`'\"")
_SIGNS: Final = {chr(code): SqlToken("sign", chr(code)) for code in range(128)}


def _token(kind: str | None, value: str) -> SqlToken:
    if kind == "name":
        return SqlToken("name", value[1:-1].replace(value[0] * 2, value[0]))
    return SqlToken("word" if kind == "word" else "string", value)
