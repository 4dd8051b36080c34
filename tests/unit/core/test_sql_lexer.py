"""A statement's tokens are those that its session's server saw."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.sql.lexer import Mode, lex

ANSI = Mode(ansi_quotes=True)
PLAIN = Mode(plain_backslashes=True)
MARIADB = Mode(mariadb=True)
UNKNOWN = Mode(known=False)


def texts(text: str, mode: Mode | None = None) -> list[str]:
    found = lex(text, mode or Mode())
    assert not found.unsure, found.unsure
    return [f"{token.kind[0]}:{token.text}" for token in found.tokens]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a /* b */ c", ["w:a", "w:c"]),
        ("a/**/c", ["w:a", "w:c"]),
        ("a -- b\nc", ["w:a", "w:c"]),
        ("a --\tb\nc --", ["w:a", "w:c"]),
        ("a --b", ["w:a", "s:-", "s:-", "w:b"]),
        ("a # b\nc #", ["w:a", "w:c"]),
        ("'a # b' `c -- d` 'e /* f */'", ["s:'a # b'", "n:c -- d", "s:'e /* f */'"]),
        ("`a``b`", ["n:a`b"]),
        ("``", ["n:"]),
        (r"'it\'s' 'it''s' '\\'", [r"s:'it\'s'", "s:'it''s'", r"s:'\\'"]),
        ("\"a\" 'b'", ['s:"a"', "s:'b'"]),
        ("/*!50100 a */ b", ["w:a", "w:b"]),
        ("/*! a /* b */ c */ d", ["w:a", "w:c", "w:d"]),
        ("a*/*!b*/c", ["w:a", "s:*", "w:b", "w:c"]),
        ("/*M!100100 a */ b", ["w:b"]),
        ("/* 99999 a */ b", ["w:b"]),
        ("größe\u00a0x $a 1a", ["w:größe\u00a0x", "w:$a", "w:1a"]),
        ("\v\f\r\n", []),
        ("a.b", ["w:a", "s:.", "w:b"]),
    ],
)
def test_tokens(text: str, found: list[str]) -> None:
    assert texts(text) == found


def test_the_sessions_mode_decides_what_quotes_are() -> None:
    assert texts('"a""b"', ANSI) == ['n:a"b']
    assert texts(r"'a\' b", PLAIN) == [r"s:'a\'", "w:b"]
    assert texts(r'"a\" b', ANSI) == ["n:a\\", "w:b"]
    assert texts("/*M!100100 a */ b", MARIADB) == ["w:a", "w:b"]
    assert texts("a 'b' `c`", UNKNOWN) == ["w:a", "s:'b'", "n:c"]


def test_modes_come_from_the_events_bits() -> None:
    assert Mode.of(0x100004, mariadb=False) == Mode(ansi_quotes=True, plain_backslashes=True)
    assert Mode.of(None, mariadb=True) == Mode(mariadb=True, known=False)
    for bit in (9, 10):  # ORACLE, MSSQL
        assert Mode.of(1 << bit, mariadb=True).other_grammar
        assert not Mode.of(1 << bit, mariadb=False).other_grammar


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("a 'b", Mode()),
        ("a `b", Mode()),
        ('a "b', ANSI),
        ("a /* b", Mode()),
        ("a /*! b", Mode()),
        ("/*!50000 a /*!50000 b */ */", Mode()),
        ("/*!90100 a */", Mode()),  # not every MySQL that is read has it
        ("/*!500001 a */", Mode()),  # five digits or six
        ("/*!80000 a */", MARIADB),
        ("/*M!110000 a */", MARIADB),
        ('a "b"', UNKNOWN),
        (r"a 'b\'' ", UNKNOWN),
    ],
)
def test_what_the_server_may_have_split_otherwise(text: str, mode: Mode) -> None:
    assert lex(text, mode).unsure


@given(st.text(alphabet="a'\"`\\#-/*!M5 \n\0", max_size=40), st.booleans(), st.booleans())
def test_any_text_has_tokens(text: str, ansi: bool, plain: bool) -> None:  # noqa: FBT001 - drawn
    found = lex(text, Mode(ansi_quotes=ansi, plain_backslashes=plain))
    assert sum(len(token.text) for token in found.tokens) <= len(text)
    lex(text, UNKNOWN)


@pytest.mark.parametrize("piece", ["'\\", '"\\"\'', "/*", "/*!", "`", "``", "#", "'", "-- ", "*/"])
def test_it_takes_linear_time(piece: str) -> None:
    """Quadratic, these took minutes."""
    for mode in (Mode(), ANSI, PLAIN, UNKNOWN):
        lex(piece * 200_000, mode)
