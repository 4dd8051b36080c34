"""The plain twin of `core.sql.lexer`: every character by its own turn, all tokens in one list.

Lives here: `plain_lex`, the oracle of the lexer's tests: shorter, and slow and greedy with memory.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ratchet.core.sql.lexer import LexResult, Mode, SqlToken

# Versions of executable comments that every server executes which Ratchet reads.
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


def plain_lex(text: str, mode: Mode) -> LexResult:
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
    return LexResult(found.tokens, found.unsure or "what its quotes mean is not known here")


def _lex(text: str, mode: Mode) -> LexResult:
    forms = _TOKEN[mode.ansi_quotes, mode.plain_backslashes]
    tokens: list[SqlToken] = []
    unsure, executed, at = "", False, 0
    while at < len(text):
        match = forms.match(text, at)
        assert match is not None
        kind, value = match.lastgroup, match.group()
        at = match.end()
        if kind == "comment" and not (head := _executable(text, at, mode)):
            at = text.find("*/", at) + 2
            if at < 2:
                return LexResult(tuple(tokens), "a comment does not end")
        elif kind == "comment":
            unsure = unsure or ("an executable comment within another" if executed else "")
            executed = True
            at, doubt = _version(text, at + head, mode)
            unsure = unsure or doubt
        elif value == "*" and executed and text.startswith("/", at):
            executed = False
            at += 1
        elif kind == "sign" and value in "`'\"":
            return LexResult(tuple(tokens), "a quote does not end")
        elif kind != "space":
            tokens.append(_token(kind, value))
    return LexResult(tuple(tokens), unsure or ("a comment does not end" if executed else ""))


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


def _token(kind: str | None, value: str) -> SqlToken:
    if kind == "name":
        return SqlToken("name", value[1:-1].replace(value[0] * 2, value[0]))
    return SqlToken("word" if kind == "word" else "string" if kind == "string" else "sign", value)
