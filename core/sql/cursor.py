"""A place among tokens, for grammars that take them one after the other.

Lives here: `TokenCursor`, and `NotUnderstoodError`, which ends a grammar at what it does not know.
Does not live here: any statement's grammar.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ratchet.core.sql.lexer import SqlToken

_NAME: Final = 256  # characters; servers allow 64
_END: Final = SqlToken("sign", "")
_DIGITS: Final = re.compile(r"[0-9]+\Z")
_INTRODUCER: Final = re.compile(r"[NXB]\Z|_[A-Za-z0-9]+\Z", re.IGNORECASE)


class NotUnderstoodError(Exception):
    """A statement goes on with something that is not known; the argument says where."""


class TokenCursor:
    """Tokens, and how many of them were taken."""

    def __init__(self, tokens: Sequence[SqlToken]) -> None:
        """Begin in front of the first one."""
        self._tokens = tokens
        self.at = 0

    def peek(self, ahead: int = 0) -> SqlToken:
        """The next token, or one further on; an empty sign behind the last."""
        at = self.at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    @property
    def done(self) -> bool:
        """Whether all are taken."""
        return self.at >= len(self._tokens)

    def rest(self) -> Sequence[SqlToken]:
        """What is not taken yet."""
        return self._tokens[self.at :]

    def take(self) -> SqlToken:
        """The next token."""
        if self.done:
            raise NotUnderstoodError("it ends too early")
        self.at += 1
        return self._tokens[self.at - 1]

    def names_since(self, begin: int) -> set[str]:
        """The names among the tokens that were taken from there on, bare words included."""
        return {one.text for one in self.taken_since(begin) if one.kind in {"word", "name"}}

    def taken_since(self, begin: int) -> Sequence[SqlToken]:
        """The tokens that were taken from there on."""
        return self._tokens[begin : self.at]

    def stuck(self) -> NotUnderstoodError:
        """What to raise here."""
        if self.done:
            return NotUnderstoodError("it ends too early")
        return NotUnderstoodError(f"not understood from {self.peek().text[:40]!r} on")

    def accept(self, *words: str) -> bool:
        """Take these bare words if they come next, one after the other."""
        if any(self.peek(n).word != word for n, word in enumerate(words)):
            return False
        self.at += len(words)
        return True

    def one_of(self, *words: str) -> str:
        """Take one of these bare words; which, or empty."""
        found = self.peek().word
        if found not in words or not found:
            return ""
        self.at += 1
        return found

    def sign(self, text: str) -> bool:
        """Take a character if it comes next."""
        found = self.peek()
        if found.kind != "sign" or found.text != text or self.done:
            return False
        self.at += 1
        return True

    def need(self, *words: str) -> None:
        """Take these words.

        Raises:
            NotUnderstoodError: something else comes.
        """
        if not self.accept(*words):
            raise self.stuck()

    def name(self) -> str:
        """Take a name, bare or quoted.

        Raises:
            NotUnderstoodError: something else comes.
        """
        if self.peek().kind not in {"word", "name"} or len(self.peek().text) > _NAME:
            raise self.stuck()
        return self.take().text

    def table(self) -> tuple[str | None, str]:
        """Take a table's name: its database, if it is told, and its own."""
        first = self.name()
        return (first, self.name()) if self.sign(".") else (None, first)

    def parens(self) -> Sequence[SqlToken] | None:
        """Take everything in the parentheses that come next; None if none do.

        Raises:
            NotUnderstoodError: they do not end.
        """
        if not self.sign("("):
            return None
        begin, depth = self.at, 1
        while depth:
            token = self.take()
            if token.kind == "sign":
                depth += {"(": 1, ")": -1}.get(token.text, 0)
        return self._tokens[begin : self.at - 1]

    def need_parens(self) -> Sequence[SqlToken]:
        """The same, where they have to come."""
        found = self.parens()
        if found is None:
            raise self.stuck()
        return found

    def string(self) -> bool:
        """Take strings that are one, with what may stand in front of them."""
        if _INTRODUCER.match(self.peek().text) and self.peek(1).kind == "string":
            self.at += 1
        found = False
        while self.peek().kind == "string":
            self.at += 1
            found = True
        return found

    def number(self) -> bool:
        """Take a number without sign: 5, 1.5, 2e3."""
        first, point = self.peek().text, self.peek(1).text == "."
        if self.peek().kind != "word" or not first[:1].isdigit():
            return False
        self.at += 1
        if point and _DIGITS.match(first):
            self.at += 1
            if self.peek().kind == "word" and self.peek().text[:1].isdigit():
                self.at += 1
        return True

    def literal(self) -> bool:
        """Take a constant: a string, a number with or without sign, TRUE, FALSE, NULL, a date."""
        if self.one_of("DATE", "TIME", "TIMESTAMP"):
            return self.string()
        if self.one_of("TRUE", "FALSE", "NULL") or self.string():
            return True
        if self.peek().kind == "sign" and self.peek().text in {"-", "+"}:
            self.at += 1
        return self.number()
