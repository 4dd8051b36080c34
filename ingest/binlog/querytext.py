"""The text of a statement: from the bytes of its session's character set, as the server read them.

Lives here: `statement_text`. Does not live here: where the text stands in an event (`events`), how
it is split (`core.sql.lexer`), the character sets themselves (`wire.decode.charsets`).

A server looks for quotes, backslashes and remarks among the bytes, and turns only names and strings
into characters. So U+FFFD stands for whatever may be something else to it than what the text would
show: bytes that are no character, and characters that a reader would take for a sign.

Invariant: a text without U+FFFD has the server's characters, each where the server has it.
"""

from __future__ import annotations

import re
from typing import Final

from ratchet.core.sql.names import UNREAD
from ratchet.wire.decode.charsets import text_of
from ratchet.wire.decode.collations import charset_of, python_codec

# Their codecs in Python have no character that the servers have otherwise
# (tests/unit/ingest/test_querytext.py); what these lack is asked of our own tables.
_LIKE_PYTHON: Final = frozenset(
    f"cp{page}" for page in (1250, 1251, 1252, 1257, 850, 852)
) | {
    "euc_kr", "gb2312", "gbk", "iso8859-13", "iso8859-2", "iso8859-9", "koi8-r", "mac-roman",
    "tis-620",
}  # fmt: skip
# Here a no-break space is a blank between words to both servers (A0; FF in the last three), as a
# scan of all bytes showed. In all other sets it is a letter.
_NO_BREAK: Final = "\u00a0"
_SPLITS_THERE: Final = frozenset(
    {"armscii8", "cp1250", "dec8", "geostd8", "greek", "hebrew", "latin1", "latin2", "latin5"}
    | {"latin7", "cp852", "cp866", "keybcs2"}
)
# Characters of two bytes that the servers turn into a backslash, which quotes nothing there.
_BACKSLASH: Final = {"sjis": b"\x81\x5f", "ujis": b"\xa1\xc0"}
# swe7 has letters in the place of signs. Backslashes, at signs and backquotes are signs to the
# server all the same where it splits a text, and letters within a name.
_SWEDISH: Final = re.compile(rb"``|[@\[\\\]^{|}~\x7f]")


def statement_text(data: bytes | memoryview, collation: int) -> tuple[str, bool]:
    """A statement's text, and whether it is sure to be what the server read.

    Args:
        data: as logged.
        collation: of the session's character_set_client, its number.

    Raises:
        DecodeError: the number is of no collation that is known.
    """
    codec = python_codec(collation)
    if codec == "utf-8":
        # Bytes that are no character hide no quote: none of a character's bytes looks like ASCII.
        return str(data, codec, "replace"), True
    charset = charset_of(collation)
    text = _characters(data, charset, codec)
    if charset in _SPLITS_THERE:
        text = text.replace(_NO_BREAK, UNREAD)
    return text, UNREAD not in text


def _characters(data: bytes | memoryview, charset: str, codec: str) -> str:
    """The text, with U+FFFD for what may be something else."""
    if charset == "swe7":
        return str(_SWEDISH.sub(b"\xff", bytes(data)), "ascii", "replace")
    for one in ("ascii", codec):
        if one == "ascii" or one in _LIKE_PYTHON:
            try:
                return str(data, one)
            except UnicodeDecodeError:
                pass
    whole = bytes(data)
    text = text_of(whole, charset)
    if (sign := _BACKSLASH.get(charset)) and sign in whole:
        text = UNREAD.join(text.split("\\"))
    return text
