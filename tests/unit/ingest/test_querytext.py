"""Statements' texts in the character sets of sessions, by Python's codecs and by our own tables."""

from __future__ import annotations

import contextlib

import pytest

from ratchet.core.sql.names import UNREAD
from ratchet.ingest.binlog.querytext import _LIKE_PYTHON, statement_text
from ratchet.wire.decode.charsets import text_of
from ratchet.wire.decode.collations import _IDS, python_codec

FIRST = {name: int(spans.split()[0].split("-")[0]) for name, spans in _IDS.items()}
CODECS = {name: codec for name, id_ in FIRST.items() if (codec := python_codec(id_))}
LIKE_PYTHON = sorted(name for name, codec in CODECS.items() if codec in _LIKE_PYTHON)


def characters(codec: str) -> list[bytes]:
    """All that are one character by Python's codec, of one byte or two."""
    singles = [bytes([one]) for one in range(256)]
    pairs = [bytes([a, b]) for a in range(0x80, 0x100) for b in range(0x40, 0x100)]
    found = []
    for one in singles + pairs:
        with contextlib.suppress(UnicodeDecodeError):
            if len(str(one, codec)) == 1:
                found.append(one)
    return found


@pytest.mark.parametrize("charset", LIKE_PYTHON)
def test_these_codecs_have_no_character_otherwise(charset: str) -> None:
    every = b" ".join(characters(CODECS[charset]))
    assert len(every) > 200
    assert str(every, CODECS[charset]) == text_of(every, charset)


def test_which_codecs_these_are() -> None:
    assert len(LIKE_PYTHON) == len(_LIKE_PYTHON)


@pytest.mark.parametrize(
    ("charset", "data", "text"),
    [
        ("cp866", b"\xfc\xfd", "ⁿ²"),
        ("greek", b"\xa1\xa2", "\u02bd\u02bc"),
        ("hebrew", b"\xaf", "‾"),
        ("koi8u", b"\x95", "•"),
        ("latin1", b"\x80\x81", "€\x81"),
        ("gb18030", b"\xa8\xbc", "ḿ"),
        ("utf8mb3", "tä".encode(), "tä"),
        ("sjis", "表".encode("shift_jis"), "表"),
        ("swe7", b"TRUNCATE `t`", "TRUNCATE `t`"),
    ],
)
def test_texts(charset: str, data: bytes, text: str) -> None:
    assert statement_text(data, FIRST[charset]) == (text, True)


@pytest.mark.parametrize(
    ("charset", "data"),
    [
        ("sjis", b"DROP TABLE a\x81\x5fb"),  # a backslash that quotes nothing
        ("ujis", b"DROP TABLE a\xa1\xc0b"),
        ("sjis", b"DROP TABLE t\x81 "),
    ],
)
def test_what_is_no_character_or_looks_like_a_sign_is_not_sure(charset: str, data: bytes) -> None:
    text, sure = statement_text(data, FIRST[charset])
    assert not sure
    assert UNREAD in text


@pytest.mark.parametrize("sign", [b"@", b"[", b"\\", b"]", b"^", b"``", b"{", b"|", b"}", b"~"])
def test_letters_of_swe7_that_look_like_signs_are_not_sure(sign: bytes) -> None:
    text, sure = statement_text(b"DROP TABLE `a" + sign + b"b`", FIRST["swe7"])
    assert (text, sure) == (f"DROP TABLE `a{UNREAD}b`", False)


@pytest.mark.parametrize(
    ("charset", "blank"),
    [
        *((one, b"\xa0") for one in ("cp1250", "greek", "hebrew", "latin1", "latin2", "latin5")),
        *((one, b"\xa0") for one in ("armscii8", "dec8", "geostd8", "latin7")),
        *((one, b"\xff") for one in ("cp852", "cp866", "keybcs2")),
    ],
)
def test_a_blank_that_is_none_elsewhere(charset: str, blank: bytes) -> None:
    """Both servers split words there, as a scan of all bytes in all client sets showed."""
    text, sure = statement_text(b"TRUNCATE TABLE t" + blank + b"/* */", FIRST[charset])
    assert (text, sure) == (f"TRUNCATE TABLE t{UNREAD}/* */", False)
